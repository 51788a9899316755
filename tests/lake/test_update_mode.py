"""The option ``update_mode`` decides what happens to a file in which some rows change."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import quacklake


@contextmanager
def _lake(folder: Path, mode: str) -> Iterator[quacklake.Lake]:
    with quacklake.connect(f"sqlite:///{folder}/{mode}.db", data_path=folder / mode) as lake:
        lake.create_table("t", [{"id": i, "v": 0} for i in range(100)])
        lake.table("t").append([{"id": i, "v": 0} for i in range(100, 200)])
        lake.table("t").delete("id = 5")
        lake.options.set("update_mode", mode, table="t")
        yield lake


def _rows(lake: quacklake.Lake) -> list[tuple[int, int, int]]:
    return sorted(lake.sql("SELECT id, v, rowid FROM t WHERE id < 500").fetchall())


def _deletes(lake: quacklake.Lake) -> int:
    files = lake.table("t").files()
    inlined = lake.table("t").plan().deletes.num_rows
    return inlined + sum(path is not None for path in files.column("delete_path").to_pylist())


_CHANGES: dict[str, Callable[[quacklake.Lake], object]] = {
    "update": lambda lake: lake.table("t").update({"v": 1}, "id IN (3, 4)"),
    "many": lambda lake: lake.table("t").update({"v": 1}, "id < 60"),
    "delete": lambda lake: lake.table("t").delete("id = 3"),
    "merge": lambda lake: lake.table("t").merge([{"id": 3, "v": 1}, {"id": 500, "v": 1}], on="id"),
    "sql update": lambda lake: lake.sql("UPDATE t SET v = 1 WHERE id BETWEEN 90 AND 110"),
    "sql merge": lambda lake: lake.sql(
        "MERGE INTO t USING (SELECT 3 AS id) s ON t.id = s.id WHEN MATCHED THEN UPDATE SET v = 1"
    ),
}


@pytest.mark.parametrize("change", _CHANGES)
def test_copy_on_write_leaves_no_deletes_and_keeps_row_ids(change: str, tmp_path: Path) -> None:
    with _lake(tmp_path, "merge_on_read") as lake:
        _CHANGES[change](lake)
        expected = _rows(lake)
        assert _deletes(lake) > 1
    with _lake(tmp_path, "copy_on_write") as lake:
        assert _deletes(lake) == 1
        _CHANGES[change](lake)
        assert _rows(lake) == expected
        assert _deletes(lake) == 0
        assert lake.at(version=2).table("t").count() == 200
        assert lake.verify(deep=True).ok


def test_files_are_written_anew_once_in_a_transaction(tmp_path: Path) -> None:
    with _lake(tmp_path, "copy_on_write") as lake:
        with lake.transaction() as tx:
            tx.table("t").update({"v": 1}, "id = 3")
            tx.table("t").delete("id = 4")
            tx.table("t").update({"v": 2}, "id IN (3, 150)")
            tx.table("t").delete("id BETWEEN 160 AND 170")
        assert _deletes(lake) == 0
        assert lake.table("t").count() == 187
        assert lake.sql("SELECT id, rowid FROM t WHERE v = 2 ORDER BY id").fetchall() == [(3, 3), (150, 150)]
        assert lake.verify(deep=True).ok


def test_the_feed_tells_what_was_copied_as_what_it_was(tmp_path: Path) -> None:
    with _lake(tmp_path, "copy_on_write") as lake:
        lake.table("t").update({"v": 1}, "id = 3")
        since = lake.current_snapshot()
        changes = lake.table("t").changes(since=since).to_arrow().to_pylist()
        changed = {row["id"] for row in changes if row["v"] == 1}
        assert changed == {3}
        assert {row["change_type"] for row in changes} <= {"update_preimage", "update_postimage"}
