"""Leases and passes of the scheduler."""

from __future__ import annotations

import datetime as dt
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import quacklake
from quacklake import Lake
from quacklake.core.catalog import Catalog
from quacklake.core.maintenance.policy import Job, JobKind, Policy
from quacklake.core.maintenance.scheduler import LeasedWork, MaintenanceReport, Scheduler, claim, examine, hold
from quacklake.errors import CommitConflict, LeaseHeldError, NotFoundError

POLICY = Policy(small_files=2, flush_rows=3, orphans_every=None, interval=dt.timedelta(milliseconds=20))
MINUTE = dt.timedelta(minutes=1)


@contextmanager
def new_lake(url: str, tmp_path: Path) -> Iterator[Lake]:
    with quacklake.connect(url, data_path=tmp_path / "data") as lake:
        yield lake


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Lake]:
    with new_lake(f"sqlite:///{tmp_path}/lake.db", tmp_path) as found:
        yield found


def catalog_of(lake: Lake) -> Catalog:
    return lake._context.catalog


def fill(lake: Lake) -> None:
    """Two small files and five inlined rows."""
    lake.create_table("t", [{"x": 1}] * 20)
    lake.table("t").append([{"x": 2}] * 20)
    lake.table("t").append([{"x": 3}] * 5)


class Workers:
    """Operations that only note that they were asked for."""

    def __init__(self, **outcomes: Exception) -> None:
        self.asked: list[tuple[str, str | None]] = []
        self.outcomes = outcomes

    def __getitem__(self, kind: JobKind) -> Any:
        def work(job: Job) -> str:
            self.asked.append((kind.value, job.table))
            if kind.name in self.outcomes:
                raise self.outcomes[kind.name]
            return "done"

        return work


def scheduler(lake: Lake, workers: Workers, policy: Policy = POLICY) -> Scheduler:
    return Scheduler(catalog_of(lake), policy, workers, small=1 << 20)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "database",
    [
        "sqlite",
        "duckdb",
        "postgres",
        "mysql",
    ],
)
def test_leases_and_numbers_on_every_database(database: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    local = {"sqlite": f"sqlite:///{tmp_path}/lake.db", "duckdb": f"duckdb:///{tmp_path}/lake.duckdb"}
    url = local.get(database) or request.getfixturevalue(f"{database}_url")
    with new_lake(url, tmp_path) as lake:
        catalog = catalog_of(lake)
        claim(catalog, LeasedWork.MAINTENANCE, MINUTE, "0190e6a1-0000-7000-8000-000000000001")
        with pytest.raises(LeaseHeldError, match="another process"):
            claim(catalog, LeasedWork.MAINTENANCE, MINUTE, "0190e6a1-0000-7000-8000-000000000002")
        claim(catalog, LeasedWork.ORPHANS, dt.timedelta(0), "0190e6a1-0000-7000-8000-000000000001")
        claim(catalog, LeasedWork.ORPHANS, MINUTE, "0190e6a1-0000-7000-8000-000000000002")

        fill(lake)
        lake.table("t").delete("x = 1 OR x = 3")
        health = examine(catalog, replace(POLICY, delete_ratio=0.5), 1 << 20, {})
        (table,) = health.tables.values()
        assert (table.files, table.small, table.chipped, table.inlined_rows) == (1, (0, 0, 0, 1), (0, 0, 0, 0), 5)
        lake.table("t").append([{"x": x} for x in range(100)])
        lake.table("t").delete("x > 20")
        health = examine(catalog, replace(POLICY, delete_ratio=0.5), 1 << 20, {table.table_id: 1})
        (table,) = health.tables.values()
        assert (table.files, sum(table.small), sum(table.chipped), table.worn_files) == (2, 0, 0, 1)
        assert list(health.names.values()) == ["main.t"]
        assert dt.timedelta(0) <= health.inlined_age[table.table_id] < MINUTE
        assert dt.timedelta(0) <= health.oldest_snapshot_age < MINUTE


def test_a_lease_is_renewed_while_work_goes_on_and_given_back_after(lake: Lake) -> None:
    catalog, length = catalog_of(lake), dt.timedelta(seconds=1)
    with hold(catalog, LeasedWork.MAINTENANCE, length) as lost:
        time.sleep(1.3)
        with pytest.raises(LeaseHeldError):
            claim(catalog, LeasedWork.MAINTENANCE, length, "0190e6a1-0000-7000-8000-000000000002")
        assert not lost.is_set()
    claim(catalog, LeasedWork.MAINTENANCE, length, "0190e6a1-0000-7000-8000-000000000002")


def test_a_pass_does_what_is_due_once(lake: Lake) -> None:
    fill(lake)
    workers = Workers()
    passes = scheduler(lake, workers)
    report = passes.run_once()
    assert workers.asked == [("flush_inlined_data", "main.t"), ("merge_adjacent_files", "main.t")]
    assert [job.report for job in report.jobs] == ["done", "done"]
    assert not report.failed
    assert not passes.run_once().jobs  # it has not helped, so it is not tried again
    lake.table("t").append([{"x": 2}] * 20)
    assert [job.job.kind for job in passes.run_once().jobs] == [JobKind.MERGE]


def test_a_job_that_fails_does_not_stop_the_others(lake: Lake) -> None:
    fill(lake)
    workers = Workers(FLUSH=CommitConflict("overtaken"))
    passes = scheduler(lake, workers)
    report = passes.run_once()
    assert [job.job.kind for job in report.failed] == [JobKind.FLUSH]
    assert [job.report for job in report.jobs] == [None, "done"]
    assert [job.job.kind for job in passes.run_once().failed] == [JobKind.FLUSH]  # tried again


def test_a_table_dropped_in_the_middle_of_a_pass_is_no_failure(lake: Lake) -> None:
    fill(lake)
    assert not scheduler(lake, Workers(MERGE=NotFoundError("no table t"))).run_once().failed


def test_orphans_are_looked_for_once_in_their_time_whoever_does_it(lake: Lake) -> None:
    policy = replace(POLICY, orphans_every=dt.timedelta(hours=1))
    one, two = Workers(), Workers()
    scheduler(lake, one, policy).run_once()
    scheduler(lake, two, policy).run_once()
    assert (one.asked, two.asked) == ([("delete_orphaned_files", None)], [])


def test_only_one_of_two_processes_makes_a_pass(lake: Lake) -> None:
    fill(lake)
    with hold(catalog_of(lake), LeasedWork.MAINTENANCE, MINUTE), pytest.raises(LeaseHeldError):
        scheduler(lake, Workers()).run_once()


def test_watching_waits_for_the_leader_takes_over_and_stops_when_told(lake: Lake) -> None:
    fill(lake)
    workers, stop, reports = Workers(), threading.Event(), list[MaintenanceReport]()
    watcher = threading.Thread(target=scheduler(lake, workers).run, args=(stop, reports.append))
    with hold(catalog_of(lake), LeasedWork.MAINTENANCE, MINUTE):
        watcher.start()
        time.sleep(0.2)
        assert not workers.asked
    deadline = time.monotonic() + 10
    while not reports and time.monotonic() < deadline:
        time.sleep(0.01)
    stop.set()
    watcher.join(10)
    assert not watcher.is_alive()
    assert [kind for kind, _ in workers.asked] == ["flush_inlined_data", "merge_adjacent_files"]
