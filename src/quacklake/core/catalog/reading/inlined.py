"""Reading rows and deletes that are stored in the metadata database."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import sqlalchemy as sa

from quacklake.core.catalog.statements import (
    ROWS,
    InlinedTable,
    Queries,
    Step,
    arrow_table,
    inlined_lives,
    inlined_table,
    of_all_tables,
    visible,
)
from quacklake.core.format.inline import PREFIX, data_table_name, delete_table_name, parse_table_name
from quacklake.core.format.objects import TableInfo
from quacklake.core.format.schema import TableSchema
from quacklake.core.format.snapshots import Snapshot

if TYPE_CHECKING:
    from quacklake.core.catalog.reading.reader import Reader


@dataclass(frozen=True, slots=True)
class InlinedRows:
    """Inlined rows of one schema version as the database stores them: row id, snapshots, then the columns."""

    schema: TableSchema
    schema_version: int
    rows: pa.Table


Take = Callable[[InlinedRows], None]
"""Receives some rows while the database sends more."""


@dataclass(frozen=True, slots=True)
class LaterRows:
    """The difference between the inlined rows of two snapshots: the ids of those that ended, and those that began."""

    ended: Sequence[int]
    begun: Sequence[InlinedRows]


@dataclass(frozen=True, slots=True)
class DatedDeletes:
    """Deleted rows of one data file, position and snapshot each; its delete file, if any, began at ``file_begin``."""

    rows: tuple[tuple[int, int], ...]
    file_begin: int | None


class InlinedQueries(Queries):
    """Reads the inlined rows and deletes of tables."""

    _sql: Reader

    def tables(self, table_id: int) -> dict[int, str]:
        """Return the inlined tables of a table: schema version -> name."""
        t = self.meta["inlined_data_tables"]
        statement = self._sql.cached(
            "inlined_tables",
            lambda: sa.select(t.c.schema_version, t.c.table_name).where(t.c.table_id == sa.bindparam("table_id")),
        )
        rows = self._sql.run("inlined_tables", statement, {"table_id": table_id})
        return {row[0]: row[1] for row in sorted(rows.all())}

    def delete_tables(self) -> list[int]:
        """Return the tables that have a place for inlined deletes."""
        named = filter(None, map(parse_table_name, self._sql.stored_tables()))
        return sorted(table_id for table_id, version in named if version is None)

    def table(self, table_id: int, schema_version: int, schema: TableSchema) -> InlinedTable:
        """Return the inlined table of one schema version, as SQL sees it."""
        # the key has the columns: a failed commit may have wanted another table of that version
        key = ("inlined", table_id, schema_version, schema)
        return self._sql.cached(  # type: ignore[no-any-return]
            key,
            lambda: inlined_table(
                table_id, schema_version, schema, self.backend.name, self.meta, self.prefix(table_id, schema_version)
            ),
        )

    def lives(self, table_id: int, schema_version: int) -> sa.Table:
        """Return a table of inlined rows as far as every one has the same columns: row id, begin and end."""
        return inlined_lives(table_id, schema_version, self.meta, self.prefix(table_id, schema_version))

    def prefix(self, table_id: int, schema_version: int) -> str:
        """Return what precedes the names of the columns of a table of inlined rows that are not a user's.

        A lake on its way to 1.1 may have tables of both kinds, so the table itself is asked; a new one of 1.1 has it.
        """
        halfway = self.backend.name == "mysql"  # a failed migration leaves some columns renamed there
        if self.meta.shared or not (self.meta.is_next or halfway):
            return ""
        key = ("inlined_prefix", table_id, schema_version)
        prefix: str = self._sql.cached(key, lambda: self._look_for_prefix(data_table_name(table_id, schema_version)))
        return prefix

    def expect_new_table(self, table_id: int, schema_version: int) -> None:
        """Remember the prefix of a table that is about to be made, whatever a failed commit has left under its name."""
        self._sql._cache["inlined_prefix", table_id, schema_version] = PREFIX if self.meta.is_next else ""

    def _look_for_prefix(self, name: str) -> str:
        if not self._sql.has_table(name):
            return PREFIX if self.meta.is_next else ""
        table = sa.table(name, schema=self.meta.metadata.schema)
        columns = self._sql.run("inlined_columns", sa.select(sa.text("*")).select_from(table).limit(0)).keys()
        return PREFIX if next(iter(columns), "").startswith(PREFIX) else ""

    def rows(
        self, snapshot: Snapshot, table: TableInfo, *, since: int | None = None, remains: bool = False
    ) -> list[InlinedRows]:
        """Return the inlined rows visible at a snapshot; with ``since`` only those inserted after that snapshot.

        Raise ``SnapshotExpiredError`` when the snapshot is gone; with ``remains`` what is left of it will do.
        """
        parts: list[InlinedRows] = []
        self.hand_over(snapshot, table, parts.append, since=since, remains=remains)
        return parts

    def hand_over(
        self, snapshot: Snapshot, table: TableInfo, take: Take, *, since: int | None = None, remains: bool = False
    ) -> None:
        """Hand what ``rows`` returns to ``take``, while the database sends more."""

        def condition(sql: sa.Table) -> sa.ColumnElement[bool]:
            seen = visible(sql, _number("snapshot"))
            return seen if since is None else sa.and_(seen, sql.c.begin_snapshot > _number("since"))

        versions = dict.fromkeys(self.tables(table.id)) if remains else self._inlined_versions_at(snapshot, table.id)
        if since is None:
            self._hand_over(table, versions, "visible", condition, {"snapshot": snapshot.id}, take)
        else:
            given = {"snapshot": snapshot.id, "since": since}
            # the new rows are few, however many there are
            self._hand_over(table, dict.fromkeys(versions), "inserted", condition, given, take)

    def later(
        self, snapshot: Snapshot, table: TableInfo, since: Snapshot, counts: Mapping[int, int]
    ) -> LaterRows | None:
        """Return what became of the inlined rows that ``since`` saw, so many of each schema version; None if unknown.

        Inlined rows only end, vanish, or begin with a new snapshot: when as many are left as should be, these are the
        same. Raise ``SnapshotExpiredError`` when the snapshot is gone.
        """
        versions = self._inlined_versions_at(snapshot, table.id)
        if not set(counts) <= set(versions):
            return None
        if since == snapshot:
            return LaterRows((), ())
        if since.id > snapshot.id or self._sql.snapshots.find(since.id) != since:
            return None
        given = {"snapshot": snapshot.id, "since": since.id}
        ended: list[int] = []
        for version in versions:
            lives, old = self.lives(table.id, version), _number("since")
            left = sa.select(sa.func.count()).where(visible(lives, _number("snapshot")), lives.c.begin_snapshot <= old)
            gone = counts.get(version, 0) - int(self._sql.run("inlined_left", left, given).scalar() or 0)
            if gone:
                between = lives.c.end_snapshot > old, lives.c.end_snapshot <= _number("snapshot")
                ids = sa.select(lives.c.row_id).where(lives.c.begin_snapshot <= old, *between)
                found = [row[0] for row in self._sql.run("inlined_ended", ids, given)]
                if len(found) != gone:
                    return None
                ended += found
        return LaterRows(ended, self.rows(snapshot, table, since=since.id))

    def _inlined_versions_at(self, snapshot: Snapshot, table_id: int) -> dict[int, int | None]:
        """Return the schema versions of the inlined tables of a table, each with the extent of its rows.

        Raise ``SnapshotExpiredError`` when the snapshot is gone.
        """
        t, s = self.meta["inlined_data_tables"], self.meta["snapshot"]

        def build() -> Any:
            nothing = sa.cast(sa.null(), sa.BigInteger)
            packed = of_all_tables(ROWS, self.meta) if self.meta.shared else None
            extent = self.backend.extent(t, packed, self.meta.metadata.schema)
            here = sa.select(nothing.label("schema_version"), nothing.label("extent"))
            return sa.union_all(
                sa.select(t.c.schema_version, nothing if extent is None else extent).where(
                    t.c.table_id == sa.bindparam("table_id")
                ),
                here.select_from(s).where(s.c.snapshot_id == sa.bindparam("snapshot")),
            )

        statement = self._sql.cached("inlined_versions_at", build)
        rows = self._sql.run("inlined_tables", statement, {"table_id": table_id, "snapshot": snapshot.id}).all()
        if all(version is not None for version, _ in rows):
            raise self._sql.expired(f"snapshot {snapshot.id} has expired")
        return {version: extent for version, extent in sorted(rows, key=lambda row: row[0] or 0) if version is not None}

    def _rows(
        self,
        table: TableInfo,
        kind: str,
        condition: Callable[[sa.Table], sa.ColumnElement[bool]],
        given: Mapping[str, int],
    ) -> list[InlinedRows]:
        """Return rows of all schema versions."""
        parts: list[InlinedRows] = []
        self._hand_over(table, dict.fromkeys(self.tables(table.id)), kind, condition, given, parts.append)
        return parts

    def _hand_over(
        self,
        table: TableInfo,
        versions: Mapping[int, int | None],
        kind: str,
        condition: Callable[[sa.Table], sa.ColumnElement[bool]],
        given: Mapping[str, int],
        take: Take,
    ) -> None:
        """Hand rows of some schema versions to ``take``, each with the extent of its rows or None.

        The condition of each kind is built once, ``given`` are its values.
        """
        for version, extent in versions.items():
            schema = table.schema if version == table.schema_version else self.schema_of(table.id, version)
            inlined = self.table(table.id, version, schema)
            key = ("inlined", table.id, version, schema, kind)  # forgotten with the table that the statement reads
            statement = self._sql.cached(key, partial(self._select, inlined, schema, condition))
            part = partial(_part, inlined, schema, version, take)
            with Step("inlined_rows", statement):
                self.backend.fetch_parts(
                    self._sql.connection,
                    statement,
                    given,
                    part,
                    extent=extent,
                    row_id=inlined.table.c.row_id if inlined.packed else None,
                )

    def fetch(
        self, inlined: InlinedTable, schema: TableSchema, version: int, condition: sa.ColumnElement[bool]
    ) -> InlinedRows:
        statement = self._select(inlined, schema, lambda _: condition)
        with Step("inlined_rows", statement):
            rows = self.backend.fetch_arrow(self._sql.connection, statement, {})
        return InlinedRows(schema, version, inlined.loaded(rows))

    def _select(
        self, inlined: InlinedTable, schema: TableSchema, condition: Callable[[sa.Table], sa.ColumnElement[bool]]
    ) -> sa.Select[Any]:
        return sa.select(*self._choose_columns(inlined, schema)).where(condition(inlined.table))

    def changed_rows(self, table: TableInfo, since: int, until: int) -> list[InlinedRows]:
        """Return the inlined rows that came or went in some snapshots."""

        def condition(sql: sa.Table) -> sa.ColumnElement[bool]:
            ends = _number("since"), _number("until")
            return sa.or_(sql.c.begin_snapshot.between(*ends), sql.c.end_snapshot.between(*ends))

        return self._rows(table, "changed", condition, {"since": since, "until": until})

    def rows_during(self, table: TableInfo, since: int, until: int) -> list[InlinedRows]:
        """Return the inlined rows that were there at any snapshot from ``since`` to ``until``."""

        def condition(sql: sa.Table) -> sa.ColumnElement[bool]:
            ended = sa.or_(sql.c.end_snapshot.is_(None), sql.c.end_snapshot > _number("since"))
            return sa.and_(sql.c.begin_snapshot <= _number("until"), ended)

        return self._rows(table, "during", condition, {"since": since, "until": until})

    def rows_until(
        self, table: TableInfo, version: int, schema: TableSchema, until: int, limit: int, *, since: int = -1
    ) -> tuple[int, InlinedRows] | None:
        """Return the oldest inlined rows of one schema version after a snapshot up to another, ended ones too.

        Whole snapshots, and about ``limit`` rows; with the last of these snapshots. None when there are no rows.
        """
        inlined = self.table(table.id, version, schema)
        sql = inlined.table
        later = sql.c.begin_snapshot > since
        cut = sa.select(sql.c.begin_snapshot).where(later).order_by(sql.c.begin_snapshot).offset(limit).limit(1)
        last = self._sql.run("flush_window", cut).scalar()
        through = until if last is None else min(until, int(last))
        rows = self.fetch(inlined, schema, version, sa.and_(later, sql.c.begin_snapshot <= through))
        return (through, rows) if rows.rows.num_rows else None

    def schema_of(self, table_id: int, version: int) -> TableSchema:
        """Return the columns of a committed inlined table, which never change."""
        key = ("inlined_schema", table_id, version)
        schema: TableSchema = self._sql.cached(key, lambda: self._sql.tables.columns_at(table_id, version))
        return schema

    def _choose_columns(self, inlined: InlinedTable, schema: TableSchema) -> list[sa.ColumnElement[Any]]:
        """Return the columns of an inlined table; some come as text, which DuckDB casts back."""
        if inlined.packed or self.backend.name not in ("duckdb", "postgres"):
            return list(inlined.table.c)
        if self.backend.name == "duckdb":
            chosen = {f"c{column.id}" for column in schema.columns if column.travels_as_text}
        else:
            chosen = {f"c{column.id}" for column in schema.columns if column.type == "interval"}
        as_text = _interval_text if self.backend.name == "postgres" else _text
        return [as_text(column).label(column.name) if column.key in chosen else column for column in inlined.table.c]

    def deletes_until(self, table_id: int, until: int) -> pa.Table:
        """Return all inlined deletes up to a snapshot: ``file_id``, ``row_id`` and ``begin_snapshot`` of each."""
        return self._deletes("inlined_deletes_until", table_id, until, "file_id", "row_id", "begin_snapshot")

    def deletes(self, snapshot: Snapshot, table_id: int) -> pa.Table:
        """Return the inlined deletes of a table visible at a snapshot: ``file_id``, ``row_id`` (the position)."""
        return self._deletes("inlined_deletes", table_id, snapshot.id, "file_id", "row_id")

    def _deletes(self, name: str, table_id: int, until: int, *columns: str) -> pa.Table:
        types = dict.fromkeys(columns, pa.int64())
        if not self.has_deletes(table_id, until):
            return pa.schema(types).empty_table()
        sql = self._sql.delete_table(table_id)
        statement = sa.select(*(sql.c[column] for column in columns)).where(sql.c.begin_snapshot <= until)
        return arrow_table(self._sql.run(name, statement), types)

    def dated_deletes(
        self, snapshot: Snapshot, table_id: int, files: Mapping[int, int | None]
    ) -> dict[int, DatedDeletes]:
        """Return the inlined deletes of some data files at a snapshot; ``files`` names the delete file of each."""
        positions: dict[int, list[tuple[int, int]]] = {file: [] for file in files}
        if self.has_deletes(table_id, snapshot.id):
            sql = self._sql.delete_table(table_id)
            statement = sa.select(sql.c.file_id, sql.c.row_id, sql.c.begin_snapshot).where(
                sql.c.file_id.in_(list(files)), sql.c.begin_snapshot <= snapshot.id
            )
            for file, position, begin in self._sql.run("dated_deletes", statement):
                positions[file].append((position, begin))
        d = self.meta["delete_file"]
        begins = sa.select(d.c.delete_file_id, d.c.begin_snapshot).where(d.c.delete_file_id.in_(list(files.values())))
        known = {row[0]: row[1] for row in self._sql.run("delete_file_begins", begins)}
        return {file: DatedDeletes(tuple(rows), known.get(files[file])) for file, rows in positions.items()}

    def has_deletes(self, table_id: int, snapshot_id: int | None = None) -> bool:
        """Return whether a table has inlined deletes, of snapshots up to ``snapshot_id`` when given.

        One that has been seen stays; one that was missing can only come with a later snapshot.
        """
        key, absent = ("inlined_deletes", table_id), ("no_inlined_deletes", table_id)
        if self._sql._cache.get(key):
            return True
        if snapshot_id is not None and snapshot_id <= self._sql._cache.get(absent, -1):
            return False
        exists = self._sql.has_table(delete_table_name(table_id))
        if exists:
            self._sql._cache[key] = True
        elif snapshot_id is not None:
            self._sql._cache[absent] = snapshot_id
        return exists


def _part(inlined: InlinedTable, schema: TableSchema, version: int, take: Take, rows: pa.Table) -> None:
    """Hand rows as the database gives them to ``take``, if there are any."""
    if rows.num_rows:
        take(InlinedRows(schema, version, inlined.loaded(rows)))


def _number(name: str) -> sa.BindParameter[int]:
    return sa.bindparam(name, type_=sa.BigInteger())


def _text(column: sa.ColumnElement[Any]) -> sa.ColumnElement[Any]:
    return sa.cast(column, sa.String)


def _interval_text(column: sa.ColumnElement[Any]) -> sa.ColumnElement[Any]:
    """Return an interval of PostgreSQL as text that DuckDB reads, unlike PostgreSQL's own ``-1 mons +3 days``."""
    months = sa.extract("year", column) * 12 + sa.extract("month", column)
    clock = sa.extract("hour", column) * 3_600_000_000 + sa.extract("minute", column) * 60_000_000
    parts = (
        (months, " months "),
        (sa.extract("day", column), " days "),
        (clock + sa.extract("microseconds", column), " microseconds"),
    )
    texts = [sa.cast(sa.cast(value, sa.BigInteger), sa.String) + unit for value, unit in parts]
    return texts[0] + texts[1] + texts[2]
