"""Places for lakes, the fork server and stock DuckDB, each made once."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from services import Server
from tests.crash.conftest import workshop
from tests.crash.forks import Forks
from tests.prove.places import Places

__all__ = ["workshop"]


@pytest.fixture(scope="session")
def places(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Places:
    def server(name: str) -> Server:
        found: Server = request.getfixturevalue(f"{name}_server")
        return found

    return Places(tmp_path_factory.mktemp("prove"), server)


@pytest.fixture(scope="session")
def forks() -> Iterator[Forks]:
    with Forks(["tests.crash.operations", "tests.prove.kills", "tests.prove.lists"]) as server:
        yield server
