"""Consumers of the changes of a table: one at a time has the lease, and each goes on where the last one acknowledged.

The position is a mark in the lake, with the lease and its end by the clock of the database, so that any process of the
service can serve any consumer.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from quacklake.errors import ConsumerLimitError, InputError, LeaseHeldError, NotFoundError, StreamFencedError
from quacklake.extend.marks import Mark, open_marks
from quacklake.extend.names import TableRef, uuid7

if TYPE_CHECKING:
    from quacklake.lake import Lake

__all__ = ["Claim", "Consumers"]

_KIND = "consumer"


@dataclass(frozen=True, slots=True)
class Claim:
    """A consumer's turn: the table, the snapshot that comes next, and the lease with its milliseconds left."""

    table: str
    next: int
    lease: str
    left_ms: int


@dataclass(frozen=True, slots=True)
class Consumers:
    """The consumers of a principal. Those of two principals may have the same name."""

    lake: Lake
    principal: str
    most: int

    def claim(self, name: str, table: str, since: int | None, seconds: float) -> Claim:
        """Take a consumer's turn, and make the consumer if it is new; ``since`` is where a new one begins.

        Raise ``LeaseHeldError`` while another has the turn, ``InputError`` when the consumer is of another table, and
        ``ConsumerLimitError`` for a new one when the principal has as many as it may.
        """
        ref = TableRef.parse(table)
        info = self.lake.handle.view().find_table(ref.schema, ref.name)
        first = self.lake.current_snapshot() + 1 if since is None else since
        stream, lease = self._name(name), str(uuid7())
        with open_marks(self.lake, _KIND, change=True) as marks:
            now, known = marks.now, marks.find(stream)
            position: dict[str, Any] = {"table": table, "next": first}
            if known is not None:
                position = json.loads(known.position or "{}")
            elif marks.count(self._mine()) >= self.most:
                raise ConsumerLimitError(
                    f"there are {self.most} consumers already, and a principal may have no more",
                    hint="DELETE /api/v1/consumers/{name} forgets one that is not needed",
                )
            if known is not None and known.query != info.uuid:
                raise InputError("the consumer is of another table", hint="use another name, or delete the consumer")
            if known is not None and position["until"] > now:
                raise LeaseHeldError(
                    f"another has the turn for {(position['until'] - now) / 1000:.1f} s",
                    hint="wait until its lease ends, or until it gives it back",
                )
            position["until"] = now + round(seconds * 1000)
            mark = Mark(stream, info.uuid, lease, 0, json.dumps(position)) if known is None else known
            mark = replace(mark, run=lease, position=json.dumps(position))
            marks.put(mark, new=known is None)
        return Claim(table, position["next"], lease, round(seconds * 1000))

    def of(self, name: str, lease: str) -> Claim:
        """Return a consumer's position. Raise ``StreamFencedError`` when another has claimed it since."""
        with open_marks(self.lake, _KIND) as marks:
            now, mark = marks.now, self._check_mark(marks.find(self._name(name)), lease)
        found = json.loads(mark.position or "{}")
        return Claim(found["table"], found["next"], lease, max(0, found["until"] - now))

    def acknowledge(self, name: str, lease: str, snapshot: int, seconds: float) -> Claim:
        """Note that all changes up to a snapshot are done, and keep the turn for more seconds; 0 gives it back."""
        if snapshot > self.lake.current_snapshot():
            raise InputError(f"there is no snapshot {snapshot} yet")
        with open_marks(self.lake, _KIND, change=True) as marks:
            mark = self._check_mark(marks.find(self._name(name)), lease)
            position: dict[str, Any] = json.loads(mark.position or "{}")
            position["next"] = max(position["next"], snapshot + 1)
            position["until"] = marks.now + round(seconds * 1000)
            changed = replace(mark, epoch=mark.epoch + 1, position=json.dumps(position), snapshot_id=snapshot)
            marks.put(changed, new=False)
        return Claim(position["table"], position["next"], lease, round(seconds * 1000))

    def forget(self, name: str) -> None:
        """Remove a consumer with its position. Raise ``NotFoundError``."""
        with open_marks(self.lake, _KIND, change=True) as marks:
            if marks.find(self._name(name)) is None:
                raise NotFoundError("there is no such consumer")
            marks.remove(self._name(name))

    def _mine(self) -> str:
        """Return the beginning of the names of all marks of the principal's consumers."""
        return f"{_digest(self.principal)[:16]}-"

    def _name(self, name: str) -> str:
        return self._mine() + _digest(self.principal, name)[:40]

    def _check_mark(self, mark: Mark | None, lease: str) -> Mark:
        if mark is None:
            raise NotFoundError("there is no such consumer", hint="claim it first")
        if mark.run != lease:
            raise StreamFencedError("another has claimed the consumer since", hint="claim it again")
        return mark


def _digest(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()
