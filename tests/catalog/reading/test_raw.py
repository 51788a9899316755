"""Metadata tables as they are."""

from __future__ import annotations

import datetime as dt
from pathlib import Path

import pyarrow as pa
import pytest

import quacklake
from quacklake.core.catalog.reading.health import metadata_table
from tests.layout import LAYOUT


@pytest.mark.parametrize("database", ["sqlite", "duckdb"])
def test_metadata_tables_have_the_same_types_everywhere(tmp_path: Path, database: str) -> None:
    with quacklake.connect(f"{database}:///{tmp_path}/lake.db", data_path=tmp_path / "data") as lake:
        lake.create_table("t", [{"id": 1}])
        with lake._context.catalog.read() as reader:
            snapshots = metadata_table(reader, "ducklake_snapshot")
            columns = metadata_table(reader, "ducklake_column")
            inlined = metadata_table(reader, "ducklake_inlined_data_1_1")
            assert metadata_table(reader, "ducklake_nothing") is None
            assert metadata_table(reader, '"; DROP TABLE ducklake_snapshot') is None
    assert snapshots is not None
    assert snapshots.column("snapshot_id").to_pylist() == [0, 1]
    assert snapshots.schema.field("snapshot_time").type == pa.timestamp("us", tz="UTC")
    assert all(isinstance(time, dt.datetime) for time in snapshots.column("snapshot_time").to_pylist())
    assert columns is not None
    assert columns.column("nulls_allowed").to_pylist() == [True]
    assert inlined is not None
    if LAYOUT == "shared":
        assert inlined.column("payload").to_pylist() == ['["1"]']
    else:
        assert inlined.column("id").to_pylist() == [1]
