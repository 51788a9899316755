"""Places for lakes, the fork server and stock DuckDB, each made once."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from services import Server
from tests.crash.forks import Forks
from tests.prove.places import SERVERS, Places
from tests.prove.stands import Stand
from tests.removal_oracle import watching


@pytest.fixture(autouse=True)
def nothing_named_is_removed() -> Iterator[None]:
    """No test removes a file that anybody names."""
    with watching():
        yield


@pytest.fixture
def stand(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Stand]:
    """A lake for meetings, on the kind of database that is asked for."""
    database: str = request.param
    server = request.getfixturevalue(f"{database}_server") if database in SERVERS else None
    made = Stand(database, tmp_path / "stand", server)
    yield made
    made.close()


@pytest.fixture(scope="session")
def places(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Places:
    def server(name: str) -> Server:
        found: Server = request.getfixturevalue(f"{name}_server")
        return found

    return Places(tmp_path_factory.mktemp("prove"), server)


@pytest.fixture(scope="session")
def forks() -> Iterator[Forks]:
    with Forks(["tests.crash.operations", "tests.prove.kills", "tests.prove.lists", "tests.prove.outages"]) as server:
        yield server
