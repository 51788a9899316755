"""Column statistics: of an Arrow column, of one file, of a whole table; and Arrow values that no column can hold.

Bounds are text and leave out NaN and NULL; ``None`` is an unknown one. Arrow stores dates as any integer, also as such
that DuckDB cannot read again; nor does it tell that it cuts off nanoseconds, or that a map has a key twice.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from quacklake.core.format.bounds import Comparable, comparable, decoder, encoder, kind_of, shorten
from quacklake.core.format.extras import extent, merge_extra, merge_fields
from quacklake.core.format.intervals import INTERVAL, nanoseconds
from quacklake.core.format.schema import Column, of_last_schema
from quacklake.core.format.types import DAY, NANOS, NESTED, StatsKind, from_physical, scalar
from quacklake.errors import ConstraintError

_SMALL = 200
"""Up to this many rows plain Python is faster than starting a compute kernel."""


class ColumnStats(NamedTuple):
    """The statistics of one column in one file; ``None`` where nothing is known.

    ``value_count`` counts the values that are not NULL. In nested columns ``null_count`` counts missing and empty
    parents too, as Parquet does. A bound is exact when it is a value of the column: long texts and blobs are cut.
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


def of_array(array: pa.Array | pa.ChunkedArray, column: Column, missing: int = 0) -> list[ColumnStats]:
    """Return the statistics of values in the column's Arrow type, or one it stores unchanged: an entry for each leaf.

    ``missing`` counts the parents without any value so far.
    """
    if not column.children:
        return [_leaf(array, column, missing)]
    array = _unwrap_array(array)
    if isinstance(array, pa.ChunkedArray):
        array = array.combine_chunks()
    if column.type == "struct":
        parts = array.flatten()  # with the struct's own NULLs laid over the children's
    elif pa.types.is_null(array.type):  # it has neither children nor values
        return [_leaf(pa.nulls(0), leaf, missing + array.null_count) for leaf in column.leaves()]
    else:
        missing += array.null_count
        lists = [array.drop_null()]
        if isinstance(lists[0], pa.MapArray):
            entries = lists[0]
            lists = [pa.ListArray.from_arrays(entries.offsets, side) for side in (entries.keys, entries.items)]
        missing += pc.sum(pc.equal(pc.list_value_length(lists[0]), 0)).as_py() or 0
        parts = [part.flatten() for part in lists]
    return [
        entry for part, child in zip(parts, column.children, strict=True) for entry in of_array(part, child, missing)
    ]


def _leaf(array: Any, column: Column, missing: int) -> ColumnStats:
    type = column.type
    kind, measure = _find_measure(type)
    if isinstance(array, pa.ChunkedArray) and array.num_chunks == 1:
        array = array.chunk(0)
    nulls = array.null_count
    values = len(array) - nulls
    low = high = extra = None
    has_nan = False if kind is _FLOAT else None
    if kind is _GEOMETRY:
        extra = extent(_unwrap_array(array).to_pylist())
    elif values and measure is not None:
        low, high, has_nan = measure(_unwrap_array(array), type)
    (low_text, low_exact), (high_text, high_exact) = end_of(low, type, upper=False), end_of(high, type, upper=True)
    return ColumnStats(
        column.id, None, values, nulls + missing, low_text, high_text, has_nan, extra, low_exact, high_exact
    )


def end_of(value: Comparable | None, type: str, *, upper: bool) -> tuple[str | None, bool | None]:
    """Return the text of a bound, cut if it is long, and whether it is exact."""
    if value is None:
        return None, None
    if not isinstance(value, str | bytes):
        return encoder(type)(value), True
    short = shorten(value, upper=upper)
    return None if short is None else encoder(type)(short), short == value


_Extremes = tuple[Comparable | None, Comparable | None, bool | None]


def _plain(array: Any, type: str) -> _Extremes:
    """Return the bounds of values whose Python form compares as they do."""
    low, high = _min_max(array)
    if _OWN.get(array.type.id) == kind_of(type):
        return low, high, None
    return comparable(low, type), comparable(high, type), None


def _uuids(array: Any, type: str) -> _Extremes:
    """Return the bounds of uuids, which may be text in either case, compared as numbers."""
    values = (array if len(array) <= _SMALL else pc.unique(array)).to_pylist()
    numbers = [comparable(value, type) for value in values if value is not None]
    return min(numbers), max(numbers), None  # type: ignore[type-var]


def _floats(array: Any, type: str) -> _Extremes:
    if not pa.types.is_floating(array.type):
        return (*_plain(array, type)[:2], False)
    if len(array) <= _SMALL:
        values = [value for value in array.to_pylist() if value is not None]
        numbers = [value for value in values if not math.isnan(value)]
        has_nan = len(numbers) != len(values)
        return comparable(min(numbers, default=None), type), comparable(max(numbers, default=None), type), has_nan
    has_nan = bool(pc.any(pc.is_nan(array)).as_py())
    # The kernel leaves NaN out by itself, but an array of nothing else gives its own starting values.
    if has_nan and not pc.any(pc.invert(pc.is_nan(array))).as_py():
        return None, None, True
    return (*_plain(array, type)[:2], has_nan)


def _temporal(array: Any, type: str) -> _Extremes:
    """Return the bounds of dates and times by their integers: Python's own cannot hold infinity or far years."""
    arrow = array.type
    layout = _TEMPORAL.get(arrow.id)
    if layout is None:
        return _plain(array, type)
    bits, unit = layout[0], layout[1] or arrow.unit
    integers = _INT32 if bits == 32 else _INT64
    low, high = _min_max(array.view(integers) if isinstance(array, pa.Array) else array.cast(integers))
    return from_physical(low, unit, bits=bits), from_physical(high, unit, bits=bits), None


_OWN: Mapping[int, str] = {
    pa.bool_().id: "boolean",
    **dict.fromkeys((pa.int32().id, pa.int64().id), "integer"),
    pa.string().id: "text",
    pa.binary().id: "blob",
}
"""Arrow types whose Python values are the bounds of a kind of column as they are."""


_INT32, _INT64 = pa.int32(), pa.int64()
_TEMPORAL: Mapping[int, tuple[int, str]] = {
    pa.date32().id: (32, "D"),
    pa.date64().id: (64, "ms"),
    pa.time32("s").id: (32, ""),
    pa.time64("us").id: (64, ""),
    pa.timestamp("us").id: (64, ""),
}
"""Bits and unit of the integers inside an Arrow type; an empty unit is the type's own."""


def _unwrap_array(array: Any) -> Any:
    """Return the array without dictionary, run-end or extension encoding, its strings and blobs of a plain layout."""
    arrow = array.type
    if arrow.id not in _WRAPPED:
        return array
    if isinstance(arrow, pa.DictionaryType | pa.RunEndEncodedType):
        return _unwrap_array(array.cast(arrow.value_type))
    if isinstance(arrow, pa.BaseExtensionType):
        return _unwrap_array(array.cast(arrow.storage_type))
    return array.cast(_PLAIN[arrow.id])


_PLAIN = {pa.string_view().id: pa.large_string(), pa.binary_view().id: pa.large_binary(), pa.float16().id: pa.float32()}
_WRAPPED = {
    *_PLAIN,
    pa.dictionary(pa.int8(), pa.string()).id,
    pa.run_end_encoded(pa.int32(), pa.int8()).id,
    pa.uuid().id,  # every extension type has the same id
}


def _min_max(array: Any) -> tuple[Any, Any]:
    if len(array) <= _SMALL:
        values = array.to_pylist()
        if array.null_count:
            values = [value for value in values if value is not None]
        return min(values), max(values)
    result = pc.min_max(array)
    return result["min"].as_py(), result["max"].as_py()


_FLOAT, _GEOMETRY, _VARIANT = StatsKind.FLOAT, StatsKind.GEOMETRY, StatsKind.VARIANT
_MEASURES: Mapping[StatsKind, Callable[[Any, str], _Extremes]] = {
    **dict.fromkeys((StatsKind.BOOLEAN, StatsKind.INTEGER, StatsKind.DECIMAL, StatsKind.TEXT, StatsKind.BLOB), _plain),
    StatsKind.UUID: _uuids,
    StatsKind.FLOAT: _floats,
    **dict.fromkeys((StatsKind.DATE, StatsKind.TIME, StatsKind.TIMESTAMP), _temporal),
}


@lru_cache(maxsize=1024)
def _find_measure(type: str) -> tuple[StatsKind, Callable[[Any, str], _Extremes] | None]:
    """Return the kind of a type, and what finds the bounds of its values."""
    kind = scalar(type).stats
    return kind, _MEASURES.get(kind)


class TableColumnStats(NamedTuple):
    """The statistics of one column over every row a table ever held; ``None`` where nothing is known."""

    column_id: int
    contains_null: bool | None = None
    contains_nan: bool | None = None
    min: str | None = None
    max: str | None = None
    extra: str | None = None
    min_exact: bool | None = None
    max_exact: bool | None = None


def stored_exact(text: str | None, exact: bool | None) -> bool | None:
    """Return what a catalog stores for the exactness of a bound: nothing without a bound."""
    return None if stored_bound(text) is None else bool(exact)


def is_always_exact(type: str) -> bool:
    """Return True for types whose bounds are never cut."""
    return _kind(type) not in (StatsKind.TEXT, StatsKind.BLOB)


def keeps_bounds(old: str, new: str) -> bool:
    """Return True when bounds of one type are bounds of another: from integer to integer, from decimal to decimal.

    >>> keeps_bounds("int32", "int64"), keeps_bounds("float32", "float64")
    (True, False)
    """
    if old == new:
        return True
    return _kind(old) is _kind(new) and _kind(new) in (StatsKind.INTEGER, StatsKind.DECIMAL)


def stored_bound(text: str | None) -> str | None:
    """Return what a catalog keeps of a bound: as in stock DuckLake, nothing of one with a NUL."""
    return None if text is not None and "\0" in text else text


def merge(old: TableColumnStats | None, new: ColumnStats, type: str, *, first: bool) -> TableColumnStats:
    """Return the table's statistics after rows with the statistics ``new`` came, ``first`` if it held none before.

    A statistic that either side lacks, or that cannot be read, is lost; rows without values leave the bounds alone.
    """
    # called for each column of each commit: taken apart once, and with few calls
    id_, _, values, nulls, new_low, new_high, has_nan, extra, new_low_exact, new_high_exact = new
    has_null = None if nulls is None else nulls > 0
    if first:
        return TableColumnStats(id_, has_null, has_nan, new_low, new_high, extra, new_low_exact, new_high_exact)
    if old is None:
        return TableColumnStats(id_)
    _, had_null, had_nan, low, high, old_extra, low_exact, high_exact = old
    if values == 0 and new_low is None and new_high is None:
        extra = old_extra
    else:
        kind, code = _kind(type), _code(type)
        low, low_exact = _wider(low, low_exact, new_low, new_low_exact, code, False)
        high, high_exact = _wider(high, high_exact, new_high, new_high_exact, code, True)
        extra = _merged_extra(old_extra, extra, kind) if kind is _GEOMETRY or kind is _VARIANT else None
    has_null = None if had_null is None or has_null is None else had_null or has_null
    has_nan = None if had_nan is None or has_nan is None else had_nan or has_nan
    merged = TableColumnStats(id_, has_null, has_nan, low, high, extra, low_exact, high_exact)
    return old if merged == old else merged


def _wider(
    old: str | None, old_exact: bool | None, new: str | None, new_exact: bool | None, code: _Code, upper: bool
) -> tuple[str | None, bool | None]:
    """Return the wider of two bounds, in the documented encoding, and whether it is exact: of equal ones both must."""
    if old is None or new is None:
        return None, None
    read, write = code
    one, two = read(old), read(new)
    if one is None or two is None:
        return None, None
    # Two bounds of one type are always of one Python type.
    if (two > one) if upper else (two < one):  # type: ignore[operator]
        text, exact = write(two), new_exact
    else:
        text, exact = write(one), old_exact and (new_exact or one != two)
    return text, None if text is None else bool(exact)


def _merged_extra(old: str | None, new: str | None, kind: StatsKind) -> str | None:
    """Return the statistics of a type that has others than bounds."""
    return merge_extra(old, new) if kind is _GEOMETRY else merge_fields(old, new, _outer)


@lru_cache(maxsize=1024)
def _kind(type: str) -> StatsKind:
    return StatsKind.NONE if type in NESTED else scalar(type).stats


def _outer(old: str | None, new: str | None, type: str, *, upper: bool) -> str | None:
    """Return the wider of two bounds, in the documented encoding."""
    return _wider(old, None, new, None, _code(type), upper)[0]


_Code = tuple[Callable[[str], Comparable | None], Callable[[Any], str | None]]


@lru_cache(maxsize=1024)
def _code(type: str) -> _Code:
    """Return what reads the bounds of a type, and what writes them in the documented encoding."""
    kind, read = _kind(type), decoder(type)
    if kind not in _MEASURES:  # it has no bounds
        return read, lambda value: None
    if _MEASURES[kind] is _temporal:
        read = lru_cache(maxsize=4_096)(read)  # the bounds of a table are met again with every commit
    return read, encoder(type)


_INFINITY = (1 << 63) - 1
_MICROS = (-9_223_372_022_400_000_000, _INFINITY - 1)
"""The first and the last timestamp of DuckDB, 290309-12-22 (BC) to 294247-01-10, in microseconds."""
_DAY_MS = 86_400_000


@dataclass(frozen=True, slots=True)
class _IntegerRange:
    """The integers that the values of an Arrow type may be: between two, and multiples of a third."""

    low: int
    high: int
    infinity: int | None = None
    multiple: int = 1
    hint: str | None = None


_WHOLE_MICROS = 'cut them first: df["…"].dt.floor("us")'
_TIMESTAMPS: Mapping[tuple[str, bool], _IntegerRange] = {
    **{
        (unit, zone): _IntegerRange(
            -(-_MICROS[0] // units), _MICROS[1] // units, None if zone and unit != "us" else _INFINITY
        )
        for unit, units in (("s", 1_000_000), ("ms", 1_000), ("us", 1))
        for zone in (False, True)
    },
    # the first whole day that 64 bits reach
    ("ns", False): _IntegerRange(-9_223_286_400_000_000_000, _INFINITY - 1, _INFINITY),
    ("ns", True): _IntegerRange(-_INFINITY - 1, _INFINITY, None, 1_000, _WHOLE_MICROS),
}
_DURATIONS: Mapping[str, _IntegerRange] = {
    **{unit: _IntegerRange(-(_INFINITY // NANOS[unit]), _INFINITY // NANOS[unit]) for unit in ("s", "ms", "us")},
    "ns": _IntegerRange(-_INFINITY, _INFINITY, None, 1_000, _WHOLE_MICROS),
}
"""Arrow, through which intervals are read, has nanoseconds."""
_DATE32 = _IntegerRange(-(2**31) + 2, 2**31 - 2, 2**31 - 1)
_DATE64 = _IntegerRange(
    -(2**31 - 2) * _DAY_MS, (2**31 - 2) * _DAY_MS, None, _DAY_MS, "pass dates without a time of the day"
)


def _range(arrow: pa.DataType) -> _IntegerRange | None:
    """Return the integers that values of an Arrow type may be, or None where all of them are values."""
    if pa.types.is_timestamp(arrow):
        return _TIMESTAMPS[arrow.unit, arrow.tz is not None]
    if pa.types.is_time(arrow):
        return _IntegerRange(0, DAY // NANOS[arrow.unit])
    if pa.types.is_date32(arrow):
        return _DATE32
    if pa.types.is_date64(arrow):
        return _DATE64
    return _DURATIONS.get(arrow.unit) if pa.types.is_duration(arrow) else None


def needs_check(arrow: pa.DataType) -> bool:
    """Return True when values of an Arrow type, or inside of it, may be none of a column."""
    if isinstance(arrow, pa.DictionaryType | pa.RunEndEncodedType):
        return needs_check(arrow.value_type)
    if isinstance(arrow, pa.BaseExtensionType):
        return needs_check(arrow.storage_type)
    if pa.types.is_map(arrow) or arrow == INTERVAL:
        return True
    if pa.types.is_nested(arrow):
        return any(needs_check(arrow.field(index).type) for index in range(arrow.num_fields))
    return _range(arrow) is not None


@of_last_schema
def _to_check(schema: pa.Schema) -> list[tuple[int, str]]:
    """Return the columns of which a value may be none, as their places and names."""
    return [(place, field.name) for place, field in enumerate(schema) if needs_check(field.type)]


def check_values(rows: pa.Table | pa.RecordBatch, *, exact: bool = True) -> None:
    """Raise ``ConstraintError`` for a value that its column cannot store; without ``exact`` it may lose digits."""
    for place, name in _to_check(rows.schema):
        column = rows.column(place)
        for chunk in column.chunks if isinstance(column, pa.ChunkedArray) else [column]:
            for leaf in _leaves(chunk, name):
                if leaf.type != INTERVAL:
                    _check_integers(leaf, name, exact=exact)
                elif exact:
                    _check_intervals(leaf, name)


def _leaves(array: Any, name: str) -> Iterator[Any]:
    """Yield the arrays inside of an array whose values have a range; maps are checked on the way."""
    arrow = array.type
    if not needs_check(arrow):
        return
    if isinstance(arrow, pa.DictionaryType):
        yield from _leaves(array.dictionary, name)
    elif isinstance(arrow, pa.RunEndEncodedType):
        yield from _leaves(array.values, name)
    elif isinstance(arrow, pa.BaseExtensionType):
        yield from _leaves(array.storage, name)
    elif pa.types.is_map(arrow):
        _check_keys(array, name)
        start, end = array.offsets[0].as_py(), array.offsets[-1].as_py()
        for side in (array.keys, array.items):
            yield from _leaves(side.slice(start, end - start), name)
    elif pa.types.is_struct(arrow):
        for part in array.flatten():
            yield from _leaves(part, name)
    elif pa.types.is_nested(arrow):
        yield from _leaves(array.flatten(), name)
    else:
        yield array


def _check_integers(array: Any, name: str, *, exact: bool) -> None:
    allowed = _range(array.type)
    if allowed is None or array.null_count == len(array):
        return
    numbers = array.view(_INT32 if array.type.bit_width == 32 else _INT64)
    low, high = _min_max(numbers)
    if low < allowed.low or high > allowed.high:
        outside = pc.or_(pc.less(numbers, allowed.low), pc.greater(numbers, allowed.high))
        found = array.view(numbers.type).filter(outside)
        if allowed.infinity is not None:
            found = found.filter(pc.not_equal(pc.abs(found), allowed.infinity))
        if len(found):
            raise ConstraintError(
                f'a value does not fit the column "{name}": the {array.type} {found[0].as_py()} is out of range',
                hint="DuckLake has dates of about 290,000 years, times of one day and nanoseconds from 1677-09-22 on",
            )
    if exact and allowed.multiple > 1:
        parts = pc.multiply(pc.divide(numbers, allowed.multiple), allowed.multiple)
        rest = numbers.filter(pc.not_equal(numbers, parts))
        if len(rest):
            raise ConstraintError(
                f'a value does not fit the column "{name}": the {array.type} {rest[0].as_py()} would lose digits',
                hint=allowed.hint,
            )


def _check_intervals(array: Any, name: str) -> None:
    if array.null_count == len(array):
        return
    numbers = nanoseconds(array)
    rest = numbers.filter(pc.not_equal(numbers, pc.multiply(pc.divide(numbers, 1_000), 1_000)))
    if len(rest):
        raise ConstraintError(
            f'a value does not fit the column "{name}": the interval of {rest[0].as_py()} ns would lose digits',
            hint="intervals have microseconds",
        )


def _check_keys(array: Any, name: str) -> None:
    """Raise ``ConstraintError`` when a map has a key twice."""
    lists = pa.ListArray.from_arrays(array.offsets, array.keys)
    if (pc.max(pc.list_value_length(lists)).as_py() or 0) < 2:
        return
    keys, parents = lists.flatten(), pc.list_parent_indices(lists)
    if pa.types.is_nested(keys.type):
        seen = [(parent, repr(key)) for parent, key in zip(parents.to_pylist(), keys.to_pylist(), strict=True)]
        twice = len(set(seen)) < len(seen)
    else:
        pairs = pa.table({"parent": parents, "key": keys})
        twice = pairs.group_by(["parent", "key"]).aggregate([]).num_rows < pairs.num_rows
    if twice:
        raise ConstraintError(f'a value does not fit the column "{name}": a map has a key twice')
