"""The statistics of an Arrow column, nested ones leaf by leaf."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from quacklake.format.bounds import Comparable, comparable, encode_comparable, shorten
from quacklake.format.geometry import extent
from quacklake.format.temporal import from_physical
from quacklake.format.types import StatsKind, scalar

if TYPE_CHECKING:
    from quacklake.format.schema import Column

_SMALL = 200
"""Up to this many rows plain Python is faster than starting a compute kernel."""


@dataclass(frozen=True, slots=True)
class ColumnStats:
    """The statistics of one column in one file; ``None`` where nothing is known.

    ``value_count`` counts the values that are not NULL. In nested columns ``null_count`` counts one for every
    missing or empty parent too, as Parquet does. A bound is exact when it is a value of the column: long texts and
    blobs are cut.
    """

    column_id: int
    size_bytes: int | None = None
    value_count: int | None = None
    null_count: int | None = None
    min: str | None = None
    max: str | None = None
    contains_nan: bool | None = None
    extra: str | None = None
    min_exact: bool | None = None
    max_exact: bool | None = None


def of_array(array: pa.Array | pa.ChunkedArray, column: Column) -> list[ColumnStats]:
    """Return the statistics of a column's values: one entry, or one for each leaf of a nested column.

    The array holds values of the column's Arrow type, or of another whose values the column stores unchanged.
    ``size_bytes`` is left to whoever writes the file.
    """
    if column.children:
        return _nested(array, column, 0)
    return [_leaf(array, column, 0)]


def _nested(array: Any, column: Column, missing: int) -> list[ColumnStats]:
    """Return the statistics below a nested column. ``missing`` counts the parents without any value so far."""
    if not column.children:
        return [_leaf(array, column, missing)]
    array = _one_chunk(_unwrapped(array))
    if column.type == "struct":
        parts = array.flatten()  # with the struct's own NULLs laid over the children's
    else:
        # An array of type null has neither children nor values; any other is a list or a map.
        missing += array.null_count
        lists = [] if pa.types.is_null(array.type) else _lists(array.drop_null())
        if lists:
            missing += pc.sum(pc.equal(pc.list_value_length(lists[0]), 0)).as_py() or 0
        parts = [part.flatten() for part in lists]
    if not parts:
        return [_leaf(pa.nulls(0), leaf, missing) for leaf in column.leaves()]
    return [
        entry for part, child in zip(parts, column.children, strict=True) for entry in _nested(part, child, missing)
    ]


def _lists(array: Any) -> list[Any]:
    """Return the array itself when it is of lists; a map's keys and values as two arrays of lists."""
    if isinstance(array, pa.MapArray):
        return [pa.ListArray.from_arrays(array.offsets, side) for side in (array.keys, array.items)]
    return [array]


def _leaf(array: Any, column: Column, missing: int) -> ColumnStats:
    type = column.type
    kind = scalar(type).stats
    if isinstance(array, pa.ChunkedArray) and array.num_chunks == 1:
        array = array.chunk(0)
    nulls = array.null_count
    values = len(array) - nulls
    low = high = extra = None
    has_nan = False if kind is StatsKind.FLOAT else None
    if kind is StatsKind.GEOMETRY:
        extra = extent(_unwrapped(array).to_pylist())
    elif values and (measure := _MEASURES.get(kind)) is not None:
        low, high, has_nan = measure(_unwrapped(array), type)
    return ColumnStats(
        column.id,
        None,
        values,
        nulls + missing,
        None if low is None else _bound(low, type, upper=False),
        None if high is None else _bound(high, type, upper=True),
        has_nan,
        extra,
        *(None if end is None else shorten(end, upper=upper) == end for end, upper in ((low, False), (high, True))),
    )


def _bound(value: Comparable, type: str, *, upper: bool) -> str | None:
    short = shorten(value, upper=upper)
    return None if short is None else encode_comparable(short, type)


_Extremes = tuple[Comparable | None, Comparable | None, bool | None]


def _plain(array: Any, type: str) -> _Extremes:
    """Return the bounds of values whose Python form compares as they do."""
    low, high = _min_max(array)
    return comparable(low, type), comparable(high, type), None


def _uuids(array: Any, type: str) -> _Extremes:
    """Return the bounds of uuids, which may be text in either case, compared as numbers."""
    values = (array if len(array) <= _SMALL else pc.unique(array)).to_pylist()
    numbers = [comparable(value, type) for value in values if value is not None]
    return min(numbers), max(numbers), None  # type: ignore[type-var]


def _floats(array: Any, type: str) -> _Extremes:
    if not pa.types.is_floating(array.type):
        low, high = _min_max(array)
        return comparable(low, type), comparable(high, type), False
    if len(array) <= _SMALL:
        values = [value for value in array.to_pylist() if value is not None]
        numbers = [value for value in values if not math.isnan(value)]
        has_nan = len(numbers) != len(values)
        return comparable(min(numbers, default=None), type), comparable(max(numbers, default=None), type), has_nan
    has_nan = bool(pc.any(pc.is_nan(array)).as_py())
    # The kernel leaves NaN out by itself, but an array of nothing else gives its own starting values.
    if has_nan and not pc.any(pc.invert(pc.is_nan(array))).as_py():
        return None, None, True
    low, high = _min_max(array)
    return comparable(low, type), comparable(high, type), has_nan


def _temporal(array: Any, type: str) -> _Extremes:
    """Return the bounds of dates and times by their integers: Python's own cannot hold infinity or far years."""
    arrow = array.type
    layout = _TEMPORAL.get(arrow.id)
    if layout is None:
        return _plain(array, type)
    bits, unit = layout
    unit = unit or arrow.unit
    integers = _INT32 if bits == 32 else _INT64
    low, high = _min_max(array.view(integers) if isinstance(array, pa.Array) else array.cast(integers))
    return from_physical(low, unit, bits=bits), from_physical(high, unit, bits=bits), None


_INT32, _INT64 = pa.int32(), pa.int64()
_TEMPORAL: Mapping[int, tuple[int, str]] = {
    pa.date32().id: (32, "D"),
    pa.date64().id: (64, "ms"),
    pa.time32("s").id: (32, ""),
    pa.time64("us").id: (64, ""),
    pa.timestamp("us").id: (64, ""),
}
"""Bits and unit of the integers inside an Arrow type; an empty unit is the type's own."""


def _unwrapped(array: Any) -> Any:
    """Return the array without dictionary, run-end or extension encoding, its strings and blobs of a plain layout."""
    arrow = array.type
    if arrow.id not in _WRAPPED:
        return array
    if isinstance(arrow, pa.DictionaryType | pa.RunEndEncodedType):
        return _unwrapped(array.cast(arrow.value_type))
    if isinstance(arrow, pa.BaseExtensionType):
        return _unwrapped(array.cast(arrow.storage_type))
    return array.cast(_PLAIN[arrow.id])


_PLAIN = {
    pa.string_view().id: pa.large_string(),
    pa.binary_view().id: pa.large_binary(),
    pa.float16().id: pa.float32(),
}
_WRAPPED = {
    *_PLAIN,
    pa.dictionary(pa.int8(), pa.string()).id,
    pa.run_end_encoded(pa.int32(), pa.int8()).id,
    pa.uuid().id,  # every extension type has the same id
}


def _one_chunk(array: Any) -> Any:
    return array.combine_chunks() if isinstance(array, pa.ChunkedArray) else array


def _min_max(array: Any) -> tuple[Any, Any]:
    if len(array) <= _SMALL:
        values = array.to_pylist()
        if array.null_count:
            values = [value for value in values if value is not None]
        return min(values), max(values)
    result = pc.min_max(array)
    return result["min"].as_py(), result["max"].as_py()


_MEASURES: Mapping[StatsKind, Callable[[Any, str], _Extremes]] = {
    StatsKind.BOOLEAN: _plain,
    StatsKind.INTEGER: _plain,
    StatsKind.DECIMAL: _plain,
    StatsKind.TEXT: _plain,
    StatsKind.BLOB: _plain,
    StatsKind.UUID: _uuids,
    StatsKind.FLOAT: _floats,
    StatsKind.DATE: _temporal,
    StatsKind.TIME: _temporal,
    StatsKind.TIMESTAMP: _temporal,
}
