"""Reading a lake's metadata: every method is a constant number of statements inside one consistent transaction."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import sqlalchemy as sa
from sqlalchemy.engine import Connection

from quacklake import faults, telemetry
from quacklake.catalog import layout, pruning
from quacklake.catalog.column_history import Reshaped, last_reshape
from quacklake.catalog.database import Database
from quacklake.catalog.inlined import InlinedTable, delete_table, inlined_table
from quacklake.catalog.tables import Tables
from quacklake.errors import NotFoundError
from quacklake.format.changes import Change, parse
from quacklake.format.mappings import MappingRow, NameMapping, unflatten_mappings
from quacklake.format.names import fold
from quacklake.format.objects import SchemaInfo, TableInfo
from quacklake.format.options import OptionRow
from quacklake.format.partition_pruning import pruner, wanted_buckets
from quacklake.format.partitions import PartitionSpec
from quacklake.format.predicate import ANYTHING, Predicate, columns_of
from quacklake.format.schema import ColumnRow, TableSchema, unflatten
from quacklake.format.snapshots import Snapshot, SnapshotInfo
from quacklake.format.sorting import SortSpec

__all__ = ["FILE_COLUMNS", "DatedDeletes", "InlinedRows", "Reader"]

#: The columns of ``Reader.files``: a data file with the delete file that is visible with it.
FILE_COLUMNS: Mapping[str, pa.DataType] = {
    "data_file_id": pa.int64(),
    "path": pa.string(),
    "path_is_relative": pa.bool_(),
    "record_count": pa.int64(),
    "file_size_bytes": pa.int64(),
    "footer_size": pa.int64(),
    "row_id_start": pa.int64(),
    "begin_snapshot": pa.int64(),
    "partial_max": pa.int64(),
    "partition_id": pa.int64(),
    "mapping_id": pa.int64(),
    "encryption_key": pa.string(),
    "delete_file_id": pa.int64(),
    "delete_path": pa.string(),
    "delete_path_is_relative": pa.bool_(),
    "delete_format": pa.string(),
    "delete_count": pa.int64(),
    "delete_begin_snapshot": pa.int64(),
    "delete_partial_max": pa.int64(),
    "delete_encryption_key": pa.string(),
    "delete_file_size_bytes": pa.int64(),
}


@dataclass(frozen=True, slots=True)
class InlinedRows:
    """Inlined rows of one schema version as the database stores them: row id, snapshots, then the columns."""

    schema: TableSchema
    schema_version: int
    rows: pa.Table


@dataclass(frozen=True, slots=True)
class DatedDeletes:
    """Deleted rows of one data file, position and snapshot each; its delete file, if any, began at ``file_begin``."""

    rows: tuple[tuple[int, int], ...]
    file_begin: int | None


class Reader:
    """One read transaction. All answers describe the same state of the database."""

    def __init__(self, connection: Connection, tables: Tables, database: Database, cache: dict[Any, Any]) -> None:
        self._connection = connection
        self._t = tables
        self._database = database
        self._cache = cache

    def run(self, name: str, statement: Any, parameters: Any = None) -> sa.CursorResult[*tuple[Any, ...]]:
        """Execute one named statement; its name is a fault point before and after."""
        faults.reach(f"catalog.{name}.before")
        result = self._connection.execute(statement, parameters)
        telemetry.count("catalog.statements")
        faults.reach(f"catalog.{name}.after")
        return result

    # -- snapshots ---------------------------------------------------------------------------------------------------

    def _snapshot_columns(self) -> list[sa.ColumnElement[Any]]:
        table = self._t["snapshot"]
        # duckdb's Python client needs another package for zoned times: read them as text there
        time: sa.ColumnElement[Any] = table.c.snapshot_time
        if self._database.name == "duckdb":
            time = sa.type_coerce(sa.cast(time, sa.String), table.c.snapshot_time.type).label("snapshot_time")
        return [table.c.snapshot_id, time, table.c.schema_version, table.c.next_catalog_id, table.c.next_file_id]

    def _select_snapshot(self, name: str, build: Any, parameters: Mapping[str, Any]) -> Snapshot | None:
        statement = self._cached(("snapshot", name), build)
        row = self.run(name, statement, parameters).first()
        return None if row is None else Snapshot(*row)

    def _cached(self, key: Any, build: Any) -> Any:
        """A statement that is built once per catalog."""
        found = self._cache.get(key)
        if found is None:
            found = self._cache[key] = build()
        return found

    def latest(self) -> Snapshot:
        """The newest snapshot."""
        table = self._t["snapshot"]
        found = self._select_snapshot(
            "latest_snapshot",
            lambda: sa.select(*self._snapshot_columns()).order_by(table.c.snapshot_id.desc()).limit(1),
            {},
        )
        if found is None:
            raise NotFoundError("the lake has no snapshot", hint="its metadata may be only half copied")
        return found

    def at_version(self, version: int) -> Snapshot:
        """The snapshot with that id. Raises ``NotFoundError`` when it never was or has expired."""
        table = self._t["snapshot"]
        found = self._select_snapshot(
            "snapshot_by_id",
            lambda: sa.select(*self._snapshot_columns()).where(table.c.snapshot_id == sa.bindparam("version")),
            {"version": version},
        )
        if found is None:
            raise NotFoundError(f"there is no snapshot {version}", hint="lake.snapshots() lists those that exist")
        return found

    def at_time(self, time: dt.datetime) -> Snapshot:
        """The newest snapshot made at or before a time."""
        table = self._t["snapshot"]
        found = self._select_snapshot(
            "snapshot_by_time",
            lambda: (
                sa.select(*self._snapshot_columns())
                .where(table.c.snapshot_time <= sa.bindparam("time", type_=table.c.snapshot_time.type))
                .order_by(table.c.snapshot_time.desc(), table.c.snapshot_id.desc())
                .limit(1)
            ),
            {"time": time},
        )
        if found is None:
            raise NotFoundError(
                f"there is no snapshot at or before {time}", hint="lake.snapshots() lists those that exist"
            )
        return found

    def first_since(self, time: dt.datetime) -> int | None:
        """The id of the oldest snapshot made at or after a time, or None."""
        table = self._t["snapshot"]
        statement = sa.select(sa.func.min(table.c.snapshot_id)).where(
            table.c.snapshot_time >= sa.bindparam("time", type_=table.c.snapshot_time.type)
        )
        found: int | None = self.run("first_snapshot_since", statement, {"time": time}).scalar()
        return found

    def snapshots(self) -> list[SnapshotInfo]:
        """Every snapshot with what it changed, oldest first."""
        snapshot, column = self._t["snapshot"], self._t.column
        statement = (
            sa.select(
                *self._snapshot_columns()[:3],
                column("snapshot_changes", "changes_made"),
                column("snapshot_changes", "author"),
                column("snapshot_changes", "commit_message"),
                column("snapshot_changes", "commit_extra_info"),
            )
            .select_from(
                snapshot.outerjoin(
                    self._t["snapshot_changes"],
                    self._t["snapshot_changes"].c.snapshot_id == snapshot.c.snapshot_id,
                )
            )
            .order_by(snapshot.c.snapshot_id)
        )
        return [
            SnapshotInfo(row[0], row[1], row[2], parse(row[3]), row[4], row[5], row[6])
            for row in self.run("snapshots", statement)
        ]

    def changes_since(self, version: int) -> list[tuple[int, tuple[Change, ...]]]:
        """What every snapshot after ``version`` changed, in order."""
        table = self._t["snapshot_changes"]

        def build() -> Any:
            return (
                sa.select(table.c.snapshot_id, table.c.changes_made)
                .where(table.c.snapshot_id > sa.bindparam("version"))
                .order_by(table.c.snapshot_id)
            )

        rows = self.run("changes_since", self._cached("changes_since", build), {"version": version})
        return [(row[0], parse(row[1])) for row in rows]

    def changes_between(self, first: int, last: int) -> dict[int, str | None]:
        """What the snapshots from ``first`` to ``last`` that there are changed, as the catalog has it, in order."""
        s, c = self._t["snapshot"], self._t["snapshot_changes"]
        statement = (
            sa.select(s.c.snapshot_id, c.c.changes_made)
            .select_from(s.outerjoin(c, c.c.snapshot_id == s.c.snapshot_id))
            .where(s.c.snapshot_id.between(first, last))
            .order_by(s.c.snapshot_id)
        )
        return {row[0]: row[1] for row in self.run("changes_between", statement)}

    # -- schemas and tables ------------------------------------------------------------------------------------------

    def _visible(self, table: sa.Table, snapshot: Any) -> sa.ColumnElement[bool]:
        return sa.and_(
            table.c.begin_snapshot <= snapshot, sa.or_(table.c.end_snapshot.is_(None), table.c.end_snapshot > snapshot)
        )

    def schemas(self, snapshot: Snapshot) -> list[SchemaInfo]:
        """The schemas of a snapshot by name."""
        table, column = self._t["schema"], self._t.column
        statement = (
            sa.select(
                table.c.schema_id,
                table.c.schema_uuid,
                table.c.schema_name,
                column("schema", "path"),
                column("schema", "path_is_relative"),
            )
            .where(self._visible(table, snapshot.id))
            .order_by(table.c.schema_name)
        )
        return [SchemaInfo(*row) for row in self.run("schemas", statement)]

    def tables(self, snapshot: Snapshot) -> list[TableInfo]:
        """Every table of a snapshot with its columns and layout, by schema and name."""
        return self._load_tables(snapshot, "tables", ())

    def table(self, snapshot: Snapshot, schema: str, name: str) -> TableInfo | None:
        """A table by its name, ignoring case, or None."""
        t, s = self._t["table"], self._t["schema"]
        where = (sa.func.lower(t.c.table_name) == fold(name), sa.func.lower(s.c.schema_name) == fold(schema))
        found = self._load_tables(snapshot, "table", where)
        return next(
            (info for info in found if (fold(info.name), fold(info.schema_name)) == (fold(name), fold(schema))), None
        )

    def table_by_id(self, snapshot: Snapshot, table_id: int) -> TableInfo | None:
        """A table by its id, whatever its name was at the snapshot, or None."""
        found = self._load_tables(snapshot, "table_by_id", (self._t["table"].c.table_id == table_id,))
        return found[0] if found else None

    def _load_tables(self, snapshot: Snapshot, name: str, where: Sequence[sa.ColumnElement[bool]]) -> list[TableInfo]:
        t, s, c, column = self._t["table"], self._t["schema"], self._t["column"], self._t.column
        statement = (
            sa.select(
                t.c.table_id,
                t.c.table_uuid,
                t.c.schema_id,
                s.c.schema_name,
                t.c.table_name,
                column("table", "path"),
                column("table", "path_is_relative"),
                column("schema", "path").label("schema_path"),
                column("schema", "path_is_relative").label("schema_path_is_relative"),
                self._schema_version(t, snapshot).label("table_schema_version"),
                *self._column_rows(),
            )
            .select_from(
                t.join(s, sa.and_(s.c.schema_id == t.c.schema_id, self._visible(s, snapshot.id))).outerjoin(
                    c, sa.and_(c.c.table_id == t.c.table_id, self._visible(c, snapshot.id))
                )
            )
            .where(self._visible(t, snapshot.id), *where)
            .order_by(s.c.schema_name, t.c.table_name, t.c.table_id)
        )
        grouped: dict[tuple[Any, ...], list[ColumnRow]] = {}
        for row in self.run(name, statement):
            rows = grouped.setdefault(tuple(row[:10]), [])
            if row[10] is not None:
                rows.append(ColumnRow(*row[10:]))
        if not grouped:
            return []
        ids = [head[0] for head in grouped] if where else None
        partitions = layout.partitions(self.run("partitions", layout.select_partitions(self._t, snapshot.id, ids)))
        sorts: dict[int, SortSpec] = {}
        if "sort_info" in self._t:
            sorts = layout.sorts(self.run("sorts", layout.select_sorts(self._t, snapshot.id, ids)))
        return [
            replace(self._table_info(head, rows, snapshot), partition=partitions.get(head[0]), sort=sorts.get(head[0]))
            for head, rows in grouped.items()
        ]

    @staticmethod
    def _table_info(head: tuple[Any, ...], rows: list[ColumnRow], snapshot: Snapshot) -> TableInfo:
        id_, uuid, schema_id, schema_name, name, path, relative, schema_path, schema_relative, version = head
        return TableInfo(
            id=id_,
            uuid=uuid,
            schema_id=schema_id,
            schema_name=schema_name,
            name=name,
            path=path,
            path_is_relative=relative,
            schema=unflatten(rows),
            schema_version=snapshot.schema_version if version is None else version,
            schema_path=schema_path,
            schema_path_is_relative=schema_relative,
        )

    def _schema_version(self, table: sa.Table, snapshot: Snapshot) -> sa.ColumnElement[Any]:
        if "schema_versions" not in self._t:
            return sa.literal(None, sa.BigInteger())
        v = self._t["schema_versions"]
        own = v.c.get("table_id")
        mine = [own == table.c.table_id] if own is not None else []
        return (
            sa.select(sa.func.max(v.c.schema_version)).where(v.c.begin_snapshot <= snapshot.id, *mine).scalar_subquery()
        )

    def columns_at(self, table_id: int, schema_version: int) -> TableSchema:
        """The columns a table had at one of its schema versions."""
        v, c, s = self._t.get("schema_versions"), self._t["column"], self._t["snapshot"]
        begin: sa.ColumnElement[Any] = (
            sa.select(sa.func.min(s.c.snapshot_id)).where(s.c.schema_version == schema_version).scalar_subquery()
        )
        if v is not None and "table_id" in v.c:
            # the first inlined insert of stock DuckLake may open a version that is noted nowhere else
            noted = sa.select(sa.func.max(v.c.begin_snapshot)).where(
                v.c.table_id == table_id, v.c.schema_version <= schema_version
            )
            begin = sa.func.coalesce(noted.scalar_subquery(), begin)
        statement = sa.select(*self._column_rows()).where(c.c.table_id == table_id, self._visible(c, begin))
        return unflatten(ColumnRow(*row) for row in self.run("columns_at", statement))

    def _column_rows(self) -> list[sa.ColumnElement[Any]]:
        """The fields of ``ColumnRow``."""
        c, column = self._t["column"], self._t.column
        return [
            c.c.column_id,
            c.c.parent_column,
            c.c.column_order,
            c.c.column_name,
            c.c.column_type,
            c.c.initial_default,
            c.c.default_value,
            c.c.nulls_allowed,
            column("column", "default_value_type").label("default_value_type"),
            column("column", "default_value_dialect").label("default_value_dialect"),
        ]

    def last_column_id(self, table_id: int) -> int:
        """The largest id that a column of a table, or a node inside one, ever had."""
        c = self._t["column"]
        statement = sa.select(sa.func.max(c.c.column_id)).where(c.c.table_id == table_id)
        return self.run("last_column_id", statement).scalar_one() or 0

    def reshaped(self, snapshot: Snapshot, table: TableInfo) -> Reshaped:
        """When the fields inside a table's nested columns last became what they are."""
        if not any(column.nested for column in table.schema.columns):
            return Reshaped()
        key = ("reshaped", table.id, snapshot.schema_version)
        found: Reshaped | None = self._cache.get(key)
        if found is None:
            c = self._t["column"]
            statement = sa.select(
                c.c.column_id, c.c.parent_column, c.c.column_name, c.c.begin_snapshot, c.c.end_snapshot
            ).where(c.c.table_id == table.id, c.c.begin_snapshot <= snapshot.id)
            rows = [tuple(row) for row in self.run("column_history", statement)]
            found = self._cache[key] = last_reshape(rows, snapshot.id)
        return found

    # -- files -------------------------------------------------------------------------------------------------------

    def files(self, snapshot: Snapshot, table: TableInfo, predicate: Predicate = ANYTHING) -> pa.Table:
        """The data files of a table that may hold matching rows, each with its delete file.

        One statement, and one more when partition values can rule out further ones (the first time up to three).
        """
        buckets = self._wanted_buckets(table, predicate)
        key = ("files", pruning.shape(predicate), *buckets)
        statement = self._cached(key, lambda: self._select_files(predicate, list(buckets)))
        parameters = {"snapshot": snapshot.id, "table": table.id, **pruning.values(predicate)}
        parameters |= {f"b{number}": values for number, values in enumerate(buckets.values())}
        found = _table(self.run("files", statement, parameters), FILE_COLUMNS)
        return found if predicate == ANYTHING else self._prune_partitions(found, table, predicate)

    def _wanted_buckets(self, table: TableInfo, predicate: Predicate) -> dict[tuple[int, int], list[int]]:
        """Of the table's partitioning, the buckets that matching rows are in: partitioning and key index -> numbers.

        Statistics say nothing of buckets, so these are left to the database, where most files then stay.
        """
        spec = table.partition
        if spec is None or spec.id < 0 or not wanted_buckets(predicate, spec, table.schema):
            return {}
        found = wanted_buckets(predicate, spec, table.schema, self._constant_columns(table))
        return {(spec.id, index): sorted(numbers) for index, numbers in found.items()}

    def _prune_partitions(self, files: pa.Table, table: TableInfo, predicate: Predicate) -> pa.Table:
        """Of the files that statistics leave, those whose partition values allow a match."""
        ids = {id_ for id_ in files.column("partition_id").unique().to_pylist() if id_ is not None}
        if not ids:
            return files
        specs = layout.useful(predicate, self._partition_specs(table, ids))
        if not specs:
            return files
        constant = self._constant_columns(table)
        tests = {spec.id: pruner(predicate, spec, table.schema, constant) for spec in specs}
        partitioned = files.filter(
            pc.is_in(files.column("partition_id"), value_set=pa.array(sorted(tests), pa.int64()))
        )
        file_ids = partitioned.column("data_file_id").to_pylist()
        statement = layout.select_values(self._t, table.id, file_ids)
        values = layout.values_by_file(self.run("partition_values", statement))
        return layout.prune(files, tests, values)

    def _partition_specs(self, table: TableInfo, ids: set[int]) -> list[PartitionSpec]:
        """Partitionings of a table by their ids; one that exists never changes."""
        key = ("partition_specs", table.id)
        known: dict[int, PartitionSpec] = self._cache.setdefault(key, {})
        if table.partition is not None and table.partition.id >= 0:
            known[table.partition.id] = table.partition
        if not ids <= known.keys():
            rows = self.run("partition_specs", layout.select_specs(self._t, table.id))
            known.update((spec.id, spec) for spec in layout.specs(rows))
        return [known[id_] for id_ in ids if id_ in known]

    def _constant_columns(self, table: TableInfo) -> frozenset[int]:
        """The columns of a table that never had another type than they have now."""
        key = ("constant_columns", table.id, table.schema_version)
        types: dict[int, str] = self._cached(
            key, lambda: layout.constant(self.run("column_types", layout.select_types(self._t, table.id)))
        )
        # an open transaction may have given one another type
        return frozenset(column.id for column in table.schema.columns if types.get(column.id) == column.type)

    def _select_files(self, predicate: Predicate, buckets: Sequence[tuple[int, int]]) -> sa.Select[Any]:
        """The statement of ``files`` for predicates of one shape, and bucket keys: partitioning and key index."""
        f, d = self._t["data_file"], self._t["delete_file"]
        snapshot, table = sa.bindparam("snapshot", type_=sa.BigInteger()), sa.bindparam("table", type_=sa.BigInteger())
        source: sa.FromClause = f
        where: list[sa.ColumnElement[bool]] = [f.c.table_id == table, self._visible(f, snapshot)]
        if predicate != ANYTHING:
            stats = self._t["file_column_stats"]
            bounds: dict[int, sa.FromClause] = {id_: stats.alias(f"s{id_}") for id_ in sorted(columns_of(predicate))}
            for id_, alias in bounds.items():
                mine = sa.and_(alias.c.table_id == table, alias.c.column_id == id_)
                source = source.outerjoin(alias, sa.and_(mine, alias.c.data_file_id == f.c.data_file_id))
            where.append(pruning.condition(predicate, bounds, self._database))
        where += [
            layout.in_buckets(self._t, self._database, *key, sa.bindparam(f"b{number}", expanding=True))
            for number, key in enumerate(buckets)
        ]
        # after the statistics, so that only files that are left are looked up
        with_deletes = sa.and_(d.c.table_id == table, d.c.data_file_id == f.c.data_file_id)
        source = source.outerjoin(d, sa.and_(with_deletes, self._visible(d, snapshot)))
        return sa.select(*self._file_columns()).select_from(source).where(*where).order_by(f.c.data_file_id)

    def _file_columns(self) -> list[sa.ColumnElement[Any]]:
        """``FILE_COLUMNS`` of data files joined with delete files."""
        f, d, column = self._t["data_file"], self._t["delete_file"], self._t.column
        return [
            f.c.data_file_id,
            f.c.path,
            f.c.path_is_relative,
            f.c.record_count,
            f.c.file_size_bytes,
            f.c.footer_size,
            f.c.row_id_start,
            f.c.begin_snapshot,
            column("data_file", "partial_max").label("partial_max"),
            f.c.partition_id,
            column("data_file", "mapping_id").label("mapping_id"),
            f.c.encryption_key,
            d.c.delete_file_id,
            d.c.path.label("delete_path"),
            d.c.path_is_relative.label("delete_path_is_relative"),
            d.c.format.label("delete_format"),
            d.c.delete_count,
            d.c.begin_snapshot.label("delete_begin_snapshot"),
            column("delete_file", "partial_max").label("delete_partial_max"),
            d.c.encryption_key.label("delete_encryption_key"),
            d.c.file_size_bytes.label("delete_file_size_bytes"),
        ]

    def changed_files(self, table: TableInfo, since: int, until: int) -> pa.Table:
        """The data files that rows came with or went from in some snapshots, with all delete files they ever had.

        One row for each data file and delete file; ``FILE_COLUMNS`` and the end of the data file.
        """
        f, d, column = self._t["data_file"], self._t["delete_file"], self._t.column
        any_delete = d.alias("any_delete")
        last = sa.func.coalesce(any_delete.c.get("partial_max", sa.null()), any_delete.c.begin_snapshot)
        with_deletes = sa.select(any_delete.c.data_file_id).where(
            any_delete.c.table_id == table.id, any_delete.c.begin_snapshot <= until, last >= since
        )
        changed = [
            f.c.begin_snapshot >= since,
            column("data_file", "partial_max") >= since,
            f.c.end_snapshot.between(since, until),
            f.c.data_file_id.in_(with_deletes),
        ]
        if self._has_inlined_deletes(table.id, until):
            sql = delete_table(table.id, self._t.metadata.schema)
            changed.append(
                f.c.data_file_id.in_(sa.select(sql.c.file_id).where(sql.c.begin_snapshot.between(since, until)))
            )
        mine = sa.and_(d.c.table_id == table.id, d.c.data_file_id == f.c.data_file_id, d.c.begin_snapshot <= until)
        statement = (
            sa.select(*self._file_columns(), f.c.end_snapshot)
            .select_from(f.outerjoin(d, mine))
            .where(f.c.table_id == table.id, f.c.begin_snapshot <= until, sa.or_(*changed))
            .order_by(f.c.data_file_id, d.c.delete_file_id)
        )
        return _table(self.run("changed_files", statement), {**FILE_COLUMNS, "end_snapshot": pa.int64()})

    def name_mappings(self, ids: Sequence[int]) -> tuple[NameMapping, ...]:
        """Name mappings of files from elsewhere, by their ids."""
        t = self._t["name_mapping"]
        partition = self._t.column("name_mapping", "is_partition").label("is_partition")

        def build() -> Any:
            return sa.select(
                t.c.mapping_id, t.c.column_id, t.c.source_name, t.c.target_field_id, t.c.parent_column, partition
            ).where(t.c.mapping_id.in_(sa.bindparam("ids", expanding=True)))

        rows = self.run("name_mappings", self._cached("name_mappings", build), {"ids": list(ids)})
        return unflatten_mappings(MappingRow(*row) for row in rows)

    def table_mappings(self, table_id: int) -> tuple[NameMapping, ...]:
        """Every name mapping that files of a table have had."""
        t = self._t["column_mapping"]
        found = sa.select(t.c.mapping_id).where(t.c.table_id == table_id)
        return self.name_mappings([row[0] for row in self.run("table_mappings", found)])

    def added_since(self, table_id: int, version: int) -> set[str]:
        """The paths of files from elsewhere that a table has got after a snapshot and still has."""
        t = self._t["data_file"]
        statement = sa.select(t.c.path).where(
            t.c.table_id == table_id,
            t.c.begin_snapshot > version,
            t.c.end_snapshot.is_(None),
            t.c.mapping_id.is_not(None),
        )
        return {row[0] for row in self.run("added_since", statement)}

    def live_files(self, table_id: int, file_ids: Sequence[int]) -> dict[int, int | None]:
        """Of these data files, those not ended, each with the id of its delete file that is not ended."""
        f, d = self._t["data_file"], self._t["delete_file"]
        statement = (
            sa.select(f.c.data_file_id, d.c.delete_file_id)
            .select_from(f.outerjoin(d, sa.and_(d.c.data_file_id == f.c.data_file_id, d.c.end_snapshot.is_(None))))
            .where(f.c.table_id == table_id, f.c.end_snapshot.is_(None), f.c.data_file_id.in_(file_ids))
        )
        return {row[0]: row[1] for row in self.run("live_files", statement)}

    # -- inlined rows ------------------------------------------------------------------------------------------------

    def inlined_tables(self, table_id: int) -> dict[int, str]:
        """The inlined tables of a table: schema version -> name."""
        t = self._t["inlined_data_tables"]

        def build() -> Any:
            return sa.select(t.c.schema_version, t.c.table_name).where(t.c.table_id == sa.bindparam("table_id"))

        rows = self.run("inlined_tables", self._cached("inlined_tables", build), {"table_id": table_id})
        return {row[0]: row[1] for row in sorted(rows.all())}

    def has_table(self, name: str) -> bool:
        """True when the database has a table of that name."""
        return sa.inspect(self._connection).has_table(name, schema=self._t.metadata.schema)

    def inlined_table(self, table_id: int, schema_version: int, schema: TableSchema) -> InlinedTable:
        """The inlined table of one schema version, as SQL sees it."""
        # with the columns: a commit that failed may have been about to make another table of that version
        key = ("inlined", table_id, schema_version, schema)
        return self._cached(  # type: ignore[no-any-return]
            key,
            lambda: inlined_table(
                table_id,
                schema_version,
                schema,
                self._database.name,
                self._t.metadata.schema,
                self._t.inlined_prefix,
            ),
        )

    def inlined_rows(self, snapshot: Snapshot, table: TableInfo, *, since: int | None = None) -> list[InlinedRows]:
        """The inlined rows visible at a snapshot; with ``since`` only those inserted after that snapshot."""

        def condition(sql: sa.Table) -> sa.ColumnElement[bool]:
            visible = self._visible(sql, snapshot.id)
            return visible if since is None else sa.and_(visible, sql.c.begin_snapshot > since)

        return self._inlined_rows(table, condition)

    def _inlined_rows(
        self, table: TableInfo, condition: Callable[[sa.Table], sa.ColumnElement[bool]]
    ) -> list[InlinedRows]:
        found: list[InlinedRows] = []
        for version in self.inlined_tables(table.id):
            schema = table.schema if version == table.schema_version else self._inlined_schema(table.id, version)
            sql = self.inlined_table(table.id, version, schema).table
            statement = sa.select(*self._fetched(sql, schema)).where(condition(sql))
            faults.reach("catalog.inlined_rows.before")
            rows = self._database.fetch_arrow(self._connection, statement)
            rows = rows.rename_columns([column.key for column in sql.c])
            telemetry.count("catalog.statements")
            if rows.num_rows:
                found.append(InlinedRows(schema, version, rows))
        return found

    def changed_inlined_rows(self, table: TableInfo, since: int, until: int) -> list[InlinedRows]:
        """The inlined rows that came or went in some snapshots."""

        def condition(sql: sa.Table) -> sa.ColumnElement[bool]:
            return sa.or_(sql.c.begin_snapshot.between(since, until), sql.c.end_snapshot.between(since, until))

        return self._inlined_rows(table, condition)

    def _inlined_schema(self, table_id: int, version: int) -> TableSchema:
        """The columns of a committed inlined table, which never change."""
        key = ("inlined_schema", table_id, version)
        found: TableSchema = self._cached(key, lambda: self.columns_at(table_id, version))
        return found

    def _fetched(self, table: sa.Table, schema: TableSchema) -> list[sa.ColumnElement[Any]]:
        """The columns of an inlined table; those that need it as text which DuckDB casts back."""
        if self._database.name == "duckdb":
            text = {f"c{column.id}" for column in schema.columns if column.travels_as_text}
            return [
                sa.cast(column, sa.String).label(column.name) if column.key in text else column for column in table.c
            ]
        if self._database.name == "postgres":
            spans = {f"c{column.id}" for column in schema.columns if column.type == "interval"}
            return [_interval_text(column).label(column.name) if column.key in spans else column for column in table.c]
        return list(table.c)

    def inlined_deletes_until(self, table_id: int, until: int) -> pa.Table:
        """All inlined deletes up to a snapshot, each with its own: ``file_id``, ``row_id``, ``begin_snapshot``."""
        types = dict.fromkeys(("file_id", "row_id", "begin_snapshot"), pa.int64())
        if not self._has_inlined_deletes(table_id, until):
            return pa.schema(types).empty_table()
        sql = delete_table(table_id, self._t.metadata.schema)
        statement = sa.select(sql.c.file_id, sql.c.row_id, sql.c.begin_snapshot).where(sql.c.begin_snapshot <= until)
        return _table(self.run("inlined_deletes_until", statement), types)

    def inlined_deletes(self, snapshot: Snapshot, table_id: int) -> pa.Table:
        """The inlined deletes of a table's files visible at a snapshot: ``file_id``, ``row_id`` (the position)."""
        empty = pa.table({"file_id": pa.array([], pa.int64()), "row_id": pa.array([], pa.int64())})
        if not self._has_inlined_deletes(table_id, snapshot.id):
            return empty
        sql = delete_table(table_id, self._t.metadata.schema)
        statement = sa.select(sql.c.file_id, sql.c.row_id).where(sql.c.begin_snapshot <= snapshot.id)
        rows = self.run("inlined_deletes", statement).all()
        if not rows:
            return empty
        files, positions = zip(*rows, strict=True)
        return pa.table({"file_id": pa.array(files, pa.int64()), "row_id": pa.array(positions, pa.int64())})

    def dated_deletes(
        self, snapshot: Snapshot, table_id: int, files: Mapping[int, int | None]
    ) -> dict[int, DatedDeletes]:
        """The inlined deletes of some data files at a snapshot; ``files`` names the delete file of each."""
        found: dict[int, list[tuple[int, int]]] = {file: [] for file in files}
        if self._has_inlined_deletes(table_id, snapshot.id):
            sql = delete_table(table_id, self._t.metadata.schema)
            statement = sa.select(sql.c.file_id, sql.c.row_id, sql.c.begin_snapshot).where(
                sql.c.file_id.in_(list(files)), sql.c.begin_snapshot <= snapshot.id
            )
            for file, position, begin in self.run("dated_deletes", statement):
                found[file].append((position, begin))
        d = self._t["delete_file"]
        begins = sa.select(d.c.delete_file_id, d.c.begin_snapshot).where(d.c.delete_file_id.in_(list(files.values())))
        known = {row[0]: row[1] for row in self.run("delete_file_begins", begins)}
        return {file: DatedDeletes(tuple(rows), known.get(files[file])) for file, rows in found.items()}

    def _has_inlined_deletes(self, table_id: int, snapshot_id: int | None = None) -> bool:
        """Whether a table has inlined deletes, of snapshots up to ``snapshot_id`` when given.

        A table that has been seen stays. One that was missing can only come with a later snapshot, so it is not looked
        for again at this one.
        """
        key, absent = ("inlined_deletes", table_id), ("no_inlined_deletes", table_id)
        if self._cache.get(key):
            return True
        if snapshot_id is not None and snapshot_id <= self._cache.get(absent, -1):
            return False
        found = self.has_table(delete_table(table_id, None).name)
        if found:
            self._cache[key] = True
        elif snapshot_id is not None:
            self._cache[absent] = snapshot_id
        return found

    # -- options ------------------------------------------------------------------------------------------

    def options(self) -> list[OptionRow]:
        """Every option of the lake with its scope."""
        t, column = self._t["metadata"], self._t.column

        def build() -> Any:
            return sa.select(t.c.key, t.c.value, column("metadata", "scope"), column("metadata", "scope_id"))

        return [OptionRow(*row) for row in self.run("options", self._cached("options", build))]


def _table(result: sa.CursorResult[*tuple[Any, ...]], types: Mapping[str, pa.DataType]) -> pa.Table:
    """The rows of a statement as Arrow."""
    rows = result.all()
    columns: Iterable[Sequence[Any]] = zip(*rows, strict=True) if rows else [()] * len(types)
    return pa.table({name: pa.array(values, types[name]) for name, values in zip(types, columns, strict=True)})


def _interval_text(column: sa.ColumnElement[Any]) -> sa.ColumnElement[Any]:
    """An interval of PostgreSQL as text that DuckDB reads: its own ``-1 mons +3 days`` is not."""
    months = sa.extract("year", column) * 12 + sa.extract("month", column)
    clock = sa.extract("hour", column) * 3_600_000_000 + sa.extract("minute", column) * 60_000_000
    parts = (
        (months, " months "),
        (sa.extract("day", column), " days "),
        (clock + sa.extract("microseconds", column), " microseconds"),
    )
    texts = [sa.cast(sa.cast(value, sa.BigInteger), sa.String) + unit for value, unit in parts]
    return texts[0] + texts[1] + texts[2]
