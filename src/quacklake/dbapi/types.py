"""The types of PEP 249, and the functions that make values."""

from __future__ import annotations

import datetime as dt
import time


class TypeObject:
    """A group of column types, equal to the type of each column in ``description`` that belongs to it."""

    def __init__(self, name: str, *prefixes: str) -> None:
        self._name, self._prefixes = name, prefixes

    def __eq__(self, other: object) -> bool:
        if isinstance(other, TypeObject):
            return self is other
        return isinstance(other, str) and other.upper().startswith(self._prefixes) and not other.endswith("]")

    def __hash__(self) -> int:
        return hash(self._name)

    def __repr__(self) -> str:
        return self._name


STRING = TypeObject("STRING", "VARCHAR", "STRING", "LARGE_STRING", "UUID", "JSON", "ENUM", "BOOL")
BINARY = TypeObject("BINARY", "BLOB", "BINARY", "BIT", "LARGE_BINARY")
NUMBER = TypeObject(
    *("NUMBER", "TINYINT", "SMALLINT", "INTEGER", "BIGINT", "HUGEINT", "UTINYINT", "USMALLINT", "UINTEGER", "UBIGINT"),
    *("UHUGEINT", "DECIMAL", "FLOAT", "DOUBLE", "INT8", "INT16", "INT32", "INT64", "UINT"),
)
DATETIME = TypeObject("DATETIME", "DATE", "TIME", "INTERVAL")
ROWID = TypeObject("ROWID", "ROWID")

Date, Time, Timestamp, Binary = dt.date, dt.time, dt.datetime, bytes


def DateFromTicks(ticks: float) -> dt.date:
    """Return the local day of seconds since 1970."""
    return dt.date(*time.localtime(ticks)[:3])


def TimeFromTicks(ticks: float) -> dt.time:
    """Return the local time of day of seconds since 1970."""
    return dt.time(*time.localtime(ticks)[3:6])


def TimestampFromTicks(ticks: float) -> dt.datetime:
    """Return the local time of seconds since 1970."""
    return dt.datetime(*time.localtime(ticks)[:6])
