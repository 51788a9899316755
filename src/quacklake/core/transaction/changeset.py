"""The changes of one transaction, as immutable data.

Ids of things that do not exist yet are negative and local to the change set; the commit replaces them, so that a change
set can be replayed as often as races are lost.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, cast

import pyarrow as pa

from quacklake.core.catalog import Writer
from quacklake.core.catalog.objects import TagRow
from quacklake.core.catalog.writing import writer as rows
from quacklake.core.format.bounds import Predicate
from quacklake.core.format.mappings import NameMapping
from quacklake.core.format.objects import BatchContent, MacroInfo, SchemaInfo, TableInfo, ViewInfo
from quacklake.core.format.schema import stored_alike
from quacklake.core.format.signatures import NO_SIGNATURE, Signature
from quacklake.core.format.snapshots import Change, ChangeKind, Snapshot
from quacklake.core.format.stats import ColumnStats


@dataclass(frozen=True, slots=True)
class ObjectChanges:
    """The changes of one transaction to views, macros and tags. Ids of new objects are negative."""

    created_views: tuple[ViewInfo, ...] = ()
    renamed_views: tuple[ViewInfo, ...] = ()
    dropped_views: tuple[ViewInfo, ...] = ()
    created_macros: tuple[MacroInfo, ...] = ()
    dropped_macros: tuple[MacroInfo, ...] = ()
    table_tags: tuple[TagRow, ...] = ()
    view_tags: tuple[TagRow, ...] = ()

    def __bool__(self) -> bool:
        return self != NO_OBJECTS

    def changes(self) -> list[Change]:
        """Return the changes in the words of the format."""
        kind = ChangeKind
        changes = [Change(kind.DROPPED_VIEW, id=view.id) for view in self.dropped_views]
        changes += [
            Change(kind.CREATED_VIEW, schema=view.schema_name, name=view.name)
            for view in (*self.created_views, *self.renamed_views)
        ]
        for macro in self.created_macros:
            made = kind.CREATED_TABLE_MACRO if macro.is_table else kind.CREATED_SCALAR_MACRO
            changes.append(Change(made, schema=macro.schema_name, name=macro.name))
        changes += [
            Change(kind.DROPPED_TABLE_MACRO if macro.is_table else kind.DROPPED_SCALAR_MACRO, id=macro.id)
            for macro in self.dropped_macros
        ]
        changes += [Change(kind.ALTERED_TABLE, id=tag.object_id) for tag in self.table_tags if tag.object_id >= 0]
        changes += [Change(kind.ALTERED_VIEW, id=tag.object_id) for tag in self.view_tags if tag.object_id >= 0]
        return changes

    def end(self, writer: Writer, base: int, snapshot: int) -> None:
        """End what is dropped or gets another name."""
        rows.end_named(writer, "view", [view.id for view in self.renamed_views], base, snapshot)
        rows.end_views(writer, [view.id for view in self.dropped_views], snapshot)
        rows.end_macros(writer, [macro.id for macro in self.dropped_macros], snapshot)

    def insert(self, writer: Writer, ids: Mapping[int, int], snapshot: int) -> None:
        """Insert what is new, with the real ids."""

        def real(id_: int) -> int:
            return ids.get(id_, id_)

        views = (*self.created_views, *self.renamed_views)
        rows.add_views(
            writer, [replace(view, id=real(view.id), schema_id=real(view.schema_id)) for view in views], snapshot
        )
        rows.add_macros(
            writer,
            [replace(macro, id=real(macro.id), schema_id=real(macro.schema_id)) for macro in self.created_macros],
            snapshot,
        )
        tags = [replace(tag, object_id=real(tag.object_id)) for tag in (*self.table_tags, *self.view_tags)]
        rows.add_tags(writer, tags, snapshot)


NO_OBJECTS = ObjectChanges()
"""No change."""


@dataclass(frozen=True, slots=True)
class NewDataFile:
    """A data file that is written but not yet part of the lake; ``path`` is below the table's folder.

    ``partition_id`` names the partitioning it was written under, ``partition_values`` are the texts of its keys. A file
    from elsewhere has a name mapping; when it is not in the table's folder, ``path`` is absolute and ``location`` is
    what the store calls it. One whose rows were ``moved`` from elsewhere in the lake has their ids inside. With their
    snapshots inside too, the oldest of these is its ``begin_snapshot`` and ``partial_max`` the newest.
    """

    id: int
    path: str
    record_count: int
    file_size_bytes: int
    footer_size: int | None
    stats: tuple[ColumnStats, ...]
    encryption_key: str | None = field(default=None, repr=False)
    mapping_id: int | None = None
    location: str | None = None
    partition_id: int | None = None
    partition_values: Mapping[int, str | None] = field(default_factory=dict)
    moved: bool = False
    begin_snapshot: int | None = None
    partial_max: int | None = None
    row_groups: int | None = None


@dataclass(frozen=True, slots=True)
class NewDeleteFile:
    """The delete file of one data file, with all its deletes.

    One that ``replaces`` another holds the deletes of several snapshots, and began when the other did. Its new deletes
    are dated ``snapshot``, a guess that the commit corrects.
    """

    data_file_id: int
    path: str
    delete_count: int
    file_size_bytes: int
    footer_size: int | None
    replaces: int | None = None
    begin_snapshot: int | None = None
    snapshot: int | None = None
    format: str = "parquet"
    encryption_key: str | None = field(default=None, repr=False)
    row_groups: int | None = None


@dataclass(frozen=True, slots=True)
class PastDeleteFile:
    """All deletes of a data file up to now, each row with its snapshot."""

    data_file_id: int
    path: str
    delete_count: int
    file_size_bytes: int
    footer_size: int | None
    replaces: int | None
    begin_snapshot: int
    partial_max: int | None
    format: str = "parquet"
    encryption_key: str | None = field(default=None, repr=False)
    row_groups: int | None = None


@dataclass(frozen=True, slots=True)
class FlushedRows:
    """Inlined rows of one schema version up to snapshot ``through`` that files hold now: ``count``, with ended ones.

    They came after snapshot ``since``. Where only some of these go, ``row_ids`` are theirs.
    """

    schema_version: int
    through: int
    count: int
    since: int = -1
    row_ids: tuple[int, ...] | None = None


#: Writes a delete file again with another date for its new deletes.
Redate = Callable[[TableInfo, NewDeleteFile, int], NewDeleteFile]


@dataclass(frozen=True, slots=True, eq=False)
class InlinedInsert:
    """Rows for the catalog itself: typed for reading, encoded for writing. A row id of None is given at commit."""

    rows: pa.Table
    encoded: tuple[tuple[object, ...], ...]
    row_ids: tuple[int | None, ...]
    stats: tuple[ColumnStats, ...]


@dataclass(frozen=True, slots=True)
class TableChange:
    """The changes to one table's rows.

    ``touched`` are the committed data files whose rows are deleted, each with the delete file it had; ``reads`` is what
    the change depends on having read, or None for a blind one. A change that only moves rows has its kinds in
    ``compaction``. It may take whole files out of the lake, history included (``replaced_files``), and give live data
    files another delete file with the same deletes (``dated_deletes``). ``removed_bytes`` is the size of the data files
    that it ends or replaces.
    """

    table: TableInfo
    data_files: tuple[NewDataFile, ...] = ()
    inlined: tuple[InlinedInsert, ...] = ()
    delete_files: tuple[NewDeleteFile, ...] = ()
    inlined_deletes: tuple[tuple[int, int], ...] = ()
    ended_rows: Mapping[int, tuple[int, ...]] = field(default_factory=dict)
    ended_files: tuple[int, ...] = ()
    past_deletes: tuple[PastDeleteFile, ...] = ()
    touched: Mapping[int, int | None] = field(default_factory=dict)
    reads: Predicate | None = None
    mappings: tuple[NameMapping, ...] = ()
    compaction: tuple[ChangeKind, ...] = ()
    replaced_files: tuple[int, ...] = ()
    dated_deletes: tuple[PastDeleteFile, ...] = ()
    flushed: tuple[FlushedRows, ...] = ()
    removed_bytes: int = 0

    def paths(self) -> list[str]:
        """Return the new files, below the table's folder."""
        deletes = [file.path for file in self.delete_files]
        deletes += [file.path for file in (*self.past_deletes, *self.dated_deletes)]
        return [file.path for file in self.data_files] + deletes

    def kinds(self) -> tuple[ChangeKind, ...]:
        """Return the words that describe this change."""
        if self.compaction:
            return self.compaction
        kinds = []
        if self.data_files:
            kinds.append(ChangeKind.INSERTED_INTO_TABLE)
        if self.delete_files or self.ended_files:
            kinds.append(ChangeKind.DELETED_FROM_TABLE)
        if self.inlined:
            kinds.append(ChangeKind.INLINED_INSERT)
        if self.inlined_deletes or self.ended_rows:
            kinds.append(ChangeKind.INLINED_DELETE)
        return tuple(kinds)


@dataclass(frozen=True, slots=True)
class AlteredTable:
    """A committed table before and after a transaction: its name, columns, partitioning or order."""

    before: TableInfo
    after: TableInfo

    @property
    def id(self) -> int:
        return self.before.id

    @property
    def renamed(self) -> bool:
        """True when the table has another name."""
        return self.before.name != self.after.name

    @property
    def reshaped(self) -> bool:
        """True when a column or the partitioning differs: then it has its own schema version and inlined rows."""
        return self.before.schema != self.after.schema or self.repartitioned

    @property
    def repartitioned(self) -> bool:
        """True when new files are partitioned in another way."""
        return self.before.partition != self.after.partition

    @property
    def resorted(self) -> bool:
        """True when new files are sorted in another way."""
        return self.before.sort != self.after.sort

    @property
    def stored_otherwise(self) -> bool:
        """True when inlined rows get another table: for other columns or, as stock clients do, another partitioning."""
        return self.repartitioned or not stored_alike(self.before.schema, self.after.schema)

    @property
    def altered(self) -> bool:
        """True when anything but the name differs."""
        return replace(self.before, name=self.after.name) != self.after


@dataclass(frozen=True, slots=True)
class RevivedTable:
    """A dropped table that comes back as ``table`` with its files, and the rows it had at the snapshot ``state``."""

    table: TableInfo
    state: Snapshot
    data_files: int
    delete_files: int

    @property
    def id(self) -> int:
        return self.table.id

    @property
    def dropped_at(self) -> int:
        """The snapshot that dropped it."""
        return self.state.id + 1


@dataclass(frozen=True, slots=True)
class PendingMark:
    """A batch of a stream that is to be marked: see ``Transaction.mark``, and ``mark_once`` for one with ``once``."""

    stream: str
    run: str
    epoch: int
    position: str | None = None
    gaps: bool = False
    manifest: str | None = None
    keep: int = 3
    finished: bool = False
    starts: str | None = None
    """The query of a stream that nobody has claimed: this batch begins it."""
    once: str | None = None
    content: BatchContent | None = None


@dataclass(frozen=True, slots=True)
class ChangeSet:
    """Everything one transaction will change. ``token`` identifies the commit for as long as the lake lives.

    ``inlining`` are the created and altered tables whose small inserts will go into the catalog. ``marks`` are
    committed with the changes, and the streams in ``forgotten`` are gone with them; without any change they make no
    snapshot.
    """

    token: str
    base: Snapshot
    tables: tuple[TableChange, ...] = ()
    created_schemas: tuple[SchemaInfo, ...] = ()
    created_tables: tuple[TableInfo, ...] = ()
    altered_tables: tuple[AlteredTable, ...] = ()
    dropped_tables: tuple[TableInfo, ...] = ()
    revived_tables: tuple[RevivedTable, ...] = ()
    dropped_schemas: tuple[SchemaInfo, ...] = ()
    objects: ObjectChanges = NO_OBJECTS
    inlining: frozenset[int] = frozenset()
    schema_ids: Mapping[str, int] = field(default_factory=dict)
    marks: tuple[PendingMark, ...] = ()
    forgotten: tuple[str, ...] = ()
    signature: Signature = NO_SIGNATURE

    @property
    def empty(self) -> bool:
        """True when there is nothing to commit."""
        return not (any(map(TableChange.kinds, self.tables)) or self.changes())

    @property
    def alters_schema(self) -> bool:
        """True when anything but rows is made, altered or dropped."""
        tables = (self.created_tables, self.altered_tables, self.dropped_tables, self.revived_tables)
        return any((*tables, self.created_schemas, self.dropped_schemas, self.objects))

    @property
    def blind(self) -> bool:
        """True when nothing but rows is added, and nothing was read for it."""
        return not self.alters_schema and all(
            not table.touched and not table.ended_rows and table.reads is None and not table.compaction
            for table in self.tables
        )

    @property
    def only_adds(self) -> bool:
        """True when it adds rows to tables, and does nothing else."""
        return _other_changes(self) == _NO_OTHER_CHANGES and all(
            _other_rows(table) == _NO_OTHER_ROWS for table in self.tables
        )

    @property
    def added_rows(self) -> int:
        """The rows that it writes, updated ones among them; those that a compaction moves do not count."""
        changed = [table for table in self.tables if not table.compaction]
        in_files = sum(file.record_count for table in changed for file in table.data_files)
        return in_files + sum(len(insert.row_ids) for table in changed for insert in table.inlined)

    @property
    def only_moves(self) -> bool:
        """True when rows change their place and nothing else does."""
        return bool(self.tables) and all(table.compaction for table in self.tables) and not self.alters_schema

    @property
    def more_tables(self) -> int:
        """By how many the tables become more."""
        return len(self.created_tables) + len(self.revived_tables) - len(self.dropped_tables)

    @property
    def adds_rows(self) -> bool:
        """True when the lake gets rows: new ones, or those of a table that comes back."""
        return bool(self.revived_tables) or any(table.data_files or table.inlined for table in self.tables)

    @property
    def added_bytes(self) -> int:
        """The size of the new data files."""
        return sum(file.file_size_bytes for table in self.tables for file in table.data_files)

    def new_ids(self) -> list[int]:
        """Return the local ids of everything in the catalog that it makes, layouts of tables among it."""
        tables = [*self.created_tables, *(table.after for table in self.altered_tables)]
        layouts = [spec.id for table in tables for spec in (table.partition, table.sort) if spec is not None]
        ids = [schema.id for schema in self.created_schemas] + [table.id for table in self.created_tables]
        ids += [id_ for id_ in layouts if id_ < 0]
        return [*ids, *(view.id for view in self.objects.created_views), *(m.id for m in self.objects.created_macros)]

    def changes(self, ids: Mapping[int, int] | None = None) -> list[Change]:
        """Return the changes in the words of the format, with local ids replaced by ``ids``."""
        real = ids or {}
        changes = self._altering(real) if self.alters_schema else []
        for table in self.tables:
            id_ = real.get(table.table.id, table.table.id)
            changes += [Change(kind, id=id_) for kind in table.kinds() if id_ >= 0]
        return changes

    def _altering(self, real: Mapping[int, int]) -> list[Change]:
        """Return the changes of anything but rows."""
        changes = [Change(ChangeKind.DROPPED_SCHEMA, id=schema.id) for schema in self.dropped_schemas]
        changes += self.objects.changes()
        changes += [Change(ChangeKind.DROPPED_TABLE, id=table.id) for table in self.dropped_tables]
        changes += [Change(ChangeKind.CREATED_SCHEMA, schema=schema.name) for schema in self.created_schemas]
        named = [*self.created_tables, *(table.after for table in self.altered_tables if table.renamed)]
        named += [revived.table for revived in self.revived_tables]
        changes += [Change(ChangeKind.CREATED_TABLE, schema=table.schema_name, name=table.name) for table in named]
        changes += [Change(ChangeKind.ALTERED_TABLE, id=table.id) for table in self.altered_tables if table.altered]
        laid_out = [table.id for table in self.created_tables if table.partition is not None or table.sort is not None]
        changes += [Change(ChangeKind.ALTERED_TABLE, id=real[id_]) for id_ in laid_out if id_ in real]
        return changes

    def dated(self, snapshot: int, redate: Redate) -> ChangeSet:
        """Return the change set for a snapshot id; delete files with another date are written again."""
        if all(file.snapshot in (None, snapshot) for table in self.tables for file in table.delete_files):
            return self
        tables = [
            replace(
                table,
                delete_files=tuple(
                    file if file.snapshot in (None, snapshot) else redate(table.table, file, snapshot)
                    for file in table.delete_files
                ),
            )
            for table in self.tables
        ]
        return replace(self, tables=tuple(tables))

    def without_bounds(self, columns_of: Callable[[TableInfo], Collection[int]]) -> ChangeSet:
        """Return the change set without the bounds of some columns of each table."""
        tables = [_without_bounds(table, columns_of(table.table)) for table in self.tables]
        return self if all(map(operator.is_, tables, self.tables)) else replace(self, tables=tuple(tables))


def _all_but(kind: Any, *known: str) -> operator.attrgetter[Any]:
    """Return what gets the values of all fields of a class but a few."""
    return operator.attrgetter(*(each.name for each in fields(kind) if each.name not in known))


_other_rows = _all_but(TableChange, "table", "data_files", "inlined")
_other_changes = _all_but(ChangeSet, "token", "base", "tables", "schema_ids", "signature")
_NO_OTHER_ROWS = _other_rows(TableChange(cast(Any, None)))
_NO_OTHER_CHANGES = _other_changes(ChangeSet("", cast(Any, None)))


def _without_bounds(change: TableChange, columns: Collection[int]) -> TableChange:
    if not columns:
        return change

    def bare(stats: tuple[ColumnStats, ...]) -> tuple[ColumnStats, ...]:
        nothing: dict[str, Any] = dict.fromkeys(("min", "max", "min_exact", "max_exact"))
        return tuple(each._replace(**nothing) if each.column_id in columns else each for each in stats)

    return replace(
        change,
        data_files=tuple(replace(file, stats=bare(file.stats)) for file in change.data_files),
        inlined=tuple(replace(insert, stats=bare(insert.stats)) for insert in change.inlined),
    )
