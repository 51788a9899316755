"""Virtual columns: chosen by name, used in filters, hidden by columns of the table's own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import quacklake
from quacklake.errors import InputError, PredicateError


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[quacklake.Lake]:
    with quacklake.connect(
        f"sqlite:///{tmp_path}/lake.db", data_path=tmp_path / "data", data_inlining_row_limit=5
    ) as lake:
        lake.create_table("t", pa.table({"id": range(100)}))
        lake.table("t").append([{"id": 500}])
        yield lake


def test_they_are_chosen_by_name_in_any_case_and_order(lake: quacklake.Lake) -> None:
    frame = lake.table("t").scan(["snapshot_id", "id", "RowID"], "id IN (7, 500)")
    assert frame.schema == pa.schema([("snapshot_id", pa.int64()), ("id", pa.int64()), ("rowid", pa.int64())])
    assert sorted(frame.to_arrow().to_pylist(), key=str) == [
        {"snapshot_id": 1, "id": 7, "rowid": 7},
        {"snapshot_id": 2, "id": 500, "rowid": 100},
    ]
    assert frame.to_arrow().schema == frame.schema


def test_filters_may_speak_of_them(lake: quacklake.Lake) -> None:
    table = lake.table("t")
    assert table.to_pylist(["id"], "rowid = 7") == [{"id": 7}]
    assert table.to_pylist(["id"], "snapshot_id > 1") == [{"id": 500}]
    assert table.to_pylist(["id"], "filename LIKE 'ducklake_inlined_data%'") == [{"id": 500}]
    assert table.count("ROWID >= 90 AND id < 200") == 10
    assert table.count("file_row_number = 3") == 1
    assert table.to_pylist(["id"], pc.field("rowid") == 100) == [{"id": 500}]
    assert table.to_pylist(["id", "rowid"], (pc.field("snapshot_id") == 1) & (pc.field("id") == 3)) == [
        {"id": 3, "rowid": 3}
    ]


def test_rows_are_deleted_and_updated_by_row_id(lake: quacklake.Lake) -> None:
    table = lake.table("t")
    assert table.delete("rowid IN (3, 100)") == 2
    assert table.update({"id": 1000}, "rowid = 4 AND snapshot_id = 1") == 1
    assert table.to_pylist(["id", "rowid", "snapshot_id"], "id >= 500") == [{"id": 1000, "rowid": 4, "snapshot_id": 4}]
    assert table.count() == 99


def test_rows_of_an_open_transaction_have_no_snapshot_yet(lake: quacklake.Lake) -> None:
    with lake.transaction() as tx:
        tx.table("t").append([{"id": 600}, {"id": 601}])
        tx.table("t").append(pa.table({"id": range(700, 720)}))
        rows = tx.table("t").to_pylist(["id", "snapshot_id", "file_row_number", "filename"], "id IN (601, 703)")
    small, large = sorted(rows, key=lambda row: row["id"])
    local = "__ducklake_inlined_transaction_local_data"
    assert small == {"id": 601, "snapshot_id": None, "file_row_number": 1, "filename": local}
    assert (large["snapshot_id"], large["file_row_number"]) == (None, 3)
    assert large["filename"].endswith(".parquet")


def test_a_column_of_the_table_hides_the_virtual_one(lake: quacklake.Lake) -> None:
    table = lake.create_table("w", pa.table({"rowid": ["mine"] * 20, "File_Index": [1.5] * 20}))
    rows = table.to_arrow(["rowid", "file_index", "snapshot_id"], "rowid = 'mine' AND file_index > 1")
    assert rows.schema.types == [pa.string(), pa.float64(), pa.int64()]
    assert rows.num_rows == 20


def test_an_empty_table_has_them_too(lake: quacklake.Lake) -> None:
    rows = lake.create_table("e", {"id": pa.int64()}).to_arrow(["rowid", "filename", "file_index"])
    assert rows.schema.types == [pa.int64(), pa.string(), pa.uint64()]
    assert rows.num_rows == 0


def test_other_names_are_still_unknown(lake: quacklake.Lake) -> None:
    with pytest.raises(InputError, match="no column"):
        lake.table("t").to_arrow(["rowids"])
    with pytest.raises(PredicateError):
        lake.table("t").to_arrow(where="rowids = 3")
    assert lake.table("t").to_arrow().column_names == ["id"]
