"""Work in one commit: planned on a snapshot, again after a conflict, once for a key.

``run`` calls a function with a ``Change`` and commits what it has noted there as one snapshot. Whatever the change has
planned, it has read: if another commit touches that meanwhile, the function runs again on the newer snapshot.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from quacklake.core.format.objects import request_stream
from quacklake.core.format.snapshots import Operation
from quacklake.core.operations.handles import LakeHandle
from quacklake.core.operations.options import StreamPositions
from quacklake.core.scan import to_predicate
from quacklake.core.transaction import DeleteTarget, Transaction, positions_by_file
from quacklake.errors import InputError, StreamBatchDoneError
from quacklake.extend.files import Staging
from quacklake.extend.reads import PLACES, ReadPlan, find_deleted, find_table, plan_in
from quacklake.lake.lake import Lake, LakeTransaction

__all__ = ["Change", "Operation", "Outcome", "Transaction", "run"]

T = TypeVar("T")

_ASKED = "extend"
_FILE, _VERSION, _POSITION = PLACES.names


@dataclass(frozen=True, slots=True)
class Outcome(Generic[T]):
    """The end of some work: what it returned, and the snapshot it made, or found if nothing had to change.

    When the work of this key was done before, it is ``repeated``: it did not run now, and ``value`` is None.

    >>> Outcome("value", 7)
    Outcome(value='value', snapshot=7, repeated=False)
    """

    value: T | None
    snapshot: int
    repeated: bool = False


@dataclass
class Change:
    """The changes of one commit so far, and the state of the lake that they are based on, with themselves.

    ``transaction`` has all that a lake has: tables are created, altered and written with it in the same commit.

    >>> from quacklake.extend.example import example_lake
    >>> def rewrite(change):
    ...     change.transaction.table("events").append({"id": [12], "name": ["in the same commit"]})
    ...     return change.plan("events").catalog_rows
    >>> with example_lake() as lake:
    ...     run(lake, rewrite).value
    3
    """

    transaction: LakeTransaction
    _stagings: list[Staging] = field(default_factory=list, repr=False)

    @property
    def _tx(self) -> Transaction:
        return self.transaction.handle.view()

    def plan(self, table: str, where: str | pc.Expression | None = None) -> ReadPlan:
        """Return the plan of a table in this state, as ``reads.plan_read`` does.

        A commit by others that adds or removes rows of the filter is a conflict from now on.

        >>> from quacklake.extend.example import example_lake
        >>> with example_lake() as lake:
        ...     run(lake, lambda change: len(change.plan("events", "id < 3").files)).value
        1
        """
        info = find_table(self._tx, table)
        plan = plan_in(self._tx, self.transaction.handle.context, info, where)
        self._tx.pending(info).add_read(to_predicate(where, info.schema))
        return plan

    def append(self, staging: Staging) -> int:
        """Add the files of a staging to their table; return the number of their rows.

        Raise ``SchemaMismatchError`` if the table has other columns or partition keys than when they were staged.

        >>> from quacklake.extend.example import example_lake
        >>> from quacklake.extend.files import stage
        >>> with example_lake() as lake, stage(lake, "events") as staging:
        ...     run(lake, lambda change: change.append(staging)).value
        0
        """
        self._tx.asks(Operation.INSERT)
        rows = staging.offer(self._tx)
        self._stagings.append(staging)
        return rows

    def delete(self, plan: ReadPlan, places: pa.Table) -> int:
        """Delete rows of a plan of this change by their places (``reads.PLACES``); return how many.

        A row that is named twice is deleted once. Raise ``InputError`` for a place that is not in the plan.

        >>> from quacklake.extend.example import example_lake
        >>> def delete_first(change):
        ...     plan = change.plan("events")
        ...     return change.delete(plan, pa.table([[plan.files[0].id], [None], [0]], schema=PLACES))
        >>> with example_lake() as lake:
        ...     run(lake, delete_first).value, lake.table("events").to_arrow().column("id").to_pylist()
        (1, [2, 3, 4, 10, 11])
        """
        once = places.select(PLACES.names).cast(PLACES).group_by(PLACES.names, use_threads=False).aggregate([])
        stored = pc.is_valid(once.column(_FILE))
        in_files, inlined = once.filter(stored), once.filter(pc.invert(stored))
        _check_places(plan, in_files, inlined)
        target = DeleteTarget(
            in_files.select([_FILE, _POSITION]).rename_columns(["file_id", "row_id"]),
            inlined.select([_VERSION, _POSITION]).rename_columns(["schema_version", "row_id"]),
        )
        self._tx.asks(Operation.DELETE)
        info = self._tx.find_table(plan._plan.schema_name, plan._plan.table_name)
        self._tx.pending(info).delete(plan._plan, target)
        return target.count

    def _withdraw(self) -> None:
        """Take the staged files back: the change is surely not committed."""
        for staging in self._stagings:
            staging.withdraw()

    def _settle(self) -> int:
        """Leave the staged files that the commit has; return its snapshot."""
        tx = self.transaction.handle.tx
        used = {change.table.location + path for change in tx.changes.tables for path in change.paths()}
        for staging in self._stagings:
            staging.settle(used if tx.committed is not None else ())
        assert tx.outcome is not None
        return tx.outcome.id


def _check_places(plan: ReadPlan, in_files: pa.Table, inlined: pa.Table) -> None:
    """Raise ``InputError`` for a place where the plan has no row."""
    files = {file.id: file for file in plan.files}
    known = True
    for id_, positions in positions_by_file(in_files.rename_columns(["file_id", "version", "row_id"])).items():
        file = files.get(id_)
        known = known and file is not None and positions[0].as_py() >= 0 and positions[-1].as_py() < file.rows
        if known and file is not None and file.has_deletes:
            known = not pc.any(pc.is_in(positions, value_set=find_deleted(plan, file))).as_py()
    if inlined.num_rows:
        rows = plan._plan.inlined
        seen = set() if rows is None else _pairs(rows, "schema_version", "row_id")
        known = known and _pairs(inlined, _VERSION, _POSITION) <= seen
    if not known:
        raise InputError(
            f"a place names no row of {plan.table} at this snapshot",
            hint="take places from the plan of the same change",
        )


def _pairs(rows: pa.Table, *names: str) -> set[tuple[int, ...]]:
    return set(zip(*(rows.column(name).to_pylist() for name in names), strict=True))


def run(
    lake: Lake,
    work: Callable[[Change], T],
    *,
    key: str | None = None,
    message: str | None = None,
    author: str | None = None,
) -> Outcome[T]:
    """Commit the changes of ``work`` as one snapshot, and return its outcome.

    ``work`` runs again, with a new ``Change``, when another commit conflicts; so it must do nothing else that lasts.
    With a ``key``, work is done once: when a commit has that key already, nothing runs. Services forget keys in time.
    Raise ``CommitConflict`` after too many conflicts, and ``CommitUnknown`` when the answer of the database was lost:
    run it again with its key then.

    >>> from quacklake.extend.example import example_lake
    >>> def add(change):
    ...     return change.transaction.table("events").append({"id": [12], "name": ["once"]})
    >>> with example_lake() as lake:
    ...     run(lake, add, key="load 7"), run(lake, add, key="load 7"), lake.table("events").count()
    (Outcome(value=1, snapshot=5, repeated=False), Outcome(value=None, snapshot=5, repeated=True), 7)
    """
    mark = None if key is None else request_stream(hashlib.sha256(f"extend\0{key}".encode()).hexdigest())
    done: Outcome[T] | None = _find_done(lake, mark)
    if done is not None:
        return done
    attempts: list[Change] = []

    def attempt(transaction: LakeTransaction) -> T:
        change = Change(transaction)
        try:
            value = work(change)
        except BaseException:
            change._withdraw()
            raise
        if mark is not None:
            transaction.handle.view().mark_once(mark, _ASKED, int(time.time()), "{}")
        attempts[:] = [change]
        return value

    try:
        value = lake.run(attempt, message, author)
    except StreamBatchDoneError:
        for change in attempts:
            change._withdraw()
        done = _find_done(lake, mark)
        if done is None:  # it is about another stream, which the work has marked
            raise
        return done
    return Outcome(value, attempts[0]._settle())


def _find_done(lake: Lake, mark: str | None) -> Outcome[T] | None:
    """Return the outcome of work that was done before."""
    if mark is None:
        return None
    # the marks of requests are not for principals, who may run work nevertheless
    done = StreamPositions(LakeHandle(lake.handle.context)).done([mark]).get(mark)
    return None if done is None else Outcome(None, done.snapshot_id or 0, repeated=True)
