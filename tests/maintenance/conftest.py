"""Lakes with a past, on every kind of database; one is made once and copied for each test."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import quacklake
from tests.layout import copy_lake
from tests.maintenance.history import rows
from tests.maintenance.past import Past, make_past, states
from tests.removal_oracle import watching

Open = Callable[..., quacklake.Lake]


@pytest.fixture(autouse=True)
def nothing_named_is_removed() -> Iterator[None]:
    """No test removes a file that anybody names."""
    with watching():
        yield


def grow(lake: quacklake.Lake) -> None:
    """Files with and without deletes, in delete files and in the catalog; inlined rows; two kinds of columns."""
    table = lake.create_table("t", rows(0, 40))
    for first in (40, 80):
        table.append(rows(first, 40))
    table.append(rows(120, 3))
    table.append(rows(123, 2))
    table.delete("id = 121")
    table.update({"name": "new"}, "id IN (7, 122)")
    table.delete("id BETWEEN 45 AND 70")
    table.delete("id = 44")
    table.add_column("more", "INTEGER", 5)
    table.append(rows(125, 2).append_column("more", [[1, None]]))
    for first in (200, 240):
        table.append(rows(first, 40).append_column("more", [list(range(40))]))


@pytest.fixture(scope="session")
def grown(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("grown")
    with quacklake.connect(f"sqlite:///{folder}/lake.db", data_path=folder / "data", duckdb_threads=1) as lake:
        grow(lake)
    return folder


@pytest.fixture
def open_lake(grown: Path, tmp_path: Path) -> Iterator[Open]:
    """A function that opens the test's own copy of the lake, as often as it is called."""
    folder = tmp_path / "lake"
    copy_lake(grown, folder)
    opened: list[quacklake.Lake] = []

    def connect(**settings: Any) -> quacklake.Lake:
        options: dict[str, Any] = {"duckdb_threads": 1, "ducklake_retry_wait_ms": 1, **settings}
        opened.append(quacklake.connect(f"sqlite:///{folder}/lake.db", data_path=folder / "data", **options))
        return opened[-1]

    yield connect
    for lake in opened:
        lake.close()


@pytest.fixture
def grown_lake(open_lake: Open) -> quacklake.Lake:
    """A copy of the lake that wants compaction."""
    return open_lake()


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
    copy_lake(past.folder, tmp_path)
    with quacklake.connect(f"sqlite:///{tmp_path}/lake.db", duckdb_threads=1) as opened:
        yield opened


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[quacklake.Lake]:
    """An empty lake."""
    url = f"sqlite:///{tmp_path}/lake.db"
    with quacklake.connect(url, data_path=tmp_path / "data", duckdb_threads=1, orphan_grace="1 hour") as opened:
        yield opened
