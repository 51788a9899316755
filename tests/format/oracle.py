"""The reference implementation: DuckDB with its ducklake extension, without a network."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import duckdb

from tests.duckdbs import import_extension

__all__ = ["in_utc", "lake"]


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
