"""A transaction: a snapshot to read from, and changes that only it sees until they are committed whole."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from dataclasses import replace

from quacklake import telemetry
from quacklake.core import faults
from quacklake.core.catalog import Catalog
from quacklake.core.catalog.turns import TransactionTurn
from quacklake.core.format.names import above, check_name, fold, object_dir, uuid7
from quacklake.core.format.objects import BatchContent, MacroInfo, SchemaInfo, TableInfo, ViewInfo
from quacklake.core.format.schema import TableSchema, same_shapes, stored_alike
from quacklake.core.format.snapshots import Operation, Snapshot, token_with
from quacklake.core.scan.remembered import Plans
from quacklake.core.scan.visibility import Rules
from quacklake.core.storage import Store
from quacklake.core.transaction import objects
from quacklake.core.transaction.changeset import (
    AlteredTable,
    ChangeSet,
    PendingMark,
    RevivedTable,
    TableChange,
)
from quacklake.core.transaction.objects import PendingObjects, TableCache
from quacklake.core.transaction.pending import DeleteWriter, PendingTable, table_change
from quacklake.core.transaction.reading import Reading
from quacklake.errors import (
    AlreadyExistsError,
    CommitUnknown,
    InputError,
    QuacklakeError,
    ReadOnlyError,
)

_log = logging.getLogger("quacklake.transaction")

UNCOMMITTED = -1
"""The schema version of a table whose columns a transaction has changed: nothing in the catalog has it yet."""


class Transaction(Reading):
    """Reads at one snapshot plus its own changes; ``commit.run`` makes one new snapshot of them. Not thread-safe.

    >>> from quacklake.extend.example import example_lake
    >>> with example_lake() as lake:
    ...     tx = lake.handle.view()
    ...     tx.base.id, [table.name for table in tx.tables()]
    (4, ['events'])
    """

    def __init__(
        self,
        catalog: Catalog,
        store: Store,
        cache: TableCache,
        base: Snapshot,
        *,
        read_only: bool = False,
        rules: Callable[[], Rules] | None = None,
        scratch: bool = False,
        plans: Plans | None = None,
        turn: TransactionTurn | None = None,
    ) -> None:
        self.catalog = catalog
        self.store = store
        self.base = base
        self.read_only = read_only
        self.scratch = scratch
        """True for one that is never committed, so that its changes may be noted even if the lake is read-only."""
        self.turn = turn
        self._cache = cache
        self._plans = plans
        self._pending: dict[int, PendingTable] = {}
        self._created_schemas: dict[str, SchemaInfo] = {}
        self._dropped_schemas: dict[int, SchemaInfo] = {}
        self.objects = PendingObjects(self, cache)
        self._created: dict[tuple[str, str], TableInfo] = {}
        self._altered: dict[int, AlteredTable] = {}
        self._dropped: dict[int, TableInfo] = {}
        self._compactions: list[TableChange] = []
        self._revived: dict[int, RevivedTable] = {}
        self._column_ids: dict[int, int] = {}
        self._reshaped: dict[int, list[TableSchema]] = {}
        self._schema_ids: dict[str, int] = {}
        self._marks: dict[str, PendingMark] = {}
        self._forgotten: list[str] = []
        self._written: list[str] = []
        self._delete_writer: DeleteWriter | None = None
        self._next_local = -1
        self._open = True
        self._ask = rules
        #: What the principal behind the transaction may see; None for one that may see everything
        self.rules = None if rules is None else rules()
        self._wholes: dict[int, TableInfo] = {}
        #: True for a transaction that may change the tables of materialized views: it refreshes, makes or drops one
        self.upkeep = False
        self._operation = Operation.NONE
        self.changes = self._final = ChangeSet("", base)
        self.committed: Snapshot | None = None
        """The snapshot that its commit made; None where there was nothing to commit."""
        self.outcome: Snapshot | None = None
        """The snapshot that its commit made, or was based on where there was nothing to commit; None before it."""

    def asks(self, operation: Operation) -> None:
        """Remember which operation runs, for those who read the history later."""
        self._operation |= operation

    @property
    def operation(self) -> Operation:
        """The operations that have run."""
        return self._operation

    @property
    def undoes(self) -> bool:
        """True when the transaction brings back what was there before."""
        return bool(self._operation & (Operation.RESTORE | Operation.ROLLBACK | Operation.UNDROP | Operation.REPAIR))

    def touched_tables(self) -> list[TableInfo]:
        """Return the tables that exist already whose rows or columns change, or that are dropped."""
        altered = [table.before for table in self._altered.values() if table.before.schema != table.after.schema]
        return [*(pending.table for pending in self._pending.values()), *altered, *self._dropped.values()]

    def gone_with_schemas(self) -> set[int]:
        """Return the tables that are dropped together with their schemas."""
        return {table.id for table in self._dropped.values() if table.schema_id in self._dropped_schemas}

    def progress(self) -> tuple[object, ...]:
        """Return what has changed so far, to be compared with a later answer."""
        schemas = self._created_schemas.copy(), self._dropped_schemas.copy()
        tables = self._created.copy(), self._altered.copy(), self._dropped.copy(), self._revived.copy()
        rows = {id_: pending.progress() for id_, pending in self._pending.items() if pending.progress()}
        return schemas, tables, rows, self.objects.changes(), tuple(self._compactions)

    def local_id(self) -> int:
        """Return a fresh negative id for something that does not exist yet."""
        self._next_local -= 1
        return self._next_local + 1

    # -- schema changes ----------------------------------------------------------------------------------------------

    def create_schema(self, name: str, *, if_not_exists: bool = False) -> SchemaInfo:
        """Add a schema; one inside another has the full name that ``format.names`` makes, and needs 1.1."""
        self.check_writable()
        check_name(name, "schema")
        parents = above(name)
        parent = None
        if parents:
            objects.require_next(self.catalog, "a schema inside another")
            parent = self.find_schema(parents[-1])
        existing = next((info for info in self.schemas() if fold(info.name) == fold(name)), None)
        if existing is not None:
            if if_not_exists:
                return existing
            raise AlreadyExistsError(f'the schema "{existing.name}" exists already', hint="pass if_not_exists=True")
        uuid = str(uuid7())
        # the folder of a nested schema is directly below the data path, too
        path = object_dir(name, uuid) if parent is None else f"{uuid}/"
        info = SchemaInfo(self.local_id(), uuid, name, path, True, None if parent is None else parent.id)
        self._created_schemas[fold(name)] = info
        return info

    def drop_schema(self, name: str, *, cascade: bool = False) -> None:
        """Drop a schema; with ``cascade`` also its tables, views and macros, and the schemas inside it."""
        self.check_writable()
        info = self.find_schema(name)
        tables = [table for table in self.tables() if table.schema_id == info.id]
        every: list[ViewInfo | MacroInfo] = [*self.objects.views(), *self.objects.macros()]
        others = [item for item in every if item.schema_id == info.id]
        inside = [schema.name for schema in self.schemas() if schema.parent_id == info.id]
        if (tables or others or inside) and not cascade:
            names = [table.name for table in tables] + [other.name for other in others] + inside
            raise InputError(
                f'Cannot drop schema "{info.name}" because there are entries that depend on it: {", ".join(names[:5])}',
                hint="drop what is in it first, pass cascade=True, or use CASCADE in SQL",
            )
        for schema in inside:
            self.drop_schema(schema, cascade=True)
        for other in others:
            self.objects.drop(other)
        for table in tables:
            self.drop_table(table)
        if info.id < 0:
            del self._created_schemas[fold(info.name)]
        else:
            self._dropped_schemas[info.id] = info

    def create_table(self, schema: str, name: str, columns: TableSchema) -> TableInfo:
        """Add a table. Raise ``AlreadyExistsError``."""
        self.check_writable()
        check_name(name, "table")
        if not columns.columns:
            raise InputError(f'the table "{name}" needs at least one column')
        for column in columns.walk():
            check_name(column.name, "column")
        objects.check_columns(self.catalog, columns)
        owner = self.find_schema(schema)
        if self.rules is not None:  # before anything tells of tables that are hidden
            self.rules.check_create(owner.id, owner.name)
        if self.known_table(schema, name) is not None:
            raise AlreadyExistsError(f'the table "{owner.name}.{name}" exists already', hint="pass if_not_exists=True")
        self.objects.check_no_view(owner, name)
        uuid = str(uuid7())
        # an older table of that name may have the same folder; file names are unique
        info = TableInfo(
            id=self.local_id(),
            uuid=uuid,
            schema_id=owner.id,
            schema_name=owner.name,
            name=name,
            path=object_dir(name, uuid),
            path_is_relative=True,
            schema=columns,
            schema_version=self.base.schema_version + 1,
            schema_path=owner.path,
            schema_path_is_relative=owner.path_is_relative,
        )
        self._created[(fold(owner.name), fold(name))] = info
        return info

    def rename_table(self, table: TableInfo, name: str) -> TableInfo:
        """Give a table another name in its schema."""
        self.check_writable()
        check_name(name, "table")
        other = self.known_table(table.schema_name, name)
        if other is not None and other.id != table.id:
            raise AlreadyExistsError(f'the table "{table.schema_name}.{name}" exists already')
        self.objects.check_no_view(self.find_schema(table.schema_name), name)
        return self.alter_table(table, replace(table, name=name))

    def alter_table(self, table: TableInfo, after: TableInfo) -> TableInfo:
        """Let a table be as ``after`` says: another name, other columns, another layout. Rows stay as they are."""
        self.check_writable()
        objects.check_columns(self.catalog, after.schema, table.schema)
        objects.check_partition(self.catalog, after.partition)
        ids = self._column_ids.get(table.id, 0), table.schema.max_id, after.schema.max_id
        self._column_ids[table.id] = max(ids)
        if not same_shapes(table.schema, after.schema):
            self._reshaped.setdefault(table.id, []).append(table.schema)
        if not stored_alike(table.schema, after.schema):
            after = replace(after, schema_version=UNCOMMITTED)
        if table.id < 0:
            del self._created[(fold(table.schema_name), fold(table.name))]
            self._created[(fold(after.schema_name), fold(after.name))] = after
        elif table.id in self._revived:
            self._revived[table.id] = replace(self._revived[table.id], table=after)
        else:
            before = self._altered[table.id].before if table.id in self._altered else table
            self._altered[table.id] = AlteredTable(before, after)
        if table.id in self._pending:
            self._pending[table.id].table = after
        return after

    def next_column_id(self, table: TableInfo) -> int:
        """Return an id above every id that a column of the table ever had, in this transaction too."""
        known = max(self._column_ids.get(table.id, 0), table.schema.max_id)
        if table.id >= 0:
            with self.catalog.read() as reader:
                known = max(known, reader.tables.last_column_id(table.id))
        return known + 1

    def drop_table(self, table: TableInfo) -> None:
        """Drop a table; its files stay until its snapshots expire."""
        self.check_writable()
        pending = self._pending.pop(table.id, None)
        self.objects.forget_tags(table.id)
        if table.id < 0:
            del self._created[(fold(table.schema_name), fold(table.name))]
            self.discard({table.location + file.path for file in pending.files if not file.location} if pending else ())
        elif self._revived.pop(table.id, None) is None:
            self._altered.pop(table.id, None)
            self._dropped[table.id] = table

    def revive_table(self, table: TableInfo, state: Snapshot, data_files: int, delete_files: int) -> TableInfo:
        """Let a dropped table come back under its id, with the rows it had at ``state``, the snapshot before the drop.

        ``data_files`` and ``delete_files`` tell how many it had: fewer at the commit are a conflict.
        """
        self.check_writable()
        self._revived[table.id] = RevivedTable(table, state, data_files, delete_files)
        return table

    # -- rows --------------------------------------------------------------------------------------------------------

    def known_mappings(self, table: TableInfo) -> dict[object, int]:
        """Return the keys and ids of the name mappings that files of a table already have."""
        known: dict[object, int] = {mapping.key: mapping.id for mapping in self.pending(table).mappings}
        if table.id >= 0:
            with self.catalog.read() as reader:
                known |= {mapping.key: mapping.id for mapping in reader.files.table_mappings(table.id)}
        return known

    def pending(self, table: TableInfo) -> PendingTable:
        """Return the changes to one table so far, to be added to."""
        self.check_writable()
        if self.rules is not None:
            self.rules.check_change(table, self.whole(table))
        return self._pending.setdefault(table.id, PendingTable(table))

    def pendings(self) -> list[PendingTable]:
        """Return the changes of every table."""
        return list(self._pending.values())

    def compact(self, change: TableChange) -> None:
        """Note that rows of a table move. A transaction either changes rows or moves them."""
        self.check_writable()
        if self._pending or self._created or self._altered or self._dropped or self.objects.changes():
            raise InputError("a transaction can either make changes or perform compaction")
        self._compactions.append(change)

    def flush(self, change: TableChange) -> None:
        """Note that inlined rows of a table move into files; ``unflush`` must come before other changes of its rows."""
        self.check_writable()
        self._compactions.append(change)

    def has_flushed(self, table: TableInfo) -> bool:
        """Return whether ``flush`` has moved rows of a table."""
        return any(change.table.id == table.id for change in self._compactions)

    def unflush(self) -> list[TableInfo]:
        """Let the rows that ``flush`` has moved stay where they are; return the tables."""
        undone = [change.table for change in self._compactions]
        self._compactions.clear()
        return undone

    def wrote(self, path: str) -> None:
        """Remember a file that must go if the transaction does not commit; ``path`` is below the data root."""
        self._written.append(path)

    def mark(
        self,
        stream: str,
        epoch: int,
        run: str,
        position: str | None = None,
        *,
        gaps: bool = False,
        manifest: str | None = None,
        keep: int = 3,
        finished: bool = False,
        starts: str | None = None,
        content: BatchContent | None = None,
    ) -> None:
        """Let the changes be batch ``epoch`` of a stream: they are committed together with that, and only once.

        ``run`` is what claiming the stream gave. The commit raises ``StreamBatchDoneError`` when the batch is in the
        lake already, ``StreamFencedError`` when another run has claimed the stream, and ``StreamMismatchError`` when
        batches before it are missing, unless there may be ``gaps``; nothing is changed then. With a ``manifest`` the
        batch is also a checkpoint, of which the lake keeps the last ``keep``; ``finished`` when nothing is left to do.
        ``starts`` is the query of a stream that need not be claimed before: the batch begins it, if it is not there.
        With a ``content``, whose digest is the position, another batch of the same number is a ``StreamMismatchError``.
        """
        self.check_writable()
        mark = PendingMark(stream, run, epoch, position, gaps, manifest, keep, finished, starts, content=content)
        self._marks[stream] = mark

    def forget(self, stream: str) -> None:
        """Let the commit forget a stream, whether it is there or not."""
        self.check_writable()
        self._forgotten.append(stream)

    def mark_once(self, name: str, what: str, epoch: int, position: str) -> None:
        """Let the changes carry a mark that must not be in the lake yet: the commit raises ``StreamBatchDoneError``."""
        self.check_writable()
        self._marks[name] = PendingMark(name, "", epoch, position, once=what)

    # -- the end -----------------------------------------------------------------------------------------------------

    def check_writable(self) -> None:
        """Raise unless changes can be noted."""
        if not self._open:
            raise InputError("the transaction has ended")
        if self.read_only:
            raise ReadOnlyError(
                "this view of the lake is read-only", hint="write through the lake itself, at its newest snapshot"
            )
        if self.catalog.read_only and not self.scratch:
            raise self.catalog.refusal()

    def change_set(
        self, writer: DeleteWriter, delete_limit: Callable[[TableInfo], int], inline_limit: Callable[[TableInfo], int]
    ) -> ChangeSet:
        """Return all changes as immutable data; delete files are written now."""
        if self.scratch:
            raise InputError("the transaction cannot be committed: it was begun to be undone")
        self._delete_writer = writer
        changes = [table_change(self, pending, writer, delete_limit) for pending in self._pending.values()]
        altered = tuple(table for table in self._altered.values() if table.before != table.after)
        reshaped = [*self._created.values(), *(table.after for table in altered if table.stored_otherwise)]
        reshaped += [revived.table for revived in self._revived.values()]
        return ChangeSet(
            token=token_with(uuid7(), self._operation),
            base=self.base,
            # a table may be altered because of what was read in it, as by NOT NULL
            tables=(
                *self._compactions,
                *(c for c in changes if c.kinds() or (c.table.id in self._altered and c.reads is not None)),
            ),
            created_schemas=tuple(self._created_schemas.values()),
            created_tables=tuple(self._created.values()),
            altered_tables=altered,
            dropped_tables=tuple(self._dropped.values()),
            revived_tables=tuple(self._revived.values()),
            dropped_schemas=tuple(self._dropped_schemas.values()),
            objects=self.objects.changes(),
            inlining=frozenset(table.id for table in reshaped if inline_limit(table)),
            schema_ids=dict(self._schema_ids),
            marks=tuple(self._marks.values()),
            forgotten=tuple(self._forgotten),
        )

    def seal(self, changes: ChangeSet) -> None:
        """Take the changes as they are to be committed; no other can be noted."""
        self._open = False
        self.changes = self._final = changes

    def dated(self, snapshot_id: int) -> ChangeSet:
        """Return the changes for a snapshot id; delete files with another date are written again."""
        writer = self._delete_writer
        if writer is not None:
            self._final = self.changes.dated(snapshot_id, lambda *file: writer.redate(self, *file))
        return self._final

    def succeeded(self, snapshot: Snapshot | None) -> Snapshot:
        """Remove the files that the snapshot of the changes does not have, all if it needed none; return it."""
        if snapshot is not None:
            self.committed = snapshot
            if self._written:
                used = {table.table.location + path for table in self._final.tables for path in table.paths()}
                self._written = [path for path in self._written if path not in used]
        self.discard_files()
        self.outcome = snapshot or self.base
        return self.outcome

    def failed(self, error: BaseException) -> None:
        """Remove the files, unless they may be part of the lake."""
        if isinstance(error, CommitUnknown) or not isinstance(error, QuacklakeError):
            self._written.clear()
        self.discard_files()

    def rollback(self) -> None:
        """Give up: forget the changes and remove the files written for them."""
        self._open = False
        self._pending.clear()
        self.give_turn_back()
        self.discard_files()

    def remember_loss(self) -> None:
        """Remember that another commit was in the way: the caller's next transaction may get a turn."""
        if self.turn is not None:
            self.turn.remember_loss()

    def give_turn_back(self) -> None:
        """Let others commit, if the transaction has a turn."""
        if self.turn is not None:
            self.turn.give_back()

    def discard_files(self) -> None:
        """Remove every file this transaction wrote; one that cannot be removed is an orphan for maintenance."""
        self.discard(frozenset(self._written))

    def discard(self, paths: Collection[str]) -> None:
        """Remove some of the files this transaction wrote, which no change of it names."""
        written = [path for path in self._written if path in paths] if self._written else []
        if not written:
            return
        self._written = [path for path in self._written if path not in paths]
        faults.reach("transaction.discard.before")
        try:
            self.store.delete(written)
        except QuacklakeError as error:
            facts = telemetry.error_facts(error)
            _log.warning("could not remove %d uncommitted files: %s", len(written), error.message, extra=facts)
