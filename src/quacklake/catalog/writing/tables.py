"""Writing schemas and tables with their columns, partitionings and orders."""

from __future__ import annotations

from collections.abc import Container, Sequence

import sqlalchemy as sa

from quacklake.catalog.reading.tables import TableQueries
from quacklake.catalog.statements import WriteStatements
from quacklake.errors import CommitConflict
from quacklake.format.layout import PartitionSpec, SortSpec
from quacklake.format.names import parts_of
from quacklake.format.objects import SchemaInfo, TableInfo
from quacklake.format.schema import ColumnRow
from quacklake.format.snapshots import Snapshot


class TableUpdates(TableQueries):
    """Writes the schemas and tables of a commit."""

    _sql: WriteStatements

    def __init__(self, sql: WriteStatements) -> None:
        super().__init__(sql)

    def add_schemas(self, schemas: Sequence[SchemaInfo], snapshot: int) -> None:
        """Insert schemas that begin at a snapshot."""
        self._sql.insert(
            "schema",
            [
                {
                    "schema_id": schema.id,
                    "schema_uuid": schema.uuid,
                    "begin_snapshot": snapshot,
                    "end_snapshot": None,
                    "schema_name": parts_of(schema.name)[-1],
                    "path": schema.path,
                    "path_is_relative": schema.path_is_relative,
                    "parent_schema_id": schema.parent_id,
                }
                for schema in schemas
            ],
        )

    def add_tables(self, tables: Sequence[TableInfo], snapshot: int) -> None:
        """Insert table rows that begin at a snapshot, without their columns."""
        self._sql.insert(
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
        self._sql.insert(
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
            self._sql.run("end_columns", sa.update(c).where(*chosen).values(end_snapshot=snapshot))

    def end_column_tags(self, table_id: int, ids: Sequence[int], snapshot: int) -> None:
        """End the tags of columns that are dropped, as 1.1 does; in 1.0 they stay."""
        if ids and self._t.is_next:
            t = self._t["column_tag"]
            chosen = (t.c.table_id == table_id, t.c.column_id.in_(list(ids)), t.c.end_snapshot.is_(None))
            self._sql.run("end_column_tags", sa.update(t).where(*chosen).values(end_snapshot=snapshot))

    def add_schema_versions(self, table_ids: Sequence[int], snapshot: Snapshot) -> None:
        """Note that these tables changed their shape or name with a snapshot."""
        version = snapshot.schema_version
        self._sql.insert(
            "schema_versions",
            [{"begin_snapshot": snapshot.id, "schema_version": version, "table_id": id_} for id_ in table_ids],
        )

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
        self._sql.insert(
            "partition_info",
            [
                {"partition_id": spec.id, "table_id": table_id, "begin_snapshot": snapshot, "end_snapshot": None}
                for table_id, spec in specs
            ],
        )
        self._sql.insert(
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
                if spec.id not in known
                for key in spec.keys
            ],
        )

    def add_sorts(self, specs: Sequence[tuple[int, SortSpec]], snapshot: int, known: Container[int] = ()) -> None:
        """Insert orders that begin at a snapshot, as ``add_partitions`` does partitionings."""
        self._sql.insert(
            "sort_info",
            [
                {"sort_id": spec.id, "table_id": table_id, "begin_snapshot": snapshot, "end_snapshot": None}
                for table_id, spec in specs
            ],
        )
        self._sql.insert(
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
                if spec.id not in known
                for index, key in enumerate(spec.keys)
            ],
        )

    def end_schemas(self, ids: Sequence[int], snapshot: int) -> None:
        """End schemas."""
        self._sql.end("schema", "schema_id", ids, snapshot)

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
        if self._sql.update("end_table_rows", statement) != len(ids):
            raise CommitConflict("a table to be renamed was renamed or dropped by another commit")

    def end_tables(self, ids: Sequence[int], snapshot: int) -> None:
        """End tables with all that belongs to them."""
        for name in ("table", "column", "data_file", "delete_file", "partition_info", "sort_info", "column_tag"):
            self._sql.end(name, "table_id", ids, snapshot)
        self._sql.end("tag", "object_id", ids, snapshot)

    def check_dropped(self, table_id: int, dropped_at: int) -> None:
        """Raise ``CommitConflict`` unless a table was dropped by that snapshot and is still known."""
        if self.drop_of(table_id) != dropped_at:
            raise CommitConflict("the dropped table to restore was restored or expired by another commit")
