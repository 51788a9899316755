"""A workshop for each kind of catalog, the fork server and stock DuckDB, each made once."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.crash.forks import Forks
from tests.crash.homes import Workshop
from tests.crash.operations import prepare


@pytest.fixture(scope="session")
def workshop(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workshop]:
    """A template lake with tables, files, deletes and inlined rows, to be copied."""
    database: str = request.param
    server = request.getfixturevalue(f"{database}_server") if database in ("postgres", "mysql") else None
    made = Workshop(database, tmp_path_factory.mktemp("crash"), server)
    with made.create() as lake:
        prepare(lake)
    yield made
    made.close()


@pytest.fixture(scope="session")
def forks() -> Iterator[Forks]:
    with Forks(["tests.crash.operations"]) as server:
        yield server
