"""Differences and reverts on every database: rows as a plain merge gives them, and stock DuckDB reads the same."""

from __future__ import annotations

import random

import pytest

import quacklake
from quacklake.errors import MergeConflictError
from tests.layout import LAYOUT
from tests.seeds import chance

from .conftest import MakeSite, kinds

Rows = dict[int, tuple[int, str]]


def read(lake: quacklake.Lake, version: int) -> Rows:
    """Return the rows of the table at a snapshot, by their row ids."""
    rows = lake.at(version=version).table("t").scan(row_ids=True).to_arrow().to_pylist()
    return {row["rowid"]: (row["id"], row["v"]) for row in rows}


def change(rng: random.Random, lake: quacklake.Lake, step: int, *, rows: int) -> None:
    """Append, update, delete or compact."""
    table = lake.table("t")
    match rng.randrange(5):
        case 0 | 1:
            table.append([{"id": 100 * step + n, "v": "new"} for n in range(rng.choice([2, rows]))])
        case 2:
            table.update({"v": f"step {step}"}, f"id % 3 = {rng.randrange(3)}")
        case 3:
            table.delete(f"id % 7 = {rng.randrange(7)}")
        case _:
            lake.maintenance.flush_inlined_data()
            table.rewrite_data_files(delete_threshold=0.0)


@pytest.mark.parametrize("number", range(3))
@pytest.mark.parametrize("kind", kinds("sqlite", "duckdb", "postgres", "mysql"))
def test_reverted_commits_leave_what_a_merge_of_rows_leaves(make_site: MakeSite, kind: str, number: int) -> None:
    site = make_site(kind, inlining=10)
    rng = chance("reverts", kind, number)
    lake = site.lake()
    lake.create_table("t", {"id": "int", "v": "string"}).append([{"id": n, "v": "old"} for n in range(30)])
    for step in range(1, 7):
        change(rng, lake, step, rows=40)
    for _ in range(3):
        newest = lake.current_snapshot()
        version = rng.randrange(2, newest + 1)
        base, theirs, ours = (read(lake, each) for each in (version, version - 1, newest))
        clashes = [i for i in base.keys() | theirs.keys() if base.get(i) != theirs.get(i)]
        clashes = [i for i in clashes if ours.get(i) not in (base.get(i), theirs.get(i))]
        if clashes:
            with pytest.raises(MergeConflictError):
                lake.revert(version)
        lake.revert(version, on_conflict="theirs")
        touched = {i: theirs.get(i) for i in base.keys() | theirs.keys() if base.get(i) != theirs.get(i)}
        wanted = {i: row for i, row in {**ours, **touched}.items() if row is not None}
        now = lake.current_snapshot()
        assert read(lake, now) == wanted
        shown = lake.diff(newest, now).rows("t").to_pylist()
        gone = {row["rowid"] for row in shown if row["change_type"] in ("delete", "update_preimage")}
        assert gone == {i for i in ours if ours[i] != wanted.get(i)}
    if LAYOUT == "plain" and kind != "mysql":
        wanted = read(lake, lake.current_snapshot())
        rows = site.stock().execute("SELECT rowid, id, v FROM l.t").fetchall()
        assert {rowid: (id_, v) for rowid, id_, v in rows} == wanted
