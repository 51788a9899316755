"""Files are those that the catalog names: no link leads a lake to others, and no name is a pattern."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import quacklake
from quacklake import Safety
from quacklake.errors import PathError, QuacklakeError, StorageError

ROWS = pa.table({"id": range(5)})


def _lake(home: Path, data: Path, name: str = "lake") -> quacklake.Lake:
    return quacklake.connect(f"sqlite:///{home}/{name}.db", data_path=data, data_inlining_row_limit=0)


def _file(folder: Path) -> Path:
    return next(folder.rglob("*.parquet"))


_READS: dict[str, Callable[[quacklake.Lake], object]] = {
    "scan": lambda lake: lake.table("t").to_arrow(),
    "count": lambda lake: lake.table("t").count("id >= 0"),
    "sql": lambda lake: lake.sql("FROM t").fetchall(),
    "changes": lambda lake: lake.table("t").changes(0).to_arrow(),
    "delete": lambda lake: lake.table("t").delete("id = 1"),
    "update": lambda lake: lake.table("t").update({"id": 1}),
    "merge": lambda lake: lake.table("t").merge([{"id": 1}], on="id"),
    "optimize": lambda lake: lake.table("t").optimize(),
    "merge_adjacent_files": lambda lake: lake.table("t").merge_adjacent_files(),
}


@pytest.mark.parametrize("kind", ["file", "folder"])
@pytest.mark.parametrize("read", _READS)
def test_a_link_out_of_the_data_path_is_not_followed(tmp_path: Path, read: str, kind: str) -> None:
    with _lake(tmp_path, tmp_path / "other", "other") as other:
        other.create_table("t", pa.table({"id": range(100, 105)}))
    with _lake(tmp_path, tmp_path / "data") as lake:
        lake.create_table("t", ROWS)
        lake.table("t").append(ROWS)
        mine, theirs = _file(tmp_path / "data"), _file(tmp_path / "other")
        if kind == "file":
            mine.unlink()
            mine.symlink_to(theirs)
        else:
            for path in mine.parent.iterdir():
                os.link(theirs, theirs.parent / path.name)
                path.unlink()
            mine.parent.rmdir()
            mine.parent.symlink_to(theirs.parent)
        before = lake.current_snapshot()
        with pytest.raises(PathError, match="symbolic link"):
            _READS[read](lake)
        assert lake.current_snapshot() == before


def test_a_link_within_the_data_path_and_one_to_the_data_path_are_followed(tmp_path: Path) -> None:
    (tmp_path / "disk" / "data").mkdir(parents=True)
    (tmp_path / "mount").symlink_to(tmp_path / "disk")
    with _lake(tmp_path, tmp_path / "mount" / "data") as lake:
        table = lake.create_table("t", ROWS)
        table.append(ROWS)
        path = _file(tmp_path / "disk")
        path.rename(path.with_name("moved.parquet"))
        path.symlink_to("moved.parquet")
        assert table.count("id >= 0") == 10
        assert lake.sql("SELECT count(*) FROM t WHERE id > 2").fetchone() == (4,)
        table.optimize()
        assert table.count("id >= 0") == 10


def test_nothing_is_removed_through_a_link(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    (outside / "empty").mkdir(parents=True)
    (outside / "kept.parquet").write_bytes(b"x")
    with _lake(tmp_path, tmp_path / "data") as lake:
        table = lake.create_table("t", ROWS)
        folder = _file(tmp_path / "data").parent
        (folder / "link").symlink_to(outside)
        (folder / "file.parquet").symlink_to(outside / "kept.parquet")
        lake.delete_orphaned_files(older_than=timedelta(0))
        name = _file(folder).name
        (outside / name).write_bytes(b"x")
        table.overwrite(ROWS)
        lake.expire_snapshots(keep_last=1)
        # the folder of the files that went is a link by now
        folder.rename(tmp_path / "aside")
        folder.symlink_to(outside)
        with suppress(StorageError):
            lake.cleanup_old_files(cleanup_all=True)
        lake._context.store.prune(str(folder.relative_to(tmp_path / "data")))
    assert sorted(path.name for path in outside.iterdir()) == sorted(["empty", "kept.parquet", name])


def test_a_link_is_not_added_as_a_file(tmp_path: Path) -> None:
    pq.write_table(ROWS, tmp_path / "elsewhere.parquet")
    with _lake(tmp_path, tmp_path / "data") as lake:
        table = lake.create_table("t", ROWS)
        link = _file(tmp_path / "data").parent / "link.parquet"
        link.symlink_to(tmp_path / "elsewhere.parquet")
        with pytest.raises(PathError):
            table.add_files(link)
        assert table.count() == 5


@pytest.mark.parametrize("name", ["a*b", "a?b", "a[bc]", "[!a]", "a\\b"])
def test_a_data_path_is_no_pattern(tmp_path: Path, name: str) -> None:
    for decoy in ("axb", "ab", "ac", "b", "a"):
        (tmp_path / decoy / "main" / "t").mkdir(parents=True)
    with _lake(tmp_path, tmp_path / name) as lake:
        table = lake.create_table("t", ROWS)
        table.append(pa.table({"id": range(5, 10)}))
        for path in (tmp_path / name / "main" / "t").iterdir():  # what a pattern would find beside it
            for decoy in ("axb", "ab", "ac", "b", "a"):
                pq.write_table(pa.table({"id": [99]}), tmp_path / decoy / "main" / "t" / path.name)
        assert sorted(table.to_arrow().column("id").to_pylist()) == list(range(10))
        assert lake.sql("SELECT sum(id) FROM t WHERE id <> 3").fetchone() == (42,)
        table.delete("id = 1")
        table.update({"id": 20}, "id = 2")
        table.optimize()
        assert sorted(table.to_arrow().column("id").to_pylist()) == [0, 3, 4, 5, 6, 7, 8, 9, 20]
        table.set_partitioned_by("id")
        table.append(pa.table({"id": [30, 31]}))
        assert table.count("id >= 30") == 2
        lake.create_table("nested", pa.table({"s": [{"a": 1}]}))
        lake.table("nested").add_column("s.b", "INTEGER")
        assert lake.table("nested").to_pylist() == [{"s": {"a": 1, "b": None}}]
        with quacklake.session(safety=Safety.server()) as session:
            session.attach(lake, "lake")
            assert session.sql("SELECT count(*) FROM lake.t WHERE id >= 0").fetchone() == (11,)


def test_a_stored_name_is_no_pattern(tmp_path: Path) -> None:
    with _lake(tmp_path, tmp_path / "data") as lake:
        lake.create_table("t", ROWS)
        lake.table("t").append(ROWS)
    with sqlite3.connect(tmp_path / "lake.db") as database:
        database.execute("UPDATE ducklake_data_file SET path = '*.parquet' WHERE data_file_id = 0")
    database.close()
    with _lake(tmp_path, tmp_path / "data") as lake:
        with pytest.raises(QuacklakeError, match="parquet"):
            lake.table("t").to_arrow()
        with pytest.raises(QuacklakeError, match="parquet"):
            lake.sql("FROM t").fetchall()
