"""Generated files: whole or not there, never another content under a name, found again, bounded."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from quacklake import Lake
from quacklake.core.faults import Fault, FaultInjected, arm, record
from quacklake.core.storage import Store
from quacklake.errors import LimitError
from quacklake.service.iceberg import IcebergSettings, LakeTables
from quacklake.service.iceberg.cache import Cache
from tests.layout import plain_only
from tests.seeds import some

LOAD = """
import sys, quacklake
from quacklake.service.iceberg import IcebergSettings, LakeTables
lake = quacklake.connect(sys.argv[1], sys.argv[2])
LakeTables(lake, IcebergSettings()).load("main", "t")
"""


def filled(lake: Lake) -> None:
    lake.create_table("t", {"id": "UINTEGER"})
    lake.table("t").append([{"id": number} for number in range(30)])
    lake.table("t").delete("id % 3 = 0")
    lake.table("t").append([{"id": 100}])


def tables(lake: Lake, settings: IcebergSettings | None = None) -> LakeTables:
    return LakeTables(lake, settings or IcebergSettings())


def generated(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file() and "index" not in path.parts]


def check_whole(folder: Path) -> None:
    """Every file that has a name has the content that its name says."""
    for path in generated(folder):
        if not path.name.startswith("."):
            assert path.stem == hashlib.sha256(path.read_bytes()).hexdigest()


def named(metadata: object) -> set[str]:
    """The manifest lists that metadata names."""
    assert isinstance(metadata, dict)
    return {snapshot["manifest-list"] for snapshot in metadata["snapshots"]}


@pytest.mark.crash
@pytest.mark.daily(0.35)
@pytest.mark.parametrize("point", ["storage.publish.before", "iceberg.cache.between"])
def test_a_kill_while_files_are_written_leaves_none_that_is_half(lake: Lake, tmp_path: Path, point: str) -> None:
    plain_only("the other process opens a plain lake")
    filled(lake)
    environment = os.environ | {"QUACKLAKE_FAULT": f"4:kill:{point}"}
    command = [sys.executable, "-c", LOAD, f"sqlite:///{tmp_path}/lake.db", str(tmp_path / "data")]
    died = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert died.returncode == -9, died.stderr
    folder = Path(lake.data_path, "iceberg.cache")
    assert generated(folder)
    check_whole(folder)
    loaded = tables(lake).load("main", "t")
    check_whole(folder)
    assert all(Path(path).is_file() for path in named(loaded.metadata))


def test_an_error_at_any_point_of_a_load_leaves_a_cache_that_serves(lake: Lake, tmp_path: Path) -> None:
    filled(lake)
    expected = tables(lake, IcebergSettings(cache_path=str(tmp_path / "whole"))).load("main", "t")
    names = {Path(path).name for path in named(expected.metadata)}
    with record() as points:
        tables(lake, IcebergSettings(cache_path=str(tmp_path / "counted"))).load("main", "t")
    folder = tmp_path / "broken"
    broken = IcebergSettings(cache_path=str(folder))
    chosen = [number for number, point in enumerate(points, 1) if point.startswith(("iceberg", "storage.publish"))]
    for number in some(chosen, 3, "faults of the Iceberg cache"):
        with arm(Fault(at=number)), pytest.raises(FaultInjected):
            tables(lake, replace(broken, cache_path=str(folder / str(number)))).load("main", "t")
        check_whole(folder / str(number))
        tables(lake, replace(broken, cache_path=str(folder / str(number)))).load("main", "t")
        check_whole(folder / str(number))
    loaded = tables(lake, broken).load("main", "t")
    assert len(named(loaded.metadata)) == len(names)
    check_whole(folder)


def test_another_process_finds_what_was_made(lake: Lake, tmp_path: Path) -> None:
    filled(lake)
    first = tables(lake).load("main", "t")
    before = {path: path.stat().st_mtime_ns for path in generated(Path(lake.data_path, "iceberg.cache"))}
    second = tables(lake).load("main", "t")  # with no memory of the first
    after = {path: path.stat().st_mtime_ns for path in generated(Path(lake.data_path, "iceberg.cache"))}
    assert (second.metadata, after) == (first.metadata, before)


def test_a_commit_makes_new_files_only_for_what_it_changed(lake: Lake, tmp_path: Path) -> None:
    lake.options.set("data_inlining_row_limit", 0)
    lake.create_table("t", {"id": "BIGINT"})
    for number in range(20):
        lake.table("t").append([{"id": number}])
    served = tables(lake)
    served.load("main", "t")
    before = set(generated(Path(lake.data_path, "iceberg.cache")))
    lake.table("t").append([{"id": 99}])
    served.load("main", "t")
    new = set(generated(Path(lake.data_path, "iceberg.cache"))) - before
    assert len(new) == 2  # a manifest and a list
    lake.create_table("other", {"id": "BIGINT"})
    served.load("main", "t")
    assert set(generated(Path(lake.data_path, "iceberg.cache"))) == before | new


def test_files_that_somebody_removed_are_made_again(lake: Lake, tmp_path: Path) -> None:
    filled(lake)
    first = tables(lake).load("main", "t")
    for path in generated(Path(lake.data_path, "iceberg.cache")):
        path.unlink()
    again = tables(lake).load("main", "t")
    assert all(Path(path).is_file() for path in named(again.metadata))
    assert len(named(again.metadata)) == len(named(first.metadata))


def test_a_damaged_index_is_not_believed(lake: Lake, tmp_path: Path) -> None:
    filled(lake)
    tables(lake).load("main", "t")
    folder = Path(lake.data_path, "iceberg.cache")
    texts = (
        "",
        "[]",
        "{}",
        '{"name": "../../lake.db", "size": 1, "facts": {}}',
        '{"name": "x", "size": -1, "facts": 3}',
    )
    for number, path in enumerate(sorted((folder / "index").rglob("*.json"))):
        path.write_text(texts[number % len(texts)])
    again = tables(lake).load("main", "t")
    check_whole(folder)
    assert all(Path(path).is_file() and path.startswith(str(folder)) for path in named(again.metadata))


def test_the_cache_is_bounded_and_keeps_what_was_used_lately(tmp_path: Path) -> None:
    settings = IcebergSettings(cache_bytes=4_000, cache_seconds=3600)
    cache = Cache(Store.open(str(tmp_path)), "c/", settings)
    made = [cache.once(cache.key("old", number), "x", lambda: (os.urandom(500), {})) for number in range(4)]
    for path in tmp_path.rglob("*"):
        if path.is_file():
            os.utime(path, (time.time() - 7200,) * 2)
    recent = cache.once(cache.key("new"), "x", lambda: (os.urandom(2_200), {}))
    assert Path(recent.url).is_file()
    assert sum(path.stat().st_size for path in generated(tmp_path)) <= 4_000
    assert not all(Path(each.url).is_file() for each in made)
    with pytest.raises(LimitError, match="4,000 bytes"):
        cache.once(cache.key("large"), "x", lambda: (os.urandom(3_900), {}))
    assert Path(recent.url).is_file()


def test_a_file_that_is_used_again_becomes_new(tmp_path: Path) -> None:
    settings = IcebergSettings(cache_seconds=3600)
    first = Cache(Store.open(str(tmp_path)), "c/", settings)
    made = first.once(first.key("k"), "x", lambda: (b"content", {"n": 1}))
    os.utime(made.url, (time.time() - 3000,) * 2)
    other = Cache(Store.open(str(tmp_path)), "c/", settings)
    again = other.once(other.key("k"), "x", lambda: (b"other", {}))
    assert again == made
    assert time.time() - Path(made.url).stat().st_mtime < 1000


def test_the_lake_is_whole_and_cleanup_leaves_the_cache_alone(lake: Lake, tmp_path: Path) -> None:
    filled(lake)
    tables(lake).load("main", "t")
    before = set(generated(Path(lake.data_path, "iceberg.cache")))
    lake.delete_orphaned_files(cleanup_all=True)
    assert set(generated(Path(lake.data_path, "iceberg.cache"))) == before
    assert lake.verify(deep=True).ok
