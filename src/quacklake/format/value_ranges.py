"""Arrow values that no column can hold exactly, found before an engine sees them.

Arrow stores dates and times as any integer, also as such that DuckDB has no date for: it would write them, and could
not read their text again. Nor does it tell that it cuts off nanoseconds, or that a map has a key twice.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from quacklake.errors import ConstraintError

_INFINITY = (1 << 63) - 1
_MICROS = (-9_223_372_022_400_000_000, _INFINITY - 1)
"""The first and the last timestamp of DuckDB, 290309-12-22 (BC) to 294247-01-10, in microseconds."""
_DAY_MS = 86_400_000


@dataclass(frozen=True, slots=True)
class _Range:
    """The integers that the values of an Arrow type may be: between two, and multiples of a third."""

    low: int
    high: int
    infinity: int | None = None
    multiple: int = 1
    hint: str | None = None


def _scaled(units: int, infinity: int | None) -> _Range:
    """Return the range of timestamps whose unit is so many microseconds."""
    return _Range(-(-_MICROS[0] // units), _MICROS[1] // units, infinity)


_WHOLE_MICROS = 'cut them first: df["…"].dt.floor("us")'
_TIMESTAMPS: Mapping[tuple[str, bool], _Range] = {
    **{(unit, False): _scaled(units, _INFINITY) for unit, units in (("s", 1_000_000), ("ms", 1_000), ("us", 1))},
    **{(unit, True): _scaled(units, None) for unit, units in (("s", 1_000_000), ("ms", 1_000))},
    ("us", True): _scaled(1, _INFINITY),
    # the first whole day that 64 bits reach
    ("ns", False): _Range(-9_223_286_400_000_000_000, _INFINITY - 1, _INFINITY),
    ("ns", True): _Range(-_INFINITY - 1, _INFINITY, None, 1_000, _WHOLE_MICROS),
}
_DAY_OF: Mapping[str, int] = {unit: 86_400 * 10**digits for unit, digits in (("s", 0), ("ms", 3), ("us", 6), ("ns", 9))}
_DURATIONS: Mapping[str, _Range] = {
    **{
        unit: _Range(-(_INFINITY // nanos), _INFINITY // nanos)
        for unit, nanos in (("s", 10**9), ("ms", 10**6), ("us", 10**3))
    },
    "ns": _Range(-_INFINITY, _INFINITY, None, 1_000, _WHOLE_MICROS),
}
"""Arrow, through which intervals are read, has nanoseconds."""
_DATE32 = _Range(-(2**31) + 2, 2**31 - 2, 2**31 - 1)
_DATE64 = _Range(-(2**31 - 2) * _DAY_MS, (2**31 - 2) * _DAY_MS, None, _DAY_MS, "pass dates without a time of the day")


def _range(arrow: pa.DataType) -> _Range | None:
    """Return the integers that values of an Arrow type may be, or None where all of them are values."""
    if pa.types.is_timestamp(arrow):
        return _TIMESTAMPS[arrow.unit, arrow.tz is not None]
    if pa.types.is_time(arrow):
        return _Range(0, _DAY_OF[arrow.unit])
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
    if pa.types.is_map(arrow) or arrow == pa.month_day_nano_interval():
        return True
    if pa.types.is_nested(arrow):
        return any(needs_check(arrow.field(index).type) for index in range(arrow.num_fields))
    return _range(arrow) is not None


def check_values(rows: pa.Table | pa.RecordBatch, *, exact: bool = True) -> None:
    """Raise ``ConstraintError`` that names the column of a value which cannot be stored as it is.

    Without ``exact`` a value may lose digits on the way.
    """
    for field, column in zip(rows.schema, rows.columns, strict=True):
        if needs_check(field.type):
            for chunk in column.chunks if isinstance(column, pa.ChunkedArray) else [column]:
                _check(chunk, field.name, exact=exact)


def _check(array: Any, name: str, *, exact: bool) -> None:
    for leaf in _leaves(array, name):
        if leaf.type != pa.month_day_nano_interval():
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
    numbers = array.view(pa.int32() if array.type.bit_width == 32 else pa.int64())
    ends = pc.min_max(numbers)
    if ends["min"].as_py() < allowed.low or ends["max"].as_py() > allowed.high:
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
    for value in array.to_pylist():
        if value is not None and value.nanoseconds % 1_000:
            raise ConstraintError(
                f'a value does not fit the column "{name}": the interval of {value.nanoseconds} ns would lose digits',
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
