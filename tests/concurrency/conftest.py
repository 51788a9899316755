"""Lakes that many processes write at once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import quacklake
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


@pytest.fixture
def new_lake(new_url: Callable[[str], str], tmp_path: Path) -> Callable[[str], str]:
    """The URL of a new, empty lake on a kind of catalog."""

    def make(database: str) -> str:
        url = new_url(database)
        quacklake.connect(url, data_path=tmp_path / "data").close()
        return url

    return make
