"""Rows that replace the partitions they belong to, whichever files and keys the old ones are under."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import quacklake
from quacklake.core.operations import dml
from quacklake.core.transaction import Transaction
from quacklake.extend.inputs import to_source
from quacklake.extend.partitions import overwrite_partitions

SCHEMA = pa.schema([("id", pa.int64()), ("k", pa.string()), ("d", pa.date32())])


def rows(*given: tuple[int, str | None, int]) -> pa.Table:
    columns = {
        "id": [each[0] for each in given],
        "k": [each[1] for each in given],
        "d": [dt.date(2024, each[2], 1) for each in given],
    }
    return pa.table(columns, schema=SCHEMA)


def overwrite(lake: quacklake.Lake, new: pa.Table, name: str = "t") -> None:
    def work(tx: Transaction) -> Any:
        table = tx.find_table("main", name)
        add = dml.append
        return overwrite_partitions(lake._context, tx, table, lambda: add(lake._context, tx, table, to_source(new)))

    lake.handle.run(work)


def held(lake: quacklake.Lake) -> list[int]:
    return sorted(lake.table("t").to_arrow(["id"]).column("id").to_pylist())


@pytest.fixture(params=[0, 100], ids=["files", "inlined"])
def lake(request: pytest.FixtureRequest, tmp_path: Path) -> quacklake.Lake:
    found = quacklake.connect(f"sqlite:///{tmp_path}/lake.db", data_path=str(tmp_path / "data"))
    found.options.set("data_inlining_row_limit", request.param)
    return found


def test_only_partitions_with_new_rows_are_replaced(lake: quacklake.Lake) -> None:
    lake.create_table("t", SCHEMA, partition_by="k")
    table = lake.table("t")
    table.append(rows((1, "a", 1), (2, "a", 2), (3, "b", 1), (4, None, 1), (5, "", 1)))
    table.delete("id = 2")
    overwrite(lake, rows((10, "a", 3), (11, None, 3)))
    assert held(lake) == [3, 5, 10, 11]
    overwrite(lake, rows((12, "c", 1)))
    assert held(lake) == [3, 5, 10, 11, 12]
    overwrite(lake, rows())
    assert held(lake) == [3, 5, 10, 11, 12]
    assert lake.at(version=3).table("t").count() == 4
    assert lake.verify(deep=True).findings == ()


def test_rows_that_were_written_under_other_keys_go_too(lake: quacklake.Lake) -> None:
    lake.create_table("t", SCHEMA)
    table = lake.table("t")
    table.append(rows((1, "a", 1), (2, "b", 1), (3, "b", 2)))
    table.set_partitioned_by("k", "month(d)")
    table.append(rows((4, "b", 1), (5, "b", 2)))
    overwrite(lake, rows((10, "b", 1)))
    assert held(lake) == [1, 3, 5, 10]
    table.set_partitioned_by("bucket(4, k)")
    overwrite(lake, rows((20, "b", 9)))
    assert 1 in held(lake) or lake.table("t").count() == 1, "it may be of the same bucket"
    assert not {3, 5, 10} & set(held(lake))
    table.reset_partitioned_by()
    overwrite(lake, rows((30, "z", 1)))
    assert held(lake) == [30]
    assert lake.verify(deep=True).findings == ()


def test_what_others_add_to_such_a_partition_meanwhile_is_seen(lake: quacklake.Lake) -> None:
    lake.create_table("t", SCHEMA, partition_by="k")
    lake.table("t").append(rows((1, "a", 1), (2, "b", 1)))
    turns = iter([("a", 50), ("b", 60)])

    def work(tx: Transaction) -> None:
        table = tx.find_table("main", "t")
        add = dml.append
        overwrite_partitions(
            lake._context, tx, table, lambda: add(lake._context, tx, table, to_source(rows((10, "a", 1))))
        )
        other = next(turns, None)
        if other is not None:
            lake.table("t").append(rows((other[1], other[0], 1)))

    lake.handle.run(work)
    assert held(lake) == [2, 10, 60]
