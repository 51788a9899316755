"""The care that a whole lake gets: by policy, all at once, from the command line."""

from __future__ import annotations

import datetime as dt
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

import quacklake
from quacklake import Lake
from quacklake.cli import main
from quacklake.core.maintenance.policy import Policy
from quacklake.core.maintenance.scheduler import LeasedWork, hold
from quacklake.errors import LeaseHeldError
from tests.prove.soak import soak

POLICY = Policy(
    small_files=2,
    flush_rows=3,
    delete_ratio=0.1,
    expire_older_than=dt.timedelta(0),
    delete_older_than=dt.timedelta(0),
)


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Lake]:
    with quacklake.connect(f"sqlite:///{tmp_path}/lake.db", data_path=tmp_path / "data") as found:
        found.create_table("t", [{"x": x} for x in range(20)])
        found.table("t").append([{"x": x} for x in range(20, 40)])
        found.table("t").append([{"x": x} for x in range(40, 45)])
        yield found


def data_files(tmp_path: Path) -> int:
    return sum(1 for path in (tmp_path / "data").rglob("*.parquet"))


def test_a_pass_leaves_one_snapshot_and_one_file(lake: Lake, tmp_path: Path) -> None:
    lake.table("t").delete("x < 5")
    rows = sorted(lake.table("t").to_pylist(), key=str)
    for _ in range(5):  # what one pass writes is for the next to clean up
        assert lake.maintain(POLICY).failed == []
    assert sorted(lake.table("t").to_pylist(), key=str) == rows
    assert lake.table("t").files().num_rows <= 2
    assert lake.snapshots().num_rows == 1
    assert data_files(tmp_path) <= 3


def test_small_files_with_a_few_deletes_go_together(lake: Lake) -> None:
    table = lake.table("t")
    for start in range(100, 600, 100):
        table.append([{"x": x} for x in range(start, start + 50)])
    table.flush_inlined_data()
    table.delete("x % 50 = 7")
    table.flush_inlined_data()
    rows = sorted(row["x"] for row in table.to_pylist())
    policy = Policy(small_files=5, delete_ratio=0.9, orphans_every=None)
    (done,) = lake.maintain(policy).jobs
    assert done.job.reason == "6 small files with deletes"
    assert sorted(row["x"] for row in table.to_pylist()) == rows
    assert table.files().num_rows == 3
    assert lake.maintain(policy).jobs == ()


def test_a_file_that_has_grown_is_left_alone_by_a_crowd_of_tiny_ones(lake: Lake) -> None:
    lake.options.set("target_file_size", "1MB")
    table = lake.table("t")
    table.append(pa.table({"x": pa.array([x * 0x9E3779B97F4A7C15 % (1 << 62) for x in range(10_000)], pa.int64())}))
    (large,) = [file for file in table.files().to_pylist() if file["file_size_bytes"] > 50_000]
    for start in range(100, 600, 100):
        table.append([{"x": x} for x in range(start, start + 50)])
    (done,) = lake.maintain(Policy(small_files=5, orphans_every=None)).jobs
    assert (done.job.kind.value, done.report.files_before, done.report.files_after) == ("merge_adjacent_files", 7, 1)
    assert large["path"] in table.files().column("path").to_pylist()


def test_a_policy_leaves_ages_to_the_options_of_the_lake(lake: Lake) -> None:
    assert lake.maintenance.maintainer().policy.expire_older_than is None
    assert lake.maintenance.maintainer().policy.delete_older_than == dt.timedelta(days=2)
    lake.options.set("expire_older_than", "1 day")
    lake.options.set("delete_older_than", "3 hours")
    policy = lake.maintenance.maintainer().policy
    assert (policy.expire_older_than, policy.delete_older_than) == (dt.timedelta(days=1), dt.timedelta(hours=3))


def test_a_lake_that_another_maintains_is_left_alone(lake: Lake) -> None:
    before = lake.current_snapshot()
    with hold(lake._context.catalog, LeasedWork.MAINTENANCE, dt.timedelta(minutes=1)):
        with pytest.raises(LeaseHeldError) as caught:
            lake.maintain(POLICY)
        assert caught.value.transient
    assert lake.current_snapshot() == before


def test_a_checkpoint_does_everything_in_the_order_of_the_reference(lake: Lake) -> None:
    rows = lake.table("t").count()
    report = lake.maintenance.checkpoint()
    assert list(report.reports) == [
        "flush_inlined_data",
        "expire_snapshots",
        "merge_adjacent_files",
        "rewrite_data_files",
        "cleanup_old_files",
        "delete_orphaned_files",
    ]
    assert lake.table("t").count() == rows
    assert lake.table("t").files().num_rows == 1


def run(tmp_path: Path, *words: str) -> int:
    return main(["--lake", f"sqlite:///{tmp_path}/lake.db", "maintain", *words])


def test_the_command_says_what_is_due_and_does_it(
    lake: Lake, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = lake.table("t").files().num_rows
    assert run(tmp_path, "--small-files", "2", "--dry-run") == 0
    assert "merge_adjacent_files main.t: 2 small files, due" in capsys.readouterr().out
    assert lake.table("t").files().num_rows == files
    assert run(tmp_path, "--small-files", "2", "--output", "json") == 0
    (job,) = [job for job in json.loads(capsys.readouterr().out)["jobs"] if job["job"] == "merge_adjacent_files"]
    assert (job["error"], job["report"]["files_before"], job["report"]["files_after"]) == (None, 2, 1)
    assert run(tmp_path, "--small-files", "2") == 0
    assert "nothing is due" in capsys.readouterr().out


def test_the_command_fails_when_another_maintains_the_lake(
    lake: Lake, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with hold(lake._context.catalog, LeasedWork.MAINTENANCE, dt.timedelta(minutes=1)):
        assert run(tmp_path) == 1
    assert "another process" in capsys.readouterr().err


@pytest.mark.parametrize("words", [("--small-files", "1"), ("--watch", "--dry-run"), ("--delete-ratio", "2")])
def test_wrong_words_are_refused(lake: Lake, tmp_path: Path, words: tuple[str, ...]) -> None:
    before = lake.current_snapshot()
    assert run(tmp_path, *words) == 1
    assert lake.current_snapshot() == before


def test_watching_ends_cleanly_when_asked(lake: Lake, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "quacklake.cli", "--lake", f"sqlite:///{tmp_path}/lake.db", "maintain", "--watch"]
    command += ["--interval", "50ms", "--small-files", "2", "--output", "json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=os.environ.copy()) as watcher:
        assert watcher.stdout is not None
        first = json.loads(watcher.stdout.readline())
        watcher.send_signal(signal.SIGTERM)
        assert watcher.wait(30) == 0
    assert "merge_adjacent_files" in [job["job"] for job in first["jobs"]]
    lake.maintain(POLICY)  # the lease was given back


def test_a_lake_under_constant_writes_stays_equal_to_its_model(tmp_path: Path) -> None:
    report = soak(tmp_path, f"sqlite:///{tmp_path}/lake.db", 1, writers=2, least=12, seed=7)
    assert report.problems == []
    assert report.commits >= 24
    assert report.snapshots_checked >= 10
    assert report.passes >= 1
