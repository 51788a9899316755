"""Streams of rows in two parts: those before the first zero below zero, and the others.

A file without dictionaries keeps both zeros of floating-point columns, and one with them is smaller. A stream is read
once, so whoever writes it learns on the way which kind of file the next rows need.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc

from quacklake.core.duckdb_versions import IS_2

_BITS = {16: pa.int16(), 32: pa.int32(), 64: pa.int64()}


def split_at_negative_zero(rows: pa.RecordBatchReader) -> Iterator[tuple[pa.RecordBatchReader, bool]]:
    """Yield the rows of a stream in at most two streams, each with whether it may hold zeros below zero.

    Each has to be read to its end before the next.
    """
    schema = rows.schema
    if IS_2 or not any(_may_have(field.type) for field in schema):
        yield rows, False
        return
    others: list[pa.RecordBatch] = []

    def begin() -> Iterator[pa.RecordBatch]:
        for batch in rows:
            if any(map(has_negative_zero, batch.columns)):
                others.append(batch)
                return
            yield batch

    batches = begin()
    first = next(batches, None)
    if first is not None or not others:
        known = () if first is None else (first,)
        yield pa.RecordBatchReader.from_batches(schema, itertools.chain(known, batches)), False
    if others:
        yield pa.RecordBatchReader.from_batches(schema, itertools.chain(others, rows)), True


def _may_have(type_: pa.DataType) -> bool:
    if isinstance(type_, pa.BaseExtensionType):
        return _may_have(type_.storage_type)
    if isinstance(type_, pa.DictionaryType | pa.RunEndEncodedType):
        return _may_have(type_.value_type)
    inside = range(type_.num_fields) if pa.types.is_nested(type_) else ()
    return pa.types.is_floating(type_) or any(_may_have(type_.field(place).type) for place in inside)


def has_negative_zero(array: pa.Array | pa.ChunkedArray) -> bool:
    """Return whether an array has such a zero, alone or inside of other values; behind a NULL, too."""
    type_ = array.type
    if IS_2 or not _may_have(type_):
        return False
    if isinstance(array, pa.ChunkedArray):
        return any(map(has_negative_zero, array.chunks))
    if isinstance(array, pa.ExtensionArray):
        return has_negative_zero(array.storage)
    if isinstance(array, pa.DictionaryArray):
        return has_negative_zero(array.dictionary)
    if isinstance(array, pa.RunEndEncodedArray):
        return has_negative_zero(array.values)
    if pa.types.is_floating(type_):
        bits = _BITS[type_.bit_width]
        least = pa.scalar(-(1 << (type_.bit_width - 1)), bits)
        return bool(pc.any(pc.equal(array.view(bits), least)).as_py())
    if pa.types.is_map(type_):
        return has_negative_zero(array.keys) or has_negative_zero(array.items)
    if pa.types.is_struct(type_) or pa.types.is_union(type_):
        return any(has_negative_zero(array.field(place)) for place in range(type_.num_fields))
    return has_negative_zero(array.values)
