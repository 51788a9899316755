"""DuckDB's own reader of object stores."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import duckdb
import pytest

from quacklake.core.engines.duckdb.connections import load_httpfs


def _loads() -> bool:
    with duckdb.connect() as connection:
        return load_httpfs(connection)


def test_threads_load_it_at_once_and_leave_the_connection_of_the_user_alone() -> None:
    if not _loads():
        pytest.skip("the wheel of httpfs is not for this DuckDB")
    pending = duckdb.default_connection().execute("SELECT unnest([1, 2, 3])")
    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(lambda _: _loads(), range(24)))
    assert pending.fetchall() == [(1,), (2,), (3,)]
