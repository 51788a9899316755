"""Upkeep of the tables that sinks write."""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from quacklake.connectors import Maintained, MaintenanceReport, Sink
from quacklake.core.faults import Fault, FaultInjected, _hooked, arm, record
from quacklake.errors import ConfigError
from tests.connectors.sinks import FORMATS, Format
from tests.connectors.test_two_phases import SCHEMA, comparable, rows

PARTITIONS = [("delta", ""), ("delta", "day"), ("iceberg", ""), ("iceberg", "months(t), bucket(2, id)")]


def upkeep(sink: Sink, now: datetime | None = None) -> MaintenanceReport:
    assert isinstance(sink, Maintained)
    return sink.maintain(now)


def filled(form: Format, path: Path, commits: int = 12, **options: Any) -> Sink:
    sink = form.new(path, **options)
    sink.initialize(SCHEMA)
    for number in range(commits):
        sink.write_batch(rows(number * 6, number * 6 + 6))
        sink.finalize_commit(sink.prepare_commit(number))
    return sink


def chosen(name: str) -> Format:
    if not FORMATS[name].there():
        pytest.skip(f"the package {FORMATS[name].library} is not installed")
    return FORMATS[name]


def live_files(form: Format, path: Path) -> int:
    table = form.table(path)  # type: ignore[attr-defined]
    return len(table.file_uris()) if form.name == "delta" else len(list(table.scan().plan_files()))


@pytest.mark.parametrize(("name", "partition_by"), PARTITIONS)
def test_compaction_reduces_files(tmp_path: Path, name: str, partition_by: str) -> None:
    form = chosen(name)
    source = form.source(tmp_path, mode="continuous")
    sink = filled(form, tmp_path, partition_by=partition_by, compaction_min_files="3")
    source.start()
    assert sum(batch.num_rows for batch in iter(source.poll_next, None)) == 72
    prepared = sink.prepare_commit(11)
    before, files, version = comparable(form.read(tmp_path)), live_files(form, tmp_path), form.versions(tmp_path)
    committed = sink.finalize_commit(prepared).version
    report = upkeep(sink)
    assert report.due and report.files_compacted > report.files_written > 0
    assert live_files(form, tmp_path) == files - report.files_compacted + report.files_written < files
    assert comparable(form.read(tmp_path)) == before
    assert form.versions(tmp_path) > version
    assert source.poll_next() is None  # rows that moved are no rows that came
    again = form.new(tmp_path).finalize_commit(prepared)  # what is committed stays so
    assert (again.version, comparable(form.read(tmp_path))) == (committed, before)
    sink.write_batch(rows(72, 75))
    sink.finalize_commit(sink.prepare_commit(12))
    assert sum(batch.num_rows for batch in iter(source.poll_next, None)) == 3


@pytest.mark.parametrize("name", FORMATS)
def test_upkeep_waits_for_its_interval_and_for_enough_files(tmp_path: Path, name: str) -> None:
    form = chosen(name)
    sink = filled(form, tmp_path, 3, compaction_interval="1 hour")
    start = datetime.now(UTC)
    assert upkeep(sink, start) == MaintenanceReport(due=True)  # three files are not enough
    assert upkeep(sink, start + timedelta(minutes=59)) == MaintenanceReport()
    assert upkeep(sink, start + timedelta(minutes=61)).due
    off = form.new(tmp_path, compaction=False, compaction_min_files=2)
    assert upkeep(off) == MaintenanceReport()
    for options in ({"compaction_min_files": 1}, {"vacuum_retention": "12"}, {"compaction_interval": "soon"}):
        with pytest.raises(ConfigError):
            form.new(tmp_path, **options)


@pytest.mark.parametrize("name", FORMATS)
def test_files_that_no_version_needs_are_removed_after_the_retention(tmp_path: Path, name: str) -> None:
    form = chosen(name)
    filled(form, tmp_path, compaction_min_files=3)
    kept = form.files(tmp_path)
    assert upkeep(form.new(tmp_path, compaction_min_files=3)).files_removed == 0
    assert kept < form.files(tmp_path)
    report = upkeep(form.new(tmp_path, vacuum_retention="0 hours"), datetime.now(UTC) + timedelta(seconds=1))
    assert report.files_removed >= 12
    assert not kept & form.files(tmp_path)
    assert form.ids(tmp_path) == list(range(72))


def test_a_z_order_sorts_by_several_columns(tmp_path: Path) -> None:
    form = chosen("delta")
    sink = filled(form, tmp_path, zorder_by="day, id", compaction_min_files=2)
    assert upkeep(sink).files_compacted == 12
    assert form.table(tmp_path).history(1)[0]["operation"] == "OPTIMIZE"  # type: ignore[attr-defined]
    assert form.ids(tmp_path) == list(range(72))
    with pytest.raises(ConfigError, match="zorder_by"):
        chosen("iceberg").new(tmp_path, zorder_by="id")


def test_a_death_during_a_compaction_of_iceberg_loses_no_row(tmp_path: Path) -> None:
    form = chosen("iceberg")

    def run(path: Path) -> None:
        path.mkdir()
        upkeep(filled(form, path, 3, compaction_min_files=2, vacuum_retention="0 hours"))

    with record() as points:
        run(tmp_path / "whole")
    first = max(place for place, point in enumerate(points, 1) if point == "connector.iceberg.commit.after")
    each = {point: place for place, point in enumerate(points, 1) if place > first}
    for number in each.values():
        path = tmp_path / str(number)
        with arm(Fault(at=number)), pytest.raises(FaultInjected):
            run(path)
        assert form.ids(path) == list(range(18)), points[number - 1]
        upkeep(form.new(path, compaction_min_files=2))
        assert (form.ids(path), live_files(form, path)) == (list(range(18)), 1)


def test_a_compaction_of_iceberg_that_another_writer_overtakes_leaves_nothing(tmp_path: Path) -> None:
    form = chosen("iceberg")
    sink = filled(form, tmp_path, 3, compaction_min_files=2)
    other = form.new(tmp_path, writer_id="other")
    other.initialize(SCHEMA)
    other.write_batch(rows(18, 20))
    prepared = other.prepare_commit(0)
    files = form.files(tmp_path)

    def overtake(point: str) -> None:
        if point == "connector.iceberg.compact.before":
            other.finalize_commit(prepared)

    with _hooked(overtake):
        report = upkeep(sink)
    assert (report.conflict, report.files_compacted) == (True, 0)
    assert (form.ids(tmp_path), form.files(tmp_path)) == (list(range(20)), files)


@pytest.mark.parametrize(("name", "mode"), [(name, mode) for name in FORMATS for mode in ("append", "upsert")])
def test_files_of_a_sink_that_died_are_removed_when_they_are_old(tmp_path: Path, name: str, mode: str) -> None:
    form = chosen(name)
    options = {"mode": mode, "key": "id", "compaction_min_files": 2, "vacuum_retention": "0 hours"}
    filled(form, tmp_path, 1, **options)
    known = form.files(tmp_path)
    dead = form.new(tmp_path, writer_id="dead", **options)
    dead.initialize(SCHEMA)
    dead.write_batch(rows(0, 5))
    dead.prepare_commit(0)
    (orphan,) = form.files(tmp_path) - known
    upkeep(form.new(tmp_path, **options))
    assert orphan in form.files(tmp_path)  # its commit may still come
    for file in form.files(tmp_path):
        os.utime(tmp_path / file, (0, 0))
    upkeep(form.new(tmp_path, **options))
    assert form.files(tmp_path) == known
    assert form.ids(tmp_path) == list(range(6))
