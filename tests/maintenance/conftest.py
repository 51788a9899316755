"""Lakes with a past, on every kind of database."""

from __future__ import annotations

import shutil
import sqlite3
import uuid
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

import quacklake
from tests.catalog.stock import Stock
from tests.maintenance.past import Past, make_past, states


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


@pytest.fixture(scope="session")
def past(tmp_path_factory: pytest.TempPathFactory) -> Past:
    """A lake with a past, made once, and what each of its snapshots holds."""
    folder = tmp_path_factory.mktemp("past")
    with quacklake.connect(f"sqlite:///{folder}/lake.db", data_path=folder / "data", duckdb_threads=1) as lake:
        make_past(lake)
        return Past(folder, states(lake))


@pytest.fixture
def old_lake(past: Past, tmp_path: Path) -> Iterator[quacklake.Lake]:
    """A copy of the lake with a past."""
    shutil.copytree(past.folder, tmp_path, dirs_exist_ok=True)
    with closing(sqlite3.connect(tmp_path / "lake.db")) as database, database:
        database.execute("UPDATE ducklake_metadata SET value = ? WHERE key = 'data_path'", (f"{tmp_path}/data/",))
    with quacklake.connect(f"sqlite:///{tmp_path}/lake.db", duckdb_threads=1) as opened:
        yield opened


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[quacklake.Lake]:
    """An empty lake."""
    url = f"sqlite:///{tmp_path}/lake.db"
    with quacklake.connect(url, data_path=tmp_path / "data", duckdb_threads=1, orphan_grace="1 hour") as opened:
        yield opened
