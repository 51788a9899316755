"""Partition transforms at work: of one value, of an Arrow array, and as an expression in plain DuckDB SQL.

Dates and times are taken in UTC; those of other writers can be of any zone. The hash behind ``bucket`` is 32-bit
Murmur3. Booleans, numbers up to 64 bits, decimals up to 18 digits, dates and times are hashed as the 8 bytes of the
integer that DuckDB stores, floats as those of the double, text and blobs as they are, everything else (unsigned
integers too) as its text.
"""

from __future__ import annotations

import enum
import struct
from collections.abc import Mapping
from typing import Any

import mmh3
import pyarrow as pa
import pyarrow.compute as pc

from quacklake.core.format.bounds import Comparable, comparable, encode_comparable
from quacklake.core.format.layout import CALENDAR, EPOCH, Transform
from quacklake.core.format.texts import literal_text
from quacklake.core.format.types import DAY, INFINITY, NANOS, NESTED, StatsKind, TypeName, civil, parse_type, scalar
from quacklake.errors import InputError

_WORD = 0xFFFFFFFF
_C1, _C2, _C3 = 0xCC9E2D51, 0x1B873593, 0xE6546B64
_F1, _F2 = 0x85EBCA6B, 0xC2B2AE35


class Hashing(enum.Enum):
    """The part of a value that is hashed."""

    INTEGER = "integer"
    FLOAT = "float"
    BYTES = "bytes"
    TEXT = "text"


def hashing(type: str) -> Hashing | None:
    """Return what is hashed of values of a type; ``None`` when only DuckDB's memory holds it."""
    name = parse_type(type)
    if name.base in NESTED:
        return Hashing.TEXT
    if name.base == "decimal":
        return Hashing.INTEGER if (name.precision or 0) <= 18 else Hashing.TEXT
    return _HASHINGS.get(name.base, Hashing.TEXT)


_SIGNED = ("boolean", "int8", "int16", "int32", "int64")
_TEMPORAL: Mapping[str, str] = {
    "date": "D", "time": "us", "time_ns": "ns", "timestamp": "us", "timestamptz": "us",
    "timestamp_s": "s", "timestamp_ms": "ms", "timestamp_ns": "ns",
}  # fmt: skip
_HASHINGS: Mapping[str, Hashing | None] = {
    **dict.fromkeys((*_SIGNED, *_TEMPORAL), Hashing.INTEGER),
    **dict.fromkeys(("float32", "float64"), Hashing.FLOAT),
    **dict.fromkeys(("varchar", "json", "blob"), Hashing.BYTES),
    **dict.fromkeys(("timetz", "geometry")),
}


# -- one value -------------------------------------------------------------------------------------------------


def hash_comparable(value: Comparable, type: str) -> int | None:
    """Return the hash of a value in the form of ``bounds.decode``, or None if no value of the type equals it."""
    name, how = parse_type(type), hashing(type)
    if how is Hashing.INTEGER:
        number = _physical(value, name)
        return None if number is None or not -1 << 63 <= number < 1 << 63 else mmh3.hash(struct.pack("<q", number))
    if how is Hashing.FLOAT:
        return mmh3.hash(struct.pack("<d", value or 0.0))
    if how is Hashing.BYTES:
        return mmh3.hash(value.encode() if isinstance(value, str) else bytes(value))  # type: ignore[arg-type]
    if how is None:
        raise InputError(f"a {name} value cannot be hashed")
    try:
        text = str(value) if scalar(type).stats is StatsKind.NONE else encode_comparable(value, type)
        return None if text is None else mmh3.hash(text.encode())
    except (TypeError, ValueError):
        return None


def _physical(value: Comparable, name: TypeName) -> int | None:
    """Return the integer that DuckDB stores for a value, when there is one."""
    unit = _TEMPORAL.get(name.base)
    if unit is not None:
        if abs(value) == INFINITY:  # type: ignore[arg-type]
            extreme = (1 << 31) - 1 if unit == "D" else (1 << 63) - 1
            return extreme if value > 0 else -extreme  # type: ignore[operator]
        number, rest = divmod(int(value), NANOS[unit])
        return None if rest else number
    if name.base == "decimal":
        scaled = value.scaleb(name.scale or 0)  # type: ignore[union-attr]
        return int(scaled) if scaled == scaled.to_integral_value() else None
    return int(value)


# -- Arrow -----------------------------------------------------------------------------------------------------


def hash_array(array: pa.Array, type: str) -> pa.Array:
    """Return the hashes of an Arrow array that holds values of a column of that type, NULL for NULL.

    Raise ``InputError`` for types whose values Arrow does not show as DuckDB hashes them.
    """
    name, how = parse_type(type), hashing(type)
    if how is None or name.base in NESTED or name.base in ("interval", "variant"):
        raise InputError(f"the hash of a {name} column is computed by DuckDB only")
    if how is Hashing.INTEGER:
        return _hash_words(_integers(array, name))
    if how is Hashing.FLOAT:
        doubles = pc.cast(array, pa.float64())
        doubles = pc.if_else(pc.equal(doubles, 0.0), pa.scalar(0.0), doubles)
        return _hash_words(doubles.view(pa.int64()))
    if name.base == "uint128":
        # Arrow has no such type: DuckDB gives the upper half as negative numbers.
        values = [None if value is None else str(int(value) % (1 << 128)) for value in array.to_pylist()]
    elif name.base.startswith("uint"):
        values = array.cast(pa.string()).to_pylist()
    elif how is Hashing.TEXT:
        values = [literal_text(value, type) for value in array.to_pylist()]
    else:
        values = array.cast(pa.large_binary()).to_pylist()  # as Spark's texts may be no UTF-8
    return pa.array([None if value is None else mmh3.hash(value) for value in values], pa.int32())


def _integers(array: pa.Array, name: TypeName) -> pa.Array:
    if name.base == "decimal":
        # The value without its point is the low half of Arrow's 128 bits.
        array = array.cast(pa.decimal128(38, name.scale))
        halves = pa.Array.from_buffers(pa.int64(), 2 * len(array), [None, array.buffers()[1]], offset=2 * array.offset)
        low = halves.take(pa.array(range(0, 2 * len(array), 2), pa.int64()))
        return pc.if_else(array.is_valid(), low, pa.scalar(None, pa.int64()))
    if pa.types.is_temporal(array.type):
        array = array.cast(pa.int32() if array.type.bit_width == 32 else pa.int64())
    return array.cast(pa.int64())


def _hash_words(numbers: pa.Array) -> pa.Array:
    """Return the hashes of 64-bit integers, two blocks each: for all rows at once, which is quicker than one by one."""
    bits = numbers.view(pa.uint64())
    state = _constant(bits, 0)
    for half in (
        pc.bit_wise_and(bits, pa.scalar(_WORD, pa.uint64())),
        pc.shift_right(bits, pa.scalar(32, pa.uint64())),
    ):
        mixed = _times(_rotate_left(_times(half.cast(pa.uint32()), _C1), 15), _C2)
        state = pc.add(_times(_rotate_left(pc.bit_wise_xor(state, mixed), 13), 5), pa.scalar(_C3, pa.uint32()))
    state = pc.bit_wise_xor(state, _constant(bits, 8))
    for shift, factor in ((16, _F1), (13, _F2)):
        state = _times(pc.bit_wise_xor(state, pc.shift_right(state, pa.scalar(shift, pa.uint32()))), factor)
    return pc.bit_wise_xor(state, pc.shift_right(state, pa.scalar(16, pa.uint32()))).view(pa.int32())


def _constant(like: pa.Array, value: int) -> pa.Array:
    """Return an array of one 32-bit value, NULL where another array is."""
    return pc.if_else(like.is_valid(), pa.scalar(value, pa.uint32()), pa.scalar(None, pa.uint32()))


def _times(array: pa.Array, factor: int) -> pa.Array:
    return pc.multiply(array, pa.scalar(factor, pa.uint32()))


def _rotate_left(array: pa.Array, bits: int) -> pa.Array:
    left = pc.shift_left(array, pa.scalar(bits, pa.uint32()))
    return pc.bit_wise_or(left, pc.shift_right(array, pa.scalar(32 - bits, pa.uint32())))


# -- DuckDB ----------------------------------------------------------------------------------------------------


def hash_sql(column: str, type: str) -> str:
    """Return plain DuckDB SQL for the hash of a column: an unsigned number whose lower 31 bits are those of the hash.

    Nested columns are hashed by their text, for which the session's time zone must be UTC. Raise ``InputError`` for
    times with a zone and geometries, of which DuckDB hashes something that SQL cannot see.
    """
    name, how = parse_type(type), hashing(type)
    if how is None:
        raise InputError(f"the hash of a {name} column cannot be computed in SQL")
    if how is Hashing.INTEGER:
        return _hash_bits(f"CAST(CAST({_integer_sql(column, name)} AS BIT) AS UBIGINT)")
    if how is Hashing.FLOAT:
        normal = f"CASE WHEN {column} = 0 THEN 0 ELSE {column} END"
        return _hash_bits(f"CAST(CAST(CAST({normal} AS DOUBLE) AS BIT) AS UBIGINT)")
    if name.base == "blob":
        return _hash_hex(f"hex({column})")
    return _hash_hex(f"hex(encode(CAST({column} AS VARCHAR)))")


def _integer_sql(column: str, name: TypeName) -> str:
    if name.base == "decimal":
        return f"CAST(replace(CAST({column} AS VARCHAR), '.', '') AS BIGINT)"
    unit = _TEMPORAL.get(name.base)
    if unit is None:
        return f"CAST({column} AS BIGINT)"
    number = {
        "D": f"date_diff('day', DATE '1970-01-01', {column})",
        "s": f"epoch_us({column}) // 1000000",
        "ms": f"epoch_ms({column})",
        "us": f"epoch_us({column})",
        "ns": f"epoch_ns({column})",
    }[unit]
    if name.base.startswith("time") and not name.base.startswith("timestamp"):
        return number
    extreme = (1 << 31) - 1 if unit == "D" else (1 << 63) - 1
    infinite = f"CASE WHEN {column} > '2000-01-01' THEN {extreme} ELSE -{extreme} END"
    return f"CAST(CASE WHEN isinf({column}) THEN {infinite} ELSE {number} END AS BIGINT)"


def _let(variable: str, value: str, body: str) -> str:
    """Return SQL that gives a value a name, so that the text does not double with every use."""
    return f"list_transform([{value}], lambda ql_{variable}: {body})[1]"


def _rotated_sql(value: str, bits: int) -> str:
    return f"((({value} << {bits}) & {_WORD}) | ({value} >> {32 - bits}))"


def _mix_sql(block: str) -> str:
    return _let("k", f"({block} * {_C1}) & {_WORD}", f"(({_rotated_sql('ql_k', 15)} * {_C2}) & {_WORD})")


def _step_sql(state: str, block: str) -> str:
    return _let("s", f"xor({state}, {block})", f"(({_rotated_sql('ql_s', 13)} * 5 + {_C3}) & {_WORD})")


def _finish_sql(state: str, length: str) -> str:
    one = _let("a", f"xor({state}, {length})", "xor(ql_a, ql_a >> 16)")
    two = _let("b", f"({one} * {_F1}) & {_WORD}", "xor(ql_b, ql_b >> 13)")
    return _let("c", f"({two} * {_F2}) & {_WORD}", "xor(ql_c, ql_c >> 16)")


def _hash_bits(bits: str) -> str:
    """Return SQL for the hash of 8 bytes, given as an unsigned number."""
    low, high = _mix_sql(f"(ql_u & {_WORD})"), _mix_sql("(ql_u >> 32)")
    return _let("u", bits, _finish_sql(_step_sql(_step_sql("0::UBIGINT", low), high), "8"))


def _hash_hex(digits: str) -> str:
    """Return SQL for the hash of any bytes, given as hexadecimal text."""

    def word(text: str, first: str, count: int) -> str:
        # Little-endian: the last byte comes first.
        parts = " || ".join(f"substr({text}, {first} + {2 * index + 1}, 2)" for index in reversed(range(count)))
        return f"CAST('0x0' || {parts} AS UBIGINT)"

    blocks = f"list_transform(range(length(ql_t) // 8), lambda ql_i: {_mix_sql(word('ql_t', '8 * ql_i', 4))})"
    body = f"list_reduce({blocks}, lambda ql_h, ql_m: {_step_sql('ql_h', 'ql_m')}, 0::UBIGINT)"
    rest = _mix_sql(word("ql_t", "8 * (length(ql_t) // 8)", 3))
    return _let("t", digits, _finish_sql(f"xor({body}, {rest})", "CAST(length(ql_t) // 2 AS UBIGINT)"))


_LOWER = 0x7FFFFFFF
_ARROW_DAYS = 11_000_000  # Arrow's calendar ends with the year 32767


def bucket(value: Any, type: str, buckets: int) -> int | None:
    """Return the bucket of a value; ``None`` for NULL. Raise ``InputError`` for one that is not of the type."""
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

    Infinite dates have no parts: theirs are NULL. Raise ``InputError`` for types that the transform does not fit.
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
    day = DAY // NANOS[getattr(array.type, "unit", "D")]
    bits = array.type.bit_width
    number = array.cast(pa.int32() if bits == 32 else pa.int64()).cast(pa.int64())
    if pa.types.is_time(array.type):
        return pc.multiply(number, 0), pc.divide(number, day // 24)
    extreme = pa.scalar((1 << (bits - 1)) - 1, pa.int64())
    infinite = pc.or_(pc.equal(number, extreme), pc.equal(number, pc.negate(extreme)))
    number = pc.if_else(infinite, pa.scalar(None, pa.int64()), number)
    days = pc.divide(number, day)
    days = pc.subtract(days, pc.greater(pc.multiply(days, day), number).cast(pa.int64()))  # round down, not to 0
    seconds = pc.subtract(number, pc.multiply(days, day))
    return days, pc.divide(seconds, max(day // 24, 1))


def _calendar(days: pa.Array, part: str) -> pa.Array:
    extent = pc.min_max(days).as_py()
    if extent["min"] is None or (extent["min"] > -_ARROW_DAYS and extent["max"] < _ARROW_DAYS):
        dates = days.cast(pa.int32()).cast(pa.date32())
        return getattr(pc, part)(dates)
    index = CALENDAR.index(part)
    return pa.array([None if day is None else civil(day)[index] for day in days.to_pylist()], pa.int64())


def duckdb_expression(transform: Transform, column: str, type: str) -> str:
    """Return plain DuckDB SQL for the partition value of a column; cast to VARCHAR it is the text for the catalog."""
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
