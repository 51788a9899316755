"""Tables of a lake as sources of dlt."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import dlt
import pytest
from dlt.pipeline.exceptions import PipelineStepFailed
from dlt_quacklake import lake_table

import quacklake
from quacklake import Lake


@pytest.fixture
def source(tmp_path: Path) -> Any:
    with quacklake.connect(f"sqlite:///{tmp_path}/source.db", f"{tmp_path}/source") as lake:
        yield lake


def _copy(url: str, columns: str = "id, n") -> list[tuple[Any, ...]]:
    with quacklake.connect(url) as lake:
        return sorted(lake.sql(f"SELECT {columns} FROM shop.stock").fetchall())


def test_a_table_is_copied_at_one_snapshot(pipeline: dlt.Pipeline, url: str, source: Lake) -> None:
    stock = source.create_table("stock", [{"id": number, "n": number % 3} for number in range(100)])
    for first in (0, 10):
        pipeline.run(lake_table(source, "stock", columns=["id", "n"], where="n < 2"))
        assert _copy(url) == [(number, number % 3) for number in range(first, 100) if number % 3 < 2]
        stock.delete("id < 10")


def test_changes_of_any_kind_reach_the_copy(pipeline: dlt.Pipeline, url: str, source: Lake) -> None:
    chance = random.Random(7)
    stock = source.create_table("stock", [{"id": number, "n": number} for number in range(8)])
    for _ in range(4):
        pipeline.run(lake_table(source, "stock", key="id", where="n < 50"))
        assert _copy(url) == sorted(
            (row["id"], row["n"]) for row in stock.to_pylist(where="n < 50", columns=["id", "n"])
        )
        for _ in range(4):
            key = chance.randrange(8)
            change = chance.choice(["move", "leave", "delete", "again"])
            if change == "move":
                stock.update({"id": chance.randrange(100, 10_000)}, f"id = {key}")
            elif change == "leave":
                stock.update({"n": 100 * chance.randrange(2)}, f"id = {key}")
            elif change == "delete":
                stock.delete(f"id = {key}")
            else:
                stock.merge([{"id": key, "n": chance.randrange(40)}], on="id")


def test_a_table_with_columns_of_the_change_feed_is_not_followed(pipeline: dlt.Pipeline, source: Lake) -> None:
    source.create_table("stock", [{"id": 1, "snapshot_id": 2}])
    with pytest.raises(PipelineStepFailed, match="snapshot_id"):
        pipeline.run(lake_table(source, "stock", key="id"))
