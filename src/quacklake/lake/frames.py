"""Rows from wherever a user has them: pandas, polars, Arrow in any form, dictionaries, a DuckDB relation."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from quacklake.errors import SchemaMismatchError

__all__ = ["Source", "to_source"]

_READ_AHEAD_SECONDS = 1.0
"""How long to wait for threads that read ahead; one that waits for room asks for no more."""


@dataclass
class Source:
    """Rows to be written: a table in memory, or a stream that can be read once."""

    schema: pa.Schema
    table: pa.Table | None = None
    stream: pa.RecordBatchReader | None = None

    @property
    def replayable(self) -> bool:
        """True when the rows can be read again after a lost race."""
        return self.table is not None

    @property
    def empty(self) -> bool:
        """True for rows that are none and say nothing of their columns, such as an empty list."""
        return self.table is not None and not self.table.num_rows and not self.schema.names

    def first(self, limit: int) -> pa.Table | None:
        """All rows as a table when there are at most ``limit``, else None; a stream stays whole."""
        if self.table is not None:
            return self.table if self.table.num_rows <= limit else None
        assert self.stream is not None
        taken: list[pa.RecordBatch] = []
        rows = 0
        for batch in self.stream:
            taken.append(batch)
            rows += batch.num_rows
            if rows > limit:
                rest = self.stream
                self.stream = pa.RecordBatchReader.from_batches(self.schema, itertools.chain(taken, rest))
                return None
        self.table, self.stream = pa.Table.from_batches(taken, self.schema), None
        return self.table

    @contextmanager
    def lend(self) -> Iterator[pa.Table | pa.RecordBatchReader]:
        """What an engine registers, for as long as the block lasts.

        Arrow reads ahead in threads of its own, and a process that ends while they are in a Python iterator crashes. So
        when the block ends, early or not, they have been told that there is no more, and have taken note of it.
        """
        if self.table is not None:
            yield self.table
            return
        assert self.stream is not None
        stopped, ended = threading.Event(), threading.Event()
        batches = _until(stopped, self.stream, ended)
        try:
            yield pa.RecordBatchReader.from_batches(self.schema, batches)
        finally:
            stopped.set()
            ended.wait(_READ_AHEAD_SECONDS)

    @property
    def size(self) -> int | None:
        """The bytes in memory, when all rows are there."""
        return None if self.table is None else self.table.nbytes


def _until(
    stopped: threading.Event, batches: Iterable[pa.RecordBatch], ended: threading.Event
) -> Iterator[pa.RecordBatch]:
    try:
        for batch in batches:
            if stopped.is_set():
                return
            yield batch
    finally:
        ended.set()


def to_source(data: Any) -> Source:
    """Rows of any supported kind. Raises ``SchemaMismatchError`` for anything else."""
    if isinstance(data, pa.Table):
        return Source(data.schema, table=data)
    if isinstance(data, pa.RecordBatch):
        table = pa.Table.from_batches([data])
        return Source(table.schema, table=table)
    if isinstance(data, pa.RecordBatchReader):
        return Source(data.schema, stream=data)
    if _is_pandas(data):
        try:
            table = pa.Table.from_pandas(data, preserve_index=False)
        except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
            raise SchemaMismatchError(
                f"the pandas frame has a column of mixed types: {_first_line(error)}", hint="give each column one type"
            ) from None
        return Source(table.schema.remove_metadata(), table=table.replace_schema_metadata(None))
    if hasattr(data, "__arrow_c_stream__"):
        stream = pa.RecordBatchReader.from_stream(data)
        # frames in memory can be read again; a stream of a running query cannot
        if type(data).__module__.split(".")[0] == "polars":
            table = stream.read_all()
            return Source(table.schema, table=table)
        return Source(stream.schema, stream=stream)
    if hasattr(data, "__arrow_c_array__"):
        return to_source(pa.record_batch(data))
    if isinstance(data, Mapping):
        return _from_columns(dict(data))
    if isinstance(data, Iterable) and not isinstance(data, str | bytes):
        return _from_rows(data)
    raise SchemaMismatchError(
        f"cannot read rows from {type(data).__name__}",
        hint="pass a pandas or polars frame, Arrow data, a DuckDB relation or a list of dictionaries",
    )


def _is_pandas(data: Any) -> bool:
    return type(data).__module__.split(".")[0] == "pandas" and hasattr(data, "columns")


def _from_rows(rows: Iterable[Any]) -> Source:
    found = list(rows)
    for row in found:
        if not isinstance(row, Mapping):
            raise SchemaMismatchError(
                f"a row must be a dictionary, not {type(row).__name__}", hint="pass [{'id': 1}, {'id': 2}]"
            )
    names = list(dict.fromkeys(name for row in found for name in row))
    return _from_columns({name: [row.get(name) for row in found] for name in names})


def _from_columns(columns: dict[str, Any]) -> Source:
    try:
        table = pa.table(
            {name: values if isinstance(values, pa.Array) else pa.array(values) for name, values in columns.items()}
        )
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError, OverflowError) as error:
        raise SchemaMismatchError(f"the rows have a column of mixed types: {_first_line(error)}") from None
    return Source(table.schema, table=table)


def _first_line(error: BaseException) -> str:
    return str(error).splitlines()[0]
