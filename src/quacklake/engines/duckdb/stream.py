"""A running query as a stream of Arrow batches."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

from quacklake import telemetry
from quacklake.engines.duckdb.failures import reading, translate
from quacklake.errors import PredicateError

#: Lets those in who read; each is in until the block ends.
Gate = Callable[[], AbstractContextManager[None]]

#: The column with the row id, last where it is asked for.
ROW_ID = pa.field("rowid", pa.int64())


def stream(
    start: Callable[[int], pa.RecordBatchReader],
    connection: duckdb.DuckDBPyConnection,
    schema: pa.Schema,
    expression: pc.Expression | None,
    limit: int | None,
    batch_rows: int,
    gate: Gate = nullcontext,
    label: str | None = None,
) -> Iterator[pa.RecordBatch]:
    """Yield the batches of a query in exactly ``schema``; an Arrow expression and its limit are applied here.

    ``start`` runs the query, given a number of rows for each batch; it is called when the first batch is asked for.
    The connection is closed, and the ``gate`` left, at the end, early or not. Rows are counted for the tenant with this
    ``label``, too.
    """
    left = limit if expression is not None else None
    try:
        with gate():
            with telemetry.timed("engine.scan", tenant=label), reading():
                source = start(batch_rows)
            for batch in _translated(source):
                rows = batch if expression is None else _filtered(batch, expression, schema, left)
                if left is not None:
                    left -= rows.num_rows
                if rows.num_rows:
                    telemetry.count("engine.rows", rows.num_rows, tenant=label)
                    yield _typed(rows, schema)
                if left is not None and left <= 0:
                    return
    finally:
        connection.close()


def _filtered(batch: pa.RecordBatch, expression: pc.Expression, schema: pa.Schema, left: int | None) -> pa.RecordBatch:
    names = ["_ql_row_id" if name == ROW_ID.name and name not in batch.schema.names else name for name in schema.names]
    try:
        rows = batch.filter(expression).select(names)
    except pa.ArrowException as error:
        raise PredicateError(
            f"the expression {expression} fails on a row: {error}",
            hint="compare columns with values of their own types, or write the filter as SQL text",
        ) from None
    return rows if left is None else rows.slice(0, left)


def _translated(source: pa.RecordBatchReader) -> Iterator[pa.RecordBatch]:
    try:
        while True:
            try:
                batch = source.read_next_batch()
            except StopIteration:
                return
            except Exception as error:
                # errors cross the Arrow C interface as text with DuckDB's class in front
                raise translate(_unwrapped(error), "read the data files") or error from error
            yield batch
    finally:
        source.close()


def _unwrapped(error: Exception) -> Exception:
    text = str(error)
    for word, kind in (("INTERRUPT", duckdb.InterruptException), ("Conversion Error", duckdb.ConversionException)):
        if word in text:
            return kind(text)
    return duckdb.IOException(text) if isinstance(error, OSError | pa.ArrowException) else error


def _typed(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Return the batch with the table's nullability, and its very types where DuckDB gives an equal one."""
    if not schema.names:
        return batch.select([])  # keep the number of rows even without columns
    columns = [
        column if column.type == field.type else column.cast(field.type)
        for column, field in zip(batch.columns, schema, strict=True)
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)
