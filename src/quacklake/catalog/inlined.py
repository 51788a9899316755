"""The tables inside the catalog that hold inlined rows and inlined deletes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import sqlalchemy as sa

from quacklake.catalog import scoped
from quacklake.catalog.columns import NamedType, Text
from quacklake.catalog.tables import Tables
from quacklake.format import inline
from quacklake.format.inline import LIFE, pack, unpack
from quacklake.format.schema import TableSchema

ROWS, DELETES = "ducklake_inlined_rows", "ducklake_inlined_deletes"
"""The tables of a shared lake for the inlined rows and deletes of all tables of all catalogs."""

_INTEGERS = ("BIGINT", "INTEGER", "SMALLINT")
_BYTES = ("BYTEA", "BLOB", "LONGBLOB")


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

    def loaded(self, rows: pa.Table, schema: TableSchema) -> pa.Table:
        """Return rows as the database gives them, with a column for each of ``keys``."""
        rows = rows.rename_columns([column.key for column in self.table.c])
        return unpack(rows, schema) if self.packed else rows


def inlined_table(
    table_id: int, version: int, schema: TableSchema, database: str, tables: Tables, prefix: str
) -> InlinedTable:
    """Return the inlined table of a table at one schema version.

    ``prefix`` stands before the names of its own columns.
    """
    if tables.shared:
        rows = inlined_lives(table_id, version, tables, prefix)
        return InlinedTable(rows, tuple(f"c{column.id}" for column in schema.columns), ())
    columns: list[sa.Column[Any]] = [sa.Column(prefix + name, sa.BigInteger(), key=name) for name in LIFE]
    ddl = [(prefix + name, "BIGINT") for name in LIFE]
    keys = []
    for column in schema.columns:
        sql = inline.sql_type(column, database)
        # the key is the id: a user's column may be called row_id too
        key = f"c{column.id}"
        # always quoted: SQLAlchemy does not know every keyword of a database
        columns.append(sa.Column(column.name, _stored(sql, database), key=key, quote=True))
        ddl.append((column.name, sql))
        keys.append(key)
    name = inline.data_table_name(table_id, version)
    table = sa.Table(name, sa.MetaData(), *columns, schema=tables.metadata.schema)
    return InlinedTable(table, tuple(keys), tuple(ddl))


def inlined_lives(table_id: int, version: int, tables: Tables, prefix: str) -> sa.Table:
    """Return a table of inlined rows as far as every one has the same columns: row id, begin and end."""
    name = inline.data_table_name(table_id, version)
    columns: list[sa.Column[Any]] = [sa.Column(prefix + column, sa.BigInteger(), key=column) for column in LIFE]
    if tables.shared:
        columns.append(sa.Column("payload", Text()))
    table = sa.Table(name, sa.MetaData(), *columns, schema=tables.metadata.schema)
    return _among(ROWS, table, tables, table_id=table_id, schema_version=version)


def _among(name: str, table: sa.Table, tables: Tables, **where: int) -> sa.Table:
    """Return the table itself, or in a shared lake the part of one table that stands for it."""
    return scoped.place(table, scoped.physical(table, name, where), where) if tables.shared else table


def _stored(sql: str, database: str) -> sa.types.TypeEngine[Any]:
    if database != "duckdb":
        if sql in _INTEGERS:
            return sa.BigInteger()
        if sql in _BYTES:
            return sa.LargeBinary()
        if sql == "BOOLEAN":
            return sa.Boolean()
    return NamedType(sql)


def delete_table(table_id: int, tables: Tables) -> sa.Table:
    """Return the table of inlined deletes: the position of a row in a data file, and since when it is gone."""
    table = sa.Table(
        inline.delete_table_name(table_id),
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
