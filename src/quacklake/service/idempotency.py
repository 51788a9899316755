"""Requests that may be sent again: a key, what was asked under it, and what was answered.

The answer is a mark in the lake, committed with the rows. So a retry finds it exactly if the rows are there, on
whichever process it arrives, and whether it comes by HTTP or by Flight: both make their keys here.
"""

from __future__ import annotations

import hashlib
import json
import logging
import time
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from quacklake.errors import AlreadyExistsError, InputError
from quacklake.extend.marks import Mark, mark_once, open_marks
from quacklake.extend.names import TableRef
from quacklake.service.digests import json_digest
from quacklake.service.encoding import JSON, NDJSON
from quacklake.telemetry import error_facts

if TYPE_CHECKING:
    from quacklake.lake import Lake, LakeTransaction

__all__ = ["ForgetKeys", "Key", "check_count", "key_of", "known_answers"]

_KIND = "request"
_MAX_LENGTH = 255
_DIGITS = 40
_FEW = 1 << 20
"""Bytes of JSON that are compared by their values; more are compared as they are."""
_FORGET_SECONDS = 600.0
"""Seconds between two removals of old idempotency keys."""
_MAX_LAKES = 1_000
_log = logging.getLogger("quacklake.service")


@dataclass(frozen=True, slots=True)
class Key:
    """The idempotency key of a request.

    ``name`` is that of its mark, ``asked`` a digest of what is asked under it: the action and the table. ``body`` is a
    digest of the bytes that were sent, ``rows`` one of the values in them; each is empty where it is not known. Two
    bodies of one format ask for the same if either is equal; of two formats, the numbers of rows are compared.
    """

    name: str
    asked: str
    format: str = ""
    body: str = ""
    rows: str = ""

    def check_same(self, other: Key | None) -> None:
        """Raise ``AlreadyExistsError`` unless another request with this key, in the same format, asks for the same."""
        if other is None or self.asked != other.asked or self._differs(other.format, other.body, other.rows):
            raise _another()

    def _differs(self, format: object, body: object, rows: object) -> bool:
        if format != self.format or (self.body and body == self.body):
            return False
        if self.rows and rows:
            return rows != self.rows
        return bool(self.body or self.rows)

    def is_other_format(self, mark: Mark) -> bool:
        """Return whether the request of a mark had another format, so that rows have to be counted."""
        return bool(json.loads(mark.position or "{}").get("format") != self.format)

    def answer(self, mark: Mark, rows: int | None = None) -> dict[str, Any]:
        """Return what was answered before. Raise ``AlreadyExistsError`` when something else was asked then.

        ``rows`` is the number of rows that were sent now, where that is known.
        """
        found: dict[str, Any] = json.loads(mark.position or "{}")
        answer: dict[str, Any] = found.get("answer", {})
        check_count(answer, rows)
        if mark.query != self.asked or self._differs(found.get("format"), found.get("body"), found.get("rows")):
            raise _another()
        return {**answer, "snapshot": mark.snapshot_id, "repeated": True}

    def mark(self, tx: LakeTransaction, answer: dict[str, Any]) -> None:
        """Let a transaction carry the answer under this key; its commit fails if there is one."""
        kept = json.dumps({"answer": answer, "format": self.format, "body": self.body, "rows": self.rows})
        mark_once(tx, _KIND, Mark(self.name, self.asked, run="", epoch=_now(), position=kept))


def check_count(answer: dict[str, Any], rows: int | None) -> None:
    """Raise ``AlreadyExistsError`` when an answer is for another number of rows than were sent, if that is known."""
    if rows is not None and rows != answer.get("rows", rows):
        raise _another()


def _another() -> AlreadyExistsError:
    return AlreadyExistsError(
        "another request was made under this idempotency key: its action, table or rows were not the same",
        hint="use a new key for each request, and send the same rows when you repeat one",
    )


def _now() -> int:
    """Return the time that a mark carries, in seconds."""
    return int(time.time())


def key_of(
    header: str | None, principal: str, action: str, table: str, *, format: str = "", body: bytes | None = None
) -> Key | None:
    """Return the key that a client gives, None without one. Keys of two principals never meet.

    ``body`` is None for rows that come as a stream, whose digest is made meanwhile.
    Raise ``InputError`` for a text that is no key.
    """
    if header is None:
        return None
    if not header or len(header) > _MAX_LENGTH or not header.isprintable():
        raise InputError(f"an idempotency key is a text of at most {_MAX_LENGTH} printable characters")
    ref = TableRef.parse(table)
    name = _digest(principal, header)
    asked = _digest(action, ref.schema.lower(), ref.name.lower())
    if body is None:
        return Key(name, asked, format)
    rows = None
    if format in (JSON, NDJSON) and len(body) <= _FEW:
        rows = json_digest(body, lines=format == NDJSON)
    return Key(name, asked, format, hashlib.sha256(body).hexdigest()[:_DIGITS], rows or "")


def _digest(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:_DIGITS]


def known_answers(lake: Lake, keys: Sequence[Key]) -> dict[str, Mark]:
    """Return the marks of the keys that were used, by name, with one statement for all."""
    if not keys:
        return {}
    with open_marks(lake, _KIND) as marks:
        return marks.find_all([key.name for key in keys])


class ForgetKeys:
    """Removes the keys of lakes that are older than they need to be, now and then."""

    def __init__(self, keep_seconds: float) -> None:
        self._keep = round(keep_seconds)
        self._next: OrderedDict[int, float] = OrderedDict()  # by the id of a context: another's is only late

    def __call__(self, lake: Lake) -> None:
        """Remove old keys of a lake, if it is time to."""
        now, place = time.monotonic(), id(lake.handle.context)
        if now < self._next.get(place, 0.0):
            return
        self._next[place] = now + _FORGET_SECONDS
        while len(self._next) > _MAX_LAKES:
            self._next.popitem(last=False)
        try:
            with open_marks(lake, _KIND, change=True) as marks:
                marks.expire(_now() - self._keep)
        except Exception as error:  # the next time is soon enough
            _log.warning("old idempotency keys stay: %s", type(error).__name__, extra=error_facts(error))
