"""The next pass does what is due, and then nothing is due."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

import quacklake
from quacklake import Lake
from quacklake.core.maintenance.policy import JobKind, Policy

PARTITIONS = 36
_SCHEMA = pa.schema([("p", pa.int64()), ("x", pa.int64())])


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Lake]:
    with quacklake.connect(f"sqlite:///{tmp_path}/lake.db", tmp_path / "data", data_inlining_row_limit=0) as found:
        yield found


def _fill(lake: Lake, times: int) -> None:
    """As many files in each partition."""
    lake.create_table("t", _SCHEMA, partition_by="p")
    for number in range(times):
        lake.table("t").append([{"p": p, "x": number} for p in range(PARTITIONS)])

    return pa.schema([("p", pa.int64()), ("x", pa.int64())])


def _due(lake: Lake, policy: Policy | None = None) -> list[JobKind]:
    return [job.kind for job in lake.maintenance.maintainer(policy).due()]


def test_one_small_file_in_each_partition_is_not_due(lake: Lake) -> None:
    _fill(lake, 1)
    lake.maintain()
    assert _due(lake) == []
    assert lake.table("t").files().num_rows == PARTITIONS


def test_after_small_files_of_partitions_are_merged_nothing_is_due(lake: Lake) -> None:
    _fill(lake, 2)
    assert _due(lake) == [JobKind.MERGE, JobKind.ORPHANS]
    report = lake.maintain()
    assert [job.job.kind for job in report.jobs] == [JobKind.MERGE, JobKind.ORPHANS]
    assert _due(lake) == []
    assert lake.maintain().jobs == ()
    assert lake.table("t").files().num_rows == PARTITIONS


def test_a_few_new_files_do_not_have_every_partition_written_again(lake: Lake) -> None:
    _fill(lake, 1)
    lake.maintain()
    for _ in range(3):
        lake.table("t").append([{"p": 1, "x": 9}])
    assert _due(lake) == []


def test_what_a_flush_leaves_is_merged_in_the_same_pass(lake: Lake) -> None:
    _fill(lake, 1)
    lake.options.set("data_inlining_row_limit", 1000)
    with quacklake.connect(lake.url) as other:
        other.table("t").append([{"p": p, "x": 7} for p in range(PARTITIONS)])
        policy = Policy(flush_rows=10, orphans_every=None)
        assert _due(other, policy) == [JobKind.FLUSH]
        assert [job.job.kind for job in other.maintain(policy).jobs] == [JobKind.FLUSH, JobKind.MERGE]
        assert _due(other, policy) == []


def test_snapshots_that_stay_are_not_due(lake: Lake) -> None:
    _fill(lake, 2)
    policy = Policy(expire_older_than=dt.timedelta(0), small_files=None, orphans_every=None)
    assert _due(lake, policy) == [JobKind.EXPIRE]
    lake.maintain(policy)
    assert _due(lake, policy) == []  # the newest snapshot is as old, and stays


def test_orphans_are_due_again_after_their_time(lake: Lake) -> None:
    policy = Policy(orphans_every=dt.timedelta(days=1))
    assert _due(lake, policy) == [JobKind.ORPHANS]
    lake.maintain(policy)
    assert _due(lake, policy) == []
    lake.maintain(Policy(orphans_every=dt.timedelta(0)))
    with lake._context.catalog.commit() as writer:
        table = writer.meta.own["leases"]
        writer.run("forget", table.update().values(expires_ms=1))
    assert _due(lake, policy) == [JobKind.ORPHANS]
