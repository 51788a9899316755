"""Small columns of the most common types: their encoded values and their statistics, in one pass of plain Python.

A batch of a few rows is gone through once. ``inline.encode`` and ``stats.of_array``, which know every type, would give
the same, but start from Arrow twice; where nothing is said here, they are asked.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import pyarrow as pa

from quacklake.core.format import inline
from quacklake.core.format.bounds import encoder
from quacklake.core.format.schema import Column, TableSchema
from quacklake.core.format.stats import ColumnStats, end_of
from quacklake.core.format.types import MICROS, from_physical, micros_text

MAX_COUNT = 200
"""Up to this many rows plain Python is faster than starting a compute kernel."""

Encoded = tuple[list[Any], ColumnStats]
_Way = Callable[[pa.Array, int], Encoded]

_NUMBERS = ("boolean", "int32", "int64")
_TIMES = ("date", "timestamp", "timestamp_s", "timestamp_ms", "timestamp_ns", "timestamptz", "time")
_INT32, _INT64 = pa.int32(), pa.int64()


def encode(rows: pa.Table, schema: TableSchema, database: str) -> Sequence[Encoded | None]:
    """Return the values of columns as parameters, with their statistics; None for one that has to be looked at.

    That is one of another type, or not in its own Arrow type, and all where the rows are many or in several pieces.
    """
    batches = rows.to_batches() if 0 < rows.num_rows <= MAX_COUNT else []
    if len(batches) != 1:
        return [None] * len(schema.columns)
    return [
        way(array, column.id) if way is not None and array.type == arrow else None
        for array, (column, arrow, way) in zip(batches[0].columns, _ways(schema, database), strict=True)
    ]


@lru_cache(maxsize=256)
def _ways(schema: TableSchema, database: str) -> list[tuple[Column, pa.DataType, _Way | None]]:
    return [(column, column.arrow_type(), _way(column.type, database)) for column in schema.columns]


def _way(type: str, database: str) -> _Way | None:
    if type in _NUMBERS:
        return _numbers(encoder(type), inline.writer(type, database))
    if type == "varchar":
        return _texts(inline.writer(type, database))
    if type == "float64":
        return _floats(inline.writer(type, database))
    return _times(type) if type in _TIMES else None


def _numbers(text: Callable[[Any], str | None], write: Callable[[Any], Any] | None) -> _Way:
    """Return the way of types whose Python values compare as they do."""

    def encode(array: pa.Array, id: int) -> Encoded:
        values, nulls = array.to_pylist(), array.null_count
        present = [value for value in values if value is not None] if nulls else values
        low = high = exact = None
        if present:
            low, high, exact = text(min(present)), text(max(present)), True
        found = ColumnStats(id, None, len(present), nulls, low, high, None, None, exact, exact)
        return _write_values(values, write), found

    return encode


def _texts(write: Callable[[Any], Any] | None) -> _Way:
    def encode(array: pa.Array, id: int) -> Encoded:
        values, nulls = array.to_pylist(), array.null_count
        present = [value for value in values if value is not None] if nulls else values
        low = high = low_exact = high_exact = None
        if present:
            low, low_exact = end_of(min(present), "varchar", upper=False)
            high, high_exact = end_of(max(present), "varchar", upper=True)
        found = ColumnStats(id, None, len(present), nulls, low, high, None, None, low_exact, high_exact)
        return _write_values(values, write), found

    return encode


def _floats(write: Callable[[Any], Any] | None) -> _Way:
    def encode(array: pa.Array, id: int) -> Encoded:
        values, nulls = array.to_pylist(), array.null_count
        present = [value for value in values if value is not None] if nulls else values
        numbers = present
        if any(map(math.isnan, present)):
            numbers = [value for value in present if not math.isnan(value)]
        low = high = exact = None
        if numbers:
            low, high, exact = repr(min(numbers)), repr(max(numbers)), True
        has_nan = numbers is not present
        found = ColumnStats(id, None, len(present), nulls, low, high, has_nan, None, exact, exact)
        return _write_values(values, write), found

    return encode


def _times(type: str) -> _Way:
    """Return the way of dates and times, by their integers: Python's own cannot hold infinity or far years."""
    text, zone, in_micros = encoder(type), "+00" if type == "timestamptz" else "", type in ("timestamp", "timestamptz")

    def encode(array: pa.Array, id: int) -> Encoded:
        arrow = array.type
        unit, bits = getattr(arrow, "unit", "D"), arrow.bit_width
        ticks, nulls = array.view(_INT32 if bits == 32 else _INT64).to_pylist(), array.null_count
        present = [tick for tick in ticks if tick is not None] if nulls else ticks
        if not present:
            return ticks, ColumnStats(id, None, 0, nulls)
        low, high = min(present), max(present)
        if in_micros and MICROS[0] <= low and high <= MICROS[1]:
            texts = [None if tick is None else micros_text(tick) + zone for tick in ticks]
        else:
            texts = [None if tick is None else text(from_physical(tick, unit, bits=bits)) for tick in ticks]
        ends = texts[ticks.index(low)], texts[ticks.index(high)]
        return texts, ColumnStats(id, None, len(present), nulls, *ends, None, None, True, True)

    return encode


def _write_values(values: list[Any], write: Callable[[Any], Any] | None) -> list[Any]:
    return values if write is None else [None if value is None else write(value) for value in values]
