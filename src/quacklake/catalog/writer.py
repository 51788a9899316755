"""Writing a lake's metadata: the primitives of one commit.

Every method is one statement (an ``executemany`` counts as one), whatever the number of rows, so that a commit has a
constant number of statements.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict
from typing import Any

import sqlalchemy as sa
from sqlalchemy.schema import CreateIndex

from quacklake import faults, telemetry
from quacklake.catalog.inlined import InlinedTable, delete_table
from quacklake.catalog.reader import Reader
from quacklake.catalog.totals import TableTotals, Totals
from quacklake.errors import CommitConflict
from quacklake.format.changes import Change, render
from quacklake.format.inline import data_table_name
from quacklake.format.mappings import MAP_BY_NAME, NameMapping, flatten_mapping
from quacklake.format.objects import DataFile, DeleteFile, SchemaInfo, TableInfo
from quacklake.format.options import OptionRow
from quacklake.format.partitions import PartitionSpec
from quacklake.format.schema import ColumnRow, TableSchema
from quacklake.format.shapes import stored_alike
from quacklake.format.snapshots import Snapshot
from quacklake.format.sorting import SortSpec
from quacklake.format.stats import ColumnStats, TableColumnStats
from quacklake.format.variants import parse_fields

__all__ = ["Writer"]

Rows = list[dict[str, Any]]


class Writer(Reader):
    """The commit transaction: a reader that also inserts. It sees everything committed before its turn."""

    def _insert(self, name: str, rows: Rows) -> None:
        if rows:
            self._insert_many(f"insert_{name}", self._t[name], list(rows[0]), [list(row.values()) for row in rows])

    def _insert_many(self, name: str, table: sa.Table, keys: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
        """Insert rows in bulk; one statement, whatever their number."""
        faults.reach(f"catalog.{name}.before")
        self._database.insert_many(self._connection, table, keys, rows)
        telemetry.count("catalog.statements")
        faults.reach(f"catalog.{name}.after")

    def _insert_small(self, table: sa.Table, keys: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
        """Insert a few rows, inside a batch too."""
        if rows:
            statement = self._cached(("insert", table.name), lambda: sa.insert(table))
            self.run(f"insert_{table.name}", statement, [dict(zip(keys, row, strict=True)) for row in rows])

    def _end(self, name: str, key: str, ids: Sequence[int], snapshot: int) -> int:
        """Give every live row with these ids its end; returns how many there were."""
        if not ids:
            return 0
        table = self._t[name]

        def build() -> Any:
            return (
                sa.update(table)
                .where(table.c[key].in_(sa.bindparam("ids", expanding=True)), table.c.end_snapshot.is_(None))
                .values(end_snapshot=sa.bindparam("snapshot"))
            )

        statement = self._cached(("end", name, key), build)
        return self._update(f"end_{name}", statement, {"ids": list(ids), "snapshot": snapshot})

    def _update(self, name: str, statement: sa.Update, parameters: dict[str, Any] | None = None) -> int:
        """Run an update; returns how many rows it changed."""
        if self._database.name != "duckdb":
            return self.run(name, statement, parameters).rowcount
        # duckdb's Python client reports no row count
        table: Any = statement.table
        count = sa.select(sa.func.count()).select_from(table).where(*statement._where_criteria)
        changed = int(self.run(f"{name}_count", count, parameters).scalar_one())
        self.run(name, statement, parameters)
        return changed

    def batch(self) -> AbstractContextManager[None]:
        """A block of small statements whose results nobody reads; on a network they share one round trip."""
        return self._database.batch(self._connection)

    @property
    def batch_rows(self) -> int:
        """How many rows an insert may have inside a batch."""
        return self._database.batch_rows

    # -- the snapshot itself -----------------------------------------------------------------------------------------

    def add_snapshot(
        self, snapshot: Snapshot, changes: Sequence[Change], author: str | None, message: str | None, extra: str | None
    ) -> None:
        """Insert a snapshot and what it changed."""
        self._insert(
            "snapshot",
            [
                {
                    "snapshot_id": snapshot.id,
                    "snapshot_time": snapshot.time,
                    "schema_version": snapshot.schema_version,
                    "next_catalog_id": snapshot.next_catalog_id,
                    "next_file_id": snapshot.next_file_id,
                }
            ],
        )
        self._insert(
            "snapshot_changes",
            [
                {
                    "snapshot_id": snapshot.id,
                    "changes_made": render(changes),
                    "author": author,
                    "commit_message": message,
                    "commit_extra_info": extra,
                }
            ],
        )

    def add_token(self, token: str, snapshot_id: int) -> None:
        """Remember a commit by its token, so that a lost answer can be found again."""
        statement = self._cached("add_token", lambda: sa.insert(self._t.own["commits"]))
        self.run("add_token", statement, [{"token": token, "snapshot_id": snapshot_id}])

    def add_options(self, options: Sequence[OptionRow]) -> None:
        """Insert options."""
        rows = [{"key": o.key, "value": o.value, "scope": o.scope, "scope_id": o.scope_id} for o in options]
        self._insert("metadata", rows)

    def put_option(self, option: OptionRow) -> None:
        """Set an option in its scope, replacing what it was."""
        self.drop_option(option)
        self.add_options([option])

    def drop_option(self, option: OptionRow) -> None:
        """Take an option out of its scope."""
        t = self._t["metadata"]
        scope = t.c.scope.is_(None) if option.scope is None else t.c.scope == option.scope
        owner = t.c.scope_id.is_(None) if option.scope_id is None else t.c.scope_id == option.scope_id
        self.run("delete_option", sa.delete(t).where(t.c.key == option.key, scope, owner))

    # -- schemas and tables ------------------------------------------------------------------------------------------

    def add_schemas(self, schemas: Sequence[SchemaInfo], snapshot: int) -> None:
        """Insert schemas that begin at a snapshot."""
        self._insert(
            "schema",
            [
                {
                    "schema_id": schema.id,
                    "schema_uuid": schema.uuid,
                    "begin_snapshot": snapshot,
                    "end_snapshot": None,
                    "schema_name": schema.name,
                    "path": schema.path,
                    "path_is_relative": schema.path_is_relative,
                }
                for schema in schemas
            ],
        )

    def add_tables(self, tables: Sequence[TableInfo], snapshot: int) -> None:
        """Insert table rows that begin at a snapshot, without their columns."""
        self._insert(
            "table",
            [
                {
                    "table_id": table.id,
                    "table_uuid": table.uuid,
                    "begin_snapshot": snapshot,
                    "end_snapshot": None,
                    "schema_id": table.schema_id,
                    "table_name": table.name,
                    "path": table.path,
                    "path_is_relative": table.path_is_relative,
                }
                for table in tables
            ],
        )

    def add_columns(self, rows: Sequence[tuple[int, ColumnRow]], snapshot: int) -> None:
        """Insert columns: the table's id and the row of each."""
        self._insert(
            "column",
            [
                {
                    "column_id": row.column_id,
                    "begin_snapshot": snapshot,
                    "end_snapshot": None,
                    "table_id": table_id,
                    "column_order": row.column_order,
                    "column_name": row.column_name,
                    "column_type": row.column_type,
                    "initial_default": row.initial_default,
                    "default_value": row.default_value,
                    "nulls_allowed": row.nulls_allowed,
                    "parent_column": row.parent_column,
                    "default_value_type": row.default_value_type,
                    "default_value_dialect": row.default_value_dialect,
                }
                for table_id, row in rows
            ],
        )

    def end_columns(self, table_id: int, ids: Sequence[int], snapshot: int) -> None:
        """End columns of a table, or nodes inside them."""
        if ids:
            c = self._t["column"]
            chosen = (c.c.table_id == table_id, c.c.column_id.in_(list(ids)), c.c.end_snapshot.is_(None))
            self.run("end_columns", sa.update(c).where(*chosen).values(end_snapshot=snapshot))

    def add_schema_versions(self, table_ids: Sequence[int], snapshot: Snapshot) -> None:
        """Note that these tables changed their shape or name with a snapshot."""
        version = snapshot.schema_version
        self._insert(
            "schema_versions",
            [{"begin_snapshot": snapshot.id, "schema_version": version, "table_id": id_} for id_ in table_ids],
        )

    def end_layouts(self, partitioned: Sequence[int], sorted_: Sequence[int], snapshot: int) -> None:
        """End the partitioning of some tables and the order of some."""
        self._end("partition_info", "table_id", partitioned, snapshot)
        self._end("sort_info", "table_id", sorted_, snapshot)

    def add_partitions(self, specs: Sequence[tuple[int, PartitionSpec]], snapshot: int) -> None:
        """Insert partitionings that begin at a snapshot: the table's id and the partitioning of each."""
        self._insert(
            "partition_info",
            [
                {"partition_id": spec.id, "table_id": table_id, "begin_snapshot": snapshot, "end_snapshot": None}
                for table_id, spec in specs
            ],
        )
        self._insert(
            "partition_column",
            [
                {
                    "partition_id": spec.id,
                    "table_id": table_id,
                    "partition_key_index": key.index,
                    "column_id": key.column_id,
                    "transform": key.transform,
                }
                for table_id, spec in specs
                for key in spec.keys
            ],
        )

    def add_sorts(self, specs: Sequence[tuple[int, SortSpec]], snapshot: int) -> None:
        """Insert orders that begin at a snapshot: the table's id and the order of each."""
        self._insert(
            "sort_info",
            [
                {"sort_id": spec.id, "table_id": table_id, "begin_snapshot": snapshot, "end_snapshot": None}
                for table_id, spec in specs
            ],
        )
        self._insert(
            "sort_expression",
            [
                {
                    "sort_id": spec.id,
                    "table_id": table_id,
                    "sort_key_index": index,
                    "expression": key.expression,
                    "dialect": key.dialect,
                    "sort_direction": key.direction,
                    "null_order": key.null_order,
                }
                for table_id, spec in specs
                for index, key in enumerate(spec.keys)
            ],
        )

    def end_schemas(self, ids: Sequence[int], snapshot: int) -> None:
        """End schemas."""
        self._end("schema", "schema_id", ids, snapshot)

    def end_table_rows(self, ids: Sequence[int], base: int, snapshot: int) -> None:
        """End the rows that named tables at the snapshot ``base``, as a rename does.

        A rename by another commit leaves no trace but such a row: one that begins later is a conflict.
        """
        if not ids:
            return
        t = self._t["table"]
        statement = (
            sa.update(t)
            .where(t.c.table_id.in_(list(ids)), t.c.end_snapshot.is_(None), t.c.begin_snapshot <= base)
            .values(end_snapshot=snapshot)
        )
        if self._update("end_table_rows", statement) != len(ids):
            raise CommitConflict("a table to be renamed was renamed or dropped by another commit")

    def end_tables(self, ids: Sequence[int], snapshot: int) -> None:
        """End tables with all that belongs to them."""
        for name in ("table", "column", "data_file", "delete_file", "partition_info", "sort_info", "column_tag"):
            self._end(name, "table_id", ids, snapshot)
        self._end("tag", "object_id", ids, snapshot)

    # -- files -------------------------------------------------------------------------------------------------------

    def add_data_files(self, files: Sequence[DataFile]) -> None:
        """Insert data files."""
        self._insert(
            "data_file",
            [
                {
                    "data_file_id": file.id,
                    "table_id": file.table_id,
                    "begin_snapshot": file.begin_snapshot,
                    "end_snapshot": file.end_snapshot,
                    "file_order": None,
                    "path": file.path,
                    "path_is_relative": file.path_is_relative,
                    "file_format": "parquet",
                    "record_count": file.record_count,
                    "file_size_bytes": file.file_size_bytes,
                    "footer_size": file.footer_size,
                    "row_id_start": file.row_id_start,
                    "partition_id": file.partition_id,
                    "encryption_key": file.encryption_key,
                    "mapping_id": file.mapping_id,
                    "partial_max": file.partial_max,
                }
                for file in files
            ],
        )

    def add_name_mappings(self, mappings: Sequence[tuple[int, NameMapping]]) -> None:
        """Insert name mappings of files from elsewhere: (table, mapping) each."""
        heads = [{"mapping_id": found.id, "table_id": table_id, "type": MAP_BY_NAME} for table_id, found in mappings]
        self._insert("column_mapping", heads)
        self._insert("name_mapping", [asdict(row) for _, mapping in mappings for row in flatten_mapping(mapping)])

    def add_file_stats(self, stats: Sequence[tuple[int, int, ColumnStats]]) -> None:
        """Insert column statistics of files: (data file, table, statistics)."""
        self._insert(
            "file_column_stats",
            [
                {
                    "data_file_id": file_id,
                    "table_id": table_id,
                    "column_id": column.column_id,
                    "column_size_bytes": column.size_bytes,
                    "value_count": column.value_count,
                    "null_count": column.null_count,
                    "min_value": column.min,
                    "max_value": column.max,
                    "contains_nan": column.contains_nan,
                    "extra_stats": column.extra,
                }
                for file_id, table_id, column in stats
            ],
        )
        self._insert(
            "file_variant_stats",
            [
                {
                    "data_file_id": file_id,
                    "table_id": table_id,
                    "column_id": column.column_id,
                    "variant_path": field.path,
                    "shredded_type": field.type,
                    "column_size_bytes": field.size_bytes,
                    "value_count": field.value_count,
                    "null_count": field.null_count,
                    "min_value": field.min,
                    "max_value": field.max,
                    "contains_nan": field.contains_nan,
                    "extra_stats": None,
                }
                for file_id, table_id, column in stats
                if column.extra is not None
                for field in parse_fields(column.extra)
            ],
        )

    def add_partition_values(self, values: Sequence[tuple[int, int, int, str | None]]) -> None:
        """Insert partition values of files: (data file, table, key index, text)."""
        names = ("data_file_id", "table_id", "partition_key_index", "partition_value")
        self._insert("file_partition_value", [dict(zip(names, row, strict=True)) for row in values])

    def add_delete_files(self, files: Sequence[DeleteFile]) -> None:
        """Insert delete files."""
        self._insert(
            "delete_file",
            [
                {
                    "delete_file_id": file.id,
                    "table_id": file.table_id,
                    "begin_snapshot": file.begin_snapshot,
                    "end_snapshot": file.end_snapshot,
                    "data_file_id": file.data_file_id,
                    "path": file.path,
                    "path_is_relative": file.path_is_relative,
                    "format": file.format,
                    "delete_count": file.delete_count,
                    "file_size_bytes": file.file_size_bytes,
                    "footer_size": file.footer_size,
                    "encryption_key": file.encryption_key,
                    "partial_max": file.partial_max,
                }
                for file in files
            ],
        )

    def end_data_files(self, ids: Sequence[int], snapshot: int) -> None:
        """End data files and the delete files that go with them."""
        if self._end("data_file", "data_file_id", ids, snapshot) != len(ids):
            raise CommitConflict("a data file to be removed was removed by another commit")
        self._end("delete_file", "data_file_id", ids, snapshot)

    def retire_delete_files(self, table: TableInfo, ids: Sequence[int], time: dt.datetime | None) -> None:
        """Take delete files out of the lake, history included, and leave their removal to the cleanup of old files."""
        if not ids:
            return
        t = self._t["delete_file"]
        chosen = (t.c.delete_file_id.in_(list(ids)), t.c.end_snapshot.is_(None))
        statement = sa.select(t.c.delete_file_id, t.c.path, t.c.path_is_relative).where(*chosen)
        found = self.run("retired_delete_files", statement).all()
        if len(found) != len(ids):
            raise CommitConflict("a delete file to be replaced was replaced by another commit")
        inside = table.path_is_relative and table.schema_path_is_relative
        self._insert(
            "files_scheduled_for_deletion",
            [
                {
                    "data_file_id": id_,
                    "path": table.location + path if is_relative else path,
                    "path_is_relative": bool(is_relative) and inside,
                    "schedule_start": time,
                }
                for id_, path, is_relative in found
            ],
        )
        self.run("retire_delete_files", sa.delete(t).where(*chosen))

    # -- totals ------------------------------------------------------------------------------------------------------

    def totals(self, table_ids: Sequence[int]) -> dict[int, Totals]:
        """The running totals of tables; a table without rows so far is absent."""
        t, c = self._t["table_stats"], self._t["table_column_stats"]

        def build() -> Any:
            return (
                sa.select(
                    t.c.table_id,
                    t.c.record_count,
                    t.c.next_row_id,
                    t.c.file_size_bytes,
                    c.c.column_id,
                    c.c.contains_null,
                    c.c.contains_nan,
                    c.c.min_value,
                    c.c.max_value,
                    c.c.extra_stats,
                )
                .select_from(t.outerjoin(c, c.c.table_id == t.c.table_id))
                .where(t.c.table_id.in_(sa.bindparam("ids", expanding=True)))
            )

        tables: dict[int, TableTotals] = {}
        columns: dict[int, dict[int, TableColumnStats]] = {}
        for row in self.run("totals", self._cached("totals", build), {"ids": list(table_ids)}):
            tables[row[0]] = TableTotals(row[1], row[2], row[3])
            known = columns.setdefault(row[0], {})
            if row[4] is not None:
                known[row[4]] = TableColumnStats(*row[4:])
        return {id_: Totals(total, columns[id_]) for id_, total in tables.items()}

    def put_totals(self, totals: Mapping[int, Totals], known: Mapping[int, Totals]) -> None:
        """Insert or update running totals; what does not change is not touched."""
        t, c = self._t["table_stats"], self._t["table_column_stats"]
        names = ("record_count", "next_row_id", "file_size_bytes")
        new = [id_ for id_ in totals if id_ not in known]
        self._insert_small(t, ("table_id", *names), [(id_, *_numbers(totals[id_])) for id_ in new])
        changed = [id_ for id_ in totals if id_ in known and known[id_].table != totals[id_].table]
        if changed:
            statement = self._cached(
                "put_totals",
                lambda: (
                    sa.update(t)
                    .where(t.c.table_id == sa.bindparam("id"))
                    .values({name: sa.bindparam(name) for name in names})
                ),
            )
            rows = [{"id": id_, **dict(zip(names, _numbers(totals[id_]), strict=True))} for id_ in changed]
            self.run("put_totals", statement, rows)
        self._put_column_totals(c, totals, known)

    def _put_column_totals(self, table: sa.Table, totals: Mapping[int, Totals], known: Mapping[int, Totals]) -> None:
        names = ("contains_null", "contains_nan", "min_value", "max_value", "extra_stats")
        new: list[tuple[Any, ...]] = []
        changed: list[tuple[Any, ...]] = []
        for id_, total in totals.items():
            before = known[id_].columns if id_ in known else {}
            for column_id, stats in total.columns.items():
                if column_id not in before:
                    new.append((id_, column_id, *_bounds(stats)))
                elif before[column_id] != stats:
                    changed.append((id_, column_id, *_bounds(stats)))
        self._insert_small(table, ("table_id", "column_id", *names), new)
        if changed:
            faults.reach("catalog.put_column_totals.before")
            self._database.update_many(self._connection, table, ("table_id", "column_id"), names, changed)
            telemetry.count("catalog.statements")
            faults.reach("catalog.put_column_totals.after")

    # -- inlined rows ------------------------------------------------------------------------------------------------

    def inlined_version(self, table: TableInfo) -> int | None:
        """The version of the inlined table that takes a table's new rows, or None when none has its columns."""
        key = ("inlined_exists", table.id, table.schema_version)
        found: int | None = self._cache.get(key)
        if found is None:
            newest = max(self.inlined_tables(table.id), default=None)
            if newest is not None and (newest >= table.schema_version or self._fits(table, newest)):
                found = self._cache[key] = newest
        return found

    def _fits(self, table: TableInfo, version: int) -> bool:
        """True when nothing but defaults and constraints has changed since a version."""
        return stored_alike(self._inlined_schema(table.id, version), table.schema)

    def add_inlined_table(self, table_id: int, schema_version: int, schema: TableSchema) -> None:
        """Make the inlined table of a schema version, which must be new: others remember what a version has.

        It counts once ``register_inlined_tables`` names it.
        """
        inlined = self.inlined_table(table_id, schema_version, schema)
        if self._database.name == "mysql":
            # a table outlives its transaction there, and a failed commit may have left one with other columns
            self.run("drop_inlined_table", sa.schema.DropTable(inlined.table, if_exists=True))
        self.run("create_inlined_table", _create(inlined))
        if self._database.name != "duckdb":
            index = sa.Index(f"quacklake_{inlined.table.name}", inlined.table.c.row_id)
            self.run("index_inlined_table", CreateIndex(index))

    def register_inlined_tables(self, table_ids: Sequence[int], schema_version: int) -> None:
        """Let everybody know of the new inlined tables of a schema version."""
        self._insert(
            "inlined_data_tables",
            [
                {"table_id": id_, "table_name": data_table_name(id_, schema_version), "schema_version": schema_version}
                for id_ in table_ids
            ],
        )

    def add_inlined_rows(
        self, inlined: InlinedTable, rows: Sequence[Sequence[Any]], row_ids: Sequence[int], snapshot: int
    ) -> None:
        """Insert inlined rows; ``rows`` are encoded values in schema order."""
        keys = ("row_id", "begin_snapshot", *inlined.keys)
        values = [(row_id, snapshot, *row) for row_id, row in zip(row_ids, rows, strict=True)]
        self._insert_many("insert_inlined_rows", inlined.table, keys, values)

    def end_inlined_rows(self, inlined: InlinedTable, row_ids: Sequence[int], snapshot: int) -> None:
        """End inlined rows. Raises ``CommitConflict`` when another commit has deleted one or moved it."""
        table = inlined.table
        statement = (
            sa.update(table)
            .where(table.c.row_id.in_(list(row_ids)), table.c.end_snapshot.is_(None), table.c.begin_snapshot < snapshot)
            .values(end_snapshot=snapshot)
        )
        if self._update("end_inlined_rows", statement) != len(row_ids):
            raise CommitConflict("an inlined row to be deleted was changed by another commit")

    def add_inlined_deletes(self, table_id: int, deletes: Sequence[tuple[int, int]], snapshot: int) -> None:
        """Insert inlined deletes: (data file, position) each."""
        table = delete_table(table_id, self._t.metadata.schema)
        rows = [(file, position, snapshot) for file, position in deletes]
        self._insert_many("insert_inlined_deletes", table, ("file_id", "row_id", "begin_snapshot"), rows)

    def remove_inlined_deletes(self, table_id: int, file_ids: Sequence[int]) -> None:
        """Remove the inlined deletes of data files; delete files hold them now."""
        if file_ids:
            table = delete_table(table_id, self._t.metadata.schema)
            self.run("remove_inlined_deletes", sa.delete(table).where(table.c.file_id.in_(list(file_ids))))

    def need_inlined_deletes(self, table_id: int) -> None:
        """Make the table of a table's inlined deletes unless it is there."""
        if not self._has_inlined_deletes(table_id):
            table = delete_table(table_id, self._t.metadata.schema)
            self.run("create_inlined_deletes", sa.schema.CreateTable(table))

    def inlined_deletes_since(self, table_id: int, file_ids: Sequence[int], version: int) -> bool:
        """True when another commit after ``version`` inlined a delete on one of these files."""
        if not self._has_inlined_deletes(table_id):
            return False
        table = delete_table(table_id, self._t.metadata.schema)
        statement = (
            sa.select(table.c.file_id)
            .where(table.c.file_id.in_(list(file_ids)), table.c.begin_snapshot > version)
            .limit(1)
        )
        return self.run("inlined_deletes_since", statement).first() is not None


def _create(inlined: InlinedTable) -> sa.DDLElement:
    """The DDL of an inlined table, with the column types as stock DuckLake declares them."""
    columns = [sa.Column(name, _Declared(sql)) for name, sql in inlined.ddl]
    table = sa.Table(inlined.table.name, sa.MetaData(), *columns, schema=inlined.table.schema)
    return sa.schema.CreateTable(table)


class _Declared(sa.types.UserDefinedType[Any]):
    """A column type by its SQL text."""

    cache_ok = True

    def __init__(self, sql: str) -> None:
        self.sql = sql

    def get_col_spec(self, **_: Any) -> str:
        return self.sql


def _numbers(totals: Totals) -> tuple[int, int, int]:
    return totals.table.record_count, totals.table.next_row_id, totals.table.file_size_bytes


def _bounds(stats: TableColumnStats) -> tuple[Any, ...]:
    return stats.contains_null, stats.contains_nan, stats.min, stats.max, stats.extra
