"""The hash behind bucket partitions: 32-bit Murmur3 of a value, and as an expression in plain DuckDB SQL.

Booleans, numbers up to 64 bits, decimals up to 18 digits, dates and times are hashed as the 8 bytes of the integer
that DuckDB stores, floats as those of the double, text and blobs as they are. Everything else, unsigned integers too,
is hashed as its text.
"""

from __future__ import annotations

import enum
import struct
from collections.abc import Mapping

from quacklake.errors import InputError
from quacklake.format.bounds import Comparable, encode_comparable
from quacklake.format.temporal import INFINITY, NANOS
from quacklake.format.types import NESTED, StatsKind, TypeName, parse_type, scalar

__all__ = ["Hashing", "hash_comparable", "hash_sql", "hashing", "murmur3_32"]

_WORD = 0xFFFFFFFF
_C1, _C2, _C3 = 0xCC9E2D51, 0x1B873593, 0xE6546B64
_F1, _F2 = 0x85EBCA6B, 0xC2B2AE35


class Hashing(enum.Enum):
    """What of a value is hashed."""

    INTEGER = "integer"
    FLOAT = "float"
    BYTES = "bytes"
    TEXT = "text"


def hashing(type: str) -> Hashing | None:
    """What is hashed of values of a type; ``None`` when it is something that only DuckDB's memory holds."""
    name = parse_type(type)
    if name.base in NESTED:
        return Hashing.TEXT
    if name.base == "decimal":
        return Hashing.INTEGER if (name.precision or 0) <= 18 else Hashing.TEXT
    return _HASHINGS.get(name.base, Hashing.TEXT)


_SIGNED = ("boolean", "int8", "int16", "int32", "int64")
_TEMPORAL: Mapping[str, str] = {
    "date": "D",
    "time": "us",
    "time_ns": "ns",
    "timestamp": "us",
    "timestamptz": "us",
    "timestamp_s": "s",
    "timestamp_ms": "ms",
    "timestamp_ns": "ns",
}
_HASHINGS: Mapping[str, Hashing | None] = {
    **dict.fromkeys((*_SIGNED, *_TEMPORAL), Hashing.INTEGER),
    **dict.fromkeys(("float32", "float64"), Hashing.FLOAT),
    **dict.fromkeys(("varchar", "json", "blob"), Hashing.BYTES),
    **dict.fromkeys(("timetz", "geometry")),
}


# -- one value -------------------------------------------------------------------------------------------------


def murmur3_32(data: bytes) -> int:
    """The signed 32-bit Murmur3 hash of some bytes, with the seed 0.

    >>> murmur3_32(b"iceberg"), murmur3_32((34).to_bytes(8, "little"))
    (1210000089, 2017239379)
    """
    state = 0
    whole = len(data) & ~3
    for (block,) in struct.iter_unpack("<I", data[:whole]):
        state = _step(state ^ _mix(block))
    state ^= _mix(int.from_bytes(data[whole:], "little")) ^ (len(data) & _WORD)
    state = ((state ^ state >> 16) * _F1) & _WORD
    state = ((state ^ state >> 13) * _F2) & _WORD
    state ^= state >> 16
    return state - (1 << 32) if state >> 31 else state


def _mix(block: int) -> int:
    block = (block * _C1) & _WORD
    return ((block << 15 | block >> 17) * _C2) & _WORD


def _step(state: int) -> int:
    return ((state << 13 | state >> 19) * 5 + _C3) & _WORD


def hash_comparable(value: Comparable, type: str) -> int | None:
    """The hash of a value in the form of ``bounds.decode``; ``None`` when no value of the type is equal to it."""
    name, how = parse_type(type), hashing(type)
    if how is Hashing.INTEGER:
        number = _physical(value, name)
        return None if number is None or not -1 << 63 <= number < 1 << 63 else murmur3_32(struct.pack("<q", number))
    if how is Hashing.FLOAT:
        return murmur3_32(struct.pack("<d", value or 0.0))
    if how is Hashing.BYTES:
        return murmur3_32(value.encode() if isinstance(value, str) else bytes(value))  # type: ignore[arg-type]
    if how is None:
        raise InputError(f"a {name} value cannot be hashed")
    try:
        text = str(value) if scalar(type).stats is StatsKind.NONE else encode_comparable(value, type)
        return None if text is None else murmur3_32(text.encode())
    except (TypeError, ValueError):
        return None


def _physical(value: Comparable, name: TypeName) -> int | None:
    """The integer that DuckDB stores for a value, when there is one."""
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


# -- DuckDB ----------------------------------------------------------------------------------------------------


def hash_sql(column: str, type: str) -> str:
    """An expression of plain DuckDB, without the ducklake extension, for the hash of a column given as SQL.

    It is an unsigned number whose lower 31 bits are those of the hash, NULL for NULL. Nested columns are hashed by
    their text, for which the session's time zone must be UTC. Raises :class:`InputError` for times with a zone and
    geometries, of which DuckDB hashes something that SQL cannot see.
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
    """SQL that gives a value a name, so that the text does not double with every use."""
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
    """The hash of 8 bytes, given as an unsigned number."""
    low, high = _mix_sql(f"(ql_u & {_WORD})"), _mix_sql("(ql_u >> 32)")
    return _let("u", bits, _finish_sql(_step_sql(_step_sql("0::UBIGINT", low), high), "8"))


def _hash_hex(digits: str) -> str:
    """The hash of any bytes, given as hexadecimal text."""

    def word(text: str, first: str, count: int) -> str:
        # Little-endian: the last byte comes first.
        parts = " || ".join(f"substr({text}, {first} + {2 * index + 1}, 2)" for index in reversed(range(count)))
        return f"CAST('0x0' || {parts} AS UBIGINT)"

    blocks = f"list_transform(range(length(ql_t) // 8), lambda ql_i: {_mix_sql(word('ql_t', '8 * ql_i', 4))})"
    body = f"list_reduce({blocks}, lambda ql_h, ql_m: {_step_sql('ql_h', 'ql_m')}, 0::UBIGINT)"
    rest = _mix_sql(word("ql_t", "8 * (length(ql_t) // 8)", 3))
    return _let("t", digits, _finish_sql(f"xor({body}, {rest})", "CAST(length(ql_t) // 2 AS UBIGINT)"))
