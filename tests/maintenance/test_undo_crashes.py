"""Undo that ends at any point leaves the old lake or the new one, and works when it is tried again."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import quacklake
from quacklake.core.faults import Fault, FaultInjected, arm, record
from tests.conformance.clients import LONG

OPERATIONS: dict[str, Callable[[quacklake.Lake], Any]] = {
    "restore": lambda lake: lake.table("t").restore(to=2),
    "undrop": lambda lake: lake.undrop("gone"),
    "rollback": lambda lake: lake.rollback(to=6),
}


def rows(start: int, stop: int) -> pa.Table:
    return pa.table({"id": pa.array(range(start, stop), pa.int64())})


def make(folder: Path, number: int) -> quacklake.Lake:
    lake = quacklake.connect(
        f"sqlite:///{folder}/{number}.db",
        data_path=folder / f"data{number}",
        data_inlining_row_limit=5,
        duckdb_threads=1,
    )
    table = lake.create_table("t", rows(0, 30))
    table.append(rows(100, 103))
    table.delete("id < 10 OR id = 101")
    table.add_column("n", "INTEGER")
    gone = lake.create_table("gone", rows(0, 30))
    gone.append(rows(100, 103))
    gone.delete("id < 20")
    table.update({"id": 7}, "id = 11")
    lake.drop_table("gone")
    lake.create_table("later", rows(0, 30))
    return lake


def look(lake: quacklake.Lake) -> dict[str, Any]:
    """Every table with its columns, rows and row ids."""
    found = {}
    for name in lake.tables():
        table = lake.table(name)
        found[name] = sorted(map(repr, table.to_arrow(["rowid", *table.columns]).to_pylist()))
    return found


@pytest.mark.parametrize("operation", OPERATIONS if LONG else ["rollback"])
def test_an_exception_at_any_point_leaves_the_old_lake_or_the_new_one(tmp_path: Path, operation: str) -> None:
    run = OPERATIONS[operation]
    lake = make(tmp_path, 0)
    old = look(lake)
    with record() as points:
        run(lake)
    new = look(lake)
    assert old != new
    lake.close()
    committed = len(points) - points[::-1].index("catalog.commit.after")
    lake, made = make(tmp_path, 1), 1
    for n in range(1, len(points) + 1):
        if not (LONG or n % 24 == 0 or abs(n - committed) < 2):
            continue
        failed = False
        with arm(Fault(at=n)):
            try:
                run(lake)
            except FaultInjected:
                failed = True
        found = look(lake)
        assert found == (new if found == new else old), points[n - 1]
        assert failed or found == new
        if found == new:
            lake.close()
            made += 1
            lake = make(tmp_path, made)
    run(lake)
    assert look(lake) == new
    lake.close()
