"""Partition transforms at work: of one value, of an Arrow array, and as an expression in plain DuckDB SQL.

Dates and times are taken in UTC. The reference implementation takes the parts of a ``timestamptz`` in the time zone of
the session that writes, so the values in a catalog can be those of any zone.
"""

from __future__ import annotations

import datetime as dt
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from quacklake.errors import InputError
from quacklake.format.bounds import comparable
from quacklake.format.murmur import hash_array, hash_comparable, hash_sql
from quacklake.format.partitions import CALENDAR, EPOCH, Transform
from quacklake.format.types import StatsKind, parse_type, scalar

_LOWER = 0x7FFFFFFF
_PER_DAY = {"D": 1, "s": 86_400, "ms": 86_400_000, "us": 86_400_000_000, "ns": 86_400_000_000_000}
_EXTREME = {32: (1 << 31) - 1, 64: (1 << 63) - 1}
_ARROW_DAYS = 11_000_000  # Arrow's calendar ends with the year 32767


def bucket(value: Any, type: str, buckets: int) -> int | None:
    """Return the bucket of a value among ``buckets``; ``None`` for NULL.

    Raises :class:`InputError` for a value that is not of the type, and for types whose hash only DuckDB can compute.
    """
    if value is None:
        return None
    try:
        if scalar(type).stats is StatsKind.NONE:
            hash = hash_comparable(int(value), type)
        else:
            known = comparable(value, type)
            hash = None if known is None else hash_comparable(known, type)
    except (ArithmeticError, TypeError, ValueError):
        hash = None
    if hash is None:
        raise InputError(f"{value!r} is not a {type} value")
    return (hash & _LOWER) % buckets


def apply(array: pa.Array | pa.ChunkedArray, transform: Transform, type: str) -> pa.Array:
    """Return the partition values of values in the column's own Arrow type: integers but for the identity.

    Infinite dates have no parts: theirs are NULL. Raises :class:`InputError` for types the transform does not fit,
    and for buckets of types whose hash only DuckDB can compute.
    """
    if isinstance(array, pa.ChunkedArray):
        array = array.combine_chunks()
    if transform.name == "identity":
        return array
    if transform.name == "bucket":
        lower = pc.bit_wise_and(hash_array(array, type), pa.scalar(_LOWER, pa.int32()))
        rounds = pc.multiply(pc.divide(lower, transform.buckets), transform.buckets)
        return pc.subtract(lower, rounds).cast(pa.int32())
    if not pa.types.is_temporal(array.type) or pa.types.is_duration(array.type):
        raise InputError(f"the partition transform {transform} does not fit the type {type}")
    days, hours = _days_and_hours(array)
    part = transform.name.removeprefix("epoch_")
    if part == "hour":
        return pc.add(pc.multiply(days, 24), hours) if transform.name in EPOCH else hours
    if transform.name == "epoch_day":
        return days
    if transform.name == "epoch_year":
        return pc.subtract(_calendar(days, "year"), 1970)
    if transform.name == "epoch_month":
        years = pc.subtract(_calendar(days, "year"), 1970)
        return pc.add(pc.multiply(years, 12), pc.subtract(_calendar(days, "month"), 1))
    return _calendar(days, part)


def _days_and_hours(array: pa.Array) -> tuple[pa.Array, pa.Array]:
    """Return the days since 1970 and the hours since midnight, NULL for infinity."""
    unit = getattr(array.type, "unit", "D")
    bits = array.type.bit_width
    number = array.cast(pa.int32() if bits == 32 else pa.int64()).cast(pa.int64())
    if not pa.types.is_time(array.type):
        extreme = pa.scalar(_EXTREME[bits], pa.int64())
        infinite = pc.or_(pc.equal(number, extreme), pc.equal(number, pc.negate(extreme)))
        number = pc.if_else(infinite, pa.scalar(None, pa.int64()), number)
    if pa.types.is_time(array.type):
        return pc.multiply(number, 0), pc.divide(number, _PER_DAY[unit] // 24)
    days = _floor(number, _PER_DAY[unit])
    seconds = pc.subtract(number, pc.multiply(days, _PER_DAY[unit]))
    return days, pc.divide(seconds, max(_PER_DAY[unit] // 24, 1))


def _floor(array: pa.Array, divisor: int) -> pa.Array:
    quotient = pc.divide(array, divisor)
    exceeds = pc.greater(pc.multiply(quotient, divisor), array)
    return pc.subtract(quotient, exceeds.cast(pa.int64()))


def _calendar(days: pa.Array, part: str) -> pa.Array:
    extent = pc.min_max(days).as_py()
    if extent["min"] is None or (extent["min"] > -_ARROW_DAYS and extent["max"] < _ARROW_DAYS):
        dates = days.cast(pa.int32()).cast(pa.date32())
        return getattr(pc, part)(dates)
    index = CALENDAR.index(part)
    return pa.array([None if day is None else civil(day)[index] for day in days.to_pylist()], pa.int64())


def civil(day: int) -> tuple[int, int, int]:
    """Return the year, month and day of a number of days since 1970; the year 0 is 1 BC.

    >>> civil(0), civil(-719_163)
    ((1970, 1, 1), (0, 12, 31))
    """
    # The calendar repeats every 400 years of 146097 days.
    cycles, rest = divmod(day + 719_162, 146_097)
    date = dt.date.fromordinal(rest + 1)
    return date.year + 400 * cycles, date.month, date.day


def duckdb_expression(transform: Transform, column: str, type: str) -> str:
    """Return an expression of plain DuckDB, without the ducklake extension, for the partition value of a column.

    ``column`` is SQL. The expression cast to VARCHAR is the text for the catalog. Raises :class:`InputError` for
    buckets of types whose hash SQL cannot compute.
    """
    if transform.name == "identity":
        return column
    if transform.name == "bucket":
        return f"CAST(({hash_sql(column, type)} & {_LOWER}) % {transform.buckets} AS INTEGER)"
    base = parse_type(type).base
    if base == "timestamptz":
        column = f"make_timestamp(epoch_us({column}))"
    if transform.name not in EPOCH:
        return f"{transform.name}({column})"
    if base == "timestamp_ns":
        # A cast to microseconds would round; and the nanoseconds of infinity are a number like others.
        micros = f"(epoch_ns({column}) - ((epoch_ns({column}) % 1000) + 1000) % 1000) // 1000"
        column = f"CASE WHEN isfinite({column}) THEN make_timestamp({micros}) END"
    return f"date_diff('{transform.name.removeprefix('epoch_')}', DATE '1970-01-01', {column})"
