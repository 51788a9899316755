"""Lakes with a past, on every kind of database."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import quacklake
from tests.catalog.stock import Stock

pytest.register_assert_rewrite("tests.maintenance.past")

OpenLake = Callable[..., quacklake.Lake]


@pytest.fixture(scope="session")
def stock() -> Iterator[Stock]:
    with Stock() as opened:
        yield opened


@pytest.fixture
def new_url(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[str], str]:
    """The URL of a place for a new lake on a kind of database."""

    def make(database: str) -> str:
        if database in ("sqlite", "duckdb"):
            return f"{database}:///{tmp_path / f'{uuid.uuid4().hex}.db'}"
        url: str = request.getfixturevalue(f"{database}_url")
        return url

    return make


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[quacklake.Lake]:
    """An empty lake."""
    url = f"sqlite:///{tmp_path}/lake.db"
    with quacklake.connect(url, data_path=tmp_path / "data", duckdb_threads=1, orphan_grace="1 hour") as opened:
        yield opened
