"""A small lake that has something of everything."""

from __future__ import annotations

import math
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

import quacklake

__all__ = ["make_lake"]


def make_lake(url: str, folder: Path, **settings: object) -> None:
    """A lake with deletes, inlined rows, partitions, nested and added files, views and options in ``folder``."""
    foreign = folder / "foreign"
    foreign.mkdir(parents=True, exist_ok=True)
    lake = quacklake.connect(url, data_path=folder / "data", foreign_paths=[str(foreign)], duckdb_threads=1, **settings)
    with lake:
        t = lake.create_table("t", {"id": pa.int64(), "name": pa.string(), "x": pa.float64(), "day": pa.date32()})
        t.append(_rows(0, 100))  # file 0
        t.append(_rows(100, 50))
        t.delete("id BETWEEN 10 AND 30")  # a delete file
        t.delete("id = 120")  # inlined
        t.append(_rows(200, 3))  # inlined
        t.update({"name": "'changed'"}, "id = 201")
        t.update({"name": "'changed'"}, "id BETWEEN 40 AND 60")  # a file that stores its row ids
        lake.create_schema("other")
        p = lake.create_table("other.p", {"k": pa.string(), "v": pa.int64()}, partition_by="k")
        p.append(pa.table({"k": ["a", "b"] * 20, "v": range(40)}))
        n = lake.create_table("n", {"s": pa.struct([("a", pa.int32()), ("b", pa.list_(pa.string()))])})
        n.append([{"s": {"a": number, "b": ["x"]}} for number in range(20)])
        pq.write_table(pa.table({"a": range(30)}), foreign / "one.parquet")
        m = lake.create_table("m", {"a": pa.int64()})
        if not settings.get("encrypted"):
            m.add_files(str(foreign / "one.parquet"))
        m.set_sorted_by("a")
        lake.create_view("v", "SELECT id FROM t")
        lake.create_macro("twice", ["a"], "a * 2")
        lake.options.set("target_file_size", "10MB", table="t")
        lake.create_table("gone", {"a": pa.int64()}).append([{"a": 1}])
        lake.drop_table("gone")


def _rows(first: int, count: int) -> pa.Table:
    ids = range(first, first + count)
    days = pa.array([number % 50 for number in ids], pa.int32()).cast(pa.date32())
    return pa.table(
        {"id": ids, "name": [f"n{i}" for i in ids], "x": [math.nan if i == 130 else i / 4 for i in ids], "day": days}
    )
