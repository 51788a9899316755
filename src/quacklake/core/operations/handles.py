"""Handles on the states of a lake: the newest snapshot, a past one, or an open transaction."""

from __future__ import annotations

import datetime as dt
import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import Protocol, Self, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from quacklake import telemetry
from quacklake.core.catalog import Collision, DatedDeletes
from quacklake.core.catalog.turns import TransactionTurn
from quacklake.core.format.names import quote
from quacklake.core.format.objects import MATERIALIZED_VIEW, NAME_ROW_ID, TableInfo, stream_of_view
from quacklake.core.format.options import column_ids
from quacklake.core.format.signatures import NO_SIGNATURE, Signature
from quacklake.core.format.snapshots import Snapshot
from quacklake.core.lazy import provided
from quacklake.core.operations.conform import RowWriter, write_rows
from quacklake.core.operations.context import LakeContext
from quacklake.core.operations.versions import Version, choose_version, find_snapshot
from quacklake.core.scan.remembered import Plans
from quacklake.core.scan.visibility import Rules
from quacklake.core.transaction import (
    ChangeSet,
    NewDeleteFile,
    PastDeleteFile,
    PendingTable,
    TouchedFile,
    Transaction,
    commit,
)
from quacklake.errors import (
    CommitConflict,
    ConfigError,
    InputError,
    NotFoundError,
    NotPermittedError,
    ReadOnlyError,
    SnapshotExpiredError,
)

T = TypeVar("T")
_log = logging.getLogger("quacklake.operations")


class Handle(ABC):
    """One state of a lake, with the ways to read and change it. ``is_lake`` is true for the newest snapshot."""

    is_lake = False

    def __init__(self, context: LakeContext) -> None:
        self.context = context

    @property
    def restricted(self) -> bool:
        """True for the handle of a principal that may not see everything."""
        return False

    def check_whole(self, what: str) -> None:
        """Raise ``NotPermittedError`` for a principal: ``what`` deals with files, metadata or all rows."""
        if self.restricted:
            raise NotPermittedError(f"only administrators may use {what}", hint="ask for the role admin")

    @abstractmethod
    def view(self) -> Transaction:
        """Return a transaction that reads this state."""

    def run(self, work: Callable[[Transaction], T], *, blind: bool = False, replayable: bool = True) -> T:
        """Change the lake. ``work`` may run again after a conflict with another commit, unless it is not replayable.

        A ``blind`` change reads nothing, and may start from a snapshot that is no longer the newest.
        """
        raise _read_only()

    def once(self, base: Snapshot, work: Callable[[Transaction], None]) -> Snapshot:
        """Run work on a snapshot in its own transaction, without retries."""
        raise _read_only()


def _read_only() -> ReadOnlyError:
    hint = "write through the lake itself, at its newest snapshot"
    return ReadOnlyError("this view of the lake is read-only", hint=hint)


class HasHandle(Protocol):
    """A lake, a past snapshot or an open transaction of a user."""

    @property
    def handle(self) -> Handle:
        """The handle on its state."""


class LakeHandle(Handle):
    """A handle on the newest snapshot. Each operation is a transaction, and each transaction a snapshot."""

    is_lake = True

    def __init__(self, context: LakeContext, signature: Signature = NO_SIGNATURE) -> None:
        super().__init__(context)
        self.signature = signature

    def close(self) -> None:
        """Close every connection."""
        if self.context.view_sessions is not None:
            self.context.view_sessions.close()
        self.context.engine.close()
        self.context.catalog.close()
        if self.context.lineage is not None:
            self.context.lineage.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def begin(
        self,
        base: Snapshot | None = None,
        *,
        read_only: bool = False,
        scratch: bool = False,
        plans: Plans | None = None,
        turn: TransactionTurn | None = None,
    ) -> Transaction:
        """Start a transaction on a snapshot, by default the newest; a ``scratch`` one cannot be committed.

        ``plans`` are used by one that reads the newest snapshot now, and is not kept.
        """
        context = self.context
        base = context.latest() if base is None else base
        return Transaction(
            context.catalog,
            context.store,
            context.tables,
            base,
            read_only=read_only,
            rules=self.rules,
            scratch=scratch,
            plans=plans,
            turn=turn,
        )

    def begin_open(self) -> Transaction:
        """Start a transaction of the caller's own code: in a turn if the caller has lost its last two."""
        context = self.context
        turn = TransactionTurn(context.catalog, context.config.turn_ms)
        try:
            return self.begin(turn=turn)
        except BaseException:
            turn.give_back()
            raise

    @property
    def rules(self) -> Callable[[], Rules] | None:
        """Reads the rules of the principal behind this handle anew; None for one that may see everything."""
        return None

    @property
    def restricted(self) -> bool:
        return self.rules is not None

    def signed(self, signature: Signature) -> LakeHandle:
        """Return the same handle with an author, message and extra text for its snapshots."""
        return LakeHandle(self.context, signature)

    def view(self) -> Transaction:
        return self.begin(read_only=True, plans=self.context.plans)

    def at(
        self,
        version: int | str | None = None,
        timestamp: dt.datetime | str | None = None,
        tag: str | None = None,
        to: Version | None = None,
    ) -> SnapshotHandle:
        """Return a handle on a snapshot by id, tag or time (text and naive times are UTC); ``to`` is any of them."""
        return self.at_version(choose_version(to, version=version, timestamp=timestamp, tag=tag))

    def at_version(self, version: Version) -> SnapshotHandle:
        """Return a handle on the snapshot of an id, a tag or a time."""
        with self.context.catalog.read() as reader:
            snapshot = find_snapshot(reader, version)
        return SnapshotHandle(self.context, self.begin(snapshot, read_only=True))

    def run(
        self,
        work: Callable[[Transaction], T],
        *,
        blind: bool = False,
        replayable: bool = True,
        base: Snapshot | None = None,
    ) -> T:
        """Change the lake, as ``Handle.run`` does; ``base`` is the newest snapshot, if it has just been read."""
        recent = self.context.recent if blind else base
        results: list[T] = []
        planned: list[Transaction] = []

        def plan() -> Transaction:
            tx = self.begin(recent)
            planned[:] = [tx]
            try:
                results[:] = [work(tx)]
                return self.seal(tx)
            except BaseException:
                tx.rollback()
                raise

        def replan(error: BaseException, left: int) -> bool:
            nonlocal recent
            stale, recent = recent is not None, None
            again = replayable and left > 0
            if isinstance(error, NotFoundError):  # a snapshot may expire right after it was read
                return stale or (again and isinstance(error, SnapshotExpiredError))
            return again

        self.context.saw(commit.run(self.context.catalog, plan, self.context.retry, replan, self.context.group))
        self._follow(planned[-1])
        return results[0]

    def once(self, base: Snapshot, work: Callable[[Transaction], None]) -> Snapshot:
        tx = self.begin(base)
        try:
            work(tx)
            return self.commit(tx)
        except BaseException:
            tx.rollback()
            raise

    def commit(self, tx: Transaction, signature: Signature = NO_SIGNATURE) -> Snapshot:
        """Commit a transaction, without planning it again after a conflict."""
        context = self.context
        try:
            snapshot = commit.run(context.catalog, lambda: self.seal(tx, signature), context.retry, kept=tx.turn)
        except CommitConflict:
            tx.remember_loss()
            raise
        self.context.saw(snapshot)
        self._follow(tx)
        return snapshot

    def _follow(self, tx: Transaction) -> None:
        """Refresh the materialized views that follow each commit to the tables that a transaction has changed."""
        snapshot = tx.committed
        if snapshot is None:
            return
        if self.context.lineage is not None:
            self.context.lineage.committed(tx)
        try:
            followed = self.context.tables.tagged(snapshot, MATERIALIZED_VIEW)
        except Exception as error:  # the commit is made, whatever happens here
            _log.warning(
                "could not look for materialized views after a commit: %s", error, extra=telemetry.error_facts(error)
            )
            return
        if not followed:
            return
        changed = [change.table.id for change in tx.changes.tables if not change.compaction]
        if changed:
            after_commit(self, changed)

    def seal(self, tx: Transaction, signature: Signature = NO_SIGNATURE) -> Transaction:
        """Write the files that are missing, and settle the changes of a transaction; return it."""
        context, signature = self.context, signature if signature.given else self.signature
        try:
            _check_views(context, tx)
            seal(context, tx)
            self.check_rows(tx)
            changes = tx.change_set(DeleteFiles(context), context.delete_limit, context.inline_limit)
            if context.catalog.is_next:
                changes = changes.without_bounds(
                    lambda table: column_ids(str(context.option("skip_stats_columns", table)))
                )
            if not (changes.empty or signature.given) and context.option("require_commit_message"):
                raise ConfigError(
                    "Commit Information for the snapshot is required but has not been provided.",
                    hint="use lake.transaction(message=…, author=…) or lake.signed(…), or unset require_commit_message",
                )
        except BaseException as error:
            if not isinstance(error, CommitConflict | Collision):
                telemetry.count("commit.failures", tenant=context.catalog.label)
            raise
        self.check_changes(tx, changes)
        tx.seal(replace(changes, signature=signature) if signature.given else changes)
        return tx

    def auditing(self, kind: str, text: str) -> AbstractContextManager[None]:
        """Record a statement, if it is one of a principal."""
        return nullcontext()

    def check_rows(self, tx: Transaction) -> None:
        """Check the rows that a transaction adds, before it is committed."""

    def check_changes(self, tx: Transaction, changes: ChangeSet) -> None:
        """Check what a transaction changes, before it is committed."""


class SnapshotHandle(Handle):
    """A read-only handle on a past snapshot."""

    def __init__(self, context: LakeContext, tx: Transaction) -> None:
        super().__init__(context)
        self.tx = tx

    def view(self) -> Transaction:
        """Return the transaction that reads the snapshot. Raise ``SnapshotExpiredError`` once it has expired."""
        with self.context.catalog.read() as reader:
            reader.snapshots.at_version(self.tx.base.id)
        self.tx.renew()
        return self.tx

    @property
    def restricted(self) -> bool:
        return self.tx.rules is not None


class TransactionHandle(Handle):
    """A handle on an open transaction, which reads its own changes and commits them as one snapshot at its end."""

    def __init__(self, context: LakeContext, tx: Transaction) -> None:
        super().__init__(context)
        self.tx = tx

    def view(self) -> Transaction:
        self.tx.renew()
        return self.tx

    @property
    def restricted(self) -> bool:
        return self.tx.rules is not None

    def run(self, work: Callable[[Transaction], T], *, blind: bool = False, replayable: bool = True) -> T:
        self.tx.renew()
        return work(self.tx)

    def once(self, base: Snapshot, work: Callable[[Transaction], None]) -> Snapshot:
        raise InputError(
            "a transaction can either make changes or perform compaction", hint="call it on the lake, outside"
        )


@provided
def after_commit(handle: LakeHandle, tables: Iterable[int]) -> None:
    """Refresh the ``on commit`` views over tables that a commit of this process has changed. Raise nothing."""
    raise NotImplementedError


def _check_views(context: LakeContext, tx: Transaction) -> None:
    """Raise ``InputError`` for a change of a materialized view that is not its refresh.

    A view that is dropped with its schema loses its position, too.
    """
    known = {} if tx.upkeep or tx.undoes else context.tables.tagged(tx.base, MATERIALIZED_VIEW)
    gone = tx.gone_with_schemas() if known else set()
    for table in tx.touched_tables() if known else ():
        if table.id in gone and table.id in known:
            stream = stream_of_view(known[table.id])
            if stream is not None:
                tx.forget(stream)
        elif table.id in known:
            raise InputError(
                f'"{table.qualified_name}" is a materialized view, which only its refresh changes',
                hint="REFRESH MATERIALIZED VIEW brings it up to date, DROP MATERIALIZED VIEW drops it",
            )


def seal(context: LakeContext, tx: Transaction) -> None:
    """Write many small inserts of one table to a file before the commit.

    Inserts into a table that gained a column which cannot be inlined are also written. With the option ``update_mode``
    set to ``copy_on_write``, files that have lost rows are rewritten.
    """
    for pending in tx.pendings():
        rewrite(context, tx, pending)
        limit = context.inline_limit(pending.table)
        if sum(insert.rows.num_rows for insert in pending.inserts) > limit:
            spill(context, tx, pending, updated=not limit)


def rewrite(context: LakeContext, tx: Transaction, pending: PendingTable) -> None:
    """Rewrite the remaining rows of changed files with their row ids, if the table's options require it."""
    deleted = {id_: len(gone) for id_, gone in pending.deleted_positions().items() if id_ >= 0}
    if not deleted or context.option("update_mode", pending.table) != "copy_on_write":
        return
    table = pending.table
    plan = tx.plan_whole(table)
    partly = {id_ for id_, count in deleted.items() if pending.touched[id_].live != count}
    chosen = pc.is_in(plan.files.column("data_file_id"), value_set=pa.array(sorted(partly), pa.int64()))
    changed = replace(plan, files=plan.files.filter(chosen), inlined=None)
    if not changed.files.num_rows:
        return
    names = ", ".join(quote(column.name) for column in table.schema.columns)
    with context.engine.connection() as connection:
        rows = context.engine.bind(connection, changed, rows=True)
        query = f"SELECT {names}, _ql_row_id AS {quote(NAME_ROW_ID)} FROM ({rows})"
        RowWriter(context, tx, table, connection).write_query(query, row_ids=True)
    pending.end_files(plan, changed.files.column("data_file_id").to_pylist())


def spill(context: LakeContext, tx: Transaction, pending: PendingTable, *, updated: bool = True) -> None:
    """Write the small inserts of a table to files, and ``updated`` rows too, which keep their ids."""
    table = pending.table
    new = [insert for insert in pending.inserts if insert.rows.num_rows]
    chosen = [insert for insert in new if updated or all(row_id is None for row_id in insert.row_ids)]
    if not chosen:
        return
    rows = pa.concat_tables([insert.rows for insert in chosen], promote_options="permissive")
    row_ids = [row_id for insert in chosen for row_id in insert.row_ids]
    pending.keep_inserts([insert for insert in new if insert not in chosen])
    write_rows(context, tx, table, rows, row_ids)


@dataclass(frozen=True, slots=True)
class DeleteFiles:
    """Writes the delete files of a transaction's change set."""

    context: LakeContext

    def write(
        self,
        tx: Transaction,
        table: TableInfo,
        file_id: int,
        file: TouchedFile,
        positions: pa.Array,
        begin_snapshot: int | None,
    ) -> NewDeleteFile:
        """Write all deletes of a data file, including the given positions."""
        vectors = self.context.writes_vectors(table)
        return self.context.writer.write_deletes(
            table, file_id, file, positions, tx.wrote, tx.base.id, begin_snapshot, vectors=vectors
        )

    def write_past(
        self, tx: Transaction, table: TableInfo, file_id: int, file: TouchedFile, dated: DatedDeletes
    ) -> PastDeleteFile:
        """Write the deletes that a data file had before it ended."""
        vectors = self.context.writes_vectors(table)
        return self.context.writer.write_past_deletes(
            table, file_id, file, tx.wrote, tx.base.id, dated, vectors=vectors
        )

    def redate(self, tx: Transaction, table: TableInfo, file: NewDeleteFile, snapshot: int) -> NewDeleteFile:
        """Write a delete file again with another snapshot for its new deletes."""
        return self.context.writer.redate_deletes(table, file, tx.wrote, snapshot)
