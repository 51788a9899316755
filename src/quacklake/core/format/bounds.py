"""Bounds of columns, as values and as the text the catalog stores, and predicates that rule out files by them.

A predicate is what remains of a filter once everything that statistics cannot answer has become ``ANYTHING``. It only
ever rules files *out*: the engine always applies the filter itself to the rows.
"""

from __future__ import annotations

import datetime as dt
import math
import re
import struct
import uuid
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from decimal import Decimal, InvalidOperation
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from quacklake.core.format.schema import Column
from quacklake.core.format.types import (
    NESTED,
    date_text,
    nanos,
    parse_temporal,
    parse_time,
    parse_type,
    scalar,
    time_text,
    timestamp_text,
)

if TYPE_CHECKING:
    from quacklake.core.format.stats import ColumnStats

Comparable = bool | int | float | Decimal | str | bytes
"""A decoded bound. Bounds of one type compare with each other as DuckDB compares the values:
text by code point (the order of UTF-8), dates and times as nanoseconds, uuids as 128-bit integers."""

MAX_BOUND = 256
"""Longer text and blobs are cut to this many bytes, as DuckDB's Parquet writer does; the cut bound stays a bound."""


def encode(value: Any, type: str) -> str | None:
    """Return the documented text of a value; ``None`` for NULL, NaN and types without statistics.

    Raise ``TypeError`` or ``ValueError`` for a value that is not of the type.
    """
    decoded = comparable(value, type)
    return None if decoded is None else encode_comparable(decoded, type)


def comparable(value: Any, type: str) -> Comparable | None:
    """Return the value as :func:`decode` would give it back: what a pruner compares bounds with."""
    if value is None or type in NESTED:
        return None
    kind = kind_of(type)
    match kind:
        case "integer":
            return int(value)
        case "float":
            return _float(value, type)
        case "text" if isinstance(value, str):
            return value
        case "blob" if not isinstance(value, str):
            return bytes(value)
        case "date" | "time" | "timestamp":
            if isinstance(value, dt.date | dt.time):
                return nanos(value)
            if isinstance(value, str):
                parsed = parse_time(value) if kind == "time" else parse_temporal(value)
                if parsed is not None:
                    return parsed
        case "decimal":
            return Decimal(value if isinstance(value, int | Decimal) else str(value))
        case "boolean":
            return bool(value)
        case "uuid":
            known = value if isinstance(value, uuid.UUID) else None
            if isinstance(value, bytes | bytearray):
                known = uuid.UUID(bytes=bytes(value))
            return (known or uuid.UUID(str(value))).int
        case "none" | "geometry" | "variant":
            return None
    raise TypeError(f"{value!r} is not a {type} value")


def _float(value: Any, type: str) -> float | None:
    number = float(value)
    if math.isnan(number):
        return None
    return _to_float32(number) if scalar(type).name == "float32" else number


def _to_float32(number: float) -> float:
    try:
        return float(struct.unpack("<f", struct.pack("<f", number))[0])
    except OverflowError:
        return math.copysign(math.inf, number)


@lru_cache(maxsize=1024)
def kind_of(type: str) -> str:
    """Return the kind of the bounds of a type; a table has few types, and each is met with every value."""
    return str(scalar(type).stats.value)


def encode_comparable(known: Comparable, type: str) -> str | None:
    """Return the documented text of a value in the form of :func:`comparable`."""
    return encoder(type)(known)


@lru_cache(maxsize=1024)
def encoder(type: str) -> Callable[[Any], str | None]:
    """Return the function that gives the documented text of values of a type; see ``encode_comparable``."""
    found, name = scalar(type), parse_type(type)
    match found.stats.value:
        case "timestamp" if found.name == "timestamptz":
            return lambda value: timestamp_text(value, zone=True)
        case "float" if found.name == "float32":
            return _float32_text
        case "decimal":
            # Without digits before the point DuckDB prints none.
            bare = name.precision == name.scale
            return lambda value: f"{value:.{name.scale}f}".replace("0.", ".", 1) if bare else f"{value:.{name.scale}f}"
        case kind:
            return _ENCODERS[kind]


def _float32_text(value: float) -> str:
    """Return the shortest decimal that reads back as the same float; DuckDB may print a longer one."""
    if math.isfinite(value):
        for digits in range(1, 10):
            short = float(f"{value:.{digits}g}")
            if _to_float32(short) == value:
                return repr(short)
    return repr(value)


_ENCODERS: Mapping[str, Callable[[Any], str | None]] = {
    "integer": str,
    "timestamp": timestamp_text,
    "date": date_text,
    "time": time_text,
    # The reference implementation stores no bound with a NUL, and PostgreSQL could not.
    "text": lambda value: None if "\0" in value else str(value),
    "float": repr,
    "boolean": lambda value: "1" if value else "0",
    "blob": lambda value: value.hex().upper(),
    "uuid": lambda value: str(uuid.UUID(int=value)),
}


_INTEGER = re.compile(r"[+-]?[0-9]{1,40}")
_HEX = re.compile(r"(?:[0-9A-F]{2})*")
_ANY_HEX = re.compile(r"(?:[0-9A-Fa-f]{2})*")
_BLOB_CAST = re.compile(r"(?:[\x20-\x5b\x5d-\x7e]|\\x[0-9A-Fa-f]{2})*")
_BOOLEANS = {"0": False, "1": True, "false": False, "true": True}


def decode(text: str | None, type: str) -> Comparable | None:
    """Return the comparable value of a bound's text, or ``None`` when nothing certain can be said.

    Reads the documented encoding and the plain casts that the reference implementation writes for inlined rows.
    """
    return None if text is None else decoder(type)(text)


@lru_cache(maxsize=1024)
def decoder(type: str) -> Callable[[str], Comparable | None]:
    """Return the function that reads the texts of bounds of a type; see ``decode``."""
    kind = "none" if type in NESTED else kind_of(type)
    if kind == "float" and scalar(type).name == "float32":
        return _read_float32
    return _DECODERS.get(kind, lambda text: None)


def _read_integer(text: str) -> int | None:
    return int(text) if _INTEGER.fullmatch(text) else None


def _read_float(text: str) -> float | None:
    try:
        number = float(text)
    except ValueError:
        return None
    return None if math.isnan(number) else number


def _read_float32(text: str) -> float | None:
    number = _read_float(text)
    return None if number is None else _to_float32(number)


def _read_decimal(text: str) -> Decimal | None:
    try:
        number = Decimal(text)
    except InvalidOperation:
        return None
    return number if number.is_finite() else None


def _read_uuid(text: str) -> int | None:
    try:
        return uuid.UUID(text).int
    except ValueError:
        return None


def _read_blob(text: str) -> bytes | None:
    if _HEX.fullmatch(text):
        return bytes.fromhex(text)
    # Lower-case hexadecimal may be another writer's encoding or the blob's own characters.
    if _BLOB_CAST.fullmatch(text) and not _ANY_HEX.fullmatch(text):
        return re.sub(r"\\x(..)", lambda match: chr(int(match[1], 16)), text).encode("latin-1")
    return None


_DECODERS: Mapping[str, Callable[[str], Comparable | None]] = {
    "integer": _read_integer,
    "text": str,
    "float": _read_float,
    "date": parse_temporal,
    "timestamp": parse_temporal,
    "time": parse_time,
    "decimal": _read_decimal,
    "boolean": lambda text: _BOOLEANS.get(text.lower()),
    "uuid": _read_uuid,
    "blob": _read_blob,
}


def shorten(value: Comparable, *, upper: bool) -> Comparable | None:
    """Return the bound, for long text and blobs a short one not above (``upper``: not below) it, if there is one."""
    if isinstance(value, str):
        return _shorten_text(value, upper=upper) if len(value) * 4 > MAX_BOUND else value
    if isinstance(value, bytes) and len(value) > MAX_BOUND:
        cut = value[:MAX_BOUND]
        if upper:
            cut = cut.rstrip(b"\xff")
            return cut[:-1] + bytes([cut[-1] + 1]) if cut else None
        return cut
    return value


def _shorten_text(value: str, *, upper: bool) -> str | None:
    raw = value.encode("utf-8", "surrogatepass")
    if len(raw) <= MAX_BOUND:
        return value
    cut = raw[:MAX_BOUND].decode("utf-8", "ignore")
    if not upper:
        return cut
    while cut:
        following = ord(cut[-1]) + 1
        if following == 0xD800:
            following = 0xE000  # the surrogates between are not characters
        if following <= 0x10FFFF:
            return cut[:-1] + chr(following)
        cut = cut[:-1]
    return None


#: Relative error of a 32-bit float's shortest text, doubled.
FLOAT_SLACK = 2.4e-7
#: The same for 32-bit floats next to zero.
FLOAT_TINY = 1.5e-45


@dataclass(frozen=True, slots=True)
class Compare:
    """``column <operator> value``; ``value`` is in the form of ``bounds.decode``, ``text`` is its text."""

    column_id: int
    type: str
    operator: str
    value: Any
    text: str


@dataclass(frozen=True, slots=True)
class IsNull:
    """``column IS NULL``."""

    column_id: int


@dataclass(frozen=True, slots=True)
class Every:
    """All parts hold; no parts at all means "anything"."""

    parts: tuple[Predicate, ...] = ()


@dataclass(frozen=True, slots=True)
class Some:
    """At least one part holds; no parts at all means "nothing"."""

    parts: tuple[Predicate, ...] = ()


Predicate = Compare | IsNull | Every | Some
ANYTHING = Every()
FLIPPED = {"=": "=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
"""The operators with their sides changed."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """The known facts about one column in one file; None means unknown."""

    low: Any = None
    high: Any = None
    null_count: int | None = None
    value_count: int | None = None
    contains_nan: bool | None = None

    @classmethod
    def of(cls, column: ColumnStats, type_: str) -> Bounds:
        """Return the bounds that a file's stored statistics give; what does not decode is unknown."""
        low, high = decode(column.min, type_), decode(column.max, type_)
        return cls(low, high, column.null_count, column.value_count, column.contains_nan)


def compare(column: Column, operator: str, value: Any) -> Predicate:
    """Return a comparison with a value in the form of ``bounds.decode``; no value, or no text form, says nothing."""
    text = None if value is None else encode_comparable(value, column.type)
    return ANYTHING if text is None else Compare(column.id, column.type, operator, value, text)


def every(parts: Iterable[Predicate]) -> Predicate:
    """Return the conjunction, flattened; "anything" parts vanish.

    >>> every([ANYTHING, IsNull(1)]), every([]) == ANYTHING
    (IsNull(column_id=1), True)
    """
    flat: list[Predicate] = []
    for part in parts:
        flat.extend(part.parts if isinstance(part, Every) else (part,))
    return flat[0] if len(flat) == 1 else Every(tuple(flat))


def some(parts: Iterable[Predicate]) -> Predicate:
    """Return the disjunction; one "anything" part makes it "anything"."""
    found = tuple(parts)
    if any(part == ANYTHING for part in found):
        return ANYTHING
    return found[0] if len(found) == 1 else Some(found)


def coarse(predicate: Predicate, most: int = 64) -> Predicate:
    """Return a predicate of few comparisons that holds wherever this one does: neighbours become ranges."""
    if isinstance(predicate, Compare | IsNull):
        return predicate
    parts = [coarse(part, most) for part in predicate.parts]
    if isinstance(predicate, Every):
        found = every(parts)
        return found if _leaves(found) <= most else every(part for part in parts if _leaves(part) == 1)
    if sum(map(_leaves, parts)) > most:
        parts = _ranges(parts, most // 4)
    return some(parts) if sum(map(_leaves, parts)) <= most else ANYTHING


def _leaves(predicate: Predicate) -> int:
    return 1 if isinstance(predicate, Compare | IsNull) else sum(map(_leaves, predicate.parts))


def _ranges(parts: Iterable[Predicate], number: int) -> list[Predicate]:
    """Return the parts of a disjunction, with at most so many ranges in place of the values of each column."""
    others: list[Predicate] = []
    equal: dict[tuple[int, str], list[Compare]] = {}
    for part in parts:
        if isinstance(part, Compare) and part.operator == "=" and part.value == part.value:
            equal.setdefault((part.column_id, part.type), []).append(part)
        else:
            others.append(part)
    for found in equal.values():
        found.sort(key=lambda part: part.value)
        length = -(-len(found) // number)
        chunks = [found[at : at + length] for at in range(0, len(found), length)]
        others += [every((replace(one[0], operator=">="), replace(one[-1], operator="<="))) for one in chunks]
    return others


def columns_of(predicate: Predicate) -> frozenset[int]:
    """Return the ids of all columns a predicate speaks of."""
    if isinstance(predicate, Compare | IsNull):
        return frozenset((predicate.column_id,))
    return frozenset().union(*(columns_of(part) for part in predicate.parts))


def may_match(predicate: Predicate, bounds: Mapping[int, Bounds]) -> bool:
    """Return False only when no row with these bounds can satisfy the predicate."""
    if isinstance(predicate, Every):
        return all(may_match(part, bounds) for part in predicate.parts)
    if isinstance(predicate, Some):
        return any(may_match(part, bounds) for part in predicate.parts)
    known = bounds.get(predicate.column_id)
    if known is None:
        return True
    if isinstance(predicate, IsNull):
        # stock DuckLake writes 0 and 0 for types it keeps no counts of
        return known.null_count != 0 or known.value_count == 0
    low, high = widened(predicate)
    low_ok = known.low is None or known.low <= high
    # NaN sorts above every number and is not part of the bounds
    unbounded = predicate.type.startswith("float") and known.contains_nan is not False
    high_ok = unbounded or known.high is None or known.high >= low
    if predicate.operator in ("<", "<="):
        return low_ok
    return high_ok if predicate.operator in (">", ">=") else low_ok and high_ok


def widened(predicate: Compare) -> tuple[Any, Any]:
    """Return the value as a range: room for bounds written as 32-bit floats, whose text is not their exact value."""
    if isinstance(predicate.value, float) and math.isfinite(predicate.value):
        slack = abs(predicate.value) * FLOAT_SLACK + FLOAT_TINY
        return predicate.value - slack, predicate.value + slack
    return predicate.value, predicate.value
