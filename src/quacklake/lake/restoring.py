"""Restore tables inside a transaction: a table to an older state, a dropped one to its last."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

from quacklake.core.catalog import Catalog, DroppedObject, Reader, objects
from quacklake.core.catalog.objects import Tags
from quacklake.core.duckdb_versions import arrow_table, first_row
from quacklake.core.engines.duckdb.connections import writing
from quacklake.core.engines.duckdb.engine import places_to_target
from quacklake.core.format.bounds import ANYTHING
from quacklake.core.format.evolution import OldColumns, missing_ids, old_columns
from quacklake.core.format.names import above, quote
from quacklake.core.format.objects import NAME_ROW_ID, MacroInfo, TableInfo, ViewInfo
from quacklake.core.format.snapshots import Snapshot
from quacklake.core.operations import evolution
from quacklake.core.operations.conform import RowWriter
from quacklake.core.operations.context import LakeContext
from quacklake.core.operations.reference import TableRef
from quacklake.core.progress import Report
from quacklake.core.scan import ScanPlan, plan_scan
from quacklake.core.storage import Store
from quacklake.core.transaction import Transaction
from quacklake.errors import AlreadyExistsError, NotFoundError, SnapshotExpiredError

_THREADS = 16


@dataclass(frozen=True, slots=True)
class RestoredTable:
    """Result of a restore for one table. ``kept_types`` lists columns that keep a wider type than they had."""

    table: str
    inserted: int = 0
    deleted: int = 0
    altered: bool = False
    kept_types: tuple[str, ...] = ()

    @property
    def changed(self) -> bool:
        """True when anything changed."""
        return bool(self.inserted or self.deleted or self.altered)


@dataclass(frozen=True, slots=True)
class UndoReport(Report):
    """Report of a restore, an undrop or a rollback, or of its dry run.

    ``version`` is the restored snapshot, ``snapshot`` the new one: None when there was nothing to change, after a dry
    run, and in an open transaction. ``objects`` covers schemas, views and macros.
    """

    operation: str
    version: int
    snapshot: int | None = None
    restored: tuple[RestoredTable, ...] = ()
    dropped: tuple[str, ...] = ()
    undropped: tuple[str, ...] = ()
    objects: tuple[str, ...] = ()
    dry_run: bool = False

    @property
    def inserted(self) -> int:
        """The number of restored rows."""
        return sum(table.inserted for table in self.restored)

    @property
    def deleted(self) -> int:
        """The number of removed rows."""
        return sum(table.deleted for table in self.restored)


def unchanged_files(now: ScanPlan, past: ScanPlan) -> set[int]:
    """Return data files with the same rows in both plans; one with a delete file may hold any deletes."""
    both = _plain(now, past.snapshot_id) & _plain(past, past.snapshot_id)
    return {id_ for id_ in both if now.deleted_counts.get(id_) == past.deleted_counts.get(id_)}


def _plain(plan: ScanPlan, version: int) -> set[int]:
    files = plan.files
    whole = pc.fill_null(pc.less_equal(files.column("partial_max"), version), True)
    chosen = pc.and_(whole, pc.is_null(files.column("delete_path")))
    return set(files.column("data_file_id").filter(chosen).to_pylist())


def newer_files(plan: ScanPlan, version: int) -> set[int]:
    """Return the data files added after a snapshot, also by an open transaction; all their rows are newer."""
    newer = pc.fill_null(pc.greater(plan.files.column("begin_snapshot"), version), True)
    return set(plan.files.column("data_file_id").filter(newer).to_pylist())


def only_files(plan: ScanPlan, ids: Collection[int], *, inlined: bool = True) -> ScanPlan:
    """Return the plan with only these data files, with or without its inlined rows."""
    chosen = pa.array(sorted(ids), pa.int64())
    files = plan.files.filter(pc.is_in(plan.files.column("data_file_id"), value_set=chosen))
    deletes = plan.deletes.filter(pc.is_in(plan.deletes.column("file_id"), value_set=chosen))
    return replace(plan, files=files, deletes=deletes, inlined=plan.inlined if inlined else None)


def check_files(catalog: Catalog, store: Store, plan: ScanPlan) -> None:
    """Raise ``SnapshotExpiredError`` unless every data and delete file of a plan exists."""
    data, deletes = _pairs(plan, "data_file_id", "path"), _pairs(plan, "delete_file_id", "delete_path")
    wanted = [*data, *deletes]
    if not wanted:
        return
    with ThreadPoolExecutor(min(_THREADS, len(wanted)), "quacklake-exists") as pool:
        there = list(pool.map(lambda pair: store.exists(pair[1]), wanted))
    lost = [number for number, found in enumerate(there) if not found]
    if not lost:
        return
    with catalog.read() as reader:
        ends = reader.files.ends(
            [wanted[number][0] for number in lost if number < len(data)],
            [wanted[number][0] for number in lost if number >= len(data)],
        )
    known = [end for end in ends if end is not None]
    hint = "the present state needs some of them too: the lake is damaged"
    if len(known) == len(ends) and known:
        hint = f"the oldest version after it that needs none of these is {max(known)}"
    raise SnapshotExpiredError(
        f"{len(lost)} of {len(wanted)} files of {plan.schema_name}.{plan.table_name} that version {plan.snapshot_id}"
        " needs are gone",
        hint=hint,
    )


def _pairs(plan: ScanPlan, id_: str, path: str) -> Sequence[tuple[int, str]]:
    found = zip(plan.files.column(id_).to_pylist(), plan.files.column(path).to_pylist(), strict=True)
    return [(number, text) for number, text in found if text is not None]


_SINCE = "_ql_since"
_UNKNOWN_VERSION = -1
"""A schema version that no inlined table has, so that each is read with its own columns."""


@dataclass(frozen=True, slots=True)
class _Past:
    """A table at an older snapshot, with the columns to restore."""

    table: TableInfo
    columns: OldColumns
    plan: ScanPlan
    tags: Tags


@dataclass(frozen=True, slots=True)
class _Dropped:
    """A dropped table: its ``state`` just before the drop with its number of files, and an older snapshot of it."""

    last: TableInfo
    state: Snapshot
    files: tuple[int, int]
    tags: Tags
    old: TableInfo
    plan: ScanPlan
    old_tags: Tags


@dataclass(frozen=True, slots=True)
class Undo:
    """Undoes changes in a transaction. Without ``write`` it only counts, and the transaction must not be used again."""

    context: LakeContext
    tx: Transaction
    write: bool = True

    # -- existing tables ---------------------------------------------------------------------------------------------

    def restore(self, table: TableInfo, version: int, *, rename: bool = False) -> RestoredTable:
        """Restore a table to a snapshot: rows, row ids, columns, layout, tags; with ``rename`` also its name.

        Raise ``NotFoundError`` when the snapshot has no such table or no longer exists.
        """
        past = self._past(table, version)
        after = evolution.alter(self.context, self.tx, table, past.columns.schema)
        name = past.table.name if rename else table.name
        after = self._laid_out(after, replace(after, name=name, partition=past.table.partition, sort=past.table.sort))
        tagged = self._restore_tags(after, past.tags)
        deleted, inserted = self._restore_rows(after, past)
        altered = tagged or replace(after, schema_version=table.schema_version) != table
        return RestoredTable(after.qualified_name, inserted, deleted, altered, past.columns.kept)

    def _laid_out(self, before: TableInfo, after: TableInfo) -> TableInfo:
        return before if before == after else self.tx.alter_table(before, after)

    def _past(self, table: TableInfo, version: int) -> _Past:
        # Use one read, so that nothing can expire in between.
        with self.tx.catalog.read() as reader:
            snapshot = reader.snapshots.at_version(version)
            old = reader.tables.by_id(snapshot, table.id) if table.id >= 0 else None
            if old is None:
                raise _not_yet(reader, snapshot, table)
            gone = missing_ids(table.schema, old.schema)
            columns = old_columns(table.schema, old.schema, reader.tables.newest_types(table.id, gone))
            wanted = replace(old, schema=columns.schema, schema_version=_UNKNOWN_VERSION)
            return _Past(old, columns, self._plan(reader, snapshot, wanted), objects.tags(reader, snapshot, table.id))

    def _plan(self, reader: Reader, snapshot: Snapshot, table: TableInfo) -> ScanPlan:
        return plan_scan(reader, self.tx.catalog, self.tx.store, snapshot, table)

    def _restore_tags(self, table: TableInfo, old: Tags) -> bool:
        """Set the tags that differ; return whether any did."""
        now, tx = self.tx.objects.tags(table), self.tx
        own = {key: old.own.get(key) for key in {*now.own, *old.own} if now.own.get(key) != old.own.get(key)}
        tx.objects.set_tags(table, own)
        changed = bool(own)
        for node in table.schema.walk():
            mine, theirs = now.columns.get(node.id, {}), old.columns.get(node.id, {})
            tags = {key: theirs.get(key) for key in {*mine, *theirs} if mine.get(key) != theirs.get(key)}
            tx.objects.set_tags(table, tags, column_id=node.id)
            changed = changed or bool(tags)
        return changed

    def _restore_rows(self, table: TableInfo, past: _Past) -> tuple[int, int]:
        """Delete the rows that the older state lacks, and insert those that it has in addition; return both counts.

        A version of a row is its row id with the snapshot that added it. Files that are the same in both states are
        ignored, and files that were added later are removed whole.
        """
        tx, now, old = self.tx, self.tx.plan(table), past.plan
        same = unchanged_files(now, old)
        newer = newer_files(now, old.snapshot_id)
        some = only_files(now, set(now.files.column("data_file_id").to_pylist()) - same - newer)
        old = only_files(old, set(old.files.column("data_file_id").to_pylist()) - same)
        check_files(tx.catalog, tx.store, old)
        deleted = self._end_newer(table, now, newer)
        if not (some.files.num_rows or old.files.num_rows or some.inlined is not None or old.inlined is not None):
            return deleted, 0
        with self.context.engine.connection() as connection:
            engine, extra = self.context.engine, {"snapshot_id": _SINCE}
            mine = engine.bind(connection, some, rows=True, virtual=extra)
            theirs = engine.bind(connection, old, rows=True, virtual=extra)
            match = f"n._ql_row_id = p._ql_row_id AND n.{_SINCE} = p.{_SINCE}"
            if past.columns.lossy:
                # The same row in another file may have been written without a restored column.
                for place in ("_ql_file_id", "_ql_version"):
                    match += f" AND n.{place} IS NOT DISTINCT FROM p.{place}"
            with writing():
                places = arrow_table(
                    connection,
                    "SELECT n._ql_file_id, n._ql_version, n._ql_position"
                    f" FROM ({mine}) n ANTI JOIN ({theirs}) p ON {match}",
                )
            columns = ", ".join(f"p.{quote(column.name)}" for column in table.schema.columns)
            fresh = (
                f"SELECT {columns}, p._ql_row_id AS {quote(NAME_ROW_ID)}"
                f" FROM ({theirs}) p ANTI JOIN ({mine}) n ON {match}"
            )
            with writing():
                inserted = self._change(connection, table, now, places, fresh)
        return deleted + int(places.num_rows), inserted

    def _end_newer(self, table: TableInfo, now: ScanPlan, newer: set[int]) -> int:
        if not newer:
            return 0
        going = only_files(now, newer, inlined=False)
        count = going.count()
        if count is None:
            count = self.context.engine.count(going, None)
        if self.write:
            pending = self.tx.pending(table)
            pending.add_read(ANYTHING)
            pending.end_files(now, newer)
        return count

    def _change(
        self, connection: duckdb.DuckDBPyConnection, table: TableInfo, now: ScanPlan, places: pa.Table, fresh: str
    ) -> int:
        """Record the rows to delete, and insert those of a query; return how many are inserted."""
        if not self.write:
            counted = first_row(connection, f"SELECT count(*) FROM ({fresh})")
            return int(counted[0]) if counted else 0
        pending = self.tx.pending(table)
        pending.add_read(ANYTHING)
        if places.num_rows:
            pending.delete(now, places_to_target(places))
        return RowWriter(self.context, self.tx, table, connection).insert_query(fresh, row_ids=True)

    # -- dropped tables ----------------------------------------------------------------------------------------------

    def undrop(self, ref: TableRef, name: str | None = None) -> tuple[str, int]:
        """Restore the most recently dropped table, view or macro of a name as it was just before the drop.

        ``name`` is a new name for it. Returns its name, and the snapshot of its state. Raise ``NotFoundError`` when
        there was none or its snapshots have expired, and ``AlreadyExistsError`` when the name is taken.
        """
        self.tx.check_writable()
        self._check_free(ref if name is None else TableRef(ref.schema, name))
        with self.tx.catalog.read() as reader:
            kind, gone, state = _find_dropped(reader, ref)
            if kind == "view":
                view = next(view for view in objects.views(reader, state) if view.id == gone.id)
                made = self.make_view(replace(view, name=name or view.name), objects.tags(reader, state, gone.id))
                return made.qualified_name, state.id
            if kind == "macro":
                macro = next(macro for macro in objects.macros(reader, state) if macro.id == gone.id)
                return self.make_macro(replace(macro, name=name or macro.name)).qualified_name, state.id
            table = self._load_dropped(reader, gone.id, state, state)
        return self._bring_back(table, name).qualified_name, state.id

    def _check_free(self, ref: TableRef) -> None:
        taken = self.tx.get_table(ref.schema, ref.name) or self.tx.objects.get_view(ref.schema, ref.name)
        if taken is not None:
            raise AlreadyExistsError(
                f'"{taken.qualified_name}" exists already',
                hint="pass as_= to bring a dropped one back under another name",
            )

    def make_view(self, old: ViewInfo, tags: Tags) -> ViewInfo:
        """Create a view again."""
        self._make_schema(old.schema_name)
        view = self.tx.objects.create_view(old.schema_name, old.name, old.sql, old.aliases, dialect=old.dialect)
        self.tx.objects.set_tags(view, tags.own)
        for column, named in tags.named.items():
            self.tx.objects.set_tags(view, named, column_name=column)
        return view

    def make_macro(self, old: MacroInfo) -> MacroInfo:
        """Create a macro again."""
        self._make_schema(old.schema_name)
        return self.tx.objects.create_macro(old.schema_name, old.name, old.variants, is_table=old.is_table)

    def _make_schema(self, name: str) -> None:
        for schema in (*above(name), name):
            self.tx.create_schema(schema, if_not_exists=True)

    def undrop_id(self, table_id: int, old: Snapshot) -> TableInfo:
        """Restore a dropped table from the files that remain of a snapshot; later ones may have expired."""
        with self.tx.catalog.read() as reader:
            reader.snapshots.at_version(old.id)
            dropped = reader.tables.drop_of(table_id)
            if dropped is None:
                raise SnapshotExpiredError(f"a table of snapshot {old.id} has expired")
            gone = self._load_dropped(reader, table_id, replace(old, id=dropped - 1), old)
        table = self._bring_back(gone)
        if table.id == table_id:
            self.restore(table, old.id, rename=True)
        return table

    def _load_dropped(self, reader: Reader, table_id: int, state: Snapshot, old: Snapshot) -> _Dropped:
        last, then = reader.tables.by_id(state, table_id), reader.tables.by_id(old, table_id)
        if last is None or then is None:
            raise SnapshotExpiredError(f"the table {table_id} has expired")
        return _Dropped(
            last,
            state,
            reader.files.count_ended(table_id, state.id + 1),
            objects.tags(reader, state, table_id),
            then,
            self._plan(reader, old, then),
            objects.tags(reader, old, table_id),
        )

    def _bring_back(self, gone: _Dropped, name: str | None = None) -> TableInfo:
        """Revive a table as it was just before the drop, or copy it from the older snapshot."""
        check_files(self.tx.catalog, self.tx.store, gone.plan)
        if all(schema.id != gone.last.schema_id for schema in self.tx.schemas()):
            # Once the old schema has expired, stock clients could not load the older states under this table's id.
            return self._copy(gone.old, gone.plan, gone.old_tags, name)
        table = replace(gone.last, name=gone.last.name if name is None else name)
        self.tx.revive_table(table, gone.state, *gone.files)
        self._restore_tags(table, gone.tags)
        return table

    def _copy(self, old: TableInfo, plan: ScanPlan, tags: Tags, name: str | None) -> TableInfo:
        """Create a table with the columns, layout and rows of one whose schema is gone."""
        tx = self.tx
        self._make_schema(old.schema_name)
        table = tx.create_table(old.schema_name, old.name if name is None else name, old.schema)
        partition = old.partition and replace(old.partition, id=tx.local_id())
        sort = old.sort and replace(old.sort, id=tx.local_id())
        table = self._laid_out(table, replace(table, partition=partition, sort=sort))
        self._restore_tags(table, tags)
        if self.write:
            with self.context.engine.connection() as connection, writing():
                query = self.context.engine.bind(connection, plan)
                RowWriter(self.context, tx, table, connection).insert_query(query)
        return table


def _find_dropped(reader: Reader, ref: TableRef) -> tuple[str, DroppedObject, Snapshot]:
    """Return the kind and id of the last object dropped under a name, and the snapshot before the drop."""
    known = ((kind, reader.tables.dropped(kind, ref.schema, ref.name)) for kind in ("table", "view", "macro"))
    dropped = [(kind, gone) for kind, gone in known if gone is not None]
    if not dropped:
        raise NotFoundError(
            f'nothing called "{ref.schema}.{ref.name}" was dropped, or its snapshots have expired',
            hint="lake.snapshots() shows what every snapshot did",
        )
    # Macros have their own namespace.
    kind, gone = max(dropped, key=lambda found: (found[0] != "macro", found[1].dropped_at))
    try:
        return kind, gone, reader.snapshots.at_version(gone.dropped_at - 1)
    except NotFoundError:
        raise SnapshotExpiredError(
            f'"{ref.schema}.{ref.name}" was dropped by snapshot {gone.dropped_at}; the one before has expired',
            hint="an older snapshot may still show it: copy its rows from there",
        ) from None


def _not_yet(reader: Reader, snapshot: Snapshot, table: TableInfo) -> NotFoundError:
    """Return the error that says why a table cannot be restored to a snapshot."""
    other = reader.tables.find(snapshot, table.schema_name, table.name)
    hint = "it was made later: lake.rollback would drop it"
    if other is not None:
        hint = "the table of that name there is another one, replaced since: lake.rollback brings it back"
    return NotFoundError(f'"{table.qualified_name}" did not exist at snapshot {snapshot.id}', hint=hint)
