"""A lake to import into, and the judges of what it has then."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import duckdb
import pytest

import quacklake
from quacklake.core.format.names import quote


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[quacklake.Lake]:
    """An empty lake."""
    with quacklake.connect(f"sqlite:///{tmp_path}/lake.db", data_path=tmp_path / "data", duckdb_threads=1) as opened:
        yield opened


def texts(rows: Sequence[Sequence[Any]]) -> list[str]:
    """Rows in an order that does not depend on where they come from."""
    return sorted(map(repr, rows))


def as_texts(columns: Sequence[str], source: str) -> str:
    """A query for all values of a table as texts."""
    return f"SELECT {', '.join(f'{quote(column)}::VARCHAR' for column in columns)} FROM {source}"


def in_duckdb(path: Path, query: str) -> list[tuple[Any, ...]]:
    """Run a query on a DuckDB file."""
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        connection.execute(f"ATTACH '{path}' AS file (READ_ONLY)")
        connection.execute("USE file")
        return connection.execute(query).fetchall()
