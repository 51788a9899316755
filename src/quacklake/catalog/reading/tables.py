"""Reading schemas and tables with their columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import sqlalchemy as sa

from quacklake.catalog.reading import partitions
from quacklake.catalog.reading.column_history import Reshaped, last_reshape, past_columns
from quacklake.catalog.statements import CatalogStatements, visible
from quacklake.format.layout import SortSpec
from quacklake.format.names import fold, full_names, parts_of
from quacklake.format.objects import SchemaInfo, TableInfo
from quacklake.format.schema import ColumnRow, Past, TableSchema, unflatten
from quacklake.format.snapshots import Snapshot


@dataclass(frozen=True, slots=True)
class DroppedObject:
    """A table or view that was dropped: its id and the snapshot that dropped it."""

    id: int
    dropped_at: int


class TableQueries:
    """Reads the schemas and tables of a lake, dropped ones too."""

    def __init__(self, sql: CatalogStatements) -> None:
        self._sql = sql
        self._t = sql._t

    def schemas(self, snapshot: Snapshot) -> list[SchemaInfo]:
        """Return the schemas of a snapshot by name."""
        table, column = self._t["schema"], self._t.column
        statement = (
            sa.select(
                table.c.schema_id,
                table.c.schema_uuid,
                table.c.schema_name,
                column("schema", "path"),
                column("schema", "path_is_relative"),
                column("schema", "parent_schema_id"),
            )
            .where(visible(table, snapshot.id))
            .order_by(table.c.schema_name)
        )
        rows = [SchemaInfo(*row) for row in self._sql.run("schemas", statement)]
        names = full_names((info.id, info.name, info.parent_id) for info in rows)
        return [replace(info, name=names[info.id]) for info in rows if info.id in names]

    def nested_schemas(self, snapshot: Snapshot) -> Mapping[int, str | None]:
        """Return the full names of the schemas inside others.

        None for one whose parent is not there: it counts as dropped.

        Empty where there are none, which is so everywhere before 1.1.
        """
        if ("schema", "parent_schema_id") not in self._t.parts:
            return {}
        key = ("nested_schemas", snapshot.schema_version)
        nested: Mapping[int, str | None] | None = self._sql._cache.get(key)
        if nested is None:
            s = self._t["schema"]
            statement = sa.select(s.c.schema_id, s.c.schema_name, s.c.parent_schema_id)
            rows = [tuple(row) for row in self._sql.run("nested_schemas", statement.where(visible(s, snapshot.id)))]
            names = full_names(rows)
            nested = self._sql._cache[key] = {row[0]: names.get(row[0]) for row in rows if row[2] is not None}
        return nested

    def all(self, snapshot: Snapshot) -> list[TableInfo]:
        """Return every table of a snapshot with its columns and layout, by schema and name."""
        return self._load_tables(snapshot, "tables", ())

    def find(self, snapshot: Snapshot, schema: str, name: str) -> TableInfo | None:
        """Return a table by its name, ignoring case, or None."""
        t, s = self._t["table"], self._t["schema"]
        own = parts_of(schema)[-1]
        where = (sa.func.lower(t.c.table_name) == fold(name), sa.func.lower(s.c.schema_name) == fold(own))
        tables = self._load_tables(snapshot, "table", where)
        return next(
            (info for info in tables if (fold(info.name), fold(info.schema_name)) == (fold(name), fold(schema))), None
        )

    def by_id(self, snapshot: Snapshot, table_id: int) -> TableInfo | None:
        """Return a table by its id, whatever its name was at the snapshot, or None."""
        tables = self._load_tables(snapshot, "table_by_id", (self._t["table"].c.table_id == table_id,))
        return tables[0] if tables else None

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
                c.c.begin_snapshot.label("column_begin"),
                *self.column_rows(),
            )
            .select_from(
                t.join(s, sa.and_(s.c.schema_id == t.c.schema_id, visible(s, snapshot.id))).outerjoin(
                    c, sa.and_(c.c.table_id == t.c.table_id, visible(c, snapshot.id))
                )
            )
            .where(visible(t, snapshot.id), *where)
            .order_by(s.c.schema_name, t.c.table_name, t.c.table_id)
        )
        grouped: dict[tuple[Any, ...], list[ColumnRow]] = {}
        since: dict[int, int] = {}
        result = self._sql.run(name, statement).all()
        nested = self.nested_schemas(snapshot) if result else {}
        for row in result:
            schema = nested.get(row[2], row[3])
            if schema is None:
                continue  # its schema counts as dropped
            rows = grouped.setdefault((*row[:3], schema, *row[4:10]), [])
            if row[11] is not None:
                rows.append(ColumnRow(*row[11:]))
                since[row[0]] = max(since.get(row[0], 0), row[10])
        if not grouped:
            return []
        ids = [head[0] for head in grouped] if where else None
        select = partitions.select_partitions(self._t, snapshot.id, ids)
        partitionings = partitions.by_table(self._sql.run("partitions", select))
        sorts: dict[int, SortSpec] = {}
        if "sort_info" in self._t:
            sorts = partitions.sorts(self._sql.run("sorts", partitions.select_sorts(self._t, snapshot.id, ids)))
        return [
            replace(
                self._table_info(head, rows, snapshot),
                partition=partitionings.get(head[0]),
                sort=sorts.get(head[0]),
                columns_since=since.get(head[0]),
            )
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

    def schema_history(self, table_id: int) -> list[tuple[int, int]]:
        """Return the schema versions of a table, oldest first: since which snapshot, and the version."""
        v = self._t["schema_versions"]
        statement = sa.select(v.c.begin_snapshot, v.c.schema_version).where(v.c.table_id == table_id)
        return sorted((row[0], row[1]) for row in self._sql.run("schema_history", statement))

    def columns_at(self, table_id: int, schema_version: int) -> TableSchema:
        """Return the columns a table had at one of its schema versions."""
        v, c, s = self._t.get("schema_versions"), self._t["column"], self._t["snapshot"]
        begin: sa.ColumnElement[Any] = (
            sa.select(sa.func.min(s.c.snapshot_id)).where(s.c.schema_version == schema_version).scalar_subquery()
        )
        if v is not None and "table_id" in v.c:
            # the first inlined insert of stock DuckLake may begin a version without a row of its own
            noted = sa.select(sa.func.max(v.c.begin_snapshot)).where(
                v.c.table_id == table_id, v.c.schema_version <= schema_version
            )
            begin = sa.func.coalesce(noted.scalar_subquery(), begin)
        statement = sa.select(*self.column_rows()).where(c.c.table_id == table_id, visible(c, begin))
        return unflatten(ColumnRow(*row) for row in self._sql.run("columns_at", statement))

    def column_rows(self) -> list[sa.ColumnElement[Any]]:
        """Return the fields of ``ColumnRow``."""
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
        """Return the largest id that a column of a table, or a node inside one, ever had.

        A column that was dropped in the transaction that made it is in no row of its own, but may be in files.
        """
        c, s = self._t["column"], self._t["file_column_stats"]
        every = sa.union_all(
            *(sa.select(sa.func.max(t.c.column_id).label("id")).where(t.c.table_id == table_id) for t in (c, s))
        ).subquery()
        return self._sql.run("last_column_id", sa.select(sa.func.max(every.c.id))).scalar_one() or 0

    def reshaped(self, snapshot: Snapshot, table: TableInfo) -> Reshaped:
        """Return when the fields inside a table's nested columns last became what they are."""
        if not any(column.nested for column in table.schema.columns):
            return Reshaped()
        key = ("reshaped", table.id, snapshot.schema_version)
        last: Reshaped | None = self._sql._cache.get(key)
        if last is None:
            c = self._t["column"]
            statement = sa.select(
                c.c.column_id, c.c.parent_column, c.c.column_name, c.c.begin_snapshot, c.c.end_snapshot
            ).where(c.c.table_id == table.id, c.c.begin_snapshot <= snapshot.id)
            rows = [tuple(row) for row in self._sql.run("column_history", statement)]
            last = self._sql._cache[key] = last_reshape(rows, snapshot.id)
        return last

    def past_columns(self, snapshot: Snapshot, table: TableInfo) -> Past:
        """Return the columns of a table as they were, up to a snapshot."""
        key = ("past_columns", table.id, snapshot.schema_version)
        past: Past | None = self._sql._cache.get(key)
        if past is None:
            c = self._t["column"]
            statement = sa.select(*self.column_rows(), c.c.begin_snapshot, c.c.end_snapshot).where(
                c.c.table_id == table.id, c.c.begin_snapshot <= snapshot.id
            )
            rows = [(ColumnRow(*row[:-2]), row[-2], row[-1]) for row in self._sql.run("past_columns", statement)]
            past = self._sql._cache[key] = past_columns(rows)
        return past

    def dropped(self, kind: str, schema: str, name: str) -> DroppedObject | None:
        """Return the ``table`` or ``view`` of that name that was dropped last, ignoring case, or None."""
        t, s = self._t[kind], self._t["schema"]
        id_, named = t.c[f"{kind}_id"], t.c[f"{kind}_name"]
        later = t.alias("later")
        again = sa.or_(later.c.end_snapshot.is_(None), later.c.end_snapshot > t.c.end_snapshot)
        statement = (
            sa.select(id_, t.c.end_snapshot, named, s.c.schema_name, s.c.schema_id)
            .join_from(t, s, s.c.schema_id == t.c.schema_id)
            .where(
                sa.func.lower(named) == fold(name),
                sa.func.lower(s.c.schema_name) == fold(parts_of(schema)[-1]),
                t.c.end_snapshot.is_not(None),
                ~sa.exists().where(later.c[f"{kind}_id"] == id_, again),
            )
            .order_by(t.c.end_snapshot.desc(), id_.desc())
        )
        rows = self._sql.run(f"dropped_{kind}", statement).all()
        full = self._schema_names() if rows else {}
        for object_id, end, its_name, its_schema, schema_id in rows:
            if (fold(its_name), fold(full.get(schema_id, its_schema))) == (fold(name), fold(schema)):
                return DroppedObject(object_id, end)
        return None

    def _schema_names(self) -> Mapping[int, str]:
        """Return the full names of all schemas there ever were, where they may be inside others."""
        if ("schema", "parent_schema_id") not in self._t.parts:
            return {}
        s = self._t["schema"]
        statement = sa.select(s.c.schema_id, s.c.schema_name, s.c.parent_schema_id)
        return full_names([tuple(row) for row in self._sql.run("schema_names", statement)])

    def drop_of(self, table_id: int) -> int | None:
        """Return the snapshot that dropped a table, None when it lives or is forgotten."""
        t = self._t["table"]
        statement = sa.select(t.c.end_snapshot).where(t.c.table_id == table_id)
        ends = [row[0] for row in self._sql.run("drop_of", statement)]
        return max(ends) if ends and None not in ends else None

    def newest_types(self, table_id: int, column_ids: Sequence[int]) -> dict[int, str]:
        """Return the last type that each of these columns, or nodes inside them, ever had."""
        if not column_ids:
            return {}
        c = self._t["column"]
        statement = (
            sa.select(c.c.column_id, c.c.column_type)
            .where(c.c.table_id == table_id, c.c.column_id.in_(list(column_ids)))
            .order_by(c.c.begin_snapshot)
        )
        return {row[0]: row[1] for row in self._sql.run("newest_types", statement)}

    def all_names(self) -> dict[int, list[tuple[int, str]]]:
        """Return every name of schemas, tables, views and macros by id: since which snapshot, oldest first."""
        schema = self._t["schema"]
        columns = sa.select(schema.c.schema_id, schema.c.schema_name)
        schemas = {row[0]: str(row[1]) for row in self._sql.run("names", columns)}
        names = {id_: [(0, name)] for id_, name in schemas.items()}
        for kind in ("table", "view", "macro"):
            table = self._t.get(kind)
            if table is None:
                continue
            select = sa.select(
                table.c[f"{kind}_id"], table.c.begin_snapshot, table.c.schema_id, table.c[f"{kind}_name"]
            )
            for id_, begin, schema_id, name in self._sql.run("names", select.order_by(table.c.begin_snapshot)):
                names.setdefault(id_, []).append((begin, f"{schemas.get(schema_id, '?')}.{name}"))
        return names
