"""Lakes that many processes write at once."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import quacklake
from tests.catalog.stock import Stock
from tests.crash.forks import Forks
from tests.seeds import LONG

#: Commits of each writer.
COMMITS = 200 if LONG else 12


@pytest.fixture(scope="session")
def commits() -> int:
    return COMMITS


@pytest.fixture(scope="session")
def forks() -> Iterator[Forks]:
    with Forks(["tests.concurrency.work"]) as server:
        yield server


@pytest.fixture(scope="session")
def stock() -> Iterator[Stock]:
    with Stock() as opened:
        yield opened


@pytest.fixture
def new_url(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[str], str]:
    """The URL of a place for a new lake on a kind of catalog."""

    def make(database: str) -> str:
        if database in ("sqlite", "duckdb"):
            return f"{database}:///{tmp_path / f'{uuid.uuid4().hex}.db'}"
        url: str = request.getfixturevalue(f"{database}_url")
        return url

    return make


@pytest.fixture
def new_lake(new_url: Callable[[str], str], tmp_path: Path) -> Callable[[str], str]:
    """The URL of a new, empty lake on a kind of catalog."""

    def make(database: str) -> str:
        url = new_url(database)
        quacklake.connect(url, data_path=tmp_path / "data").close()
        return url

    return make
