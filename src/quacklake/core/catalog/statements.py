"""Named statements inside one transaction, the base of every reader and writer, and the tables of inlined rows."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from time import perf_counter
from typing import Any, Self, TypeVar

import pyarrow as pa
import pyarrow.compute as pc
import sqlalchemy as sa
from sqlalchemy.engine import Connection

from quacklake import telemetry
from quacklake.core import faults
from quacklake.core.catalog import scoped
from quacklake.core.catalog.databases.database import Database, PreparedSelect, Rows
from quacklake.core.catalog.tables import ADDED_LATER, NamedType, Tables, Text, TextBytes, flag
from quacklake.core.format import inline
from quacklake.core.format.inline import LIFE, data_table_name, delete_table_name, pack, parse_table_name
from quacklake.core.format.objects import NO_LIMITS
from quacklake.core.format.schema import Column, TableSchema
from quacklake.errors import NotFoundError, SnapshotExpiredError

ROWS, DELETES = "ducklake_inlined_rows", "ducklake_inlined_deletes"
"""The tables of a shared lake for the inlined rows and deletes of all tables of all catalogs."""

_A_PART = 500
"""The number of rows that become Arrow at a time."""

_STORED: Mapping[str, sa.types.TypeEngine[Any]] = {
    **dict.fromkeys(("BIGINT", "INTEGER", "SMALLINT"), sa.BigInteger()),
    **dict.fromkeys(("BYTEA", "BLOB", "LONGBLOB"), sa.LargeBinary()),
    "BOOLEAN": sa.Boolean(),
}


@dataclass(frozen=True, slots=True)
class InlinedTable:
    """The inlined table of one schema version; ``keys`` are its data columns in schema order.

    Without ``ddl`` there is no table to create: its rows are packed, among those of other tables.
    """

    table: sa.Table
    keys: tuple[str, ...]
    ddl: tuple[tuple[str, str], ...]

    @property
    def packed(self) -> bool:
        """True when a row is one text."""
        return not self.ddl

    def stored(self, rows: Sequence[Sequence[Any]]) -> tuple[tuple[str, ...], Sequence[Sequence[Any]]]:
        """Return the columns and values that rows of encoded values are stored as."""
        return (("payload",), [(pack(row),) for row in rows]) if self.packed else (self.keys, rows)

    def loaded(self, rows: pa.Table) -> pa.Table:
        """Return rows as the database gives them, with the keys of the columns as their names."""
        return rows.rename_columns([column.key for column in self.table.c])


def inlined_table(
    table_id: int, version: int, schema: TableSchema, database: str, tables: Tables, prefix: str
) -> InlinedTable:
    """Return the inlined table of a table at one schema version; ``prefix`` stands before its own columns."""
    # the key is the id: a user's column may be called row_id too
    keys = tuple(f"c{column.id}" for column in schema.columns)
    if tables.shared:
        return InlinedTable(inlined_lives(table_id, version, tables, prefix), keys, ())
    types = [inline.sql_type(column, database) for column in schema.columns]
    # always quoted: SQLAlchemy does not know every keyword of a database
    columns: list[sa.Column[Any]] = [
        sa.Column(name, _find_storage_type(column, sql, database), key=key, quote=True)
        for name, key, sql, column in zip(schema.names, keys, types, schema.columns, strict=True)
    ]
    ddl = (*((prefix + name, "BIGINT") for name in LIFE), *zip(schema.names, types, strict=True))
    return InlinedTable(inlined_lives(table_id, version, tables, prefix, columns), keys, ddl)


def inlined_lives(
    table_id: int, version: int, tables: Tables, prefix: str, more: Sequence[sa.Column[Any]] = ()
) -> sa.Table:
    """Return a table of inlined rows as far as every one has the same columns (row id, begin and end), or with more."""
    life: list[sa.Column[Any]] = [sa.Column(prefix + column, sa.BigInteger(), key=column) for column in LIFE]
    columns = [*life, sa.Column("payload", Text())] if tables.shared else [*life, *more]
    name = data_table_name(table_id, version)
    table = sa.Table(name, sa.MetaData(), *columns, schema=tables.metadata.schema)
    return _among(ROWS, table, tables, table_id=table_id, schema_version=version)


def _among(name: str, table: sa.Table, tables: Tables, **where: int) -> sa.Table:
    """Return the table itself, or in a shared lake the part of one table that stands for it."""
    return scoped.place(table, scoped.physical(table, name, where), where) if tables.shared else table


def _find_storage_type(column: Column, sql: str, database: str) -> sa.types.TypeEngine[Any]:
    if sql == "BYTEA" and inline.is_text(column):
        return TextBytes()
    return NamedType(sql) if database == "duckdb" else _STORED.get(sql) or NamedType(sql)


def delete_table(table_id: int, tables: Tables) -> sa.Table:
    """Return the table of inlined deletes: the position of a row in a data file, and since when it is gone."""
    table = sa.Table(
        delete_table_name(table_id),
        sa.MetaData(),
        *(sa.Column(name, sa.BigInteger()) for name in ("file_id", "row_id", "begin_snapshot")),
        schema=tables.metadata.schema,
    )
    return _among(DELETES, table, tables, table_id=table_id)


def of_all_tables(name: str, tables: Tables) -> sa.Table:
    """Return ``ROWS`` or ``DELETES`` of a shared lake, with the ids of the tables of a catalog that have any."""
    columns = ("table_id", "schema_version") if name == ROWS else ("table_id",)
    made = (sa.Column(column, sa.BigInteger()) for column in columns)
    table = sa.Table(name, sa.MetaData(), *made, schema=tables.metadata.schema)
    return scoped.place(table, scoped.physical(table))


SOME = 500
"""Ids or ranges that one statement may name."""

T = TypeVar("T")

_RUNS = 20
"""Up to this many runs of ids are named by their ends."""


class Step:
    """Counts and logs a block as one statement, which is a fault point before and after."""

    __slots__ = ("_name", "_start", "_statement")

    def __init__(self, name: str, statement: Any = None) -> None:
        self._name = f"catalog.{name}"
        self._statement = statement

    def __enter__(self) -> None:
        faults.reach(f"{self._name}.before")
        self._start = perf_counter()

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        telemetry.log_step(self._name, perf_counter() - self._start, self._statement)
        if kind is None:
            telemetry.count("catalog.statements")
            faults.reach(f"{self._name}.after")


class CatalogStatements:
    """One transaction of the metadata database."""

    def __init__(self, connection: Connection, tables: Tables, database: Database, cache: dict[Any, Any]) -> None:
        self.connection = connection
        self.meta = tables
        self.backend = database
        self._cache = cache
        self.ahead: Rows | None = None
        """The answer to the query that took the turn to commit; its user takes it away."""
        self.limits = NO_LIMITS
        """The limits of a catalog of a shared lake; known after a snapshot was read."""

    @classmethod
    def of(cls, other: CatalogStatements) -> Self:
        """Return the same transaction with the methods of this class."""
        return cls(other.connection, other.meta, other.backend, other._cache)

    def run(self, name: str, statement: Any, parameters: Any = None) -> sa.CursorResult[*tuple[Any, ...]]:
        """Execute one named statement."""
        with Step(name, statement):
            return self.connection.execute(statement, parameters)

    def ask(self, name: str, statement: sa.Select[Any], parameters: Mapping[str, Any]) -> Rows:
        """Return the rows of one named select that is built once and run often."""
        with Step(name, statement):
            return self.backend.ask(self.connection, PreparedSelect(statement, parameters))

    def cached(self, key: Any, build: Any) -> Any:
        """Return a statement that is built once per catalog."""
        statement = self._cache.get(key)
        if statement is None:
            statement = self._cache[key] = build()
        return statement

    def built(self, key: Any, build: Any) -> Any:
        """Return a statement that is built once per process; lakes share it, so all values are parameters."""
        known, place = self.meta.statements, (self.backend.name, key)
        statement = known.get(place)
        return known.setdefault(place, build()) if statement is None else statement

    def expired(self, message: str) -> NotFoundError:
        """Return the error for expired snapshots; it names the oldest that is left."""
        table = self.meta["snapshot"]
        oldest = self.run("oldest_snapshot", sa.select(sa.func.min(table.c.snapshot_id))).scalar()
        if oldest is None and self.meta.shared:
            return self.catalog_dropped()
        return SnapshotExpiredError(
            message, hint=f"the oldest snapshot left is {oldest}; lake.snapshots() lists those that exist"
        )

    def catalog_dropped(self) -> NotFoundError:
        """Return the error for a catalog of a shared lake that was dropped: it has no snapshots."""
        return NotFoundError("the catalog does not exist any more: it was dropped while it was open")

    def has_table(self, name: str) -> bool:
        """Return whether the database has a table of that name, or in a shared lake what stands for it."""
        if not self.meta.shared or name.removeprefix("quacklake_") in ADDED_LATER:
            return self.backend.has_table(self.connection, name, self.meta.metadata.schema)
        named = parse_table_name(name)
        if named is None or named[1] is not None:
            return True  # a shared lake has all its tables from the start
        table = self.delete_table(named[0])
        return self.run("any_inlined_delete", sa.select(table.c.file_id).limit(1)).first() is not None

    def stored_tables(self) -> list[str]:
        """Return the tables of the database, in a shared lake with what stands for those of inlined rows."""
        if not self.meta.shared:
            return list(sa.inspect(self.connection).get_table_names(schema=self.meta.metadata.schema))
        rows, deletes = of_all_tables(ROWS, self.meta), of_all_tables(DELETES, self.meta)
        versions = self.run("inlined_versions", sa.select(rows.c.table_id, rows.c.schema_version).distinct())
        names = [data_table_name(*row) for row in versions]
        names += [delete_table_name(row[0]) for row in self.run("deletes", sa.select(deletes.c.table_id).distinct())]
        return [*names, *(table.name for table in (*self.meta.stock(), *self.meta.own.values()))]

    def delete_table(self, table_id: int) -> sa.Table:
        """Return the table of inlined deletes, always the same object: compiled statements are found again by it."""
        table: sa.Table = self.cached(("delete_table", table_id), lambda: delete_table(table_id, self.meta))
        return table


class Queries:
    """The queries of one subject inside a transaction."""

    def __init__(self, sql: CatalogStatements) -> None:
        self._sql = sql
        self.meta = sql.meta
        self.backend = sql.backend


class WriteStatements(CatalogStatements):
    """A write transaction of the metadata database: it inserts, updates and ends rows in bulk."""

    def insert(self, name: str, columns: str, rows: Sequence[Sequence[Any]]) -> None:
        """Insert rows into a stock table, without the columns that the version of this lake does not have."""
        if rows:
            table, keys = self.meta[name], columns.split()
            known = [position for position, key in enumerate(keys) if key in table.c]
            if len(known) < len(keys):
                keys, rows = [keys[at] for at in known], [[row[at] for at in known] for row in rows]
            self.insert_many(f"insert_{name}", table, keys, rows)

    def insert_many(self, name: str, table: sa.Table, keys: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
        """Insert rows in bulk; one statement, whatever their number."""
        with Step(name):
            self.backend.insert_many(self.connection, table, keys, rows)

    def update_many(
        self, name: str, table: sa.Table, where: Sequence[str], keys: Sequence[str], rows: Sequence[Sequence[Any]]
    ) -> None:
        """Update rows in bulk, each found by its values of ``where``, which come first."""
        with Step(name):
            self.backend.update_many(self.connection, table, where, keys, rows)

    def end(self, name: str, key: str, ids: Sequence[int], snapshot: int) -> int:
        """Give every live row with these ids its end; return how many there were."""
        if not ids:
            return 0
        table = self.meta[name]
        statement = self.cached(
            ("end", name, key),
            lambda: (
                sa.update(table)
                .where(table.c[key].in_(sa.bindparam("ids", expanding=True)), table.c.end_snapshot.is_(None))
                .values(end_snapshot=sa.bindparam("snapshot"))
            ),
        )
        return self.update(f"end_{name}", statement, {"ids": list(ids), "snapshot": snapshot})

    def update(self, name: str, statement: sa.Update, parameters: dict[str, Any] | None = None) -> int:
        """Run an update; return how many rows it changed."""
        if self.backend.name != "duckdb":
            return self.run(name, statement, parameters).rowcount
        # duckdb's Python client reports no row count
        table: Any = statement.table
        count = sa.select(sa.func.count()).select_from(table).where(*statement._where_criteria)
        changed = int(self.run(f"{name}_count", count, parameters).scalar_one())
        self.run(name, statement, parameters)
        return changed


def parts(items: Sequence[T], size: int = SOME) -> Iterator[Sequence[T]]:
    """Return the items in slices of a size."""
    return (items[start : start + size] for start in range(0, len(items), size))


def among(column: sa.ColumnElement[int], ids: Sequence[int]) -> sa.ColumnElement[bool]:
    """Return the condition that a column is one of these ids: short for consecutive ids."""
    runs: list[list[int]] = []
    for id_ in sorted(ids):
        if runs and id_ <= runs[-1][1] + 1:
            runs[-1][1] = id_
        else:
            runs.append([id_, id_])
    if not 0 < len(runs) <= _RUNS:
        return column.in_(list(ids))
    return sa.or_(*(column.between(first, last) for first, last in runs))


def visible(table: sa.Table, snapshot: Any) -> sa.ColumnElement[bool]:
    """Return the condition for the rows that a snapshot sees."""
    return sa.and_(
        table.c.begin_snapshot <= snapshot, sa.or_(table.c.end_snapshot.is_(None), table.c.end_snapshot > snapshot)
    )


AT = sa.bindparam("at_snapshot", type_=sa.BigInteger())
"""The snapshot of a statement that is ``built`` once."""


def arrow_table(result: sa.CursorResult[*tuple[Any, ...]], types: Mapping[str, pa.DataType]) -> pa.Table:
    """Return the rows of a statement as Arrow, a few of them at a time: very many tuples are slow to keep and turn."""
    parts: list[list[pa.Array]] = [[] for _ in types]
    for rows in result.partitions(_A_PART):
        for part, type_, values in zip(parts, types.values(), zip(*rows, strict=True), strict=True):
            part.append(_array(values, type_))
    columns = zip(types.items(), parts, strict=True)
    return pa.table({name: pa.chunked_array(part, type_).combine_chunks() for (name, type_), part in columns})


def listed_table(lists: Sequence[str], types: Mapping[str, pa.DataType]) -> pa.Table:
    """Return columns that a database gave as lists in JSON as Arrow."""
    columns = zip(types.items(), lists, strict=True)
    return pa.table({name: from_json(text, type_, partial(_array, type_=type_)) for (name, type_), text in columns})


def _array(values: Sequence[Any], type_: pa.DataType) -> pa.Array:
    return _flags(values) if pa.types.is_boolean(type_) else pa.array(values, type_)


def _flags(values: Sequence[Any]) -> pa.Array:
    """Return booleans, which a database may have as numbers or, written by another client, as text."""
    kinds = set(map(type, values)) - {type(None)}
    if kinds <= {bool}:
        return pa.array(values, pa.bool_())
    return pa.array(values, pa.int64()).cast(pa.bool_()) if kinds <= {int} else pa.array(map(flag, values), pa.bool_())


def from_json(text: str, type_: pa.DataType, convert: Callable[[Sequence[Any]], pa.Array]) -> pa.Array:
    """Return a list of integers, flags as numbers, or texts; ``convert`` makes the array of one that has others.

    Python makes an object of every value in JSON. So Arrow cuts a list of very many numbers or plain texts into pieces,
    and only one that has anything else in it is parsed.
    """
    if text == "[]" or (text.startswith("[null") and '"' not in text and 5 * text.count("null") + 1 == len(text)):
        return pa.nulls(len(text) // 5, type_)
    found = _listed_texts(text) if pa.types.is_string(type_) else _listed_numbers(text)
    return convert(json.loads(text)) if found is None else found.cast(type_)


def _listed_texts(text: str) -> pa.Array | None:
    if "\\" in text or not (text.startswith('["') and text.endswith('"]')):
        return None
    whole = text[2:-2]
    found = _pieces(whole, '","')
    # a quote that is not between two texts stands beside something else
    return found if whole.count('"') == 2 * (len(found) - 1) else None


def _listed_numbers(text: str) -> pa.Array | None:
    try:
        return _pieces(text[1:-1], ",").cast(pa.int64())
    except pa.ArrowInvalid:
        return None


def _pieces(text: str, separator: str) -> pa.Array:
    return pc.list_flatten(pc.split_pattern(pa.array([text], pa.large_string()), separator))
