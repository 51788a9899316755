"""Inlined rows as the database stores them, decoded into the table's own types.

DuckDB does the decoding: stored text is text as DuckDB casts it, and only its own casts read every type back.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence

import duckdb
import pyarrow as pa

from quacklake.catalog import InlinedRows
from quacklake.duckdb_versions import arrow_table, connect
from quacklake.errors import CatalogError
from quacklake.format import inline
from quacklake.format.names import quote
from quacklake.format.schema import Column, TableSchema
from quacklake.format.shapes import initial_value, reshaped
from quacklake.scan.plan import INLINED_META, column_key

_thread = threading.local()


def _cursor() -> duckdb.DuckDBPyConnection:
    """Return a private in-memory DuckDB of this thread."""
    connection: duckdb.DuckDBPyConnection | None = getattr(_thread, "connection", None)
    if connection is None:
        connection = _thread.connection = connect(config={"threads": 1, "autoload_known_extensions": False})
        connection.execute(
            "SET TimeZone = 'UTC'"
        )  # in which all inlined rows are, whatever the zone of machine and session
    return connection


def decode(parts: Sequence[InlinedRows], schema: TableSchema, database: str, *, ends: bool = False) -> pa.Table | None:
    """Return all inlined rows as one table: ``INLINED_META``, then ``c<id>`` per column; None for no rows.

    With ``ends`` the last column is ``end_snapshot``.
    """
    tables = [_decode_one(rows, schema, database, ends=ends) for rows in parts]
    if not tables:
        return None
    return pa.concat_tables(tables, promote_options="permissive").combine_chunks() if len(tables) > 1 else tables[0]


def _decode_one(part: InlinedRows, schema: TableSchema, database: str, *, ends: bool) -> pa.Table:
    old = {column.id: column for column in part.schema.columns}
    columns = [_expression(column, old.get(column.id), database) for column in schema.columns]
    if ends:
        columns.append("CAST(end_snapshot AS BIGINT) AS end_snapshot")
    meta = ["CAST(row_id AS BIGINT) AS row_id", "CAST(begin_snapshot AS BIGINT) AS begin_snapshot"]
    query = f"SELECT {', '.join([*meta, f'{part.schema_version:d}::BIGINT AS schema_version', *columns])} FROM stored"
    connection = _cursor()
    connection.register("stored", part.rows)
    try:
        return arrow_table(connection, query)
    except (duckdb.ConversionException, duckdb.InvalidInputException, duckdb.OutOfRangeException) as error:
        raise CatalogError(
            f"the catalog holds an inlined row that cannot be read: {str(error).splitlines()[0]}",
            hint="another client wrote a value that DuckDB cannot represent; snapshots before it can be read",
        ) from None
    finally:
        connection.unregister("stored")


def _expression(column: Column, stored: Column | None, database: str) -> str:
    key = column_key(column)
    if stored is None:
        value = initial_value(column)
    else:
        value = reshaped(inline.decode_expression(stored, database, quote(key)), stored, column)
    return f"{value}::VARCHAR AS {quote(key)}" if column.travels_as_text else f"{value} AS {quote(key)}"


def local_rows(rows: pa.Table, row_ids: Sequence[int], schema: TableSchema, version: int) -> pa.Table:
    """Return rows of an open transaction in the same shape; they are visible to it as inlined rows."""
    count = rows.num_rows
    meta = {
        "row_id": pa.array(row_ids, pa.int64()),
        "begin_snapshot": pa.nulls(count, pa.int64()),
        "schema_version": pa.array([version] * count, pa.int64()),
    }
    assert tuple(meta) == INLINED_META
    return pa.table({**meta, **{column_key(column): rows.column(i) for i, column in enumerate(schema.columns)}})
