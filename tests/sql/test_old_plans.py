"""A session reads old snapshots by the files that they have now, not by those they had when it looked last."""

from __future__ import annotations

from pathlib import Path

import quacklake


def test_a_snapshot_that_was_compacted_since_is_read_by_its_new_files(tmp_path: Path) -> None:
    with quacklake.connect(f"sqlite:///{tmp_path}/lake.db", data_path=tmp_path / "data") as lake:
        table = lake.create_table("t", {"id": list(range(20))})
        table.append({"id": list(range(20, 40))})
        assert len(lake.sql("SELECT id FROM t").fetchall()) == 40
        table.merge_adjacent_files()
        lake.cleanup_old_files(cleanup_all=True)
        assert len(lake.sql("SELECT id FROM t").fetchall()) == 40
        assert len(lake.sql("SELECT id FROM t AT (VERSION => 2)").fetchall()) == 40
        assert len(lake.sql("SELECT id FROM t AT (VERSION => 1)").fetchall()) == 20


def test_a_snapshot_that_another_client_compacted_since_is_read_by_its_new_files(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/lake.db"
    with quacklake.connect(url, data_path=tmp_path / "data") as lake, quacklake.connect(url) as other:
        lake.create_table("t", {"id": list(range(20))})
        lake.table("t").append({"id": list(range(20, 40))})
        assert len(lake.sql("SELECT id FROM t").fetchall()) == 40
        other.table("t").merge_adjacent_files()
        other.cleanup_old_files(cleanup_all=True)
        assert len(lake.sql("SELECT id FROM t AT (VERSION => 2)").fetchall()) == 40
