"""The lakes that the tests of the rules share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.seeds import some

from ..conftest import kinds, sites

pytest.register_assert_rewrite("tests.conformance.rules.books")

from .books import Books, Library  # noqa: E402
from .topics import topics, upkeep  # noqa: E402

TODAY = some(("sqlite", "duckdb", "postgres", "mysql"), 2, "rules", always=("sqlite",))
"""The databases whose lakes are made: the same history on each, so that a day has two of them."""


@pytest.fixture(scope="session")
def library(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Library]:
    """All of them, each written when it is first asked for."""
    made = sites(request, tmp_path_factory.mktemp("rules"))
    yield Library(next(made))
    next(made, None)


@pytest.fixture(scope="session", params=kinds(*TODAY))
def books(request: pytest.FixtureRequest, library: Library) -> Books:
    """The lakes of one database, of a history that meets the rules of the format."""
    return library.books(request.param, topics)


@pytest.fixture(scope="session", params=kinds(*(name for name in TODAY if name != "mysql")))
def upkept(request: pytest.FixtureRequest, library: Library) -> Books:
    """The lakes of one database, compacted by the reference implementation."""
    return library.books(request.param, upkeep)
