"""Maintenance of a pond, and what happens when a disk is full."""

from __future__ import annotations

import datetime as dt
import os
import re
import resource
import shutil
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pytest

from quacklake.config import resolve
from quacklake.core.maintenance.policy import Policy
from quacklake.errors import StorageError
from quacklake.pond import Pond
from quacklake.pond.backup import BackupPlace, backup
from quacklake.pond.maintaining import maintain
from quacklake.pond.series import append_series
from quacklake.pond.verifying import verify
from tests.cli.conftest import Run
from tests.pond.conftest import readings

DAY = dt.timedelta(days=1)


def age(pond: Pond) -> None:
    """Let the large files be a week old."""
    past = time.time() - 7 * 86_400
    for path in Path(pond.lake.data_path, "_large_files").rglob("sha256=*"):
        os.utime(path, (past, past))


def test_small_files_are_merged_and_only_large_files_that_nothing_names_go(tmp_path: Path, template: Path) -> None:
    with Pond.open(shutil.copytree(template, tmp_path / "P")) as pond:
        for number in range(4):
            pond.run(["add"], lambda fs, n=number: append_series(fs, "/s", readings(50, 50 * n)))
        pond.run(["a"], lambda fs: (fs.write_file("/kept", b"K" * 70_000), fs.write_file("/gone", b"G" * 70_000)))
        pond.run(["rm"], lambda fs: fs.remove("/gone"))
        age(pond)
        table = pond.lake.table('pond_data."/s"')
        policy = Policy(small_files=3, flush_rows=1)
        assert maintain(pond, policy, grace=DAY).large.files == 0  # an older state still has it
        assert len(table.files()) < 4
        pond.lake.expire_snapshots(older_than=dt.datetime.now(dt.UTC))
        tried = maintain(pond, policy, grace=DAY, dry_run=True)
        assert (tried.large.files, tried.large.bytes, tried.large.removed) == (1, 70_000, False)
        assert maintain(pond, policy, grace=dt.timedelta(days=30)).large.files == 0
        assert maintain(pond, policy, grace=DAY).large.files == 1
        assert (table.count(), pond.fs().read("/kept")) == (200, b"K" * 70_000)
        assert verify(pond).problems == ()
        pond.run(["again"], lambda fs: fs.write_file("/gone", b"G" * 70_000))
        assert pond.fs().read("/gone") == b"G" * 70_000


def test_resolutions_are_brought_up_to_date(tmp_path: Path, template: Path) -> None:
    config = {"in_pattern": "/*.series", "out_pattern": "$0", "resolutions": ["1h"]}
    with Pond.open(shutil.copytree(template, tmp_path / "P")) as pond:
        pond.run(["add"], lambda fs: append_series(fs, "/s.series", readings(50)))
        pond.run(["reduce"], lambda fs: fs.make_node("/reduced", "temporal-reduce", config))
        done = [maintain(pond, Policy()).reductions for _ in range(2)]
        assert [(each.refreshed, each.current) for each in done] == [(1, 0), (0, 1)]


def test_maintain_as_a_command(new: Run) -> None:
    assert "delete_orphaned_files: every 1 day, due" in new("maintain", "--dry-run").out
    assert new("maintain", "--small-files", "2", "--flush-rows", "1").code == 0
    assert "nothing is due" in new("maintain", "--dry-run").out
    assert '"large_files": 0' in new("maintain", "--output", "json").out


@contextmanager
def room_for(size: int) -> Iterator[None]:
    """Let no file of this process become larger, as on a disk that is full."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.parametrize("what", ["file", "series", "backup"])
def test_a_full_disk_is_a_typed_error_and_nothing_is_changed(tmp_path: Path, template: Path, what: str) -> None:
    with Pond.open(shutil.copytree(template, tmp_path / "P")) as pond:
        pond.run(["add"], lambda fs: (append_series(fs, "/s", readings(10)), fs.write_file("/b", b"B" * 600_000)))
        before = pond.lake.current_snapshot()
        times = pa.array(range(200_000), pa.timestamp("us", "UTC"))
        many = pa.table({"ts": times, "v": [os.urandom(8) for _ in range(200_000)]})
        with room_for(550_000), pytest.raises(StorageError):
            if what == "file":
                pond.run(["big"], lambda fs: fs.write_file("/big", b"C" * 900_000))
            elif what == "series":
                pond.run(["many"], lambda fs: append_series(fs, "/many", many))
            else:
                backup(pond, BackupPlace(str(tmp_path / "B"), resolve({})))
        assert pond.lake.current_snapshot() == before + (what != "backup")
        assert [each.path for each in pond.fs().glob("**/*")] == ["/b", "/s"]
        assert BackupPlace(str(tmp_path / "B"), resolve({})).backups() == []
        assert pond.control.transactions()[-1].state == ("completed" if what == "backup" else "failed")
        assert pond.recover().removed_files == 0
        pond.run(["after"], lambda fs: fs.write_file("/big", b"C" * 900_000))


def test_a_large_file_that_a_running_command_needs_again_stays(tmp_path: Path, template: Path) -> None:
    """No state names it, and it is old; writing it again makes it young."""
    with Pond.open(shutil.copytree(template, tmp_path / "P")) as pond:
        pond.run(["a"], lambda fs: fs.write_file("/gone", b"G" * 70_000))
        pond.run(["rm"], lambda fs: fs.remove("/gone"))
        pond.lake.expire_snapshots(older_than=dt.datetime.now(dt.UTC))
        age(pond)
        assert maintain(pond, Policy(), grace=DAY, dry_run=True).large.files == 1
        with pond.transaction(["again"]) as fs:
            fs.write_file("/again", b"G" * 70_000)
            with Pond.open(tmp_path / "P") as other:
                assert maintain(other, Policy(), grace=DAY).large.files == 0
        assert pond.fs().read("/again") == b"G" * 70_000


def test_recover_removes_what_only_processes_that_have_ended_can_have_left(new: Run, tmp_path: Path) -> None:
    host, incoming = re.sub(r"[^\w.-]", "_", socket.gethostname()), tmp_path / "own/data/files/_large_files/incoming"
    left = {
        f"0-{os.getpid()}-{host}": False,
        f"1-99999999-{host}": True,
        "2-1-elsewhere": False,
        "3-1-elsewhere-long-ago": True,
        "no-process": False,
    }
    for name in left:
        (incoming / name).mkdir(parents=True)
        (incoming / name / "content").write_bytes(b"part")
    os.utime(incoming / "3-1-elsewhere-long-ago" / "content", (0, 0))
    assert "Recovery needed: 2 unfinished files; run 'pond recover'" in new("status").out
    assert new("recover").out == "removed 2 unfinished files\n"
    assert {each.name for each in incoming.iterdir()} == {name for name, goes in left.items() if not goes}
    assert new("recover").out == "nothing to recover\n"
    assert "Recovery needed" not in new("status").out
