"""Rows to write, as Arrow: a table in memory or a stream, in types that a lake stores."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from quacklake import telemetry
from quacklake.core.format.intervals import INTERVAL, from_durations
from quacklake.core.format.schema import TableSchema, of_last_schema
from quacklake.core.format.stats import check_values
from quacklake.errors import SchemaMismatchError

__all__ = ["Input", "Source"]


_PRECISION = 38
_READABLE = {
    *(type_.id for type_ in (pa.bool_(), pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.float32(), pa.float64())),
    *(type_.id for type_ in (pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64(), pa.date32(), pa.timestamp("us"))),
    *(type_.id for type_ in (pa.string(), pa.large_string(), pa.binary(), pa.large_binary())),
}
"""The most common of the Arrow types that stay as they are."""


@of_last_schema
def _is_readable(schema: pa.Schema) -> bool:
    return all(type_.id in _READABLE for type_ in schema.types)


def readable_schema(schema: pa.Schema) -> pa.Schema:
    """Return the schema with types that DuckDB can read; unchanged if it reads all. Raise ``SchemaMismatchError``."""
    if _is_readable(schema):
        return schema
    fields = [field.with_type(_type(field.type, field.name)) for field in schema]
    return schema if fields == list(schema) else pa.schema(fields, schema.metadata)


def readable(rows: Any, schema: pa.Schema) -> Any:
    """Convert a table or batch to a schema of ``readable_schema``. Raise ``SchemaMismatchError``."""
    if rows.schema.types == schema.types:
        return rows
    columns = [_array(column, field) for column, field in zip(rows.columns, schema, strict=True)]
    return type(rows).from_arrays(columns, schema=schema)


def _storable_schema(schema: pa.Schema) -> pa.Schema:
    """Return the schema of ``readable_schema`` with durations as intervals."""
    schema = readable_schema(schema)
    for place, field in enumerate(schema):
        if pa.types.is_duration(_of_values(field.type)):
            schema = schema.set(place, field.with_type(INTERVAL))
    return schema


def _of_values(arrow: pa.DataType) -> pa.DataType:
    return arrow.value_type if isinstance(arrow, pa.DictionaryType | pa.RunEndEncodedType) else arrow


def _type(arrow: pa.DataType, name: str) -> pa.DataType:
    if pa.types.is_float16(arrow):
        return pa.float32()
    if pa.types.is_decimal(arrow) and not 0 <= arrow.scale <= arrow.precision:
        raise SchemaMismatchError(
            f'the column "{name}" is {arrow}, which DuckLake does not have', hint="its scale is 0 to its precision"
        )
    if pa.types.is_decimal256(arrow) and arrow.precision <= _PRECISION:
        return pa.decimal128(arrow.precision, arrow.scale)
    if isinstance(arrow, pa.DictionaryType | pa.RunEndEncodedType):
        inner = _type(arrow.value_type, name)
        return inner if inner != arrow.value_type or pa.types.is_nested(inner) else arrow
    if pa.types.is_list(arrow) or pa.types.is_large_list(arrow):
        make = pa.large_list if pa.types.is_large_list(arrow) else pa.list_
        return make(_field(arrow.value_field, name))
    if pa.types.is_map(arrow):
        return pa.map_(_field(arrow.key_field, name), _field(arrow.item_field, name), arrow.keys_sorted)
    return pa.struct([_field(field, name) for field in arrow]) if pa.types.is_struct(arrow) else arrow


def _field(field: pa.Field, name: str) -> pa.Field:
    return field.with_type(_type(field.type, name))


def _array(array: Any, field: pa.Field) -> Any:
    wanted = field.type
    if array.type == wanted:
        return array
    if isinstance(array, pa.ChunkedArray):
        return pa.chunked_array([_array(chunk, field) for chunk in array.chunks], wanted)
    if isinstance(array.type, pa.DictionaryType):
        return _array(array.dictionary_decode(), field)
    if isinstance(array.type, pa.RunEndEncodedType):
        return _array(pc.run_end_decode(array), field)
    if wanted == INTERVAL and pa.types.is_duration(array.type):
        check_values(pa.RecordBatch.from_arrays([array], [field.name]))
        return from_durations(array)
    try:
        return array.cast(wanted)
    except (pa.ArrowNotImplementedError, pa.ArrowInvalid):
        raise SchemaMismatchError(
            f'the column "{field.name}" is {array.type}, which cannot be stored', hint=f"cast it to {wanted} first"
        ) from None


_READ_AHEAD_SECONDS = 1.0
"""Seconds to wait for threads that read ahead; a thread that waits for room requests no more rows."""


class Input(Protocol):
    """Rows from a user, before their table is known.

    >>> rows: Input = Source(pa.schema({"id": pa.int64()}), pa.table({"id": [7]}))
    >>> rows.replayable, rows.opened().schema.names
    (True, ['id'])
    """

    @property
    def replayable(self) -> bool:
        """True when the rows can be read again after a conflict."""

    @property
    def empty(self) -> bool:
        """True for input without rows and without columns, such as an empty list."""

    def opened(self, wanted: TableSchema | None = None) -> Source:
        """Return the rows for a table with these columns; text is read with their types."""


@dataclass
class Source:
    """Rows to write: a table in memory, or a stream that can be read once.

    ``index`` names the columns that are the index of a frame of pandas.

    >>> source = Source(pa.schema({"id": pa.int64()}), pa.table({"id": [7]}))
    >>> with source.lend() as rows:
    ...     rows.num_rows
    1
    """

    schema: pa.Schema
    table: pa.Table | None = None
    stream: pa.RecordBatchReader | None = None
    index: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        given, self.schema = self.schema, _storable_schema(self.schema)
        if self.schema is not given and self.table is not None:
            self.table = readable(self.table, self.schema)
        elif self.schema is not given and self.stream is not None:
            batches = (readable(batch, self.schema) for batch in self.stream)
            self.stream = pa.RecordBatchReader.from_batches(self.schema, batches)

    @property
    def replayable(self) -> bool:
        """True when the rows can be read again after a conflict."""
        return self.table is not None

    @property
    def empty(self) -> bool:
        """True for input without rows and without columns, such as an empty list."""
        return self.table is not None and not self.table.num_rows and not self.schema.names

    def opened(self, wanted: TableSchema | None = None) -> Source:
        """Return itself, because these rows already have types."""
        return self

    def first(self, limit: int) -> pa.Table | None:
        """Return all rows as a table if there are at most ``limit``, else None; a stream stays complete."""
        if self.table is not None:
            return self._check_values() if self.table.num_rows <= limit else None
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
        return self._check_values()

    def _check_values(self) -> pa.Table:
        """Return the rows in memory. Raise ``ConstraintError`` for a value that cannot be stored unchanged."""
        assert self.table is not None
        check_values(self.table)
        return self.table

    @contextmanager
    def lend(self) -> Iterator[pa.Table | pa.RecordBatchReader]:
        """Yield the rows for an engine to register during the block.

        Arrow reads ahead in its own threads, and a process that exits while one is in a Python iterator crashes. So the
        end of the block, early or not, tells these threads to stop and waits for them. An error of the stream itself is
        raised unchanged, not as the engine reports it; so is ``ConstraintError`` for a value that cannot be stored
        unchanged.
        """
        if self.table is not None:
            yield self._check_values()
            return
        assert self.stream is not None
        stopped, ended = threading.Event(), threading.Event()
        failures: list[BaseException] = []
        batches = _until(stopped, self.stream, ended, failures)
        try:
            yield pa.RecordBatchReader.from_batches(self.schema, batches)
        except GeneratorExit:
            raise
        except BaseException:
            if failures:
                raise failures[0] from None
            raise
        finally:
            stopped.set()
            ended.wait(_READ_AHEAD_SECONDS)

    @property
    def size(self) -> int | None:
        """The size in bytes when all rows are in memory."""
        return None if self.table is None else self.table.nbytes


def _until(
    stopped: threading.Event, batches: Iterable[pa.RecordBatch], ended: threading.Event, failures: list[BaseException]
) -> Iterator[pa.RecordBatch]:
    try:
        for batch in batches:
            if stopped.is_set():
                return
            check_values(batch)
            yield batch
            telemetry.count(telemetry.ROWS_TAKEN, batch.num_rows)
    except GeneratorExit:
        raise
    except BaseException as error:
        failures.append(error)
        raise
    finally:
        ended.set()
