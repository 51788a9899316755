"""The tables inside the catalog that hold inlined rows and inlined deletes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from sqlalchemy.types import UserDefinedType

from quacklake.format import inline
from quacklake.format.schema import TableSchema

__all__ = ["InlinedTable", "delete_table", "inlined_table"]

_INTEGERS = ("BIGINT", "INTEGER", "SMALLINT")
_BYTES = ("BYTEA", "BLOB", "LONGBLOB")


class _Stored(UserDefinedType[Any]):
    """A column type by its SQL name; values pass through unchanged."""

    cache_ok = True

    def __init__(self, sql: str) -> None:
        self.sql = sql

    def get_col_spec(self, **_: Any) -> str:
        return self.sql


@dataclass(frozen=True, slots=True)
class InlinedTable:
    """The inlined table of one schema version; ``keys`` are its data columns in schema order."""

    table: sa.Table
    keys: tuple[str, ...]
    ddl: tuple[tuple[str, str], ...]


def inlined_table(
    table_id: int, version: int, schema: TableSchema, database: str, metadata_schema: str | None, prefix: str = ""
) -> InlinedTable:
    """The inlined table of a table at one schema version; ``prefix`` is that of the columns that are not a user's."""
    names = ("row_id", "begin_snapshot", "end_snapshot")
    columns: list[sa.Column[Any]] = [sa.Column(prefix + name, sa.BigInteger(), key=name) for name in names]
    ddl = [(prefix + name, "BIGINT") for name in names]
    keys = []
    for column in schema.columns:
        sql = inline.sql_type(column, database)
        # keyed by id: a user's column may be called row_id too
        key = f"c{column.id}"
        columns.append(sa.Column(column.name, _stored(sql, database), key=key))
        ddl.append((column.name, sql))
        keys.append(key)
    table = sa.Table(inline.data_table_name(table_id, version), sa.MetaData(), *columns, schema=metadata_schema)
    return InlinedTable(table, tuple(keys), tuple(ddl))


def _stored(sql: str, database: str) -> sa.types.TypeEngine[Any]:
    if database != "duckdb":
        if sql in _INTEGERS:
            return sa.BigInteger()
        if sql in _BYTES:
            return sa.LargeBinary()
        if sql == "BOOLEAN":
            return sa.Boolean()
    return _Stored(sql)


def delete_table(table_id: int, metadata_schema: str | None) -> sa.Table:
    """The table of inlined deletes: the position of a row in a data file, and since when it is gone."""
    return sa.Table(
        inline.delete_table_name(table_id),
        sa.MetaData(),
        *(sa.Column(name, sa.BigInteger()) for name in ("file_id", "row_id", "begin_snapshot")),
        schema=metadata_schema,
    )
