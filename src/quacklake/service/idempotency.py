"""Requests that may be sent again: a key, what was asked under it, and what was answered.

The answer is a mark in the lake, committed with the rows. So a retry finds it exactly if the rows are there, on
whichever process it arrives.
"""

from __future__ import annotations

import hashlib
import json
import time
from dataclasses import dataclass
from typing import Any

from quacklake.errors import AlreadyExistsError, InputError
from quacklake.format.objects import StreamMark, request_stream

__all__ = ["Key", "key_of"]

_LONGEST = 255


@dataclass(frozen=True, slots=True)
class Key:
    """The idempotency key of a request. ``name`` is that of its mark, ``asked`` a digest of what is asked under it."""

    name: str
    asked: str

    def answer(self, mark: StreamMark) -> dict[str, Any]:
        """Return what was answered before. Raises ``AlreadyExistsError`` when something else was asked then."""
        if mark.query != self.asked:
            raise AlreadyExistsError(
                "another request was made under this idempotency key", hint="use a new key for each request"
            )
        found: dict[str, Any] = json.loads(mark.position or "{}")
        return {**found, "snapshot": mark.snapshot_id, "repeated": True}

    @staticmethod
    def position(answer: dict[str, Any]) -> str:
        """Return an answer as the mark keeps it."""
        return json.dumps(answer, sort_keys=True)

    @staticmethod
    def now() -> int:
        """Return the time that a mark carries, in seconds."""
        return int(time.time())


def key_of(header: str | None, principal: str, route: str, body: bytes) -> Key | None:
    """Return the key of an Idempotency-Key header, None without one. Keys of two principals never meet."""
    if header is None:
        return None
    if not header or len(header) > _LONGEST or not header.isprintable():
        raise InputError(f"an idempotency key is a text of at most {_LONGEST} printable characters")
    name = hashlib.sha256("\0".join((principal, header)).encode()).hexdigest()[:40]
    asked = hashlib.sha256(route.encode() + b"\0" + body).hexdigest()[:40]
    return Key(request_stream(name), asked)
