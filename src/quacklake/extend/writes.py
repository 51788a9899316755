"""Work in one commit: planned on a snapshot, again after a conflict, once for a key.

``run`` calls a function with a ``Change`` and commits what it has noted there as one snapshot. Whatever the change has
planned, it has read: if another commit touches that meanwhile, the function runs again on the newer snapshot.
``GroupCommit`` gathers what many callers want to commit at once.
"""

from __future__ import annotations

import hashlib
import logging
import queue
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Generic, TypeVar

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

from quacklake import telemetry
from quacklake.core.engines.duckdb.connections import file_literal
from quacklake.core.format.objects import TableInfo
from quacklake.core.format.snapshots import Operation
from quacklake.core.operations import dml, evolution, keyed_changes
from quacklake.core.operations.conform import expressions
from quacklake.core.operations.sources import Source
from quacklake.core.scan import to_predicate
from quacklake.core.transaction import DeleteTarget, NewDataFile, Transaction, positions_by_file
from quacklake.errors import (
    CancelledError,
    CatalogError,
    CommitError,
    InputError,
    InternalError,
    QuacklakeError,
    StorageError,
    StreamBatchDoneError,
)
from quacklake.extend.files import Staging
from quacklake.extend.marks import Mark, mark_once, open_marks
from quacklake.extend.reads import PLACES, ReadPlan, find_deleted, find_table, plan_in
from quacklake.extend.schemas import TableSchema
from quacklake.lake.lake import Lake, LakeTransaction

__all__ = ["Change", "GroupCommit", "Operation", "Outcome", "StagedQuery", "Transaction", "run"]

T = TypeVar("T")
_log = logging.getLogger("quacklake.commits")

_ASKED = "extend"
_KIND = "request"
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
class StagedQuery:
    """Rows of a query in a data file that is not yet part of its table, for ``Change.write_query``.

    ``connection`` can read them as the table ``relation``.

    >>> from quacklake.extend.example import example_lake
    >>> def count(change):
    ...     with change.write_query("events", "SELECT 7 AS id", pa.schema([("id", pa.int64())]), 10) as staged:
    ...         return staged.connection.execute(f"SELECT count(*) FROM {staged.relation}").fetchall()
    >>> with example_lake() as lake:
    ...     run(lake, count).value, lake.table("events").count()
    ([(1,)], 6)
    """

    connection: duckdb.DuckDBPyConnection
    relation: str
    _table: TableInfo = field(repr=False)
    _files: Sequence[NewDataFile] = field(repr=False)
    kept: bool = False

    @property
    def rows(self) -> int:
        """The number of rows."""
        return sum(file.record_count for file in self._files)

    @property
    def bytes(self) -> int:
        """The size of the file."""
        return sum(file.file_size_bytes for file in self._files)

    def bounds(self, column: str) -> list[str]:
        """Return the least and the greatest value of a column, as statistics write them; empty where none are known."""
        id = self._table.schema.find(column).id
        stats = [each for file in self._files for each in file.stats if each.column_id == id]
        return [bound for each in stats for bound in (each.min, each.max) if bound is not None]

    def keep(self) -> None:
        """Let the end of the block add the file to the table, instead of removing it."""
        self.kept = True


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

    def upsert(
        self, table: str, rows: pa.Table, on: Sequence[str], order_by: str | None = None, *, evolve: bool = False
    ) -> None:
        """Update or insert rows by key, the last by ``order_by``; ``evolve`` adds the columns that the table lacks.

        Raise ``ConstraintError`` for a key that comes twice, where there is no last.

        >>> from quacklake.extend.example import example_lake
        >>> rows = pa.table({"id": [0, 0], "name": ["later", "earlier"], "at": [2, 1]})
        >>> with example_lake() as lake:
        ...     _ = run(lake, lambda change: change.upsert("events", rows, ["id"], "at", evolve=True))
        ...     lake.table("events").to_pylist(["name"], where="id = 0")
        [{'name': 'later'}]
        """
        info = find_table(self._tx, table)
        context = self.transaction.handle.context
        keyed_changes.upsert(context, self._tx, info, rows, on, order_by, evolve=evolve)

    def apply_changes(self, table: str, rows: pa.Table, on: Sequence[str], *, evolve: bool = False) -> int:
        """Apply the rows of a change feed, with ``_change_type`` and maybe ``_commit_version``; return the deletions.

        The last change of a key counts. Raise ``ConstraintError`` for a key that one commit put twice, and
        ``SchemaMismatchError`` without the columns that describe a change.

        >>> from quacklake.extend.example import example_lake
        >>> rows = pa.table({"id": [0, 12], "name": ["a", "new"], "_change_type": ["delete", "insert"]})
        >>> with example_lake() as lake:
        ...     run(lake, lambda change: change.apply_changes("events", rows, ["id"])).value
        1
        """
        info = find_table(self._tx, table)
        return keyed_changes.apply_changes(self.transaction.handle.context, self._tx, info, rows, on, evolve=evolve)

    def mark(
        self, stream: str, epoch: int, run: str, position: str, *, manifest: str, keep: int, finished: bool
    ) -> None:
        """Let the change be a batch of a stream and its checkpoint; ``checkpoints.Checkpoints.confirm`` calls it."""
        self._tx.mark(stream, epoch, run, position, manifest=manifest, keep=keep, finished=finished)

    def overwrite(self, table: str, rows: pa.RecordBatchReader, schema: TableSchema) -> None:
        """Replace all rows of a table, whose columns get the types of ``schema``: any, since no file of before stays.

        Columns keep their ids, and with them comments, defaults and access rules. Raise ``SchemaMismatchError`` for
        rows that do not fit.

        >>> from dataclasses import replace
        >>> from quacklake.extend.example import example_lake
        >>> from quacklake.extend.schemas import to_schema
        >>> def number(change):
        ...     id, name = change.plan("events").schema.columns
        ...     rows = pa.table({"id": ["7"], "name": ["x"]}).to_reader()
        ...     change.overwrite("events", rows, TableSchema((replace(id, type="varchar"), name)))
        >>> with example_lake() as lake:
        ...     _ = run(lake, number)
        ...     lake.table("events").to_pylist()
        [{'id': '7', 'name': 'x'}]
        """
        context, tx = self.transaction.handle.context, self._tx
        info = evolution.alter(context, tx, find_table(tx, table), schema)
        dml.overwrite(context, tx, info, Source(rows.schema, None, rows), None)

    @contextmanager
    def write_query(self, table: str, query: str, columns: pa.Schema, size_bytes: int) -> Iterator[StagedQuery | None]:
        """Write the rows of a query, which DuckDB can run by itself, into one data file in their order, and look at it.

        ``columns`` are those of the query and ``size_bytes`` about the size of its rows. The end of the block adds the
        file to the table if ``keep`` was called, and removes it otherwise. None where rows would be in several files,
        which have no order, and in an encrypted lake.

        >>> from quacklake.extend.example import example_lake
        >>> def add(change):
        ...     query = "SELECT i AS id, 'n' || i AS name FROM range(20, 30) t(i)"
        ...     columns = pa.schema([("id", pa.int64()), ("name", pa.string())])
        ...     with change.write_query("events", query, columns, 100) as staged:
        ...         staged.keep()
        ...         return staged.rows, staged.bounds("id")
        >>> with example_lake() as lake:
        ...     run(lake, add).value, lake.table("events").count()
        ((10, ['20', '29']), 16)
        """
        context, tx = self.transaction.handle.context, self._tx
        info = find_table(tx, table)
        options = replace(context.write_options(info), sort=False)
        if context.writer.encrypted or size_bytes >= options.target_file_size:
            yield None
            return
        tx.asks(Operation.INSERT)
        select = ", ".join(expressions(context.match(columns, info, partial=True)))
        with context.engine.connection() as connection:
            files = context.writer.write(
                connection,
                f"SELECT {select} FROM ({query})",
                info,
                options,
                tx.wrote,
                tx.local_id,
                size_hint=size_bytes,
            )
            paths = [info.location + file.path for file in files]
            urls = ", ".join(map(file_literal, context.store.readable_urls(paths)))
            staged = StagedQuery(connection, f"read_parquet([{urls}])", info, files)
            try:
                yield staged
            finally:
                if not staged.kept:
                    tx.discard(paths)
            if staged.kept:
                tx.pending(info).files.extend(files)

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
    mark = None if key is None else hashlib.sha256(f"extend\0{key}".encode()).hexdigest()
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
            mark_once(transaction, _KIND, Mark(mark, _ASKED, run="", epoch=int(time.time())))
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
    with open_marks(lake, _KIND) as marks:
        done = marks.find(mark)
    return None if done is None else Outcome(None, done.snapshot_id or 0, repeated=True)


class GroupCommit(Generic[T]):
    """Commits in groups what many callers bring: while one group is committed, the next one gathers.

    ``commit`` commits a group of members, and raises what keeps it from that. ``answer`` is called after that, never
    before, with each member of the group and None, or its error. Both run in a thread of the object, one at a time,
    and members keep their order. A group that is refused is tried again in halves, so that a bad member fails alone;
    errors of the catalog, of the store and of the commit itself are those of all its members, without another try.

    A group has ``most`` members, and no further one once their ``size`` together reaches ``most_size``. With a
    ``delay``, one that has two members waits so many seconds for others; with ``waits_alone``, so does a single one.
    ``idle`` is called when nothing waits any more.

    >>> from quacklake.extend.example import example_lake
    >>> answers = []
    >>> with example_lake() as lake:
    ...     lake.table("events").set_not_null("id")
    ...     group = GroupCommit(lambda rows: lake.table("events").append(rows), answers.extend)
    ...     [group.put({"id": id_, "name": "grouped"}) for id_ in (12, None, 13)]
    ...     group.close()
    ...     lake.table("events").count("id > 11")
    [True, True, True]
    2
    >>> [(row["id"], type(error).__name__) for row, error in answers]
    [(12, 'NoneType'), (None, 'ConstraintError'), (13, 'NoneType')]
    """

    def __init__(
        self,
        commit: Callable[[Sequence[T]], object],
        answer: Callable[[Sequence[tuple[T, QuacklakeError | None]]], object],
        *,
        most: int = 256,
        most_waiting: int = 4096,
        size: Callable[[T], int] | None = None,
        most_size: int = 1 << 20,
        delay: float = 0.0,
        waits_alone: bool = False,
        idle: Callable[[], object] | None = None,
        log: logging.Logger = _log,
        name: str = "quacklake-commit",
    ) -> None:
        self._commit, self._answer, self._idle, self._log = commit, answer, idle, log
        self._most, self._most_waiting = most, most_waiting
        self._size, self._most_size = size, most_size
        self._delay, self._alone = delay, 1 if waits_alone else 2
        self._queue: queue.SimpleQueue[T | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._ended = False
        self._thread = threading.Thread(target=self._work, name=name, daemon=True)
        self._thread.start()

    def put(self, member: T) -> bool:
        """Let a member be committed soon; return False when ``most_waiting`` others wait, and it is not taken.

        Raise ``CancelledError`` after ``end``.
        """
        with self._lock:
            if self._ended:
                raise CancelledError("nothing more is committed here", hint="send it again")
            if self._queue.qsize() >= self._most_waiting:
                return False
            self._queue.put(member)
        return True

    @property
    def waiting(self) -> int:
        """The number of members that wait for a group."""
        return self._queue.qsize()

    @property
    def works(self) -> bool:
        """True until all is committed after ``end``."""
        return self._thread.is_alive()

    def end(self) -> None:
        """Commit what waits, and take no more."""
        with self._lock:
            self._ended = True
            self._queue.put(None)

    def wait(self) -> None:
        """Wait until all is committed after ``end``."""
        self._thread.join()

    def close(self) -> None:
        """Commit what waits, take no more, and return when that is done."""
        self.end()
        self.wait()

    def _work(self) -> None:
        ended = False
        while not ended:
            first = self._queue.get()
            if first is None:
                return
            group, ended = self._gather(first)
            self._settle(group)
            if self._idle is not None and self._queue.empty():
                self._idle()

    def _gather(self, first: T) -> tuple[list[T], bool]:
        """Return those that wait, and whether they are the last."""
        group, size = [first], self._weigh(first)
        until = time.monotonic() + self._delay
        while len(group) < self._most and size < self._most_size:
            left = until - time.monotonic() if len(group) >= self._alone else 0
            try:
                following = self._queue.get(timeout=left) if left > 0 else self._queue.get_nowait()
            except queue.Empty:
                break
            if following is None:
                return group, True
            group.append(following)
            size += self._weigh(following)
        return group, False

    def _weigh(self, member: T) -> int:
        return 0 if self._size is None else self._size(member)

    def _settle(self, group: list[T]) -> None:
        """Commit a group and answer it, in halves where it is refused."""
        parts = [group]
        while parts:
            part = parts.pop()
            error = self._try(part)
            if error is None or len(part) == 1 or isinstance(error, _OF_ALL):
                self._answer([(member, error) for member in part])
            else:
                telemetry.count("commit.groups_split")
                middle = len(part) // 2
                parts += [part[middle:], part[:middle]]

    def _try(self, group: Sequence[T]) -> QuacklakeError | None:
        """Commit a group; return what kept it from that."""
        try:
            self._commit(group)
        except QuacklakeError as error:
            if isinstance(error, _OF_ALL):
                self._log.warning("rows could not be committed: %s", error.message, extra=telemetry.error_facts(error))
            return error
        except BaseException as error:  # the thread goes on for those that follow
            self._log.exception("rows could not be committed")
            return InternalError(f"the rows could not be committed: {type(error).__name__}")
        return None


_OF_ALL = (CatalogError, StorageError, CommitError, InternalError)
"""Errors that do not say that some member of a group is bad."""
