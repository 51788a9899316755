"""Ruling out files by a predicate and the partition values they were written under."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from quacklake.core.format.bounds import Comparable, Compare, Every, IsNull, Predicate, Some, columns_of, widened
from quacklake.core.format.layout import CALENDAR, EPOCH, PartitionSpec, Transform, decode_value
from quacklake.core.format.schema import Column, TableSchema
from quacklake.core.format.transforms import Hashing, hash_comparable, hashing
from quacklake.core.format.types import DAY, INFINITY, StatsKind, civil, day_number, parse_type, scalar
from quacklake.errors import UnsupportedFeatureError

_HOUR = DAY // 24
_TEMPORAL = (StatsKind.DATE, StatsKind.TIME, StatsKind.TIMESTAMP)
_MANY_YEARS = 8  # the longest time between two days of any kind, February 29 included
# DuckDB counts the years of a time with a zone from 1 in both directions: 44 can be before Christ.
_AFTER_CHRIST = day_number(2, 1, 1) * DAY
_LIMITS = {"month": (1, 12), "day": (1, 31), "hour": (0, 24)}

Range = tuple[int, int]


@dataclass(slots=True)
class _KnownColumn:
    """The facts about one column that the partition values of a file tell.

    ``null`` tells whether every row is NULL, or none; ``boundless`` that every row is NULL or infinite; ``constant``
    that the column never had another type. ``parts`` are calendar parts, ``spans`` whole ranges.
    """

    column: Column
    constant: bool = False
    null: bool | None = None
    boundless: bool = False
    identity: Comparable | None = None
    buckets: list[tuple[int, int]] = field(default_factory=list)
    parts: dict[str, int] = field(default_factory=dict)
    spans: list[Range] = field(default_factory=list)

    def learn(self, transform: Transform, value: int) -> None:
        """Take in the value of a transform other than the identity."""
        if transform.name == "bucket":
            self.buckets.append((transform.buckets, value))
        elif transform.name in EPOCH:
            self.spans.append(_epoch_span(transform.name, value))
        elif scalar(self.column.type).stats is StatsKind.TIME:
            self.spans.append((value * _HOUR, (value + 1) * _HOUR - 1))
        else:
            low, high = _LIMITS.get(transform.name, (value, value))
            if low <= value <= high:
                self.parts[transform.name] = value

    @property
    def slack(self) -> int:
        base = parse_type(self.column.type).base
        if base == "timestamptz":
            # Parts are of the writer's time zone; none was ever further from UTC than this.
            return 16 * _HOUR
        return 1000 if base == "timestamp_ns" else 0


def pruner(
    predicate: Predicate, spec: PartitionSpec, schema: TableSchema, constant: Collection[int] = ()
) -> Callable[[Mapping[int, str | None]], bool]:
    """Return a function that tells by the partition values of a file, by key index, whether its rows may match.

    ``constant`` are the ids of columns that never had another type: of these one bucket holds all equal values.
    """
    keys = list(_usable(predicate, spec, schema))
    return lambda values: _may_match(predicate, _find_known(keys, values, constant))


def wanted_buckets(
    predicate: Predicate, spec: PartitionSpec, schema: TableSchema, constant: Collection[int] = ()
) -> dict[int, frozenset[int]]:
    """Return the buckets that matching rows are in, by key index; keys of which that can be any are left out."""
    parts = predicate.parts if isinstance(predicate, Every) else (predicate,)
    found: dict[int, frozenset[int]] = {}
    for index, column, transform in _usable(predicate, spec, schema):
        for part in parts if transform.name == "bucket" else ():
            buckets = _equal_buckets(part, column, transform.buckets, column.id in constant)
            if buckets is not None:
                found[index] = buckets & found.get(index, buckets)
    return found


def _equal_buckets(predicate: Predicate, column: Column, count: int, constant: bool) -> frozenset[int] | None:
    """Return the buckets of the values that a column must equal, or None when it need not equal any."""
    found: set[int] = set()
    for part in predicate.parts if isinstance(predicate, Some) else (predicate,):
        if not isinstance(part, Compare) or (part.operator, part.column_id, part.type) != ("=", column.id, column.type):
            return None
        buckets = _buckets(part.value, part.type, count, constant)
        if buckets is None:
            return None
        found |= buckets
    return frozenset(found)


def _usable(predicate: Predicate, spec: PartitionSpec, schema: TableSchema) -> Iterator[tuple[int, Column, Transform]]:
    """Yield the keys that can say something: on columns that exist and that the predicate asks for."""
    asked = columns_of(predicate)
    columns = {column.id: column for column in schema.columns if column.id in asked and not column.nested}
    for key in spec.keys:
        if key.column_id in columns:
            try:
                yield key.index, columns[key.column_id], key.parsed
            except UnsupportedFeatureError:
                continue


def _find_known(
    keys: Sequence[tuple[int, Column, Transform]], values: Mapping[int, str | None], constant: Collection[int]
) -> dict[int, _KnownColumn]:
    found: dict[int, _KnownColumn] = {}
    for index, column, transform in keys:
        if index not in values:
            continue
        known = found.setdefault(column.id, _KnownColumn(column, column.id in constant))
        text = values[index]
        if text is None:
            if transform.name in ("identity", "bucket"):
                known.null = True
            else:
                known.boundless = True
            continue
        known.null = False
        value = decode_value(text, column.type, transform)
        if value is None:
            continue
        if transform.name == "identity":
            # What is JSON now may have been of any other type when the file was written.
            known.identity = None if column.type == "json" else value
        else:
            known.learn(transform, int(value))
    return found


def _epoch_span(name: str, number: int) -> Range:
    if name in ("epoch_day", "epoch_hour"):
        unit = DAY if name == "epoch_day" else _HOUR
        return number * unit, (number + 1) * unit - 1
    months = 12 if name == "epoch_year" else 1
    first, following = (divmod(months * each, 12) for each in (number, number + 1))
    start, end = (day_number(1970 + years, month + 1, 1) for years, month in (first, following))
    return start * DAY, end * DAY - 1


# -- predicates ------------------------------------------------------------------------------------------------


def _may_match(predicate: Predicate, known: Mapping[int, _KnownColumn]) -> bool:
    if isinstance(predicate, Some):
        return any(_may_match(part, known) for part in predicate.parts)
    if isinstance(predicate, Every):
        return all(_may_match(part, known) for part in predicate.parts) and _may_all(predicate, known)
    fact = known.get(predicate.column_id)
    if fact is None:
        return True
    if isinstance(predicate, IsNull):
        return fact.null is not False
    return _may_compare(predicate, fact)


def _may_all(predicate: Every, known: Mapping[int, _KnownColumn]) -> bool:
    """Return False when the ranges that the parts ask of one column have no moment in common with the calendar."""
    ranges: dict[int, Range] = {}
    for part in predicate.parts:
        fact = known.get(part.column_id) if isinstance(part, Compare) else None
        if isinstance(part, Compare) and fact is not None and part.type == fact.column.type and _temporal(part):
            low, high = _range(part)
            before = ranges.get(part.column_id, (-INFINITY, INFINITY))
            ranges[part.column_id] = max(low, before[0]), min(high, before[1])
    return all(known[id].boundless or _has_moment(known[id], *each) for id, each in ranges.items())


def _may_compare(predicate: Compare, fact: _KnownColumn) -> bool:
    if fact.null:
        return False
    if predicate.type != fact.column.type:
        return True
    if fact.boundless and predicate.operator == "=" and _temporal(predicate):
        return bool(abs(predicate.value) == INFINITY)
    if fact.identity is not None and not _holds(predicate, fact.identity):
        return False
    if predicate.operator == "=":
        for count, value in fact.buckets:
            found = _buckets(predicate.value, predicate.type, count, fact.constant)
            if found is not None and value not in found:
                return False
    return fact.boundless or not _temporal(predicate) or _has_moment(fact, *_range(predicate))


def _holds(predicate: Compare, value: Any) -> bool:
    low, high = widened(predicate)
    operator, sharp = predicate.operator, low == high
    below = value < high if sharp and operator == "<" else value <= high
    above = value > low if sharp and operator == ">" else value >= low
    if operator in ("<", "<="):
        return bool(below)
    return bool(above) if operator in (">", ">=") else bool(below and above)


def _temporal(predicate: Compare) -> bool:
    return scalar(predicate.type).stats in _TEMPORAL


def _range(predicate: Compare) -> Range:
    value, operator = int(predicate.value), predicate.operator
    low = -INFINITY if operator in ("<", "<=") else value + (operator == ">")
    return low, INFINITY if operator in (">", ">=") else value - (operator == "<")


# -- buckets ---------------------------------------------------------------------------------------------------

_OLDER: Mapping[str, tuple[str, ...]] = {
    **dict.fromkeys(("int16", "int32", "int64"), ("uint8",)),
    "timestamp": ("date", "timestamp_s", "timestamp_ms"),
    "timestamptz": ("date", "timestamp_s", "timestamp_ms"),
    "timestamp_s": ("date",),
    "timestamp_ms": ("date", "timestamp_s"),
    "timestamp_ns": ("date", "timestamp_s", "timestamp_ms", "timestamp"),
    **dict.fromkeys(("uint8", "uint16", "uint32", "uint64"), ("boolean",)),
}
"""Types that the reference implementation lets become another although their hash differs, one for each hash."""


@lru_cache(maxsize=4096)
def _buckets(value: Comparable, type: str, count: int, constant: bool = False) -> frozenset[int] | None:
    """Return the buckets that rows with a value can be in, ``None`` when it can be any."""
    base = parse_type(type).base
    if hashing(type) in (Hashing.FLOAT, None) or base == "json" or (base == "decimal" and not constant):
        # A decimal may once have had another scale, anything else can become JSON, and literals for floats round.
        return None
    hashes = {hash_comparable(value, older) for older in (type, *(() if constant else _OLDER.get(base, ())))}
    return frozenset((hash & 0x7FFFFFFF) % count for hash in hashes if hash is not None)


# -- the calendar ----------------------------------------------------------------------------------------------


def _has_moment(fact: _KnownColumn, low: int, high: int) -> bool:
    """Return True when a moment between two, both included, can be one of the file's."""
    if low > high:
        return False
    if any(low > end or high < start for start, end in fact.spans):
        return False
    if not fact.parts or (parse_type(fact.column.type).base == "timestamptz" and low < _AFTER_CHRIST):
        return True
    return _find_moment(fact.parts, low - fact.slack, high + fact.slack)


def _find_moment(parts: Mapping[str, int], low: int, high: int) -> bool:
    finest = max(CALENDAR.index(name) for name in parts)
    for year in _years(parts, low, high):
        if finest == 0 and _meet(day_number(year, 1, 1), day_number(year + 1, 1, 1), low, high):
            return True
        months = (parts["month"],) if "month" in parts else range(1, 13)
        for month in months if finest else ():
            first = day_number(year, month, 1)
            end = day_number(year + month // 12, month % 12 + 1, 1)
            if not _meet(first, end, low, high):
                continue
            if finest == 1:
                return True
            for day in range(first, end):
                if parts.get("day", day - first + 1) != day - first + 1 or not _meet(day, day + 1, low, high):
                    continue
                start = day * DAY + parts.get("hour", 0) * _HOUR
                if "hour" not in parts or (low < start + _HOUR and start <= high):
                    return True
    return False


def _years(parts: Mapping[str, int], low: int, high: int) -> Iterator[int]:
    if "year" in parts:
        yield parts["year"]
        return
    if low <= -INFINITY // 2:
        low = high - _MANY_YEARS * 366 * DAY
    first = civil(low // DAY)[0] if low < INFINITY // 2 else 1970
    last = civil(high // DAY)[0] if high < INFINITY // 2 else first + _MANY_YEARS
    yield from range(first, min(last, first + _MANY_YEARS) + 1)


def _meet(first: int, end: int, low: int, high: int) -> bool:
    """Return True when the days from ``first`` until before ``end`` have a moment between two in them."""
    return first * DAY <= high and low < end * DAY
