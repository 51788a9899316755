"""Tables with more columns than a row of the catalog's database can have: their few rows go into files."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import quacklake
from quacklake.errors import UnsupportedFeatureError
from tests.layout import LAYOUT

pytestmark = pytest.mark.skipif(LAYOUT == "shared", reason="inlined rows of a shared lake have any width")

_TOO_WIDE = {"postgres": 450, "mysql": 300}


@pytest.fixture
def open_lake(new_url: Callable[[str], str], tmp_path: Path) -> Iterator[Callable[..., quacklake.Lake]]:
    lakes: list[quacklake.Lake] = []

    def opened(database: str, **settings: Any) -> quacklake.Lake:
        lakes.append(quacklake.connect(new_url(database), data_path=tmp_path / uuid.uuid4().hex, **settings))
        return lakes[-1]

    yield opened
    for lake in lakes:
        lake.close()


def _texts(width: int, number: int) -> dict[str, Any]:
    # as long as a value can be that stays inside the row
    return {"id": number, **{f"column_{index:04d}": f"{number:03d}{index:037d}" for index in range(1, width)}}


def test_rows_with_more_columns_than_sqlite_has_go_into_a_file(open_lake: Callable[..., quacklake.Lake]) -> None:
    table = open_lake("sqlite").create_table("t", [_texts(1998, 1)])
    assert table.files().num_rows == 1
    assert table.to_pylist(columns=["id", "column_1997"]) == [{"id": 1, "column_1997": f"001{1997:037d}"}]


@pytest.mark.parametrize("database", ["postgres", "mysql"])
def test_few_rows_of_a_wide_table_are_appended_changed_and_merged(
    database: str, open_lake: Callable[..., quacklake.Lake]
) -> None:
    width = _TOO_WIDE[database]
    lake = open_lake(database)
    rows = [_texts(width, number) for number in range(3)]
    table = lake.create_table("t", pa.Table.from_pylist(rows).schema)
    table.append(rows)
    assert table.to_pylist() == rows
    assert table.update({"column_0001": "new"}, "id = 1") == 1
    assert table.delete("id = 0") == 1
    result = table.merge([{**_texts(width, 2), "column_0002": "merged"}, _texts(width, 7)], on="id")
    assert (result.updated, result.inserted) == (1, 1)
    expected = {1: {**rows[1], "column_0001": "new"}, 2: {**rows[2], "column_0002": "merged"}, 7: _texts(width, 7)}
    assert {row["id"]: row for row in table.to_pylist()} == expected
    assert table.files().num_rows > 0


@pytest.mark.parametrize(
    ("database", "type_", "value", "width"),
    [
        ("postgres", pa.int64(), 2**62, 998),
        ("postgres", pa.string(), "x" * 20, 336),
        ("postgres", pa.decimal128(38, 0), 10**38 - 1, 336),
        ("mysql", pa.int64(), 2**62, 994),
        ("mysql", pa.string(), "x" * 40, 196),
    ],
)
def test_the_widest_row_that_is_inlined_has_room_and_can_be_changed(
    database: str, type_: pa.DataType, value: Any, width: int, open_lake: Callable[..., quacklake.Lake]
) -> None:
    lake = open_lake(database)
    schema = pa.schema([(f"c{index}", type_) for index in range(width)])
    table = lake.create_table("t", pa.Table.from_pylist([dict.fromkeys(schema.names, value)] * 2, schema=schema))
    assert table.files().num_rows == 0
    assert table.delete("c0 IS NOT NULL") == 2
    assert table.files().num_rows == 0


@pytest.mark.parametrize("database", ["postgres", "mysql"])
def test_columns_that_make_a_table_too_wide_leave_its_inlined_rows_alone(
    database: str, open_lake: Callable[..., quacklake.Lake]
) -> None:
    lake = open_lake(database)
    rows = [_texts(150, number) for number in range(3)]
    table = lake.create_table("t", rows)
    assert table.files().num_rows == 0
    with lake.transaction() as tx:
        tx.table("t").append([_texts(150, 3)])
        tx.table("t").append([{**_texts(150, 4), **{f"more_{index}": "x" * 40 for index in range(300)}}], evolve=True)
    table.update({"more_8": "y" * 40}, "id = 0")
    table.delete("id = 1")
    found = {row["id"]: row for row in table.to_pylist()}
    assert sorted(found) == [0, 2, 3, 4]
    assert (found[0]["more_8"], found[2]["more_8"], found[4]["more_7"]) == ("y" * 40, None, "x" * 40)
    table.flush_inlined_data()
    assert {row["id"]: row for row in table.to_pylist()} == found


def test_a_wide_table_of_a_shared_lake_is_inlined(new_url: Callable[[str], str], tmp_path: Path) -> None:
    tenants = quacklake.tenants(new_url("postgres"), data_path=tmp_path / "data")
    tenants.create("acme")
    with tenants, tenants.open("acme") as lake:
        rows = [_texts(450, number) for number in range(3)]
        table = lake.create_table("t", rows)
        assert table.update({"column_0001": "new"}, "id = 1") == 1
        assert [row["column_0001"] for row in table.to_pylist() if row["id"] == 1] == ["new"]
        assert table.files().num_rows == 0


def test_inlined_rows_that_are_too_wide_for_another_database_are_not_moved_there(
    open_lake: Callable[..., quacklake.Lake], new_url: Callable[[str], str], tmp_path: Path
) -> None:
    lake = open_lake("duckdb")
    lake.create_table("t", [_texts(450, 1)])
    lake.backup(tmp_path / "backups")
    with pytest.raises(UnsupportedFeatureError, match="450 columns") as caught:
        quacklake.restore_backup(tmp_path / "backups", new_url("postgres"), data_path=tmp_path / "again")
    assert "flush" in (caught.value.hint or "")
