"""The reference implementation: DuckDB with its ducklake extension, without a network."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import duckdb

from quacklake.core.format.layout import IDENTITY, Transform
from quacklake.core.format.texts import literal_text
from tests.duckdbs import import_extension

__all__ = ["in_utc", "lake", "value_text"]


@contextmanager
def in_utc() -> Iterator[duckdb.DuckDBPyConnection]:
    """A plain DuckDB connection whose time zone is UTC."""
    with duckdb.connect() as connection:
        connection.execute("SET timezone = 'UTC'")
        connection.execute("SET threads = 1")
        yield connection


@contextmanager
def lake(directory: Path) -> Iterator[duckdb.DuckDBPyConnection]:
    """A connection to a fresh lake ``l`` of the reference implementation that never inlines."""
    import_extension("ducklake")
    with in_utc() as connection:
        connection.execute("LOAD ducklake")
        connection.execute(
            f"ATTACH 'ducklake:{directory / 'lake.duckdb'}' AS l "
            f"(DATA_PATH '{directory / 'data'}/', DATA_INLINING_ROW_LIMIT 0)"
        )
        yield connection


def value_text(value: Any, type: str, transform: Transform) -> str | None:
    """Return the text under which the catalog stores a partition value: of an integer but for the identity."""
    if transform != IDENTITY:
        return None if value is None else str(int(value))
    return literal_text(value, type)
