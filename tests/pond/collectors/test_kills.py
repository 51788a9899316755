"""A collector that is killed at any point loses and doubles nothing: the next run ends with the same rows."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from quacklake.connectors.nats.connection import NatsConnection
from quacklake.core.faults import Fault, arm
from quacklake.pond import Pond
from quacklake.pond.collectors.base import Run
from quacklake.pond.collectors.group_commit import SeriesWriter
from quacklake.pond.collectors.line_protocol import parse
from quacklake.pond.inputs import ImportOptions
from quacklake.pond.running import run_once
from quacklake_sensors.simulators import HydroVuSimulator, LakeTechSettings, LakeTechSimulator
from services import NatsServer
from tests.crash.forks import Forks
from tests.pond.collectors.conftest import AT500, SECRET, collector, config, rows
from tests.pond.conftest import csv

POINTS = ("pond.series.append", "pond.save", "pond.log", "pond.commit", "pond.committed")
SERIES = f"/hydrovu/devices/{AT500}/AT500_active.series"


@pytest.fixture(scope="module")
def forks() -> Iterator[Forks]:
    modules = ["tests.pond.collectors.test_kills", "quacklake.pond.pond", "urllib3"]
    with Forks(modules, {"HYDRO_KEY_VALUE": SECRET}) as opened:
        yield opened


def collect(place: str, name: str, point: str, at: int = 1) -> None:
    """Run a collector, and die when a point is reached for the ``at``-th time."""
    with Pond.open(place) as pond, arm(Fault(action="kill", pattern=point, at=at)):
        run_once(pond, name)


def listen(place: str, lines: str, point: str) -> None:
    """Write lines as the listener does, and die at a point."""
    with Pond.open(place) as pond, arm(Fault(action="kill", pattern=point)):
        write(pond, lines)


def write(pond: Pond, lines: str) -> None:
    commits = SeriesWriter(
        Run(pond, "/collectors/x"), "/t", ImportOptions("timestamp"), max_waiting=4, max_delay=0.01, max_rows=100
    )
    try:
        commits.write(parse(lines, "s", 0, max_rows=100, max_columns=9), 30)
    finally:
        commits.close()


@pytest.mark.crash
@pytest.mark.daily(0.2)
@pytest.mark.parametrize("point", POINTS)
def test_a_killed_collector_loses_and_doubles_nothing(
    forks: Forks, hydrovu: HydroVuSimulator, tmp_path: Path, point: str
) -> None:
    place = tmp_path / "P"
    options: dict[str, Any] = config(hydrovu, "/hydrovu", devices=[{"name": "AT500", "id": AT500}])
    end = hydrovu.settings.end
    with Pond.create(place) as pond:
        collector(pond, "dock", "hydrovu", options)
        hydrovu.change(end=hydrovu.settings.begin + 86_399)
        assert run_once(pond, "dock").rows == 24
    hydrovu.change(end=end)
    ended = forks.run("tests.pond.collectors.test_kills:collect", place=str(place), name="dock", point=point)
    assert ended.code == -9, ended.errors
    with Pond.open(place) as pond:
        pond.recover()
        assert rows(pond, SERIES).num_rows == (48 if point == "pond.committed" else 24)
        run_once(pond, "dock")
        times = rows(pond, SERIES).column("timestamp").to_pylist()
        assert len(times) == len(set(times)) == 48


@pytest.mark.crash
@pytest.mark.daily(0.2)
@pytest.mark.parametrize("point", POINTS)
def test_a_killed_laketech_collector_takes_each_reading_once(
    forks: Forks, template: Path, tmp_path: Path, point: str
) -> None:
    """The first day was taken before. The files of the second have times of the first, too."""
    place = shutil.copytree(template, tmp_path / "P")
    with LakeTechSimulator(LakeTechSettings(days=1, interval=21_600)) as server:
        options = {"url": f"{server.url}/inbox", "timezone": "America/New_York", "path": "/lake"}
        with Pond.open(place) as pond:
            collector(pond, "lake", "laketech", options)
            assert run_once(pond, "lake").rows == 16
        server.change(days=3)
        ended = forks.run("tests.pond.collectors.test_kills:collect", place=str(place), name="lake", point=point)
        assert ended.code == -9, ended.errors
        with Pond.open(place) as pond:
            pond.recover()
            taken = 3 if point == "pond.committed" else 1
            assert rows(pond, "/lake/surface.series").num_rows == 4 * taken
            assert run_once(pond, "lake").rows == 16 * (3 - taken)
            assert run_once(pond, "lake").rows == 0
            for name in ("surface", "bottom", "vulink", "report"):
                times = rows(pond, f"/lake/{name}.series").column("timestamp").to_pylist()
                assert len(times) == len(set(times)) == 12


@pytest.mark.crash
@pytest.mark.daily(0.2)
@pytest.mark.parametrize("point", POINTS)
def test_a_killed_nats_collector_takes_each_message_once(
    forks: Forks, nats_server: NatsServer, template: Path, tmp_path: Path, point: str
) -> None:
    """Three messages a transaction: the second of three dies, so what came before it stays."""
    place, stream = shutil.copytree(template, tmp_path / "P"), f"kill-{POINTS.index(point)}"
    source = {
        "servers": nats_server.url,
        "stream": stream,
        "schema": "time BIGINT, temp DOUBLE",
        "max_messages": 3,
    }
    with NatsConnection(nats_server.url) as nats:
        nats.jetstream(f"STREAM.CREATE.{stream}", {"name": stream, "subjects": [f"{stream}.>"]})
        try:
            for n in range(8):
                nats.request(f"{stream}.x", json.dumps({"time": 1_704_067_200 + n, "temp": n}).encode())
            with Pond.open(place) as pond:
                collector(pond, "nats", "nats", {"path": "/n.series", "source": source})
            ended = forks.run(
                "tests.pond.collectors.test_kills:collect", place=str(place), name="nats", point=point, at=2
            )
            assert ended.code == -9, ended.errors
            with Pond.open(place) as pond:
                pond.recover()
                assert rows(pond, "/n.series").num_rows == (6 if point == "pond.committed" else 3)
                nats.request(f"{stream}.x", json.dumps({"time": 1_704_067_208, "temp": 8}).encode())
                run_once(pond, "nats")
                assert rows(pond, "/n.series").column("temp").to_pylist() == [float(n) for n in range(9)]
                assert run_once(pond, "nats").imported == ()
        finally:
            nats.jetstream(f"STREAM.DELETE.{stream}", {})


@pytest.mark.crash
@pytest.mark.daily(0.2)
@pytest.mark.parametrize("point", ["pond.listener.appended", "pond.committed"])
def test_lines_that_are_sent_again_after_a_kill_are_there_once(forks: Forks, tmp_path: Path, point: str) -> None:
    place = tmp_path / "P"
    Pond.create(place).close()
    lines = "m,a=x v=1 1704067200\nm,a=y v=2 1704067200\nn v=3 1704067200"
    ended = forks.run("tests.pond.collectors.test_kills:listen", place=str(place), lines=lines, point=point)
    assert ended.code == -9, ended.errors
    with Pond.open(place) as pond:
        assert [each.path for each in pond.fs().glob("/t/*")] == (
            ["/t/m.series", "/t/n.series"] if point == "pond.committed" else []
        )
        write(pond, lines)
        assert (rows(pond, "/t/m.series").num_rows, rows(pond, "/t/n.series").num_rows) == (2, 1)


@pytest.mark.crash
@pytest.mark.daily(0.2)
@pytest.mark.parametrize("point", ["pond.save", "pond.logfiles.written", "pond.committed"])
def test_folders_and_logs_go_on_after_a_kill(forks: Forks, tmp_path: Path, point: str) -> None:
    place, drop = tmp_path / "P", tmp_path / "drop"
    drop.mkdir()
    (drop / "a.csv").write_text(csv(3))
    (drop / "app.log").write_bytes(b"L" * 100_000)
    is_log = point == "pond.logfiles.written"
    with Pond.create(place) as pond:
        if is_log:
            collector(pond, "c", "logfile-ingest", {"active_pattern": str(drop / "app.log"), "pond_path": "/logs"})
        else:
            collector(pond, "c", "inbox", {"folder": str(drop), "settle": "0s"})
    ended = forks.run("tests.pond.collectors.test_kills:collect", place=str(place), name="c", point=point)
    assert ended.code == -9, ended.errors
    with Pond.open(place) as pond:
        run_once(pond, "c")
        if is_log:
            assert pond.fs().read("/logs/app.log") == b"L" * 100_000
        else:
            assert rows(pond, "/inbox/a.series").num_rows == 3
