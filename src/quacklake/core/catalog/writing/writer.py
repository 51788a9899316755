"""Writing a lake's metadata: the primitives of one commit, and the tables of a new lake.

Every method is one statement (an ``executemany`` counts as one), so that a commit has a constant number of them.
"""

from __future__ import annotations

import datetime as dt
import uuid
from collections.abc import Container, Sequence
from operator import attrgetter
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection
from sqlalchemy.schema import CreateTable

from quacklake.core.catalog.databases.database import Database
from quacklake.core.catalog.objects import TagRow
from quacklake.core.catalog.reading.reader import Reader
from quacklake.core.catalog.reading.tables import SnapshotQueries, TableQueries
from quacklake.core.catalog.shared_lake import create_views
from quacklake.core.catalog.statements import Step, WriteStatements
from quacklake.core.catalog.tables import Tables
from quacklake.core.catalog.writing.files import FileUpdates, InlinedUpdates
from quacklake.core.format.layout import PartitionSpec, SortSpec
from quacklake.core.format.names import parts_of, quote
from quacklake.core.format.objects import MacroInfo, SchemaInfo, TableInfo, ViewInfo
from quacklake.core.format.options import OptionRow
from quacklake.core.format.schema import ColumnRow
from quacklake.core.format.signatures import NO_SIGNATURE, Signature
from quacklake.core.format.snapshots import Change, ChangeKind, Snapshot, render_changes
from quacklake.errors import CommitConflict

_column_values = attrgetter(*ColumnRow.__slots__)


class SnapshotUpdates(SnapshotQueries):
    """Writes the snapshot of a commit."""

    _sql: Writer

    def add(self, snapshot: Snapshot, changes: Sequence[Change], signature: Signature = NO_SIGNATURE) -> None:
        """Insert a snapshot and what it changed."""
        counters = (snapshot.schema_version, snapshot.next_catalog_id, snapshot.next_file_id)
        self._sql.insert(
            "snapshot",
            "snapshot_id snapshot_time schema_version next_catalog_id next_file_id",
            [(snapshot.id, snapshot.time, *counters)],
        )
        self._sql.insert(
            "snapshot_changes",
            "snapshot_id changes_made author commit_message commit_extra_info",
            [(snapshot.id, render_changes(changes), signature.author, signature.message, signature.extra)],
        )

    def add_token(self, token: str, snapshot_id: int) -> None:
        """Remember a commit by its token, so that a lost answer can be found again."""
        self._sql.insert_many("add_token", self.meta.own["commits"], ("token", "snapshot_id"), [(token, snapshot_id)])


class TableUpdates(TableQueries):
    """Writes the schemas and tables of a commit."""

    _sql: Writer

    def add_schemas(self, schemas: Sequence[SchemaInfo], snapshot: int) -> None:
        """Insert schemas that begin at a snapshot."""
        self._sql.insert(
            "schema",
            "schema_id schema_uuid begin_snapshot end_snapshot schema_name path path_is_relative parent_schema_id",
            [
                (s.id, s.uuid, snapshot, None, parts_of(s.name)[-1], s.path, s.path_is_relative, s.parent_id)
                for s in schemas
            ],
        )

    def add_tables(self, tables: Sequence[TableInfo], snapshot: int) -> None:
        """Insert table rows that begin at a snapshot, without their columns."""
        self._sql.insert(
            "table",
            "table_id table_uuid begin_snapshot end_snapshot schema_id table_name path path_is_relative",
            [(t.id, t.uuid, snapshot, None, t.schema_id, t.name, t.path, t.path_is_relative) for t in tables],
        )

    def add_columns(self, rows: Sequence[tuple[int, ColumnRow]], snapshot: int) -> None:
        """Insert columns: the table's id and the row of each."""
        values = [(table_id, snapshot, None, *_column_values(row)) for table_id, row in rows]
        self._sql.insert("column", f"table_id begin_snapshot end_snapshot {' '.join(ColumnRow.__slots__)}", values)

    def end_columns(self, table_id: int, ids: Sequence[int], snapshot: int) -> None:
        """End columns of a table, or nodes inside them."""
        self._end_some("column", table_id, ids, snapshot)

    def end_column_tags(self, table_id: int, ids: Sequence[int], snapshot: int) -> None:
        """End the tags of columns that are dropped, as 1.1 does; in 1.0 they stay."""
        if self.meta.is_next:
            self._end_some("column_tag", table_id, ids, snapshot)

    def _end_some(self, name: str, table_id: int, ids: Sequence[int], snapshot: int) -> None:
        if ids:
            t = self.meta[name]
            chosen = (t.c.table_id == table_id, t.c.column_id.in_(list(ids)), t.c.end_snapshot.is_(None))
            self._sql.run(f"end_{name}s", sa.update(t).where(*chosen).values(end_snapshot=snapshot))

    def add_schema_versions(self, table_ids: Sequence[int], snapshot: Snapshot) -> None:
        """Note that these tables changed their shape or name with a snapshot."""
        rows = [(snapshot.id, snapshot.schema_version, id_) for id_ in table_ids]
        self._sql.insert("schema_versions", "begin_snapshot schema_version table_id", rows)

    def end_layouts(self, partitioned: Sequence[int], sorted_: Sequence[int], snapshot: int) -> None:
        """End the partitioning of some tables and the order of some."""
        self._sql.end("partition_info", "table_id", partitioned, snapshot)
        self._sql.end("sort_info", "table_id", sorted_, snapshot)

    def add_partitions(
        self, specs: Sequence[tuple[int, PartitionSpec]], snapshot: int, known: Container[int] = ()
    ) -> None:
        """Insert partitionings that begin at a snapshot: the table's id and the partitioning of each.

        Those whose ids are ``known`` come back: their keys are in the catalog.
        """
        heads = [(spec.id, table_id, snapshot, None) for table_id, spec in specs]
        self._sql.insert("partition_info", "partition_id table_id begin_snapshot end_snapshot", heads)
        self._sql.insert(
            "partition_column",
            "partition_id table_id partition_key_index column_id transform",
            [
                (spec.id, table_id, key.index, key.column_id, key.transform)
                for table_id, spec in specs
                if spec.id not in known
                for key in spec.keys
            ],
        )

    def add_sorts(self, specs: Sequence[tuple[int, SortSpec]], snapshot: int, known: Container[int] = ()) -> None:
        """Insert orders that begin at a snapshot, as ``add_partitions`` does partitionings."""
        heads = [(spec.id, table_id, snapshot, None) for table_id, spec in specs]
        self._sql.insert("sort_info", "sort_id table_id begin_snapshot end_snapshot", heads)
        self._sql.insert(
            "sort_expression",
            "sort_id table_id sort_key_index expression dialect sort_direction null_order",
            [
                (spec.id, table_id, index, key.expression, key.dialect, key.direction, key.null_order)
                for table_id, spec in specs
                if spec.id not in known
                for index, key in enumerate(spec.keys)
            ],
        )

    def end_schemas(self, ids: Sequence[int], snapshot: int) -> None:
        """End schemas."""
        self._sql.end("schema", "schema_id", ids, snapshot)

    def end_tables(self, ids: Sequence[int], snapshot: int) -> None:
        """End tables with all that belongs to them."""
        for name in ("table", "column", "data_file", "delete_file", "partition_info", "sort_info", "column_tag"):
            self._sql.end(name, "table_id", ids, snapshot)
        self._sql.end("tag", "object_id", ids, snapshot)

    def check_dropped(self, table_id: int, dropped_at: int) -> None:
        """Raise ``CommitConflict`` unless a table was dropped by that snapshot and is still known."""
        if self.drop_of(table_id) != dropped_at:
            raise CommitConflict("the dropped table to restore was restored or expired by another commit")


class Writer(Reader, WriteStatements):
    """The commit transaction: a reader that also writes. It sees everything committed before its turn."""

    snapshots: SnapshotUpdates
    tables: TableUpdates
    inlined: InlinedUpdates
    files: FileUpdates

    def __init__(self, connection: Connection, tables: Tables, database: Database, cache: dict[Any, Any]) -> None:
        WriteStatements.__init__(self, connection, tables, database, cache)  # a reader's parts would not write
        self.snapshots = SnapshotUpdates(self)
        self.tables = TableUpdates(self)
        self.inlined = InlinedUpdates(self)
        self.files = FileUpdates(self)

    def add_options(self, options: Sequence[OptionRow]) -> None:
        """Insert options."""
        self.insert("metadata", "key value scope scope_id", [(o.key, o.value, o.scope, o.scope_id) for o in options])

    def put_option(self, option: OptionRow) -> None:
        """Set an option in its scope, replacing what it was."""
        self.drop_option(option)
        self.add_options([option])

    def drop_option(self, option: OptionRow) -> None:
        """Take an option out of its scope."""
        t = self.meta["metadata"]
        # a comparison with None is IS NULL
        mine = (t.c.key == option.key, t.c.scope == option.scope, t.c.scope_id == option.scope_id)
        self.run("delete_option", sa.delete(t).where(*mine))

    def run_sql(self, text: str) -> int:
        """Run a statement as it is; return how many rows it changed."""
        result = self.connection.exec_driver_sql(text)
        if result.returns_rows:  # those of RETURNING; DuckDB answers with the number otherwise
            counted = self.connection.dialect.name == "duckdb" and list(result.keys()) == ["Count"]
            rows = result.fetchall()
            return int(rows[0][0]) if counted else len(rows)
        if result.rowcount < 0 and self.connection.dialect.name == "sqlite":  # a statement that begins with WITH
            return int(self.connection.exec_driver_sql("SELECT changes()").scalar_one())
        return max(int(result.rowcount), 0)


# -- views, macros and tags --------------------------------------------------------------------------------------------


def add_views(writer: Writer, views: Sequence[ViewInfo], snapshot: int) -> None:
    """Insert views that begin at a snapshot."""
    columns = "view_id view_uuid begin_snapshot end_snapshot schema_id view_name dialect sql column_aliases"
    rows = [
        (v.id, v.uuid, snapshot, None, v.schema_id, v.name, v.dialect, v.sql, ",".join(map(quote, v.aliases)))
        for v in views
    ]
    writer.insert("view", columns, rows)


def end_views(writer: Writer, ids: Sequence[int], snapshot: int) -> None:
    """End views with their tags."""
    writer.end("view", "view_id", ids, snapshot)
    writer.end("tag", "object_id", ids, snapshot)
    if "view_column_tag" in writer.meta:
        writer.end("view_column_tag", "view_id", ids, snapshot)


def end_named(writer: Writer, kind: str, ids: Sequence[int], base: int, snapshot: int) -> None:
    """End the rows that named tables or views at the snapshot ``base``, as a rename does.

    A rename by another commit leaves no trace but such a row: one that begins later is a conflict.
    """
    if ids:
        t = writer.meta[kind]
        mine = (t.c[f"{kind}_id"].in_(list(ids)), t.c.end_snapshot.is_(None), t.c.begin_snapshot <= base)
        if writer.update(f"end_{kind}_rows", sa.update(t).where(*mine).values(end_snapshot=snapshot)) != len(ids):
            raise CommitConflict(f"a {kind} to be renamed was renamed or dropped by another commit")


def add_macros(writer: Writer, macros: Sequence[MacroInfo], snapshot: int) -> None:
    """Insert macros that begin at a snapshot."""
    writer.insert(
        "macro",
        "schema_id macro_id macro_name begin_snapshot end_snapshot",
        [(macro.schema_id, macro.id, macro.name, snapshot, None) for macro in macros],
    )
    variants = [(macro, number, variant) for macro in macros for number, variant in enumerate(macro.variants)]
    writer.insert(
        "macro_impl",
        "macro_id impl_id dialect sql type",
        [(m.id, number, v.dialect, v.sql, "table" if m.is_table else "scalar") for m, number, v in variants],
    )
    writer.insert(
        "macro_parameters",
        "macro_id impl_id column_id parameter_name parameter_type default_value default_value_type",
        [
            (macro.id, number, position, p.name, p.type, "NULL" if p.default is None else p.default, p.default_type)
            for macro, number, variant in variants
            for position, p in enumerate(variant.parameters)
        ],
    )


def end_macros(writer: Writer, ids: Sequence[int], snapshot: int) -> None:
    """End macros."""
    writer.end("macro", "macro_id", ids, snapshot)


#: The tables of tags: the columns that name what bears a tag, and the column of it.
_TAG_TABLES = {
    "tag": ("object_id", None),
    "column_tag": ("table_id", "column_id"),
    "view_column_tag": ("view_id", "column_name"),
}


def _tag_table(row: TagRow) -> str:
    if row.column_name is not None:
        return "view_column_tag"
    return "tag" if row.column_id is None else "column_tag"


def add_tags(writer: Writer, rows: Sequence[TagRow], snapshot: int) -> None:
    """Set tags: what they were ends, also where they are taken away, which leaves a tag without a value."""
    for name, (owner, member) in _TAG_TABLES.items():
        group = [row for row in rows if _tag_table(row) == name]
        if not group:
            continue
        t = writer.meta[name]
        mine = [t.c[owner] == sa.bindparam("owner"), t.c.key == sa.bindparam("which")]
        mine += [] if member is None else [t.c[member] == sa.bindparam("member")]
        ending = sa.update(t).where(*mine, t.c.end_snapshot.is_(None)).values(end_snapshot=snapshot)
        members = [() if member is None else (getattr(row, member),) for row in group]
        names = ("owner", "which", *(() if member is None else ("member",)))
        found = [(row.object_id, row.key, *more) for row, more in zip(group, members, strict=True)]
        writer.run(f"end_{name}", ending, [dict(zip(names, values, strict=True)) for values in found])
        writer.insert(
            name,
            f"{owner} {member or ''} begin_snapshot end_snapshot key value",
            [
                (row.object_id, *more, snapshot, None, row.key, row.value)
                for row, more in zip(group, members, strict=True)
            ],
        )


# -- a new lake --------------------------------------------------------------------------------------------------------


def create_tables(writer: Writer) -> None:
    """Create every table of a lake, empty, exactly as stock DuckLake does, and ours beside them."""
    schema = writer.meta.metadata.schema
    # on MySQL a failed creation may have left some tables
    fresh = writer.backend.name != "mysql"
    if schema is not None:
        writer.run("create_metadata_schema", sa.schema.CreateSchema(schema, if_not_exists=True))
    for table in writer.meta.stock():
        text = _definition(writer, writer.meta, CreateTable(table, if_not_exists=not fresh))
        with Step("create_table", text):
            writer.connection.exec_driver_sql(text)
    create_own(writer, writer.meta, fresh=fresh)


def create_own(writer: Writer, tables: Tables, *, fresh: bool = False) -> None:
    """Create our tables and indexes, where they are missing unless the lake is ``fresh``."""
    connection, database, schema = writer.connection, writer.backend, tables.metadata.schema
    for table in tables.own.values():
        connection.exec_driver_sql(_definition(writer, tables, CreateTable(table, if_not_exists=True)))
    if database.name != "duckdb":
        # DuckDB scans columns fast without one, and an index there makes updates of a row fail in one transaction
        have = set() if fresh else database.index_names(connection, schema)
        for index in tables.indexes(database.name):
            if index.name not in have:
                connection.exec_driver_sql(_definition(writer, tables, sa.schema.CreateIndex(index)))
    if database.name == "postgres":
        create_views(connection, schema)


def _definition(writer: Writer, tables: Tables, element: CreateTable | sa.schema.CreateIndex) -> str:
    """Return the text of a definition. It is made once per process: that takes most of the time of a new lake."""
    dialect = writer.connection.dialect
    key = (type(element), element.element.name, element.if_not_exists, dialect.name, dialect.server_version_info)
    text = tables.definitions.get(key)
    if text is None:
        text = tables.definitions[key] = str(element.compile(dialect=dialect))
    return text


def add_first_rows(writer: Writer, data_path: str, *, encrypted: bool) -> None:
    """Insert the metadata of the lake, and its first snapshot with the schema ``main``."""
    rows = {"version": writer.meta.version, "created_by": "quacklake", "data_path": data_path}
    rows["encrypted"] = "true" if encrypted else "false"
    writer.add_options([OptionRow(key, value) for key, value in rows.items()])
    first = Snapshot(0, dt.datetime.now(dt.UTC), 0, 1, 0)
    writer.snapshots.add(first, [Change(ChangeKind.CREATED_SCHEMA, schema="main")])
    writer.tables.add_schemas([SchemaInfo(0, str(uuid.uuid4()), "main", "main/", True)], 0)
