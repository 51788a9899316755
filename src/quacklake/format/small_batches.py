"""Small columns of the most common types: their encoded values and their statistics, in one pass of plain Python.

A batch of a few rows is gone through once. ``inline.encode`` and ``stats.of_array``, which know every type, would give
the same, but start from Arrow twice; where nothing is said here, they are asked.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import pyarrow as pa

from quacklake.format import inline
from quacklake.format.bounds import encoder
from quacklake.format.schema import Column
from quacklake.format.stats import ColumnStats, end_of
from quacklake.format.types import from_physical

MOST = 200
"""Up to this many rows plain Python is faster than starting a compute kernel."""

Encoded = tuple[list[Any], ColumnStats]
_Way = Callable[[pa.Array, Column], Encoded]

_ORDERED = ("boolean", "int32", "int64", "varchar")
_TIMES = ("date", "timestamp", "timestamp_s", "timestamp_ms", "timestamp_ns", "timestamptz", "time")


def encode(array: pa.ChunkedArray, column: Column, database: str) -> Encoded | None:
    """Return the values of a column in its own Arrow type as parameters, with their statistics; None for any other."""
    way = _way(column.type, database)
    if way is None or array.num_chunks != 1 or len(array) > MOST:
        return None
    return way(array.chunk(0), column)


@lru_cache(maxsize=1024)
def _way(type: str, database: str) -> _Way | None:
    if type in _ORDERED:
        return _ordered(type, inline.writer(type, database))
    if type == "float64":
        return _floats(inline.writer(type, database))
    return _times(encoder(type)) if type in _TIMES else None


def _ordered(type: str, write: Callable[[Any], Any] | None) -> _Way:
    """Return the way of types whose Python values compare as they do."""

    def encode(array: pa.Array, column: Column) -> Encoded:
        values = array.to_pylist()
        present = _present(values, array.null_count)
        low, low_exact = end_of(min(present), type, upper=False) if present else (None, None)
        high, high_exact = end_of(max(present), type, upper=True) if present else (None, None)
        found = ColumnStats(
            column.id, None, len(present), array.null_count, low, high, None, None, low_exact, high_exact
        )
        return _written(values, write), found

    return encode


def _floats(write: Callable[[Any], Any] | None) -> _Way:
    def encode(array: pa.Array, column: Column) -> Encoded:
        values = array.to_pylist()
        present = _present(values, array.null_count)
        numbers = present
        if any(map(math.isnan, present)):
            numbers = [value for value in present if not math.isnan(value)]
        low, high, exact = (repr(min(numbers)), repr(max(numbers)), True) if numbers else (None, None, None)
        has_nan = numbers is not present
        found = ColumnStats(column.id, None, len(present), array.null_count, low, high, has_nan, None, exact, exact)
        return _written(values, write), found

    return encode


def _times(text: Callable[[Any], str | None]) -> _Way:
    """Return the way of dates and times, by their integers: Python's own cannot hold infinity or far years."""

    def encode(array: pa.Array, column: Column) -> Encoded:
        arrow = array.type
        unit, bits = getattr(arrow, "unit", "D"), arrow.bit_width
        ticks = array.view(pa.int32() if bits == 32 else pa.int64()).to_pylist()
        texts = [None if tick is None else text(from_physical(tick, unit, bits=bits)) for tick in ticks]
        present = _present(ticks, array.null_count)
        low = high = exact = None
        if present:
            low, high, exact = texts[ticks.index(min(present))], texts[ticks.index(max(present))], True
        found = ColumnStats(column.id, None, len(present), array.null_count, low, high, None, None, exact, exact)
        return texts, found

    return encode


def _present(values: list[Any], nulls: int) -> list[Any]:
    return [value for value in values if value is not None] if nulls else values


def _written(values: list[Any], write: Callable[[Any], Any] | None) -> list[Any]:
    return values if write is None else [None if value is None else write(value) for value in values]
