"""Collectors over random histories of what they collect from, beside models of plain Python."""

from __future__ import annotations

import csv
import datetime as dt
import io
import random
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from quacklake.pond import Pond
from quacklake.pond.collectors.base import Run
from quacklake.pond.collectors.group_commit import SeriesWriter
from quacklake.pond.collectors.line_protocol import parse
from quacklake.pond.inputs import ImportOptions
from quacklake.pond.running import run_once
from quacklake_sensors.simulators import HydroVuSimulator, LakeTechSettings, LakeTechSimulator
from quacklake_sensors.simulators.hydrovu import LATE, PARAMETERS, UNITS, reading
from quacklake_sensors.simulators.laketech import files_of
from tests import seeds
from tests.pond.collectors.conftest import AT500, Collect, collector, config, errors, rows

_AT500 = {"1": ("1", 11.0, 3.0), "3": ("35", 4.0, 1.5), "9": ("65", 42000.0, 900.0), "12": ("97", 30.0, 1.0)}
START = dt.datetime(2024, 1, 1, tzinfo=dt.UTC)


def stored(pond: Pond, path: str) -> dict[tuple[dt.datetime, str], float]:
    """The readings of a wide series, each with its time and column."""
    found: dict[tuple[dt.datetime, str], float] = {}
    for row in rows(pond, path).to_pylist():
        time = row.pop("timestamp")
        assert not any(moment == time for moment, _ in found) or not found.keys() & {(time, name) for name in row}
        found |= {(time, name): value for name, value in row.items() if value is not None}
    return found


@pytest.mark.daily(0.17)
@pytest.mark.parametrize("number", range(6))
def test_hydrovu_is_collected_as_the_model_says(shared: Pond, hydrovu: HydroVuSimulator, number: int) -> None:
    """The clock goes on between runs, and the server throttles, fails, revokes tokens and pages as it likes."""
    chance = seeds.chance("hydrovu", str(number))
    begin, path = hydrovu.settings.begin, f"/model{number}"
    hydrovu.change(interval=chance.choice([900, 3600]), late_after=chance.randrange(2 * 86_400), end=begin)
    options = config(
        hydrovu, path, devices=[{"name": "AT500", "id": AT500}], max_points_per_run=chance.choice([50, 10**6])
    )
    name = collector(shared, f"model{number}", "hydrovu", {**options, "http": {"retries": 8, "timeout": "5s"}})
    for _ in range(chance.randrange(2, 5)):
        hydrovu.change(
            end=hydrovu.settings.end + chance.randrange(2 * 86_400),
            page_seconds=chance.choice([7200, 86_400]),
            throttle_every=chance.choice([0, 3]),
            fail_every=0,
            revoke_every=chance.choice([0, 5]),
        )
        if chance.random() < 0.5:
            run_once(shared, name)
    more = True
    while more:
        report = run_once(shared, name)
        assert errors(report) == {}
        more = report.more
    settings = hydrovu.settings
    expected = {}
    for parameter, (unit, base, swing) in _AT500.items():
        since = begin + (settings.late_after if parameter == LATE else 0)
        for moment in range(begin, settings.end + 1, settings.interval):
            if moment >= since:
                value = round(base + swing * reading(settings.seed, AT500, parameter, moment), 4)
                time = dt.datetime.fromtimestamp(moment, dt.UTC)
                expected[time, f"{PARAMETERS[parameter]}.{UNITS[unit]}"] = value
    assert stored(shared, f"{path}/devices/{AT500}/AT500_active.series") == expected
    assert run_once(shared, name).rows == 0


@pytest.mark.daily(0.2)
@pytest.mark.parametrize("number", range(4))
def test_laketech_is_collected_as_the_model_says(shared: Pond, collect: Collect, number: int) -> None:
    """Days come one after the other, some across a change of summer time; some runs see broken files."""
    chance = seeds.chance("laketech", str(number))
    zone, first = chance.choice(["America/New_York", "Europe/Berlin"]), chance.choice(["2024-03-09", "2024-06-01"])
    path = f"/lake{number}"
    with LakeTechSimulator(
        LakeTechSettings(days=1, interval=chance.choice([5400, 7200]), first_day=first, timezone=zone)
    ) as server:
        options = {"url": f"{server.url}/inbox", "timezone": zone, "path": path}
        for days in sorted(chance.sample(range(1, 6), 3)):
            server.change(days=days, hostile="broken" if chance.random() < 0.3 else "")
            collect("laketech", options)
        server.change(hostile="")
        assert collect("laketech", options).failures == ()
        expected = {}
        for name, content in files_of(server.settings).items():
            if name.endswith("-surface.csv"):
                for row in csv.DictReader(io.StringIO(content.decode())):
                    time = dt.datetime.fromisoformat(row["Timestamp"]).replace(tzinfo=ZoneInfo(zone)).astimezone(dt.UTC)
                    expected[time, row["Series Name"]] = float(row["Value"]) - float(row["Offset"] or 0)
    found = stored(shared, f"{path}/surface.series")
    assert len(found) == len(expected)
    columns = {"Surface pH": "AT500_Surface.pH.pH", "Depth": "AT500_Surface.Depth.m"}
    for (time, name), value in expected.items():
        if name in columns:
            assert found[time, columns[name]] == pytest.approx(value)


@pytest.mark.daily(0.2)
@pytest.mark.parametrize("number", range(4))
def test_lines_and_files_are_taken_once_as_the_model_says(shared: Pond, tmp_path: Path, number: int) -> None:
    """Senders repeat lines, and folders get files that overlap or are there under two names."""
    chance = seeds.chance("lines", str(number))
    folder = tmp_path / "in"
    folder.mkdir()
    name = collector(
        shared, f"in{number}", "inbox", {"folder": str(folder), "path": f"/in{number}/all.series", "settle": "0s"}
    )
    model: dict[str, dict[tuple[int, str], float]] = {"lines": {}, "files": {}}
    commits = SeriesWriter(
        Run(shared, "/collectors/x"),
        f"/l{number}",
        ImportOptions("timestamp"),
        max_waiting=4,
        max_delay=0.0,
        max_rows=9,
    )
    try:
        for turn in range(chance.randrange(3, 7)):
            part = _readings(chance)
            if chance.random() < 0.5:
                lines = "\n".join(f"m,host={host} v={value} {1_704_067_200 + n}" for (n, host), value in part)
                commits.write(parse(lines, "s", 0, max_rows=100, max_columns=9), 30)
                model["lines"] |= dict(part)
            else:
                text = "".join(f"{(START + dt.timedelta(seconds=n)).isoformat()},{host},{v}\n" for (n, host), v in part)
                (folder / f"{turn}.csv").write_text(f"timestamp,host,v\n{text}")
                if chance.random() < 0.3:
                    (folder / f"{turn}-copy.csv").write_text(f"timestamp,host,v\n{text}")
                run_once(shared, name)
                model["files"] |= dict(part)
    finally:
        commits.close()
    for path, expected in ((f"/l{number}/m.series", model["lines"]), (f"/in{number}/all.series", model["files"])):
        if expected:
            table = rows(shared, path).to_pylist()
            assert len(table) == len(expected)
            assert {(round((r["timestamp"] - START).total_seconds()), r["host"]): r["v"] for r in table} == expected


def _readings(chance: random.Random) -> list[tuple[tuple[int, str], float]]:
    """Readings that are the same whenever they come, in any order."""
    first = chance.randrange(20)
    found = [
        ((n, host), float(n * 2 + (host == "b"))) for n in range(first, first + chance.randrange(1, 9)) for host in "ab"
    ]
    return chance.sample(found, len(found))
