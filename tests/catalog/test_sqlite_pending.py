"""After a statement was interrupted before all its rows were read, the next one sees the present state."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

import quacklake
from quacklake import Lake


def _interrupted(lake: Lake, *, commits: bool) -> None:
    """Be interrupted between two rows of the catalog."""
    catalog = lake._context.catalog
    opened = catalog._committing("x", lambda: None, None) if commits else catalog.reading()
    with opened as found:
        connection = found[0] if isinstance(found, tuple) else found
        rows = iter(connection.execute(sa.text("SELECT * FROM ducklake_column")))
        next(rows)
        raise KeyboardInterrupt


@pytest.mark.parametrize("commits", [False, True], ids=["read", "commit"])
@pytest.mark.parametrize("journal", ["rollback", "wal"])
def test_an_interrupted_select_leaves_no_old_state_behind(tmp_path: Path, journal: str, commits: bool) -> None:
    url = f"sqlite:///{tmp_path}/lake.db"
    settings: dict[str, Any] = {"sqlite_journal": journal}
    with (
        quacklake.connect(url, data_path=tmp_path / "data", **settings) as lake,
        quacklake.connect(url, busy_timeout_ms=1000, ducklake_max_retry_count=0, **settings) as other,
    ):
        lake.create_table("wide", {f"c{number}": int for number in range(200)})
        lake.create_table("t", [{"id": 1}])
        try:
            _interrupted(lake, commits=commits)
        except KeyboardInterrupt:  # which lives, with its frames and their cursors, as in a notebook
            for number in range(3, 6):
                other.table("t").append([{"id": number}])
            assert sorted(row["id"] for row in lake.table("t").to_pylist()) == [1, 3, 4, 5]
            lake.table("t").append([{"id": 6}])
            assert sorted(row["id"] for row in other.table("t").to_pylist()) == [1, 3, 4, 5, 6]
            assert lake.verify().ok and other.verify().ok
