"""The types of DuckDB for SQLAlchemy."""

from __future__ import annotations

import datetime as dt
import decimal
import uuid
from collections.abc import Callable
from typing import Any

from sqlalchemy import types
from sqlalchemy.sql.sqltypes import _AbstractInterval
from sqlalchemy.sql.type_api import NativeForEmulated

from quacklake.extend.names import literal


class TINYINT(types.Integer):
    """One byte."""

    __visit_name__ = "TINYINT"


class UTINYINT(types.Integer):
    """One byte without a sign."""

    __visit_name__ = "UTINYINT"


class USMALLINT(types.Integer):
    """Two bytes without a sign."""

    __visit_name__ = "USMALLINT"


class UINTEGER(types.Integer):
    """Four bytes without a sign."""

    __visit_name__ = "UINTEGER"


class UBIGINT(types.Integer):
    """Eight bytes without a sign."""

    __visit_name__ = "UBIGINT"


class HUGEINT(types.Integer):
    """Sixteen bytes."""

    __visit_name__ = "HUGEINT"


class NestedType(types.UserDefinedType[Any]):
    """A type that SQLAlchemy has no name for, such as ``STRUCT(a INTEGER)`` or ``MAP(VARCHAR, DATE)``."""

    cache_ok = True

    def __init__(self, spelling: str) -> None:
        self.spelling = spelling

    def get_col_spec(self, **_: Any) -> str:
        """Return the type as DuckDB spells it."""
        return self.spelling


class UuidText(types.Uuid[Any]):
    def bind_processor(self, dialect: Any) -> Callable[[Any], Any]:
        return lambda value: None if value is None else str(value)

    def result_processor(self, dialect: Any, coltype: object) -> Callable[[Any], Any] | None:
        if not self.as_uuid:
            return None
        return lambda value: value if value is None or isinstance(value, uuid.UUID) else uuid.UUID(value)


class INTERVAL(NativeForEmulated, _AbstractInterval):
    """A duration. One of months, which have no fixed length, is not a ``timedelta``."""

    __visit_name__ = "INTERVAL"
    native = True

    @classmethod
    def adapt_emulated_to_native(cls, impl: Any, **kw: Any) -> INTERVAL:
        """Return the type for SQLAlchemy's own."""
        return cls()

    def result_processor(self, dialect: Any, coltype: Any) -> Callable[[Any], Any]:
        """Return a function that makes a ``timedelta``."""

        def duration(value: Any) -> Any:
            if value is None or isinstance(value, dt.timedelta) or value.months:
                return value
            return dt.timedelta(days=value.days, microseconds=value.nanoseconds // 1000)

        return duration

    def literal_processor(self, dialect: Any) -> Callable[[Any], str]:
        """Return a function that spells a ``timedelta``."""
        return lambda value: f"INTERVAL '{value.days} days {value.seconds}.{value.microseconds:06} seconds'"


class ExactNumber(types.Numeric[Any]):
    """A decimal. DuckDB divides decimals as floats, which become decimals again."""

    def result_processor(self, dialect: Any, coltype: object) -> Callable[[Any], Any] | None:
        """Return a function that makes decimals of floats, or what SQLAlchemy does with decimals."""
        if not self.asdecimal:
            processor: Callable[[Any], Any] | None = super().result_processor(dialect, coltype)  # type: ignore[no-untyped-call]
            return processor
        return lambda value: decimal.Decimal(repr(value)) if isinstance(value, float) else value


class _JsonPath:
    """Parts of JSON values by pointers (RFC 6901), in which every name can be written."""

    def bind_processor(self, dialect: Any) -> Callable[[Any], Any]:
        """Return a function that makes a pointer."""
        return _pointer

    def literal_processor(self, dialect: Any) -> Callable[[Any], str]:
        """Return a function that makes the literal of a pointer."""
        return lambda value: literal(_pointer(value))


class JsonIndex(_JsonPath, types.JSON.JSONIndexType):
    """The place of an element in an array, or the name of one in an object."""


class JsonIndexInteger(_JsonPath, types.JSON.JSONIntIndexType):
    """The place of an element in an array."""


class JsonIndexText(_JsonPath, types.JSON.JSONStrIndexType):
    """The name of an element in an object."""


class JsonPath(_JsonPath, types.JSON.JSONPathType):
    """Several of these, one within the other."""


def _pointer(value: Any) -> str:
    if isinstance(value, int) and value < 0:
        return f"$[#{value}]"
    steps = [value] if isinstance(value, int | str) else value
    return "".join("/" + str(step).replace("~", "~0").replace("/", "~1") for step in steps)


TYPES: dict[str, type[types.TypeEngine[Any]]] = {
    "BIGINT": types.BIGINT,
    "BLOB": types.BLOB,
    "BOOLEAN": types.BOOLEAN,
    "DATE": types.DATE,
    "DOUBLE": types.DOUBLE,
    "FLOAT": types.REAL,
    "HUGEINT": HUGEINT,
    "INTEGER": types.INTEGER,
    "INTERVAL": INTERVAL,
    "JSON": types.JSON,
    "SMALLINT": types.SMALLINT,
    "TIME": types.TIME,
    "TIMESTAMP": types.TIMESTAMP,
    "TIMESTAMP_MS": types.TIMESTAMP,
    "TIMESTAMP_NS": types.TIMESTAMP,
    "TIMESTAMP_S": types.TIMESTAMP,
    "TINYINT": TINYINT,
    "UBIGINT": UBIGINT,
    "UINTEGER": UINTEGER,
    "USMALLINT": USMALLINT,
    "UTINYINT": UTINYINT,
    "UUID": types.UUID,
    "VARCHAR": types.VARCHAR,
}


def reflected(spelling: str) -> types.TypeEngine[Any]:
    """Return a type of DuckDB as one of SQLAlchemy."""
    if spelling in TYPES:
        return TYPES[spelling]()
    if spelling.endswith("[]"):
        item = reflected(spelling[:-2])
        return types.ARRAY(item) if not isinstance(item, NestedType | types.ARRAY) else NestedType(spelling)
    if spelling.startswith("DECIMAL("):
        precision, scale = spelling[8:-1].split(",")
        return types.DECIMAL(int(precision), int(scale))
    if spelling.endswith("WITH TIME ZONE"):
        return types.TIME(timezone=True) if spelling.startswith("TIME ") else types.TIMESTAMP(timezone=True)
    return NestedType(spelling)
