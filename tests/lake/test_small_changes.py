"""Rows of small changes go into the catalog up to the limit, and together into one file beyond it."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import quacklake


def rows(first: int, count: int) -> list[dict[str, Any]]:
    return [{"id": i, "name": f"n{i}"} for i in range(first, first + count)]


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[quacklake.Lake]:
    with quacklake.connect(
        f"sqlite:///{tmp_path}/lake.db", data_path=tmp_path / "data", data_inlining_row_limit=3, duckdb_threads=1
    ) as lake:
        lake.create_table("t", rows(0, 20))
        yield lake


def files(lake: quacklake.Lake) -> int:
    return int(lake.table("t").files().num_rows)


@pytest.mark.parametrize(("count", "new_files"), [(1, 0), (3, 0), (4, 1)])
def test_an_insert_up_to_the_limit_makes_no_file(lake: quacklake.Lake, count: int, new_files: int) -> None:
    lake.table("t").append(rows(100, count))
    assert files(lake) == 1 + new_files
    assert lake.table("t").count("id >= 100") == count


def test_many_small_inserts_of_one_transaction_become_one_file(lake: quacklake.Lake) -> None:
    with lake.transaction() as tx:
        for first in range(100, 112, 2):
            tx.table("t").append(rows(first, 2))
            assert tx.table("t").count("id >= 100") == first - 98
    assert files(lake) == 2
    assert lake.table("t").count("id >= 100") == 12


def test_many_small_updates_of_one_transaction_keep_their_row_ids(lake: quacklake.Lake) -> None:
    before = lake.table("t").scan(["id"], row_ids=True).to_arrow().sort_by("id")
    with lake.transaction() as tx:
        for id_ in range(8):
            tx.table("t").update({"name": f"updated {id_}"}, f"id = {id_}")
    after = lake.table("t").scan(["id"], row_ids=True).to_arrow().sort_by("id")
    assert after.equals(before)
    assert lake.table("t").count("name LIKE 'updated%'") == 8


def test_updates_and_inserts_mix_in_one_transaction(lake: quacklake.Lake) -> None:
    with lake.transaction() as tx:
        tx.table("t").update({"name": "x"}, "id < 2")
        tx.table("t").append(rows(100, 3))
        tx.table("t").update({"name": "y"}, "id IN (1, 2, 101)")
        tx.table("t").append(rows(200, 3))
        tx.table("t").delete("id IN (100, 200, 5)")
    names = {row["id"]: row["name"] for row in lake.table("t").to_pylist()}
    assert len(names) == 20 - 1 + 4
    assert (names[0], names[1], names[2], names[101], names[102]) == ("x", "y", "y", "y", "n102")


def test_inlined_values_come_back_as_they_were_from_postgres(postgres_url: str, tmp_path: Path) -> None:
    rows = pa.table(
        {
            "number": pa.array([math.inf, -math.inf, -0.0, 1e300, None]),
            "single": pa.array([0.1, -math.inf, None, 3.0, math.inf], pa.float32()),
            "blob": pa.array([b"", b"\x00\xff\\x41", None, "\u00e9".encode(), b"%s"]),
            "text": pa.array(["", "\\", '"', "{NULL}", "a\u0001\u20ac\U0001f986"]),
            "flag": pa.array([True, False, None, True, False]),
            "big": pa.array([2**63 - 1, -(2**63), 0, None, 1]),
        }
    )
    with quacklake.connect(postgres_url, data_path=tmp_path / "data") as lake:
        table = lake.create_table("t", rows)
        assert not table.files().num_rows
        assert table.to_arrow().to_pylist() == rows.to_pylist()
        table.append(rows.set_column(0, "number", pa.array([math.nan] * 5)))
        assert [math.isnan(row["number"]) for row in table.to_pylist(["number"], "isnan(number)")] == [True] * 5


def test_deleting_all_rows_returns_their_number_after_any_earlier_change(lake: quacklake.Lake) -> None:
    table = lake.table("t")
    assert table.delete("id < 8") == 8  # a delete file
    table.append(rows(100, 2))
    assert table.delete("id = 100") == 1
    with lake.transaction() as tx:
        assert tx.table("t").delete() == 13
        assert tx.table("t").delete() == 0
        tx.table("t").append(rows(0, 5))
        assert tx.table("t").delete() == 5
    assert table.delete() == 0
