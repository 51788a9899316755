"""Catalogs on every kind of database."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.catalog.stock import Stock


@pytest.fixture(scope="session")
def stock() -> Iterator[Stock]:
    with Stock() as opened:
        yield opened


@pytest.fixture
def new_url(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[str], str]:
    """The URL of a place for a new lake on a kind of database; a server's has one place for each test."""

    def make(database: str) -> str:
        if database in ("sqlite", "duckdb"):
            return f"{database}:///{tmp_path / f'{uuid.uuid4().hex}.db'}"
        url: str = request.getfixturevalue(f"{database}_url")
        return url

    return make
