"""The operations that are crashed, and the lake they run on."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import nullcontext

import pyarrow as pa

import quacklake
from quacklake import Lake, faults
from tests.conformance.clients import LONG
from tests.crash.homes import Home

__all__ = ["OPERATIONS", "note", "operate", "prepare"]


def rows(start: int, stop: int, value: str = "x") -> pa.Table:
    """Rows of the table ``t``."""
    ids = list(range(start, stop))
    return pa.table({"id": pa.array(ids, pa.int64()), "v": [f"{value}{i}" for i in ids], "x": [i / 4 for i in ids]})


def prepare(lake: Lake) -> None:
    """A lake with every kind of thing an operation may meet: files with and without deletes, inlined rows."""
    t = lake.create_table("t", rows(0, 60))
    t.append(rows(60, 100))
    t.delete("id >= 20 AND id < 40")
    t.append(rows(1000, 1003))
    u = lake.create_table("u", rows(0, 30))
    u.append(rows(500, 502))
    lake.create_schema("s")
    lake.create_table("gone", rows(0, 30)).append(rows(500, 502))
    lake.table("gone").delete("id < 10")
    lake.drop_table("gone")
    lake.create_table("log", {"n": pa.int64()})
    note(lake, 0)


def note(lake: Lake, n: int) -> None:
    """A small append to a table that no operation touches."""
    lake.table("log").append([{"n": n}])


def merge(lake: Lake) -> None:
    lake.table("t").merge(
        pa.concat_tables([rows(55, 75, "merged"), rows(1000, 1001, "merged"), rows(300, 303)]), on="id"
    )


def alter(lake: Lake) -> None:
    lake.table("t").append([{"id": 3000, "v": "evolved", "more": 1.5}], evolve=True)


def transaction(lake: Lake) -> None:
    with lake.transaction(message="all at once", author="somebody") as tx:
        tx.table("t").append(rows(200, 230))
        tx.table("t").delete("id IN (1, 61, 1001, 205)")
        tx.create_schema("fresh")
        tx.create_table("fresh.made", rows(0, 4))
        tx.rename_table("u", "renamed")
        tx.table("renamed").append(rows(600, 602))


def partition(lake: Lake) -> None:
    with lake.transaction() as tx:
        tx.table("t").set_partitioned_by("bucket(2, id)", "v")
        tx.table("t").append(rows(300, 311))
        tx.table("u").set_partitioned_by("bucket(2, id)")
        tx.table("u").set_sorted_by("id DESC")
        tx.table("u").append(rows(700, 711))


def describe(lake: Lake) -> None:
    with lake.transaction() as tx:
        tx.create_view("s.view", "SELECT id FROM main.t WHERE id < 10")
        tx.create_macro("s.twice", {"n": 1}, "n * 2")
        tx.table("t").set_comment("what it is")
        tx.table("t").set_column_comment("v", "a value")


#: What is crashed only when there is time.
UNDO: Mapping[str, Callable[[Lake], object]] = {
    "restore": lambda lake: lake.table("t").restore(to=2),
    "undrop": lambda lake: lake.undrop("gone"),
}

OPERATIONS: Mapping[str, Callable[[Lake], object]] = {
    "append_few": lambda lake: lake.table("t").append(rows(2000, 2003)),
    "append_many": lambda lake: lake.table("t").append(rows(2000, 2030)),
    "delete_few": lambda lake: lake.table("t").delete("id IN (2, 70, 1001)"),
    "delete_many": lambda lake: lake.table("t").delete("id % 3 = 0"),
    "update": lambda lake: lake.table("t").update({"v": "changed", "x": quacklake.expr("x + 1")}, "id % 35 = 2"),
    "merge": merge,
    "overwrite": lambda lake: lake.table("t").overwrite(rows(0, 20, "new")),
    "create": lambda lake: lake.create_table("s.made", rows(0, 3)),
    "rename": lambda lake: lake.rename_table("t", "renamed"),
    "drop": lambda lake: lake.drop_table("t"),
    "alter": alter,
    "partition": partition,
    "transaction": transaction,
    "describe": describe,
    **(UNDO if LONG else {}),
}


def operate(url: str, operation: str, fault: str | None = None) -> list[str]:
    """Open a lake, then run an operation on it with a fault armed; returns the points it reached."""
    armed = nullcontext() if fault is None else faults.arm(faults.Fault.parse(fault))
    with Home(url, None).connect() as lake:  # type: ignore[arg-type]
        with faults.record() as points, armed:
            OPERATIONS[operation](lake)
    return points
