"""Reading a lake's metadata: every method is a constant number of statements inside one consistent transaction."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import sqlalchemy as sa
from sqlalchemy.engine import Connection

from quacklake import faults, telemetry
from quacklake.catalog import pruning
from quacklake.catalog.database import Database
from quacklake.catalog.inlined import InlinedTable, delete_table, inlined_table
from quacklake.catalog.tables import Tables
from quacklake.errors import NotFoundError
from quacklake.format.changes import Change, parse
from quacklake.format.names import fold
from quacklake.format.objects import SchemaInfo, TableInfo
from quacklake.format.options import OptionRow
from quacklake.format.predicate import ANYTHING, Predicate, columns_of
from quacklake.format.schema import ColumnRow, TableSchema, unflatten
from quacklake.format.snapshots import Snapshot, SnapshotInfo

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
        """Every table of a snapshot with its columns, by schema and name, in one statement."""
        return self._load_tables(snapshot, "tables", ())

    def table(self, snapshot: Snapshot, schema: str, name: str) -> TableInfo | None:
        """A table by its name, ignoring case, or None."""
        t, s = self._t["table"], self._t["schema"]
        where = (sa.func.lower(t.c.table_name) == fold(name), sa.func.lower(s.c.schema_name) == fold(schema))
        found = self._load_tables(snapshot, "table", where)
        return next(
            (info for info in found if (fold(info.name), fold(info.schema_name)) == (fold(name), fold(schema))), None
        )

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
        return [self._table_info(head, rows, snapshot) for head, rows in grouped.items()]

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
        column = self._t.column
        statement = sa.select(
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
        ).where(c.c.table_id == table_id, self._visible(c, begin))
        return unflatten(ColumnRow(*row) for row in self.run("columns_at", statement))

    # -- files -------------------------------------------------------------------------------------------------------

    def files(self, snapshot: Snapshot, table: TableInfo, predicate: Predicate = ANYTHING) -> pa.Table:
        """The data files of a table that may hold matching rows, each with its delete file, in one statement."""
        statement = self._cached(("files", pruning.shape(predicate)), lambda: self._select_files(predicate))
        parameters = {"snapshot": snapshot.id, "table": table.id, **pruning.values(predicate)}
        rows = self.run("files", statement, parameters).all()
        columns: Iterable[Sequence[Any]] = zip(*rows, strict=True) if rows else [()] * len(FILE_COLUMNS)
        return pa.table(
            {name: pa.array(values, type_) for (name, type_), values in zip(FILE_COLUMNS.items(), columns, strict=True)}
        )

    def _select_files(self, predicate: Predicate) -> sa.Select[Any]:
        """The statement of ``files`` for predicates of one shape."""
        f, d, column = self._t["data_file"], self._t["delete_file"], self._t.column
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
        # after the statistics, so that only files that are left are looked up
        with_deletes = sa.and_(d.c.table_id == table, d.c.data_file_id == f.c.data_file_id)
        source = source.outerjoin(d, sa.and_(with_deletes, self._visible(d, snapshot)))
        return (
            sa.select(
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
            )
            .select_from(source)
            .where(*where)
            .order_by(f.c.data_file_id)
        )

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
        key = ("inlined", table_id, schema_version)
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
        found: list[InlinedRows] = []
        for version in self.inlined_tables(table.id):
            schema = table.schema if version == table.schema_version else self._inlined_schema(table.id, version)
            sql = self.inlined_table(table.id, version, schema).table
            statement = sa.select(*self._fetched(sql, schema)).where(
                sql.c.begin_snapshot <= snapshot.id,
                sa.or_(sql.c.end_snapshot.is_(None), sql.c.end_snapshot > snapshot.id),
            )
            if since is not None:
                statement = statement.where(sql.c.begin_snapshot > since)
            faults.reach("catalog.inlined_rows.before")
            rows = self._database.fetch_arrow(self._connection, statement)
            rows = rows.rename_columns([column.key for column in sql.c])
            telemetry.count("catalog.statements")
            if rows.num_rows:
                found.append(InlinedRows(schema, version, rows))
        return found

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
