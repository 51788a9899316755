"""Maintenance gives every catalog its turn, no matter how busy others are or what is wrong with one."""

from __future__ import annotations

import datetime as dt
import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import quacklake
from quacklake.cli import main
from quacklake.core.catalog.registry import Registry
from quacklake.core.maintenance.policy import Policy
from quacklake.core.maintenance.scheduler import LeasedWork, hold
from quacklake.core.operations.handles import LakeHandle
from quacklake.errors import ConfigError, InputError, LeaseHeldError
from quacklake.lake.tenant_maintenance import CatalogNeed, RoundLimits, RoundReport, Thresholds, needs, wants
from quacklake.lake.tenants import Tenants

MANY = {"a": list(range(50))}
MERGING = Policy(small_files=2, orphans_every=None, interval=dt.timedelta(0), jitter=0)
"""Care for catalogs with a table of two small files, and for nothing else."""
DATABASES = ["sqlite", "postgres", *(pytest.param(name, marks=pytest.mark.daily(0)) for name in ("duckdb", "mysql"))]


@pytest.fixture
def tenants(tmp_path: Path) -> Iterator[Tenants]:
    with quacklake.tenants(f"sqlite:///{tmp_path}/l.db", tmp_path / "data") as found:
        yield found


def work(tenants: Tenants, name: str, files: int = 2) -> None:
    """Let a catalog have more small files."""
    with tenants.open(name, create=True) as lake:
        if not lake.tables():
            lake.create_table("t", {"a": []}, if_not_exists=True)
        for _ in range(files):
            lake.table("t").append(MANY)


def visited(report: RoundReport) -> list[str]:
    return [visit.name for visit in report.tenants]


def test_a_busy_catalog_takes_no_turn_from_the_others(tenants: Tenants, tmp_path: Path) -> None:
    names = ["a", "b", "c", "d"]
    for name in names:
        work(tenants, name)
    tenants.create("idle")
    seen = []
    for _ in range(3):
        work(tenants, "b")  # always the one with most to do
        with quacklake.tenants(tenants.url) as another:  # the next round may be made by anybody
            report = another.maintain(MERGING, bounds=RoundLimits(tenants=2))
        seen.append(visited(report))
        assert not report.failed
        assert all(visit.report.jobs for visit in report.tenants)
    assert seen == [["a", "b"], ["c", "d"], ["b"]]
    report = tenants.maintain(MERGING)
    assert (visited(report), report.looked, report.complete) == ([], 5, True)
    assert [row.files for row in tenants.stats()] == [1, 1, 1, 1, 0]


def test_a_round_ends_when_enough_files_were_handled(tenants: Tenants) -> None:
    work(tenants, "big", 9)
    work(tenants, "small")
    bounds = RoundLimits(files=4)
    report = tenants.maintain(MERGING, bounds=bounds)
    assert (visited(report), report.complete) == (["big"], False)
    assert report.files <= 6
    assert 1 < tenants.stats("big")[0].files < 9  # the rest has to wait until the other had its turn
    assert visited(tenants.maintain(MERGING, bounds=bounds))[0] == "small"
    while not tenants.maintain(MERGING, bounds=bounds).complete:
        pass
    assert [row.files for row in tenants.stats()] == [1, 1]


def test_one_that_fails_is_told_and_keeps_no_other_from_its_turn(
    tenants: Tenants, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("broken", "closed", "gone", "held", "well"):
        work(tenants, name)
    with tenants.open("broken") as lake:
        for path in Path(lake.data_path).rglob("*.parquet"):
            path.unlink()
    opened = Tenants.open_handle

    def open_(self: Tenants, name: str, **settings: Any) -> LakeHandle:
        if name == "closed":
            raise OSError("the disk is on fire")
        if name == "gone":
            self.drop(name)
        return opened(self, name, **settings)

    monkeypatch.setattr(Tenants, "open_handle", open_)
    with opened(tenants, "held") as lake, hold(lake.context.catalog, LeasedWork.MAINTENANCE, dt.timedelta(minutes=5)):
        report = tenants.maintain(MERGING)
    assert visited(report) == ["broken", "closed", "gone", "held", "well"]
    found = {visit.name: visit for visit in report.tenants}
    assert [visit.name for visit in report.failed] == ["broken", "closed"]
    assert [job.error.code for job in found["broken"].report.failed if job.error] == ["storage.corrupt"]
    assert found["closed"].error is not None and "on fire" in found["closed"].error.message
    assert found["held"].busy and isinstance(found["held"].error, LeaseHeldError)
    assert not found["gone"].failed
    assert tenants.stats("well")[0].files == 1
    assert tenants.stats("held")[0].files == 2


def test_rounds_go_on_until_they_are_told_to_stop(tenants: Tenants) -> None:
    for name in ("a", "b", "c"):
        work(tenants, name)
    stop, reports = threading.Event(), []

    def told(report: RoundReport) -> None:
        reports.append(report)
        if report.complete:
            stop.set()

    tenants.maintainer(MERGING, bounds=RoundLimits(tenants=1)).run(stop, told)
    assert [visited(report) for report in reports] == [["a"], ["b"], ["c"]]
    work(tenants, "a")
    stopped = tenants.maintainer(MERGING).run_once(stop=stop)
    assert (visited(stopped), stopped.complete) == ([], False)
    assert tenants.maintainer(MERGING).due() == ["a"]


def test_several_are_visited_at_a_time(tenants: Tenants) -> None:
    for name in ("a", "b", "c"):
        work(tenants, name)
    report = tenants.maintain(MERGING, threads=3)
    assert sorted(visited(report)) == ["a", "b", "c"]
    assert not report.failed and report.complete
    assert [row.files for row in tenants.stats()] == [1, 1, 1]


@pytest.mark.parametrize("database", DATABASES)
def test_one_statement_tells_what_a_page_of_catalogs_needs(
    database: str, new_url: Callable[[str], str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with quacklake.tenants(new_url(database), tmp_path / "data") as tenants:
        tenants.create_many(["empty", "files", "inlined", "old"])
        with tenants.open("files") as lake:
            t = lake.create_table("t", MANY)
            lake.create_table("u", MANY)
            t.append(MANY)
            t.delete("a < 40")
            lake.maintenance.flush_inlined_data()
        with tenants.open("inlined") as lake:
            lake.create_table("t", [{"a": 1}]).append([{"a": 2}])
            lake.create_table("gone", [{"a": 1}])
            lake.drop_table("gone")
        with tenants.open("old") as lake:
            lake.create_table("t", MANY).overwrite(MANY)
            lake.options.set("expire_older_than", "0 seconds")
            lake.expire_snapshots()
            lake.delete_orphaned_files()
        sent, run = [], Registry.run

        def noted(self: Registry, name: str, statement: Any) -> Any:
            sent.append(name)
            return run(self, name, statement)

        monkeypatch.setattr(Registry, "run", noted)
        with tenants._tenancy.reading() as registry:
            found = needs(registry, -1, 10, Thresholds(10_000_000, 0.5), int(LeasedWork.ORPHANS))
        assert sent == ["needs"]
        names = {need.name: need for need in found}
        assert list(names) == ["empty", "files", "inlined", "old"]
        assert (names["empty"].small_files, names["empty"].inlined_rows, names["empty"].inlined_since) == (0, 0, None)
        assert (names["files"].small_files, names["files"].worn_files) == (2, 2)
        assert (names["inlined"].small_files, names["inlined"].inlined_rows) == (0, 2)
        now = dt.datetime.now(dt.UTC)
        for time in (names["inlined"].inlined_since, names["old"].removable_since, names["old"].snapshot_since):
            assert time is not None and dt.timedelta(0) <= now - time < dt.timedelta(minutes=10)
        assert names["files"].removable_since is None
        assert names["old"].expire is not None and names["files"].expire is None
        with tenants._tenancy.reading() as registry:
            page = needs(registry, found[1].id, 1, Thresholds(1, 0.5), int(LeasedWork.ORPHANS))
        assert [(need.name, need.small_files) for need in page] == [("inlined", 0)]


_NOW = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
_LONG_AGO = _NOW - dt.timedelta(days=30)
_NEVER = Policy(orphans_every=None)


@pytest.mark.parametrize(
    ("policy", "need", "wanted"),
    [
        (_NEVER, {}, False),
        (Policy(), {}, True),  # nobody has looked for orphans yet
        (Policy(), {"looked_ms": int(_NOW.timestamp() * 1000) + 1}, False),
        (_NEVER, {"small_files": 15}, False),
        (_NEVER, {"small_files": 16}, True),
        (_NEVER, {"worn_files": 1}, True),
        (Policy(delete_ratio=None, orphans_every=None), {"worn_files": 1}, False),
        (_NEVER, {"inlined_rows": 10_000, "inlined_since": _NOW}, True),
        (_NEVER, {"inlined_rows": 1, "inlined_since": _NOW}, False),
        (_NEVER, {"inlined_rows": 1, "inlined_since": _LONG_AGO}, True),
        (_NEVER, {"inlined_rows": 1}, True),  # from a snapshot that has expired
        (_NEVER, {"snapshot_since": _LONG_AGO}, False),
        (_NEVER, {"snapshot_since": _LONG_AGO, "expire": "7 days"}, True),
        (_NEVER, {"snapshot_since": _LONG_AGO, "expire": "90 days"}, False),
        (_NEVER, {"snapshot_since": _LONG_AGO, "expire": "in a form of its own"}, True),
        (Policy(expire_older_than=dt.timedelta(days=1), orphans_every=None), {"snapshot_since": _LONG_AGO}, True),
        (_NEVER, {"removable_since": _NOW}, False),
        (_NEVER, {"removable_since": _LONG_AGO}, True),
        (_NEVER, {"removable_since": _LONG_AGO, "delete": "90 days"}, False),
    ],
    ids=str,
)
def test_what_makes_a_visit_worth_while(policy: Policy, need: dict[str, Any], wanted: bool) -> None:
    assert wants(policy, CatalogNeed(1, "acme", **{"snapshot_since": _NOW, **need}), _NOW) is wanted


def test_bounds_and_engines_that_make_no_sense_are_refused(tenants: Tenants) -> None:
    for given in ({"tenants": 0}, {"files": 0}, {"looks": 0}, {"time": dt.timedelta(0)}):
        with pytest.raises(ConfigError):
            RoundLimits(**given)  # type: ignore[arg-type]
    for options in ({"engine": "pandas"}, {"threads": 0}):
        with pytest.raises(InputError):
            tenants.maintain(**options)  # type: ignore[arg-type]


def test_the_command_line_makes_a_round(tenants: Tenants, capsys: pytest.CaptureFixture[str]) -> None:
    work(tenants, "acme")
    words = ["tenant", "maintain", f"--lake={tenants.url}", "--small-files", "2", "--orphans-every", "100 days"]
    assert main([*words, "--dry-run", "-o", "json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"tenants": ["acme"]}
    assert main([*words, "--tenants", "5", "--files", "100", "--time", "5m", "--threads", "2", "-o", "json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert [visit["tenant"] for visit in told["tenants"]] == ["acme"]
    assert [job["job"] for job in told["tenants"][0]["jobs"]] == ["merge_adjacent_files", "delete_orphaned_files"]
    assert (told["looked"], told["complete"]) == (1, True)
    assert main(words) == 0
    assert capsys.readouterr().out == "visited 0 of 1 catalog, 0 files\n"
    work(tenants, "acme")
    with tenants.open("acme") as lake:
        for path in Path(lake.data_path).rglob("*.parquet"):
            path.unlink()
    assert main(words) == 1
    assert "acme: merge_adjacent_files main.t: 3 small files, failed" in capsys.readouterr().out
    assert main([*words, "--watch", "--dry-run"]) == 1
