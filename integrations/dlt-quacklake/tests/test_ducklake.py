"""dlt's own destination of DuckDB's extension, on a lake that Quacklake made."""

from __future__ import annotations

from pathlib import Path

import dlt
import duckdb
import pytest
from dlt.destinations.impl.ducklake.configuration import DuckLakeCredentials

import quacklake


def test_dlts_own_destination_writes_a_lake_of_ours(tmp_path: Path) -> None:
    extensions = pytest.importorskip("duckdb_extensions", reason="DuckDB's extensions are not installed")
    if not duckdb.__version__.startswith("1.5."):
        pytest.skip("DuckDB's extensions are there for 1.5 only")
    for name in ("ducklake", "sqlite_scanner"):
        extensions.import_extension(name)
    url, data = f"sqlite:///{tmp_path}/lake.db", f"{tmp_path}/data/"
    with quacklake.connect(url, data) as lake:
        lake.create_table("ours", [{"id": 1}])
    credentials = DuckLakeCredentials("lake", catalog=url, storage=data)
    theirs = dlt.destinations.ducklake(credentials=credentials)
    pipeline = dlt.pipeline("shop", destination=theirs, dataset_name="shop", pipelines_dir=str(tmp_path / "pipelines"))
    pipeline.run([{"id": 1, "n": 1}, {"id": 2, "n": 2}], table_name="items")
    pipeline.run([{"id": 2, "n": 3}], table_name="items", write_disposition="merge", primary_key="id")
    with quacklake.connect(url) as lake:
        assert sorted(lake.sql("SELECT id, n FROM shop.items").fetchall()) == [(1, 1), (2, 3)]
        assert lake.table("ours").to_pylist() == [{"id": 1}]
        assert list(lake.verify().errors) == []
