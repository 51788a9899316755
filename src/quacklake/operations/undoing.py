"""Undo changes: restore a table, bring back a dropped object, roll back a lake."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from dataclasses import replace
from operator import index
from typing import TypeAlias

from quacklake.catalog import own_tables
from quacklake.errors import InputError
from quacklake.format.objects import TableInfo
from quacklake.format.snapshots import Operation, is_tag
from quacklake.operations.context import LakeContext
from quacklake.operations.handles import Handle
from quacklake.operations.reference import TableRef, renamed
from quacklake.operations.restoring import Undo
from quacklake.operations.rollback import roll_back
from quacklake.operations.times import instant
from quacklake.operations.undo import UndoReport
from quacklake.progress import Progress, silent
from quacklake.transaction import Transaction

Version: TypeAlias = "int | dt.datetime | str"
"""An older state: a snapshot id, a tag or a time."""


def find_version(context: LakeContext, to: Version) -> int:
    """Return the snapshot id of a version. Raises ``NotFoundError`` when it does not exist or has expired."""
    with context.catalog.read() as reader:
        if isinstance(to, str) and is_tag(to):
            return own_tables.tagged(reader, to).id
        if isinstance(to, str | dt.datetime):
            return reader.snapshots.at_time(instant(to)).id
        if isinstance(to, bool) or not hasattr(to, "__index__"):
            raise InputError(f"a version must be a number, a tag or a time, not {type(to).__name__}")
        return reader.snapshots.at_version(index(to)).id


class _DryRun(Exception):
    """Raised to end a dry run without a commit."""

    def __init__(self, report: UndoReport) -> None:
        self.report = report


def _undo(
    handle: Handle,
    work: Callable[[Undo], UndoReport],
    asked: Operation,
    *,
    dry_run: bool = False,
) -> UndoReport:
    """Run an operation and add the new snapshot to its report."""
    if dry_run and not handle.view().read_only:
        raise InputError("a dry run is not possible inside a transaction")
    made: list[Transaction] = []

    def attempt(tx: Transaction) -> UndoReport:
        tx.check_writable()
        tx.asks(asked)
        made.append(tx)
        report = work(Undo(handle.context, tx, write=not dry_run))
        if dry_run:
            raise _DryRun(replace(report, dry_run=True))
        return report

    try:
        report = handle.run(attempt)
    except _DryRun as done:
        return done.report
    committed = made[-1].committed
    return report if committed is None else replace(report, snapshot=committed.id)


def restore_table(
    handle: Handle, find: Callable[[Transaction], TableInfo], to: Version, *, dry_run: bool = False
) -> UndoReport:
    """Restore a table to a version, in a new snapshot; see ``Table.restore``."""

    def work(undo: Undo) -> UndoReport:
        version = find_version(handle.context, to)
        done = undo.restore(find(undo.tx), version)
        return UndoReport("restore", version, restored=(done,) if done.changed else ())

    return _undo(handle, work, Operation.RESTORE, dry_run=dry_run)


def undrop(handle: Handle, name: str, as_: str | None = None) -> UndoReport:
    """Bring back the most recently dropped table, view or macro of a name; see ``Lake.undrop``."""
    ref = TableRef.parse(name)
    other_name = None if as_ is None else renamed(ref, as_, "table").name

    def work(undo: Undo) -> UndoReport:
        found, version = undo.undrop(ref, other_name)
        return UndoReport("undrop", version, undropped=(found,))

    return _undo(handle, work, Operation.UNDROP)


def roll_back_lake(handle: Handle, to: Version, *, dry_run: bool = False, progress: Progress = silent) -> UndoReport:
    """Restore a whole lake to a version, in a new snapshot; see ``Lake.rollback``."""

    def work(undo: Undo) -> UndoReport:
        return roll_back(undo, find_version(handle.context, to), progress)

    return _undo(handle, work, Operation.ROLLBACK, dry_run=dry_run)
