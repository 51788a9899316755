"""The past of tables: their columns and names at earlier snapshots, and dropped ones."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from quacklake.core.catalog.name_keys import is_called
from quacklake.core.catalog.statements import Queries, visible
from quacklake.core.format.names import fold, full_names, parts_of
from quacklake.core.format.objects import TableInfo
from quacklake.core.format.schema import Column, ColumnRow, Past, TableSchema, unflatten
from quacklake.core.format.snapshots import Snapshot
from quacklake.errors import CatalogError

#: Of each row: column, parent, name, begin and end.
HistoryRow = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Reshaped:
    """The last time that fields inside nested columns came, went or were renamed; ``changed`` if one did so alone."""

    at: int | None = None
    changed: bool = False


def last_reshape(rows: Iterable[HistoryRow], snapshot_id: int) -> Reshaped:
    """Return what happened up to ``snapshot_id`` to the fields of columns that are still there.

    Fields that only changed their type do not count. What came into being with its column does: a file of that very
    snapshot may have been written before the fields got the names they have in the catalog.
    """
    lives: dict[int, list[tuple[int, int | None, str]]] = {}
    parents: dict[int, int | None] = {}
    for column_id, parent, name, begin, end in rows:
        ended = end if end is not None and end <= snapshot_id else None
        lives.setdefault(column_id, []).append((begin, ended, name))
        parents[column_id] = parent
    for life in lives.values():
        life.sort(key=lambda row: row[0])
    made: list[int] = []
    changed: list[int] = []
    for column_id, life in lives.items():
        top = _top(column_id, parents)
        if top == column_id or top not in lives or lives[top][-1][1] is not None:
            continue
        first, last = life[0][0], life[-1][1]
        (changed if first > lives[top][0][0] else made).append(first)
        # a field that was dropped for a while is missing in the files of that time
        changed += [b[0] for a, b in itertools.pairwise(life) if (a[1], a[2]) != (b[0], b[2])]
        changed += [] if last is None else [last]
    return Reshaped(max([*made, *changed], default=None), bool(changed))


def _past_of(rows: Sequence[tuple[ColumnRow, int, int | None]]) -> Past:
    """Return the columns of a table at each snapshot that changed them, without those that are no longer whole."""
    past: list[tuple[int, TableSchema]] = []
    for time in sorted({begin for _, begin, _ in rows} | {end for _, _, end in rows if end is not None}):
        there = [row for row, begin, end in rows if begin <= time and (end is None or end > time)]
        schema = TableSchema(tuple(_whole_columns(there)))
        if not past or past[-1][1] != schema:
            past.append((time, schema))
    return tuple(past)


def _whole_columns(rows: Sequence[ColumnRow]) -> Iterator[Column]:
    parents: dict[int, int | None] = {row.column_id: row.parent_column for row in rows}
    trees: dict[int | None, list[ColumnRow]] = {}
    # a column that was renamed has a newer row, and keeps its place
    for row in sorted(rows, key=lambda row: (row.parent_column is not None, row.column_order, row.column_id)):
        trees.setdefault(_top(row.column_id, parents), []).append(row)
    for tree in trees.values():
        with suppress(CatalogError):
            yield from unflatten(tree).columns


def _top(column_id: int, parents: dict[int, int | None]) -> int | None:
    """Return the column of the table that a node belongs to; None in a catalog whose parents go round in a circle."""
    for _ in range(len(parents) + 1):
        parent = parents.get(column_id)
        if parent is None:
            return column_id
        column_id = parent
    return None


@dataclass(frozen=True, slots=True)
class DroppedObject:
    """A table or view that was dropped: its id and the snapshot that dropped it."""

    id: int
    dropped_at: int


class TableHistory(Queries):
    """Reads what the tables of a lake were: their columns and names at earlier snapshots, and dropped ones."""

    def schema_history(self, table_id: int) -> list[tuple[int, int]]:
        """Return the schema versions of a table, oldest first: since which snapshot, and the version."""
        v = self.meta["schema_versions"]
        statement = sa.select(v.c.begin_snapshot, v.c.schema_version).where(v.c.table_id == table_id)
        return sorted((row[0], row[1]) for row in self._sql.run("schema_history", statement))

    def columns_at(self, table_id: int, schema_version: int) -> TableSchema:
        """Return the columns a table had at one of its schema versions."""
        v, c, s = self.meta.get("schema_versions"), self.meta["column"], self.meta["snapshot"]
        begin: sa.ColumnElement[Any] = (
            sa.select(sa.func.min(s.c.snapshot_id)).where(s.c.schema_version == schema_version).scalar_subquery()
        )
        if v is not None and "table_id" in v.c:
            # the first inlined insert of stock DuckLake may begin a version that has no row
            noted = sa.select(sa.func.max(v.c.begin_snapshot)).where(
                v.c.table_id == table_id, v.c.schema_version <= schema_version
            )
            begin = sa.func.coalesce(noted.scalar_subquery(), begin)
        statement = sa.select(*self.column_rows()).where(c.c.table_id == table_id, visible(c, begin))
        return unflatten(ColumnRow(*row) for row in self._sql.run("columns_at", statement))

    def column_rows(self) -> list[sa.ColumnElement[Any]]:
        """Return the fields of ``ColumnRow``."""
        columns = self.meta.columns("column", " ".join(ColumnRow.__slots__))
        return [column.label(column.name) for column in columns]

    def last_column_id(self, table_id: int) -> int:
        """Return the largest id that a column of a table, or a node inside one, ever had, in rows or in files alone."""
        c, s = self.meta["column"], self.meta["file_column_stats"]
        every = sa.union_all(
            *(sa.select(sa.func.max(t.c.column_id).label("id")).where(t.c.table_id == table_id) for t in (c, s))
        ).subquery()
        return self._sql.run("last_column_id", sa.select(sa.func.max(every.c.id))).scalar_one() or 0

    def past_columns(self, snapshot: Snapshot, table: TableInfo) -> Past:
        """Return the columns of a table as they were, up to a snapshot."""

        def load() -> Past:
            c = self.meta["column"]
            statement = sa.select(*self.column_rows(), c.c.begin_snapshot, c.c.end_snapshot).where(
                c.c.table_id == table.id, c.c.begin_snapshot <= snapshot.id
            )
            rows = self._sql.run("past_columns", statement)
            return _past_of([(ColumnRow(*row[:-2]), row[-2], row[-1]) for row in rows])

        past: Past = self._sql.cached(("past_columns", table.id, snapshot.schema_version), load)
        return past

    def dropped(self, kind: str, schema: str, name: str) -> DroppedObject | None:
        """Return the ``table`` or ``view`` of that name that was dropped last, ignoring case, or None."""
        t, s = self.meta[kind], self.meta["schema"]
        id_, named = t.c[f"{kind}_id"], t.c[f"{kind}_name"]
        later = t.alias("later")
        again = sa.or_(later.c.end_snapshot.is_(None), later.c.end_snapshot > t.c.end_snapshot)
        statement = (
            sa.select(id_, t.c.end_snapshot, named, s.c.schema_name, s.c.schema_id)
            .join_from(t, s, s.c.schema_id == t.c.schema_id)
            .where(
                is_called(named, [sa.literal(name)], self.backend.name),
                is_called(s.c.schema_name, [sa.literal(parts_of(schema)[-1])], self.backend.name),
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
        if ("schema", "parent_schema_id") not in self.meta.parts:
            return {}
        s = self.meta["schema"]
        statement = sa.select(s.c.schema_id, s.c.schema_name, s.c.parent_schema_id)
        return full_names([tuple(row) for row in self._sql.run("schema_names", statement)])

    def drop_of(self, table_id: int) -> int | None:
        """Return the snapshot that dropped a table, None when it lives or is forgotten."""
        t = self.meta["table"]
        statement = sa.select(t.c.end_snapshot).where(t.c.table_id == table_id)
        ends = [row[0] for row in self._sql.run("drop_of", statement)]
        return max(ends) if ends and None not in ends else None

    def newest_types(self, table_id: int, column_ids: Sequence[int]) -> dict[int, str]:
        """Return the last type that each of these columns, or nodes inside them, ever had."""
        if not column_ids:
            return {}
        c = self.meta["column"]
        statement = (
            sa.select(c.c.column_id, c.c.column_type)
            .where(c.c.table_id == table_id, c.c.column_id.in_(list(column_ids)))
            .order_by(c.c.begin_snapshot)
        )
        return {row[0]: row[1] for row in self._sql.run("newest_types", statement)}

    def all_names(self) -> dict[int, list[tuple[int, str]]]:
        """Return every name of schemas, tables, views and macros by id: since which snapshot, oldest first."""
        schema = self.meta["schema"]
        columns = sa.select(schema.c.schema_id, schema.c.schema_name)
        schemas = {row[0]: str(row[1]) for row in self._sql.run("names", columns)}
        names = {id_: [(0, name)] for id_, name in schemas.items()}
        for kind in ("table", "view", "macro"):
            table = self.meta.get(kind)
            if table is None:
                continue
            select = sa.select(
                table.c[f"{kind}_id"], table.c.begin_snapshot, table.c.schema_id, table.c[f"{kind}_name"]
            )
            for id_, begin, schema_id, name in self._sql.run("names", select.order_by(table.c.begin_snapshot)):
                names.setdefault(id_, []).append((begin, f"{schemas.get(schema_id, '?')}.{name}"))
        return names
