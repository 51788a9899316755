"""Rows of an upsert before they reach the table: every key once, and none without a key."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator, Sequence
from uuid import uuid4

import duckdb
import pyarrow as pa

from quacklake.errors import ConstraintError
from quacklake.extend.duckdbs import arrow_reader
from quacklake.extend.names import quote

_PLACE = "_quacklake_place"
_BATCH_ROWS = 100_000


def check_key(batch: pa.RecordBatch, key: Sequence[str]) -> None:
    """Raise ``ConstraintError`` for a row without a key: it would be another row each time."""
    empty = next((name for name in key if batch.column(name).null_count), None)
    if empty is not None:
        raise ConstraintError(
            f'the key column "{empty}" of an upsert is NULL', hint="leave such rows out, or name another key"
        )


def last_rows(batches: Iterable[pa.RecordBatch], schema: pa.Schema, key: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """Yield the last row of each key, in the order in which the rows came.

    DuckDB sorts them out, and spills to a temporary folder what does not fit in memory.
    """
    with spilling_duckdb() as connection:
        numbered = schema.append(pa.field(_PLACE, pa.int64()))
        load(connection, "staged", _number_rows(batches, numbered), numbered)
        columns, keys = ", ".join(map(quote, schema.names)), ", ".join(map(quote, key))
        last = f"SELECT max({_PLACE}) FROM staged GROUP BY {keys}"
        query = f"SELECT {columns} FROM staged WHERE {_PLACE} IN ({last}) ORDER BY {_PLACE}"
        for batch in arrow_reader(connection, query, batch_rows=_BATCH_ROWS):
            yield restored(batch, schema)


def spilling_duckdb() -> duckdb.DuckDBPyConnection:
    """Return a separate DuckDB that keeps on disk what does not fit in memory. It creates and removes the folder."""
    connection = duckdb.connect()
    connection.execute("SET temp_directory = ?", [f"{tempfile.gettempdir()}/quacklake-{uuid4().hex}"])
    connection.execute("SET TimeZone = 'UTC'")
    return connection


def load(
    connection: duckdb.DuckDBPyConnection, name: str, batches: Iterable[pa.RecordBatch], schema: pa.Schema
) -> None:
    """Make a table of rows. Types that DuckDB would give back in another way, such as UUID, are kept as their bytes."""
    stored = pa.schema([field.with_type(_storage(field.type)) for field in schema])
    plain = (
        pa.record_batch([getattr(column, "storage", column) for column in batch.columns], schema=stored)
        for batch in batches
    )
    connection.register("given", pa.RecordBatchReader.from_batches(stored, plain))
    connection.execute(f"CREATE TEMP TABLE {quote(name)} AS FROM given")
    connection.unregister("given")


def restored(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Return rows that :func:`load` took, in their types."""
    columns = [
        pa.ExtensionArray.from_storage(field.type, column.cast(_storage(field.type)))
        if isinstance(field.type, pa.BaseExtensionType)
        else column.cast(field.type)
        for field, column in zip(schema, batch.select(schema.names).columns, strict=True)
    ]
    return pa.record_batch(columns, schema=schema)


def _storage(kind: pa.DataType) -> pa.DataType:
    return kind.storage_type if isinstance(kind, pa.BaseExtensionType) else kind


def _number_rows(batches: Iterable[pa.RecordBatch], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    first = 0
    for batch in batches:
        places = pa.array(range(first, first + batch.num_rows), pa.int64())
        first += batch.num_rows
        yield pa.record_batch([*batch.columns, places], schema=schema)
