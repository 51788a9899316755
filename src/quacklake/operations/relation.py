"""A DuckDB relation over a table that follows the lake."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from quacklake.engines.duckdb.sql import guarded_columns
from quacklake.errors import InputError

if TYPE_CHECKING:
    import duckdb

    from quacklake.operations.table_scan import TableScan


class _Following:
    """An Arrow stream that DuckDB opens each time the relation runs, with the columns of its creation.

    The last column is ``number``, which is always zero.
    """

    def __init__(self, frame: TableScan) -> None:
        self._own = frame.schema
        self._frame = frame.select(*self._own.names)
        self.number = "_ql_number" + "_" * max((len(name) for name in self._own.names), default=0)
        self._schema = self._own.append(pa.field(self.number, pa.int8(), nullable=False))

    def __arrow_c_schema__(self) -> object:
        return self._schema.__arrow_c_schema__()

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        reader = self._frame.to_reader()
        if reader.schema != self._own:
            # DuckDB would read the new values as the types that it knows.
            raise InputError(
                "the columns of the table have other types than when the relation was made", hint="make it anew"
            )
        numbered = pa.RecordBatchReader.from_batches(self._schema, map(self._numbered, reader))
        return numbered.__arrow_c_stream__(requested_schema)

    def _numbered(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        zeros = pa.repeat(pa.scalar(0, pa.int8()), batch.num_rows)
        return pa.RecordBatch.from_arrays([*batch.columns, zeros], schema=self._schema)


def to_relation(frame: TableScan, connection: duckdb.DuckDBPyConnection | None) -> duckdb.DuckDBPyRelation:
    """Return a relation over a frame, in the caller's connection or DuckDB's default one.

    DuckDB evaluates the filters itself: Arrow, which it would pass them to, does not know ``IS DISTINCT FROM``.
    """
    import duckdb

    following = _Following(frame)
    relation: duckdb.DuckDBPyRelation = (duckdb if connection is None else connection).from_arrow(following)
    return relation.project(", ".join(guarded_columns(frame.schema.names, following.number)))
