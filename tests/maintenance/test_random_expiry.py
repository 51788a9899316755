"""After any expiry of any history, the remaining snapshots read as before, and exactly their files remain."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

import quacklake
from tests.conformance.clients import LONG
from tests.maintenance.past import files_named, files_on_disk, numbers, states

Step = Callable[[quacklake.Lake, int], object]


def _replace(lake: quacklake.Lake, n: int) -> None:
    lake.create_table("t", numbers(n, 15), replace=True)


STEPS: dict[str, Step] = {
    "insert few": lambda lake, n: lake.table("t").append(numbers(100 * n, 3)),
    "insert many": lambda lake, n: lake.table("t").append(numbers(100 * n, 15)),
    "delete few": lambda lake, n: lake.table("t").delete(f"id % 100 = {n % 10}"),
    "delete many": lambda lake, n: lake.table("t").delete(f"id % 100 > {n % 3 + 1}"),
    "update": lambda lake, n: lake.table("t").update({"g": n}, "id % 2 = 0"),
    "empty": lambda lake, n: lake.table("t").delete("true"),
    "overwrite": lambda lake, n: lake.table("t").overwrite(numbers(n, 15)),
    "replace": _replace,
    "inline": lambda lake, n: lake.options.set("data_inlining_row_limit", n % 2 * 10),
}


@settings(max_examples=60 if LONG else 4, deadline=None)
@given(
    steps=st.lists(st.sampled_from(sorted(STEPS)), min_size=4, max_size=12 if LONG else 8),
    rounds=st.lists(st.sets(st.integers(0, 12)), min_size=1, max_size=2),
)
def test_expiry_takes_away_what_expired_and_nothing_else(steps: list[str], rounds: list[set[int]]) -> None:
    with tempfile.TemporaryDirectory() as home:
        data = Path(home, "data")
        with quacklake.connect(f"sqlite:///{home}/lake.db", data_path=data, duckdb_threads=1) as lake:
            lake.create_table("t", numbers(0, 15))
            for number, step in enumerate(steps):
                STEPS[step](lake, number)
            before = states(lake)
            for chosen in rounds:
                known = set(lake.snapshots().column("snapshot_id").to_pylist()) - {lake.current_snapshot()}
                lake.expire_snapshots(versions=chosen & known)
                after = states(lake)
                assert after.keys() == before.keys() - (chosen & known)
                assert after.items() <= before.items()
                assert files_on_disk(data) >= files_named(lake)
                before = after
            lake.cleanup_old_files(cleanup_all=True)
            lake.delete_orphaned_files(cleanup_all=True)
            assert files_on_disk(data) == files_named(lake)
            assert states(lake) == before
