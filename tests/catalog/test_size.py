"""The size of the metadata, and commits that fail, in numbers."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import quacklake
from quacklake import telemetry
from quacklake.errors import CommitConflict, ConfigError
from tests.layout import LAYOUT


@pytest.mark.skipif(LAYOUT == "shared", reason="the size of a shared lake is of all its catalogs")
@pytest.mark.parametrize("database", ["sqlite", "duckdb", "postgres", "mysql"])
def test_the_metadata_has_a_size(database: str, new_url: Callable[[str], str], tmp_path: Path) -> None:
    with quacklake.connect(new_url(database), data_path=tmp_path / "data") as lake:
        lake.create_table("t", [{"id": 1}])
        size = lake.catalog_bytes()
        assert size is not None
        assert size > 10_000
        assert telemetry.snapshot().gauges["catalog.bytes"] == size


def test_the_size_of_a_shared_lake_is_nobodys(tmp_path: Path) -> None:
    with quacklake.connect(f"sqlite:///{tmp_path}/l.db?catalog=a", data_path=tmp_path / "data", create=True) as lake:
        assert lake.catalog_bytes() is None


def test_commits_that_fail_are_counted(tmp_path: Path) -> None:
    def failures() -> int:
        return telemetry.snapshot().counters.get("commit.failures", 0)

    with quacklake.connect(f"sqlite:///{tmp_path}/l.db", data_path=tmp_path / "data") as lake:
        before = failures()
        table = lake.create_table("t", [{"id": 1}])
        assert failures() == before
        lake.options.set("require_commit_message", True)
        with pytest.raises(ConfigError):
            table.append([{"id": 2}])
        assert failures() == before + 1
        lake.options.set("require_commit_message", False)
        with pytest.raises(CommitConflict), lake.transaction() as tx:
            tx.table("t").update({"id": 5})
            table.delete()
        assert failures() == before + 2
