"""The manifest: a scan plan with partition values and statistics, for any reader of Arrow."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

import quacklake
from quacklake.core.scan import ScanPlan


def test_the_manifest_tells_partition_values_and_statistics(tmp_path: Path) -> None:
    with quacklake.connect(
        f"sqlite:///{tmp_path}/l.db", data_path=tmp_path / "data", data_inlining_row_limit=0
    ) as lake:
        table = lake.create_table("t", {"id": int, "kind": str, "x": float}, partition_by=["kind"])
        table.append([{"id": 1, "kind": "a", "x": float("nan")}, {"id": 7, "kind": "a", "x": None}])
        table.append([{"id": 9, "kind": "b", "x": 2.5}])
        table.delete("id = 7")
        files = pa.ipc.open_file(table.manifest()).read_all().to_pylist()
        first, second = sorted(files, key=lambda file: file["data_file_id"])
        assert [first["partition_values"], second["partition_values"]] == [
            [{"key_index": 0, "value": "a"}],
            [{"key_index": 0, "value": "b"}],
        ]
        known = {entry["column_id"]: entry for entry in first["column_statistics"]}
        ids = {column.name: column.id for column in table.info.schema.columns}
        assert (known[ids["id"]]["min_value"], known[ids["id"]]["max_value"]) == ("1", "7")
        assert (known[ids["x"]]["contains_nan"], known[ids["x"]]["null_count"]) == (True, 1)
        pruned = pa.ipc.open_file(table.manifest("id > 8")).read_all()
        assert pruned.column("data_file_id").to_pylist() == [second["data_file_id"]]
        again = ScanPlan.from_ipc(table.manifest())
        assert again.files.equals(table.plan().files)
        assert lake.at(version=2).table("t").manifest()


def test_a_table_without_files_has_a_manifest(tmp_path: Path) -> None:
    with quacklake.connect(f"sqlite:///{tmp_path}/l.db", data_path=tmp_path / "data") as lake:
        table = lake.create_table("t", [{"id": 1}])
        assert pa.ipc.open_file(table.manifest()).read_all().num_rows == 0
        plan = ScanPlan.from_ipc(table.manifest())
        assert plan.inlined is not None
        assert plan.inlined.num_rows == 1
