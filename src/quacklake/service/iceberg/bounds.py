"""Bounds of columns as Iceberg stores them: texts of the catalog become bytes, or nothing where they may mislead."""

from __future__ import annotations

import math
import struct
from decimal import Decimal
from functools import lru_cache

from quacklake.core.format.bounds import Comparable, decode
from quacklake.core.format.types import DAY, INFINITY, parse_type

__all__ = ["bound", "unscaled"]

_FOUR = ("int8", "int16", "int32", "uint8", "uint16")
_EIGHT = ("int64", "uint32")
_TIMES = ("timestamp", "timestamp_s", "timestamp_ms", "timestamptz")


@lru_cache(maxsize=1 << 16)
def bound(text: str | None, type: str, *, upper: bool) -> bytes | None:
    """Return a bound of a column of the given type as bytes, None if nothing certain can be said.

    Uuids get none: readers do not agree on their order.
    """
    try:
        value = decode(text, type)
        return None if value is None else _encode_bound(value, type, upper=upper)
    except (struct.error, OverflowError, UnicodeEncodeError):
        return None


def _encode_bound(value: Comparable, type: str, *, upper: bool) -> bytes | None:
    name = parse_type(type)
    if isinstance(value, bool):
        return b"\x01" if value else b"\x00"
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, bytes):
        return value
    if isinstance(value, float):
        if math.isnan(value):
            return None
        if value == 0:
            value = 0.0 if upper else -0.0  # zeros are equal, but readers order them
        return struct.pack("<f" if name.base == "float32" else "<d", value)
    if isinstance(value, Decimal):
        number = unscaled(value, name.scale or 0)
        return None if number is None else _bytes_of(number)
    if name.base in _FOUR:
        return struct.pack("<i", value)
    if name.base in _EIGHT:
        return struct.pack("<q", value)
    if name.base == "uint64":
        return _bytes_of(value)
    if abs(value) == INFINITY:
        return None
    match name.base:
        case "date":
            return struct.pack("<i", value // DAY)
        case "timestamp_ns":
            return struct.pack("<q", value)
        case "time":
            return struct.pack("<q", _micros(value, upper=upper))
        case base if base in _TIMES:
            return struct.pack("<q", _micros(value, upper=upper))
    return None


def _micros(nanos: int, *, upper: bool) -> int:
    return -(-nanos // 1000) if upper else nanos // 1000


def unscaled(value: Decimal, scale: int) -> int | None:
    """Return a decimal without its point, None if it has more digits behind it than ``scale``.

    Python's own arithmetic would round to the digits of its context.
    """
    sign, digits, exponent = value.as_tuple()
    assert isinstance(exponent, int)
    number, rest = int("".join(map(str, digits))), 0
    if exponent + scale >= 0:
        number *= 10 ** (exponent + scale)
    else:
        number, rest = divmod(number, 10 ** -(exponent + scale))
    return None if rest else -number if sign else number


def _bytes_of(number: int) -> bytes:
    """Return the fewest big-endian bytes that hold a signed number."""
    positive = number if number >= 0 else ~number
    return number.to_bytes(positive.bit_length() // 8 + 1, "big", signed=True)
