"""Column types of the metadata tables, each as stock DuckLake declares it on every database.

Stock DuckLake keeps booleans as integers, times and UUIDs as text on SQLite; elsewhere they have types of their own.
MySQL, which stock DuckLake does not support, follows SQLite. In Python they are always ``bool``, an aware UTC
``datetime`` and ``str``.
"""

from __future__ import annotations

import datetime as dt
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Dialect
from sqlalchemy.types import TypeDecorator, TypeEngine, UserDefinedType

from quacklake.format.snapshots import format_time, parse_time


def database_of(dialect: Dialect) -> str:
    """Return the database behind a dialect: ``sqlite``, ``duckdb``, ``postgres`` or ``mysql``."""
    return {"postgresql": "postgres", "mariadb": "mysql"}.get(dialect.name, dialect.name)


class NamedType(UserDefinedType[Any]):
    """A column type by its SQL name; values pass through unchanged."""

    cache_ok = True

    def __init__(self, name: str) -> None:
        self.name = name

    def get_col_spec(self, **_: Any) -> str:
        return self.name


class Id(TypeDecorator[int]):
    """A 64-bit integer."""

    impl = sa.BigInteger
    cache_ok = True


class Text(TypeDecorator[str]):
    """Text of any length, compared byte by byte."""

    impl = sa.String
    cache_ok = True

    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[Any]:
        if database_of(dialect) == "mysql":
            from sqlalchemy.dialects import mysql

            return dialect.type_descriptor(mysql.LONGTEXT(charset="utf8mb4", collation="utf8mb4_bin"))
        return dialect.type_descriptor(sa.String())


class Name(TypeDecorator[str]):
    """A short text that may be a key, compared byte by byte."""

    impl = sa.String
    cache_ok = True

    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[Any]:
        if database_of(dialect) == "mysql":
            from sqlalchemy.dialects import mysql

            return dialect.type_descriptor(mysql.VARCHAR(190, charset="utf8mb4", collation="utf8mb4_bin"))
        return dialect.type_descriptor(sa.String())


class Flag(TypeDecorator[bool]):
    """A boolean."""

    impl = sa.Boolean
    cache_ok = True

    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[Any]:
        if database_of(dialect) in ("sqlite", "mysql"):
            return dialect.type_descriptor(sa.BigInteger())
        return dialect.type_descriptor(sa.Boolean())

    def process_bind_param(self, value: bool | None, dialect: Dialect) -> Any:
        if value is None:
            return None
        return int(value) if database_of(dialect) in ("sqlite", "mysql") else bool(value)

    def process_result_value(self, value: Any, dialect: Dialect) -> bool | None:
        # sqlite_scanner stores booleans that other clients wrote as text ('true') too
        if isinstance(value, str):
            return value.lower() in ("1", "true", "t")
        return None if value is None else bool(value)


class Uid(TypeDecorator[str]):
    """A UUID, as text in Python."""

    impl = sa.String
    cache_ok = True

    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[Any]:
        database = database_of(dialect)
        if database == "postgres":
            from sqlalchemy.dialects import postgresql

            return dialect.type_descriptor(postgresql.UUID(as_uuid=False))
        if database == "duckdb":
            return dialect.type_descriptor(NamedType("UUID"))
        return dialect.type_descriptor(sa.VARCHAR(64) if database == "mysql" else sa.String())

    def process_result_value(self, value: Any, dialect: Dialect) -> str | None:
        return None if value is None else str(value)


def readable_time(time: sa.ColumnElement[Any], database: str, name: str) -> sa.ColumnElement[Any]:
    """Return a time, called ``name``, in a form that can be read: duckdb's Python client needs pytz for zoned ones."""
    return sa.type_coerce(sa.cast(time, sa.String), Instant()).label(name) if database == "duckdb" else time


class Instant(TypeDecorator[dt.datetime]):
    """A point in time with microseconds, UTC."""

    impl = sa.String
    cache_ok = True

    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[Any]:
        database = database_of(dialect)
        if database == "postgres":
            return dialect.type_descriptor(sa.DateTime(timezone=True))
        if database == "duckdb":
            return dialect.type_descriptor(NamedType("TIMESTAMP WITH TIME ZONE"))
        return dialect.type_descriptor(sa.VARCHAR(64) if database == "mysql" else sa.String())

    def process_bind_param(self, value: dt.datetime | None, dialect: Dialect) -> Any:
        if value is None or database_of(dialect) == "postgres":
            return value
        return format_time(value)

    def process_result_value(self, value: Any, dialect: Dialect) -> dt.datetime | None:
        if value is None:
            return None
        if isinstance(value, str):
            return parse_time(value)
        return value.astimezone(dt.UTC) if isinstance(value, dt.datetime) else None
