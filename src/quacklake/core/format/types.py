"""The scalar types of the format, as one table of data, and what each is elsewhere; dates and times as numbers.

Nanoseconds are plain Python integers, so that every date compares rightly: after 9999, before Christ, infinity.
"""

from __future__ import annotations

import datetime as dt
import enum
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType

import pyarrow as pa

from quacklake.errors import InputError, nearest

NEW_TYPES = ("null", "timestamptz_ns")
"""The types that a client of 1.0 does not know."""
NESTED = ("list", "struct", "map")
"""The types that have child columns instead of values."""

_MAX_PRECISION = 38


class StatsKind(enum.Enum):
    """The form of the minimum and maximum of a type."""

    NONE = "none"
    BOOLEAN = "boolean"
    INTEGER = "integer"
    FLOAT = "float"
    DECIMAL = "decimal"
    DATE = "date"
    TIME = "time"
    TIMESTAMP = "timestamp"
    TEXT = "text"
    BLOB = "blob"
    UUID = "uuid"
    GEOMETRY = "geometry"
    VARIANT = "variant"


_Family = enum.Enum(
    "_Family", "BOOLEAN INTEGER FLOAT DECIMAL DATE TIME TIMETZ TIMESTAMP TIMESTAMPTZ INTERVAL TEXT BLOB UUID OTHER"
)
"""Types between whose values a checked conversion may exist."""


@dataclass(frozen=True, slots=True)
class ScalarType:
    """One scalar type: its name in the format and its counterparts.

    ``arrow`` is what DuckDB exports by default; ``parquet`` is what it writes, ``PHYSICAL`` or ``PHYSICAL/LOGICAL``.
    Those of ``decimal`` are only examples: see :func:`arrow_type`.
    """

    name: str
    duckdb: str
    arrow: pa.DataType
    parquet: str
    stats: StatsKind
    family: _Family
    widens_to: tuple[str, ...] = ()


def _table() -> dict[str, ScalarType]:
    f, s, ts = _Family, StatsKind, pa.timestamp
    huge, time = pa.decimal128(38, 0), pa.time64("us")
    # fmt: off
    rows = (
        ("boolean", "BOOLEAN", pa.bool_(), "BOOLEAN", s.BOOLEAN, f.BOOLEAN),
        ("int8", "TINYINT", pa.int8(), "INT32/INT_8", s.INTEGER, f.INTEGER, ("int16", "int32", "int64")),
        ("int16", "SMALLINT", pa.int16(), "INT32/INT_16", s.INTEGER, f.INTEGER, ("int32", "int64")),
        ("int32", "INTEGER", pa.int32(), "INT32/INT_32", s.INTEGER, f.INTEGER, ("int64",)),
        ("int64", "BIGINT", pa.int64(), "INT64/INT_64", s.INTEGER, f.INTEGER),
        ("int128", "HUGEINT", huge, "DOUBLE", s.NONE, f.INTEGER),
        ("uint8", "UTINYINT", pa.uint8(), "INT32/UINT_8", s.INTEGER, f.INTEGER,
         ("uint16", "uint32", "uint64")),
        ("uint16", "USMALLINT", pa.uint16(), "INT32/UINT_16", s.INTEGER, f.INTEGER, ("uint32", "uint64")),
        ("uint32", "UINTEGER", pa.uint32(), "INT32/UINT_32", s.INTEGER, f.INTEGER, ("uint64",)),
        ("uint64", "UBIGINT", pa.uint64(), "INT64/UINT_64", s.INTEGER, f.INTEGER),
        ("uint128", "UHUGEINT", huge, "DOUBLE", s.NONE, f.INTEGER),
        ("float32", "FLOAT", pa.float32(), "FLOAT", s.FLOAT, f.FLOAT, ("float64",)),
        ("float64", "DOUBLE", pa.float64(), "DOUBLE", s.FLOAT, f.FLOAT),
        ("decimal", "DECIMAL(18,3)", pa.decimal128(18, 3), "INT32|INT64|FIXED_LEN_BYTE_ARRAY/DECIMAL",
         s.DECIMAL, f.DECIMAL),
        ("time", "TIME", time, "INT64/TIME_MICROS", s.TIME, f.TIME),
        ("timetz", "TIME WITH TIME ZONE", time, "INT64/TIME_MICROS_UTC", s.NONE, f.TIMETZ),
        # DuckDB 1.5 cannot write this one to Parquet: only inlined rows can hold it.
        ("time_ns", "TIME_NS", pa.time64("ns"), "INT64/TIME_NANOS", s.TIME, f.TIME),
        ("date", "DATE", pa.date32(), "INT32/DATE", s.DATE, f.DATE),
        ("timestamp", "TIMESTAMP", ts("us"), "INT64/TIMESTAMP_MICROS", s.TIMESTAMP, f.TIMESTAMP),
        ("timestamp_s", "TIMESTAMP_S", ts("s"), "INT64/TIMESTAMP_MICROS", s.TIMESTAMP, f.TIMESTAMP),
        ("timestamp_ms", "TIMESTAMP_MS", ts("ms"), "INT64/TIMESTAMP_MILLIS", s.TIMESTAMP, f.TIMESTAMP),
        ("timestamp_ns", "TIMESTAMP_NS", ts("ns"), "INT64/TIMESTAMP_NANOS", s.TIMESTAMP, f.TIMESTAMP),
        ("timestamptz", "TIMESTAMP WITH TIME ZONE", ts("us", tz="UTC"), "INT64/TIMESTAMP_MICROS_UTC",
         s.TIMESTAMP, f.TIMESTAMPTZ),
        # Of 1.1. DuckDB 1.5 has microseconds only: values are read with these, and not written.
        ("timestamptz_ns", "TIMESTAMP WITH TIME ZONE", ts("us", tz="UTC"), "INT64/TIMESTAMP_NANOS_UTC",
         s.NONE, f.OTHER),
        # Of 1.1: a column that holds nothing.
        ("null", "INTEGER", pa.int32(), "INT32/NULL", s.NONE, f.OTHER),
        ("interval", "INTERVAL", pa.month_day_nano_interval(), "FIXED_LEN_BYTE_ARRAY(12)/INTERVAL",
         s.NONE, f.INTERVAL),
        ("varchar", "VARCHAR", pa.string(), "BYTE_ARRAY/UTF8", s.TEXT, f.TEXT),
        ("blob", "BLOB", pa.binary(), "BYTE_ARRAY", s.BLOB, f.BLOB),
        ("json", "JSON", pa.string(), "BYTE_ARRAY/JSON", s.TEXT, f.TEXT),
        ("uuid", "UUID", pa.string(), "FIXED_LEN_BYTE_ARRAY(16)/UUID", s.UUID, f.UUID),
        # DuckDB has no Arrow form of a variant; it travels as text.
        ("variant", "VARIANT", pa.string(), "GROUP/VARIANT", s.VARIANT, f.OTHER),
        ("geometry", "GEOMETRY", pa.binary(), "BYTE_ARRAY/GEOMETRY", s.GEOMETRY, f.OTHER),
        # Only the parameters of macros have this type.
        ("unknown", "VARCHAR", pa.null(), "", s.NONE, f.OTHER),
    )
    # fmt: on
    table = {row[0]: ScalarType(*row) for row in rows}
    table["timestamp_us"] = table["timestamp"]
    return table


SCALARS: Mapping[str, ScalarType] = MappingProxyType(_table())
"""Every scalar type by its name in the format; ``timestamp_us`` is an alias of ``timestamp``."""

_REFUSED = frozenset({"array", "bignum", "bit", "enum", "null", "union", "varint"})
ALIASES: Mapping[str, str] = {
    "bigint": "int64", "bool": "boolean", "bytea": "blob", "char": "varchar", "datetime": "timestamp",
    "double": "float64", "double precision": "float64", "float": "float32", "float4": "float32",
    "float8": "float64", "hugeint": "int128", "int": "int32", "int1": "int8", "int2": "int16", "int4": "int32",
    "integer": "int32", "long": "int64", "numeric": "decimal", "real": "float32", "short": "int16",
    "signed": "int32", "smallint": "int16", "string": "varchar", "text": "varchar",
    "time with time zone": "timetz", "time without time zone": "time",
    "timestamp with time zone": "timestamptz", "timestamp without time zone": "timestamp", "tinyint": "int8",
    "ubigint": "uint64", "uhugeint": "uint128", "uinteger": "uint32", "usmallint": "uint16",
    "utinyint": "uint8", "varbinary": "blob",
}  # fmt: skip
"""The names of types in DuckDB that the format does not have."""
_DECIMAL = re.compile(r"decimal\(\s*(\d{1,4})\s*,\s*(\d{1,4})\s*\)")


@dataclass(frozen=True, slots=True)
class TypeName:
    """A parsed type name; ``str()`` gives the text the format stores."""

    base: str
    precision: int | None = None
    scale: int | None = None

    def __str__(self) -> str:
        return self.base if self.precision is None else f"{self.base}({self.precision},{self.scale})"


@lru_cache(maxsize=1024)
def parse_type(text: str) -> TypeName:
    """Return the type that a ``column_type`` names, in any case, aliases by their canonical name; or ``InputError``.

    >>> parse_type("DECIMAL(9,2)").base, parse_type("Int32").base
    ('decimal', 'int32')
    """
    name = text.strip().lower()
    if name in SCALARS:
        # A bare DECIMAL is DuckDB's default width and scale.
        return TypeName("decimal", 18, 3) if name == "decimal" else TypeName(SCALARS[name].name)
    if name in NESTED:
        return TypeName(name)
    if match := _DECIMAL.fullmatch(name):
        precision, scale = int(match[1]), int(match[2])
        if not (1 <= precision <= _MAX_PRECISION and scale <= precision):
            raise InputError(
                f"decimal({precision},{scale}) is not a decimal type",
                hint=f"the precision is 1 to {_MAX_PRECISION} and the scale at most the precision",
            )
        return TypeName("decimal", precision, scale)
    if re.split(r"[(\[ ]", name, maxsplit=1)[0] in _REFUSED or re.search(r"\[\d+\]$", name):
        raise InputError(
            f"Failed to convert DuckDB type to DuckLake - unsupported type {text.strip().upper()}",
            hint="DuckLake has no ARRAY, BIGNUM, BIT, ENUM, UNION or user-defined types",
        )
    if "collate" in name.split():
        raise InputError("Collations are not supported in DuckLake storage")
    other = ALIASES.get(name)
    hint = f'the DuckLake name of this type is "{other}"' if other else nearest(name, (*SCALARS, *NESTED))
    raise InputError(f"Failed to parse DuckLake type - unsupported type '{text}'", hint=hint)


@lru_cache(maxsize=1024)
def scalar(text: str) -> ScalarType:
    """Return the entry of :data:`SCALARS` for a type text. Raise :class:`InputError` for unknown and nested types."""
    base = parse_type(text).base
    if base in NESTED:
        raise InputError(f'"{base}" is a nested type: it is described by its child columns')
    return SCALARS[base]


@lru_cache(maxsize=1024)
def arrow_type(text: str) -> pa.DataType:
    """Return the Arrow type that DuckDB exports for a scalar type. Raise :class:`InputError` like :func:`scalar`."""
    name = parse_type(text)
    return pa.decimal128(name.precision, name.scale) if name.base == "decimal" else scalar(text).arrow


def duckdb_type(text: str) -> str:
    """Return the DuckDB SQL type of a scalar type. Raise ``InputError`` as :func:`scalar` does."""
    return str(parse_type(text)).upper() if parse_type(text).base == "decimal" else scalar(text).duckdb


def can_widen(source: str, target: str) -> bool:
    """Return True when the format lets a column change its type from ``source`` to ``target``."""
    return str(parse_type(target)) in scalar(source).widens_to


def can_store(source: str, target: str) -> bool:
    """Return True when values of ``source`` may be written to a ``target`` column, with a check if it is narrower.

    Never lossy by nature: text does not become a number, a float no integer, a local time no instant.
    """
    from_name, to_name = parse_type(source), parse_type(target)
    if from_name.base in NESTED or to_name.base in NESTED:
        return from_name == to_name
    one, two = SCALARS[from_name.base], SCALARS[to_name.base]
    if two.family is _Family.OTHER or one.family is _Family.OTHER:
        return one is two
    if one.family is two.family:
        return True
    if two.name in ("int128", "uint128") and from_name == TypeName("decimal", 38, 0):
        return True  # the form that Arrow gives the values of such a column
    return two.family in _STORES_INTO.get(one.family, ()) or (one.name == "varchar" and two.name == "uuid")


_STORES_INTO: Mapping[_Family, tuple[_Family, ...]] = {
    _Family.INTEGER: (_Family.FLOAT, _Family.DECIMAL),
    _Family.DECIMAL: (_Family.FLOAT,),
    _Family.DATE: (_Family.TIMESTAMP,),
}

_REFUSED_EXTENSIONS: Mapping[str, str] = {
    "pandas.period": 'df["…"].dt.to_timestamp() makes times of periods, df["…"].astype(str) text',
    "pandas.interval": 'df["…"].astype(str) makes text of them',
}
"""Types of Arrow whose numbers mean nothing without their type, with what to do instead."""
_ARROW_EXTENSIONS = {"arrow.uuid": "uuid", "arrow.json": "json", "geoarrow.wkb": "geometry"}
_ARROW_IDS: Mapping[int, str] = {
    pa.null().id: "int32",  # as DuckDB types a bare NULL
    pa.bool_().id: "boolean",
    **{t.id: str(t) for t in (pa.int8(), pa.int16(), pa.int32(), pa.int64())},
    **{t.id: str(t) for t in (pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64())},
    **dict.fromkeys((pa.float16().id, pa.float32().id), "float32"),
    pa.float64().id: "float64",
    **dict.fromkeys((pa.date32().id, pa.date64().id), "date"),
    pa.time32("s").id: "time",
    **dict.fromkeys((pa.month_day_nano_interval().id, pa.duration("us").id), "interval"),
    **dict.fromkeys((pa.string().id, pa.large_string().id, pa.string_view().id), "varchar"),
    **dict.fromkeys((pa.binary().id, pa.large_binary().id, pa.binary_view().id, pa.binary(1).id), "blob"),
}


def from_arrow_type(arrow: pa.DataType) -> str:
    """Return the type text for an Arrow scalar type, or raise ``InputError``; dictionaries count as their values."""
    if isinstance(arrow, pa.DictionaryType | pa.RunEndEncodedType):
        return from_arrow_type(arrow.value_type)
    if isinstance(arrow, pa.BaseExtensionType):
        if arrow.extension_name in _REFUSED_EXTENSIONS:
            hint = _REFUSED_EXTENSIONS[arrow.extension_name]
            raise InputError(f"the Arrow type {arrow} has no scalar counterpart in DuckLake", hint=hint)
        return _ARROW_EXTENSIONS.get(arrow.extension_name) or from_arrow_type(arrow.storage_type)
    if pa.types.is_timestamp(arrow):
        if arrow.tz is not None:
            return "timestamptz"
        return "timestamp" if arrow.unit == "us" else f"timestamp_{arrow.unit}"
    if pa.types.is_time64(arrow):
        return "time_ns" if arrow.unit == "ns" else "time"
    if pa.types.is_decimal(arrow):
        if not (arrow.precision <= _MAX_PRECISION and 0 <= arrow.scale <= arrow.precision):
            raise InputError(
                f"the Arrow type {arrow} does not fit a DuckLake decimal",
                hint=f"cast it to a precision of at most {_MAX_PRECISION}",
            )
        return f"decimal({arrow.precision},{arrow.scale})"
    name = _ARROW_IDS.get(arrow.id)
    if name is None:
        raise InputError(f"the Arrow type {arrow} has no scalar counterpart in DuckLake")
    return name


NANOS = {"D": 86_400_000_000_000, "s": 1_000_000_000, "ms": 1_000_000, "us": 1_000, "ns": 1}
"""Nanoseconds in one unit of an Arrow date, time or timestamp."""

DAY = NANOS["D"]

INFINITY = 1 << 127
"""Later than every date; its negative is earlier than every date."""

_EPOCH = dt.date(1970, 1, 1).toordinal()
_EPOCH_TIME = dt.datetime(1970, 1, 1)
MICROS = tuple((end - _EPOCH_TIME) // dt.timedelta(microseconds=1) for end in (dt.datetime.min, dt.datetime.max))
"""The microseconds that the standard library's times reach, from the year 1 to the end of 9999."""
_PHYSICAL_INFINITY = {32: (1 << 31) - 1, 64: (1 << 63) - 1}
_TEMPORAL = re.compile(
    r"(?P<year>\d{1,7})-(?P<month>\d{1,2})-(?P<day>\d{1,2})(?P<bc> \(BC\))?"
    r"(?:[ T](?P<time>\d{1,2}:\d{2}(?::\d{2}(?:\.\d{1,9})?)?)"
    r"(?P<zone>Z|[+-]\d{2}(?::?\d{2}(?::?\d{2})?)?)?)?",
    re.ASCII,
)
_TIME = re.compile(r"(\d{1,2}):(\d{2})(?::(\d{2})(?:\.(\d{1,9}))?)?", re.ASCII)


def day_number(year: int, month: int, day: int) -> int:
    """Return the days since 1970-01-01 of a proleptic Gregorian date; year 0 is 1 BC."""
    if 1 <= year <= 9999:
        return dt.date(year, month, day).toordinal() - _EPOCH
    # The calendar repeats every 400 years of 146097 days.
    cycles, rest = divmod(year - 1, 400)
    return dt.date(rest + 1, month, day).toordinal() - _EPOCH + cycles * 146_097


def civil(day: int) -> tuple[int, int, int]:
    """Return the year, month and day of a number of days since 1970; the year 0 is 1 BC.

    >>> civil(0), civil(-719_163)
    ((1970, 1, 1), (0, 12, 31))
    """
    # The calendar repeats every 400 years of 146097 days.
    cycles, rest = divmod(day + 719_162, 146_097)
    date = dt.date.fromordinal(rest + 1)
    return date.year + 400 * cycles, date.month, date.day


def from_physical(value: int, unit: str, *, bits: int = 64) -> int:
    """Return nanoseconds for the integer inside an Arrow or DuckDB array, whose extreme values mean infinity."""
    extreme = _PHYSICAL_INFINITY[bits]
    if abs(value) == extreme:
        return INFINITY if value > 0 else -INFINITY
    return value * NANOS[unit]


def nanos(value: dt.date | dt.time) -> int:
    """Return nanoseconds since the epoch of a date or datetime (naive ones are UTC), or since midnight of a time."""
    if isinstance(value, dt.datetime):
        if value.tzinfo is not None:
            value = value.astimezone(dt.UTC)
        seconds = (value.toordinal() - _EPOCH) * 86_400 + value.hour * 3600 + value.minute * 60 + value.second
        # pandas timestamps carry three more digits than the standard library's.
        return seconds * NANOS["s"] + value.microsecond * 1000 + int(getattr(value, "nanosecond", 0))
    if isinstance(value, dt.time):
        return (value.hour * 3600 + value.minute * 60 + value.second) * NANOS["s"] + value.microsecond * 1000
    return (value.toordinal() - _EPOCH) * DAY


def date_text(value: int) -> str:
    """Return DuckDB's text of a date given as nanoseconds: ``2024-01-31``, ``0044-03-15 (BC)``, ``infinity``."""
    if abs(value) == INFINITY:
        return "infinity" if value > 0 else "-infinity"
    ordinal = value // DAY + _EPOCH
    if 1 <= ordinal <= 3_652_059:
        return dt.date.fromordinal(ordinal).isoformat()
    year, month, day = civil(ordinal - _EPOCH)
    text = f"{year if year > 0 else 1 - year:04d}-{month:02d}-{day:02d}"
    return text if year > 0 else f"{text} (BC)"


def time_text(value: int) -> str:
    """Return DuckDB's text of a time given as nanoseconds since midnight, without trailing zeros."""
    seconds, fraction = divmod(value, NANOS["s"])
    text = f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}"
    return f"{text}.{fraction:09d}".rstrip("0") if fraction else text


def timestamp_text(value: int, *, zone: bool = False) -> str:
    """Return DuckDB's text of a timestamp given as nanoseconds; ``zone`` appends ``+00``."""
    if abs(value) == INFINITY:
        return "infinity" if value > 0 else "-infinity"
    micros, rest = divmod(value, 1_000)
    if MICROS[0] <= micros <= MICROS[1] and not rest:
        text = micros_text(micros)
    else:
        text = f"{date_text(value)} {time_text(value % DAY)}"
    return f"{text}+00" if zone else text


def micros_text(micros: int) -> str:
    """Return the same of microseconds within ``MICROS``, by the standard library's own clock."""
    text = str(_EPOCH_TIME + dt.timedelta(0, 0, micros))
    return text.rstrip("0") if "." in text else text


def parse_time(text: str) -> int | None:
    """Return nanoseconds since midnight of a time's text (24:00:00 included), or ``None`` when it is none."""
    match = _TIME.fullmatch(text)
    if match is None:
        return None
    hours, minutes, seconds = int(match[1]), int(match[2]), int(match[3] or 0)
    value = (hours * 3600 + minutes * 60 + seconds) * NANOS["s"] + int((match[4] or "0").ljust(9, "0"))
    return value if minutes < 60 and seconds < 60 and value <= DAY else None


def parse_temporal(text: str) -> int | None:
    """Return nanoseconds since the epoch of a date's or timestamp's text, or ``None`` when it is none."""
    if text in ("infinity", "-infinity"):
        return INFINITY if text[0] == "i" else -INFINITY
    match = _TEMPORAL.fullmatch(text)
    if match is None:
        return None
    year = 1 - int(match["year"]) if match["bc"] else int(match["year"])
    try:
        value = day_number(year, int(match["month"]), int(match["day"])) * DAY
    except ValueError:
        return None
    if match["time"]:
        time = parse_time(match["time"])
        if time is None:
            return None
        value += time
        if (zone := match["zone"]) not in (None, "Z"):
            digits = zone[1:].replace(":", "").ljust(6, "0")
            seconds = int(digits[:2]) * 3600 + int(digits[2:4]) * 60 + int(digits[4:6])
            value -= (-seconds if zone[0] == "-" else seconds) * NANOS["s"]
    return value
