"""Undo, as users call it: ``lake.rollback``, ``lake.undrop`` and ``table.restore``."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from dataclasses import replace
from operator import index
from typing import TypeAlias

from quacklake.catalog import snapshot_tags
from quacklake.errors import InputError
from quacklake.format.objects import TableInfo
from quacklake.format.operations import Operation
from quacklake.format.snapshots import is_tag
from quacklake.maintenance.reports import Progress, silent
from quacklake.operations.context import Shared
from quacklake.operations.handles import Handle
from quacklake.operations.reference import TableRef, renamed
from quacklake.operations.restoring import Undo
from quacklake.operations.rollback import roll_back
from quacklake.operations.times import instant
from quacklake.operations.undo import UndoReport
from quacklake.transaction import Transaction

__all__ = ["Restoring", "RollingBack", "Undropping", "Version", "find_version"]

Version: TypeAlias = "int | dt.datetime | str"
"""An older state: the id of a snapshot, its tag, or a time."""


def find_version(shared: Shared, to: Version) -> int:
    """The snapshot that is meant. Raises ``NotFoundError`` when there is none or it has expired."""
    with shared.catalog.read() as reader:
        if isinstance(to, str) and is_tag(to):
            return snapshot_tags.tagged(reader, to).id
        if isinstance(to, str | dt.datetime):
            return reader.at_time(instant(to)).id
        if isinstance(to, bool) or not hasattr(to, "__index__"):
            raise InputError(f"a version must be a number, a tag or a time, not {type(to).__name__}")
        return reader.at_version(index(to)).id


class _DryRun(Exception):
    """Ends the work of a dry run, so that nothing is committed."""

    def __init__(self, report: UndoReport) -> None:
        self.report = report


def _undo(
    handle: Handle,
    work: Callable[[Undo], UndoReport],
    asked: Operation,
    *,
    dry_run: bool = False,
) -> UndoReport:
    """Run an operation; its report names the snapshot it made."""
    if dry_run and not handle.view().read_only:
        raise InputError("a dry run is not possible inside a transaction")
    made: list[Transaction] = []

    def attempt(tx: Transaction) -> UndoReport:
        tx.check_writable()
        tx.asks(asked)
        made.append(tx)
        report = work(Undo(handle.shared, tx, write=not dry_run))
        if dry_run:
            raise _DryRun(replace(report, dry_run=True))
        return report

    try:
        report = handle.run(attempt)
    except _DryRun as done:
        return done.report
    committed = made[-1].committed
    return report if committed is None else replace(report, snapshot=committed.id)


class Restoring:
    """What a table can undo."""

    handle: Handle

    def _find(self, view: Transaction) -> TableInfo:
        raise NotImplementedError

    def restore(self, to: Version, *, dry_run: bool = False) -> UndoReport:
        """Let the table be as it was at a snapshot or a time, in a new snapshot; the history stays.

        Rows come back under their row ids, dropped columns with their values; layout, comments, tags and constraints
        are as they were. The name stays, and so does a type that is wider now (``kept_types``). ``dry_run`` changes
        nothing and tells what would be done. Raises ``NotFoundError`` when there is no such snapshot, or it has no such
        table, and ``SnapshotExpiredError`` when files are gone.
        """

        def work(undo: Undo) -> UndoReport:
            version = find_version(self.handle.shared, to)
            done = undo.restore(self._find(undo.tx), version)
            return UndoReport("restore", version, restored=(done,) if done.changed else ())

        return _undo(self.handle, work, Operation.RESTORE, dry_run=dry_run)


class Undropping:
    """What a lake and an open transaction can undo."""

    handle: Handle

    def undrop(self, name: str, *, as_: str | None = None) -> UndoReport:
        """Let the table, view or macro of that name that was dropped last come back as it was just before.

        ``as_`` is another name in its schema, for when the old one is taken. A table has its id and its history again;
        one whose schema was dropped too comes back as a copy, in a new schema of that name. Raises
        ``AlreadyExistsError`` for a name in use, ``NotFoundError`` when nothing of that name was dropped or its
        snapshots have expired.
        """
        ref = TableRef.parse(name)
        other_name = None if as_ is None else renamed(ref, as_, "table").name

        def work(undo: Undo) -> UndoReport:
            found, version = undo.undrop(ref, other_name)
            return UndoReport("undrop", version, undropped=(found,))

        return _undo(self.handle, work, Operation.UNDROP)

    def rollback(self, to: Version, *, dry_run: bool = False, progress: Progress = silent) -> UndoReport:
        """Not possible in an open transaction, which ``raise`` takes back."""
        raise InputError(
            "a lake cannot be rolled back inside a transaction",
            hint="use lake.rollback(to=…) outside; to give up the transaction, leave its block by an exception",
        )


class RollingBack(Undropping):
    """What a lake can undo."""

    def rollback(self, to: Version, *, dry_run: bool = False, progress: Progress = silent) -> UndoReport:
        """Let the whole lake be as it was at a snapshot or a time, in one new snapshot; the history stays.

        Tables made since are dropped, those dropped since come back, all others are restored as ``Table.restore`` does,
        names too; schemas, views, macros, comments and tags are as they were. Options are in no snapshot and stay.
        ``dry_run`` changes nothing and tells what would be done.
        """

        def work(undo: Undo) -> UndoReport:
            return roll_back(undo, find_version(self.handle.shared, to), progress)

        return _undo(self.handle, work, Operation.ROLLBACK, dry_run=dry_run)
