"""Spark reads and changes adopted tables: mapped names, values of folders and deleted rows."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

import quacklake
from tests.connectors.adoption import HandMade, contents, field

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_an_adopted_table_is_read_and_changed(tmp_path: Path, session: SparkSession) -> None:
    inner = {"type": "struct", "fields": [field("x", "long", id_=4, physical="col-x")]}
    fields = [
        field("id", "long", id_=1, physical="col-1"),
        field("s", inner, id_=2, physical="col-s"),
        field("p", "date", id_=3, physical="col-p"),
    ]
    place = tmp_path / "foreign" / "t"
    features, configuration = ["columnMapping", "deletionVectors"], {"delta.columnMapping.mode": "name"}
    table = HandMade(place, fields, partition_by=["p"], configuration=configuration, features=features)
    rows = pa.table({"col-1": range(10), "col-s": [{"col-x": n} for n in range(10)]})
    for day in ("2024-01-01", "2024-01-02"):
        table.commit(table.file(f"col-p={day}/f.parquet", rows, {"col-p": day}, table.vector([0, 1])))
    before = contents(place)
    with quacklake.connect(
        f"sqlite:///{tmp_path}/lake.db", data_path=tmp_path / "data", foreign_paths=[tmp_path / "foreign"]
    ) as lake:
        lake.adopt(f"delta:{place}", as_="t")
        frame = quacklake.spark(lake, session).table("t")
        found = sorted(tuple(row) for row in frame.where("id < 4 AND p = '2024-01-02'").select("id", "s.x").collect())
        assert found == [(2, 2), (3, 3)]
        assert frame.count() == 16
        assert lake.table("t").delete("id = 5") == 2
        assert quacklake.spark(lake, session).table("t").count() == 14
    assert contents(place) == before
