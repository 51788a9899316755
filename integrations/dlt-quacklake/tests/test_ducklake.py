"""dlt's own destination of DuckDB's extension, on a lake that Quacklake made."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import duckdb
import pytest

import quacklake
from tests.killed import OWN, pipeline_of_ducklake


@pytest.fixture(autouse=True)
def installed() -> None:
    """Load the extensions from their package."""
    extensions = pytest.importorskip("duckdb_extensions", reason="DuckDB's extensions are not installed")
    if not duckdb.__version__.startswith("1.5."):
        pytest.skip("DuckDB's extensions are there for 1.5 only")
    for name in ("ducklake", "sqlite_scanner"):
        extensions.import_extension(name)


def test_dlts_own_destination_writes_a_lake_of_ours(tmp_path: Path) -> None:
    url, data = f"sqlite:///{tmp_path}/lake.db", f"{tmp_path}/data/"
    with quacklake.connect(url, data) as lake:
        lake.create_table("ours", [{"id": 1}])
    pipeline = pipeline_of_ducklake(tmp_path)
    pipeline.run([{"id": 1, "n": 1}, {"id": 2, "n": 2}], table_name="items")
    pipeline.run([{"id": 2, "n": 3}], table_name="items", write_disposition="merge", primary_key="id")
    with quacklake.connect(url) as lake:
        assert sorted(lake.sql("SELECT id, n FROM shop.items").fetchall()) == [(1, 1), (2, 3)]
        assert lake.table("ours").to_pylist() == [{"id": 1}]
        assert list(lake.verify().errors) == []


def test_a_kill_doubles_what_dlts_own_destination_appends(tmp_path: Path) -> None:
    """The guide says so; where this fails, dlt has learned better, and the guide should say that."""
    url = f"sqlite:///{tmp_path}/lake.db"
    quacklake.connect(url, f"{tmp_path}/data/").close()
    command = [sys.executable, "-m", "tests.killed", str(tmp_path), OWN]
    assert subprocess.run(command, timeout=300, check=False, capture_output=True).returncode == -signal.SIGKILL
    with quacklake.connect(url) as lake:
        assert lake.table("shop.events").count() == 20
    pipeline_of_ducklake(tmp_path).load()
    with quacklake.connect(url) as lake:
        assert lake.sql("SELECT count(*), count(DISTINCT id) FROM shop.events").fetchall() == [(40, 20)]
