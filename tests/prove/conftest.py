"""Places for lakes, the fork server and stock DuckDB, each made once."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from services import Server
from tests.crash.forks import Forks
from tests.crash.homes import Workshop
from tests.crash.operations import prepare
from tests.prove.places import Places


@pytest.fixture(scope="session")
def places(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Places:
    def server(name: str) -> Server:
        found: Server = request.getfixturevalue(f"{name}_server")
        return found

    return Places(tmp_path_factory.mktemp("prove"), server)


@pytest.fixture(scope="session")
def forks() -> Iterator[Forks]:
    with Forks(["tests.prove.kills", "tests.prove.lists"]) as server:
        yield server


@pytest.fixture(scope="session")
def workshop(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workshop]:
    """A template lake, to be copied for each meeting."""
    database: str = request.param
    server = request.getfixturevalue(f"{database}_server") if database in ("postgres", "mysql") else None
    made = Workshop(database, tmp_path_factory.mktemp("pairs"), server)
    with made.create() as lake:
        prepare(lake)
    yield made
    made.close()
