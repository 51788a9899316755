"""Marks: small records that a product keeps in the metadata of a lake, and changes without a snapshot.

A mark has a name, what it is about (``query``), who has it (``run``), a number that grows (``epoch``), and a text
(``position``). Every client of a lake sees the marks of all: so processes share turns, jobs, and what was done.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property

import sqlalchemy as sa

from quacklake.core.catalog import Reader, Writer, own_tables
from quacklake.core.format.objects import MARK_KINDS
from quacklake.core.format.objects import StreamMark as Mark
from quacklake.errors import InputError, nearest
from quacklake.lake.lake import Lake, LakeTransaction

__all__ = ["Mark", "Marks", "mark_once", "open_marks"]


@dataclass
class Marks:
    """The marks of one kind, in one transaction of the metadata database. Made by ``open_marks``.

    >>> from quacklake.extend.example import example_lake
    >>> with example_lake() as lake, open_marks(lake, "job", change=True) as marks:
    ...     marks.put(Mark("7", query="report", run="me", epoch=0))
    ...     marks.find("7").run, marks.find("8"), marks.count(), [mark.name for mark in marks.list()]
    ('me', None, 1, ['7'])
    """

    _reader: Reader
    _prefix: str

    @cached_property
    def now(self) -> int:
        """The time of the database in milliseconds, which is one for all processes."""
        return int(self._reader.run("clock", sa.select(self._reader.backend.now_ms())).scalar_one())

    def find(self, name: str) -> Mark | None:
        """Return the mark with a name."""
        found = own_tables.find_stream(self._reader, self._prefix + name)
        return None if found is None else self._strip_prefix(found)

    def find_all(self, names: Collection[str]) -> dict[str, Mark]:
        """Return the marks that are there of some names, by name, with one statement."""
        found = own_tables.known_streams(self._reader, [self._prefix + name for name in names])
        return {mark.name: mark for mark in map(self._strip_prefix, found.values())}

    def list(self, prefix: str = "") -> list[Mark]:
        """Return the marks whose names begin so, by name."""
        return [self._strip_prefix(mark) for mark in own_tables.streams_named(self._reader, self._prefix + prefix)]

    def count(self, prefix: str = "") -> int:
        """Return how many marks have names that begin so."""
        return own_tables.count_streams(self._reader, self._prefix + prefix)

    def put(self, mark: Mark, *, new: bool = True) -> None:
        """Write a mark; ``new`` says that there is none with this name, as this transaction has seen."""
        own_tables.put_stream(self._writer, replace(mark, name=self._prefix + mark.name), new=new)

    def remove(self, name: str) -> None:
        """Remove a mark that is there."""
        own_tables.remove_stream(self._writer, self._prefix + name)

    def expire(self, before: int) -> int:
        """Remove the marks whose ``epoch`` is lower; return how many."""
        return own_tables.expire_streams(self._writer, self._prefix, before)

    @property
    def _writer(self) -> Writer:
        if not isinstance(self._reader, Writer):
            raise InputError("these marks can only be read", hint="open them with change=True")
        return self._reader

    def _strip_prefix(self, mark: Mark) -> Mark:
        return replace(mark, name=mark.name.removeprefix(self._prefix))


@contextmanager
def open_marks(lake: Lake, kind: str, *, change: bool = False) -> Iterator[Marks]:
    """Open the marks of a kind: ``request``, ``consumer`` or ``job``; what a block has changed is committed at its end.

    Names of two kinds never meet. Raise ``ReadOnlyError`` for a change of a lake that is open for reading only, and
    ``NotFoundError`` for a catalog of a shared lake that was dropped.

    >>> from quacklake.extend.example import example_lake
    >>> with example_lake() as lake:
    ...     with open_marks(lake, "consumer", change=True) as marks:
    ...         marks.put(Mark("ann", query="events", run="first", epoch=4))
    ...     with open_marks(lake, "consumer") as marks:
    ...         marks.find("ann").epoch, marks.now > 0
    (4, True)
    """
    prefix = _find_prefix(kind)
    catalog = lake.handle.context.catalog
    with catalog.commit() if change else catalog.read() as found:
        found.snapshots.check_there()
        yield Marks(found, prefix)


def mark_once(transaction: LakeTransaction, kind: str, mark: Mark) -> None:
    """Let a transaction carry a new mark, with its ``query``, ``epoch`` and ``position``.

    Its commit raises ``StreamBatchDoneError`` when the lake has a mark with this name: what it tells of was done.

    >>> from quacklake.extend.example import example_lake
    >>> with example_lake() as lake:
    ...     with lake.transaction() as change:
    ...         mark_once(change, "request", Mark("a1", query="append", run="", epoch=0, position="{}"))
    ...     with open_marks(lake, "request") as marks:
    ...         marks.find("a1").snapshot_id == lake.current_snapshot()
    True
    """
    transaction.handle.tx.mark_once(_find_prefix(kind) + mark.name, mark.query, mark.epoch, mark.position or "{}")


def _find_prefix(kind: str) -> str:
    if kind not in MARK_KINDS:
        raise InputError(f"there are no marks of the kind {kind!r}", hint=nearest(kind, MARK_KINDS))
    return MARK_KINDS[kind]
