"""Compaction at random points of a random history changes no snapshot, no row id and no entry of the change feed."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

import quacklake
from tests.maintenance.history import Past, past, rows

LONG = os.environ.get("QUACKLAKE_TEST_PROFILE") == "long"

#: A change, and two numbers that say to how many rows and to which.
Step = tuple[str, int, int]
CHANGES = ("append", "append", "append", "delete", "update", "add", "drop", "rename", "widen", "partition")
COMPACTIONS = ("flush", "merge", "rewrite", "optimize")
COUNTS = st.one_of(st.integers(1, 4), st.integers(11, 25))
STEPS = st.lists(st.tuples(st.sampled_from((*CHANGES, *COMPACTIONS)), COUNTS, st.integers(0, 60)), max_size=14)


def play(lake: quacklake.Lake, steps: list[Step], *, compact: bool) -> list[int]:
    """Take the steps; the snapshots that changes made."""
    lake.create_table("t", rows(0, 20))
    made = [lake.current_snapshot()]
    for number, (kind, count, first) in enumerate(steps):
        table = lake.table("t")
        before = lake.current_snapshot()
        if kind in COMPACTIONS:
            if compact:
                _COMPACT[kind](table)
                assert _rows(lake, lake.current_snapshot()) == _rows(lake, before)
            continue
        _change(table, kind, count, first, number)
        if lake.current_snapshot() > before:
            made.append(lake.current_snapshot())
    return made


_COMPACT: dict[str, Callable[[quacklake.Table], Any]] = {
    "flush": lambda table: table.flush_inlined_data(),
    "merge": lambda table: table.merge_adjacent_files(),
    "rewrite": lambda table: table.rewrite_data_files(0.2),
    "optimize": lambda table: table.optimize(),
}


def _change(table: quacklake.Table, kind: str, count: int, first: int, number: int) -> None:
    added = [name for name in table.columns if name.startswith("x")]
    match kind:
        case "append":
            new = rows(1000 * (number + 1), count)
            for name in added:
                new = new.append_column(name, pa.array([number] * count, pa.int32()))
            table.append(new)
        case "delete":
            table.delete(f"id % 1000 BETWEEN {first % 20} AND {first % 20 + count - 1}")
        case "update":
            table.update({"name": f"u{number}"}, f"id % 1000 BETWEEN {first % 20} AND {first % 20 + count - 1}")
        case "add":
            table.add_column(f"x{number}", "INTEGER", count)
        case "drop" if added:
            table.drop_column(added[0])
        case "rename" if added:
            table.rename_column(added[0], f"x{number}_")
        case "widen" if added:
            table.alter_column(added[0], "BIGINT")
        case "partition":
            keys = (("part",), ("bucket(2, id)",), ())[count % 3]
            table.set_partitioned_by(*keys) if keys else table.reset_partitioned_by()


def _rows(lake: quacklake.Lake, version: int) -> list[str]:
    return sorted(map(str, lake.at(version=version).table("t").scan(row_ids=True).to_pylist()))


def _renumbered(found: Past, made: list[int]) -> tuple[list[Any], list[Any]]:
    """The states and the feed with snapshots counted by the changes, not by the compactions in between."""
    number = {version: index for index, version in enumerate(made)}
    feed = [(number[row[0]], *row[1:]) for row in found.feed]
    return [found.states[version] for version in made], sorted(feed, key=repr)


@settings(max_examples=300 if LONG else 12)
@given(STEPS)
def test_compaction_changes_no_snapshot_no_row_id_and_no_change(steps: list[Step]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        seen = []
        for compact in (True, False):
            home = Path(folder) / str(compact)
            with quacklake.connect(
                f"sqlite:///{home}.db", data_path=home, duckdb_threads=1, data_inlining_row_limit=4
            ) as lake:
                made = play(lake, steps, compact=compact)
                seen.append(_renumbered(past(lake), made))
        assert seen[0] == seen[1]
