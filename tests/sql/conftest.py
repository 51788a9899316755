"""One session with one lake for the tests of a file; each test has its own schema."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import quacklake
from tests.layout import NAMED

Run = Callable[..., list[tuple[Any, ...]]]


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("sql")


@pytest.fixture(scope="module")
def shared(home: Path) -> Iterator[quacklake.Session]:
    with quacklake.session() as found:
        found.sql(f"ATTACH 'ducklake:sqlite:{home}/lake.db' AS lake ({NAMED}DATA_PATH '{home}/data'); USE lake")
        yield found


_numbers = itertools.count()


@pytest.fixture
def session(shared: quacklake.Session) -> Iterator[quacklake.Session]:
    """A session that uses a fresh schema."""
    schema = f"s{next(_numbers)}"
    shared.sql(f"CREATE SCHEMA lake.{schema}; USE lake.{schema}")
    yield shared
    if shared.work.explicit:
        shared.sql("ROLLBACK")
    shared.sql("USE lake")


@pytest.fixture
def run(session: quacklake.Session) -> Run:
    """Runs statements and returns all rows of the last."""

    def rows(text: str, params: Any = None) -> list[tuple[Any, ...]]:
        return session.sql(text, params).fetchall()

    return rows


@pytest.fixture
def version(run: Run) -> Callable[[], int]:
    """The newest snapshot."""
    return lambda: int(run("FROM lake.current_snapshot()")[0][0])
