"""A dialect of SQLAlchemy: ``create_engine("quacklake+sqlite:///lake.db?data_path=data/")``.

The URL is that of the lake behind ``quacklake+``; its query holds settings of ``quacklake.connect``. That of a service
is ``quacklake+https://token@host``. Statements are compiled for DuckDB's dialect, and tables are reflected from
``information_schema``.
"""

from __future__ import annotations

from quacklake.sqlalchemy.dialect import QuacklakeDialect
from quacklake.sqlalchemy.service import ServiceDialect
from quacklake.sqlalchemy.types import (
    HUGEINT,
    INTERVAL,
    TINYINT,
    UBIGINT,
    UINTEGER,
    USMALLINT,
    UTINYINT,
    NestedType,
)

__all__ = [
    "HUGEINT",
    "INTERVAL",
    "TINYINT",
    "UBIGINT",
    "UINTEGER",
    "USMALLINT",
    "UTINYINT",
    "NestedType",
    "QuacklakeDialect",
    "ServiceDialect",
]
