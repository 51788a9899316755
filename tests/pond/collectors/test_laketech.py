"""LakeTech: long files become wide rows, local times instants, and each file is taken once."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from quacklake.errors import ConfigError, ConnectorError, CorruptFileError, InputError, SchemaMismatchError
from quacklake.pond import Pond
from quacklake_sensors.simulators import LakeTechSettings, LakeTechSimulator
from tests.pond.collectors.conftest import Collect, errors, rows

NEW_YORK = "America/New_York"


@pytest.fixture(scope="module")
def server() -> Iterator[LakeTechSimulator]:
    with LakeTechSimulator() as running:
        yield running


@pytest.fixture
def laketech(server: LakeTechSimulator) -> LakeTechSimulator:
    server.settings = LakeTechSettings(days=1, interval=21_600)
    server.requests.clear()
    return server


def test_an_inbox_over_http_becomes_a_series_for_each_group(
    shared: Pond, laketech: LakeTechSimulator, collect: Collect
) -> None:
    options = {"url": f"{laketech.url}/inbox", "timezone": NEW_YORK, "path": "/lake"}
    report = collect("laketech", options)
    assert {each.path: each.rows for each in report.imported} == {
        "/lake/bottom.series": 4,
        "/lake/report.series": 4,
        "/lake/surface.series": 4,
        "/lake/vulink.series": 4,
    }
    surface = rows(shared, "/lake/surface.series")
    assert set(surface.column_names[1:]) == {
        "AT500_Surface.pH.pH",
        "AT500_Surface.Temperature.C",
        "AT500_Surface.Chl-a.µg/L",
        "AT500_Surface.DO.mg/L",
        "AT500_Surface.Salinity.psu",
        "AT500_Surface.Depth.m",
    }
    assert surface.column("timestamp")[0].as_py() == dt.datetime(2024, 1, 1, 5, tzinfo=dt.UTC)  # midnight in New York
    assert rows(shared, "/lake/report.series").column_names == ["timestamp", "Depth.m", "Temperature.C"]
    laketech.requests.clear()
    assert collect("laketech", options).imported == ()
    assert laketech.requests == ["GET /inbox"]  # known files are not asked for
    laketech.change(days=2)
    assert {each.version for each in collect("laketech", options).imported} == {2}


def test_the_offset_is_taken_away(shared: Pond, collect: Collect) -> None:
    folder = Path("inbox")
    folder.mkdir()
    (folder / "surface.csv").write_text(
        "Timestamp,Series Name,Location,Parameter,Value,Offset\n"
        "2024-07-01 12:00:00,Depth,Dock,Depth,4.5,0.25\n2024-07-01 12:00:00,Surface pH,Dock,pH,8,\n"
    )
    options = {"folder": str(folder.absolute()), "timezone": NEW_YORK, "path": "/offset", "settle": "0s"}
    assert collect("laketech", options).rows == 1
    assert rows(shared, "/offset/surface.series").to_pylist() == [
        {
            "timestamp": dt.datetime(2024, 7, 1, 16, tzinfo=dt.UTC),  # summer time
            "AT500_Surface.Depth.m": 4.25,
            "AT500_Surface.pH.pH": 8.0,
        }
    ]


HEAD = "Timestamp,Series Name,Location,Parameter,Value,Offset\n"


@pytest.mark.parametrize(
    ("name", "text", "kind", "words"),
    [
        ("a-surface.csv", f"{HEAD}2024-01-01 00:00:00,Depth,D,D,oops,0\n", SchemaMismatchError, "'oops' in 'Value'"),
        ("b-surface.csv", f"{HEAD}soon,Depth,D,D,1,0\n", SchemaMismatchError, "'soon' is not a time"),
        ("c-surface.csv", f"{HEAD}2024-01-01 00:00:00,Deepth,D,D,1,0\n", SchemaMismatchError, "'Deepth' is not known"),
        ("d-surface.csv", f"{HEAD}2024-01-01 00:00:00,Depth,D,D,1\n", InputError, "Expected 6 columns, got 5"),
        ("e-surface.csv", "Date Time,Depth\n2024-01-01 00:00:00,1\n", SchemaMismatchError, "has no unit"),
        ("f-surface.csv", "a,b\n1,2\n", SchemaMismatchError, "no time column"),
        ("g-surface.csv", "", InputError, "cannot read g-surface.csv"),
        (
            "h-surface.csv",
            f"{HEAD}2024-01-01 00:00:00Z,Depth,D,D,1,0\n2024-01-01 00:00:00,Depth,D,D,1,0\n",
            SchemaMismatchError,
            "only some of the times",
        ),
    ],
)
def test_a_bad_file_is_named_with_its_row(
    collect: Collect, shared: Pond, name: str, text: str, kind: type[Exception], words: str
) -> None:
    from quacklake.pond.collectors.wide import open_connection
    from quacklake_sensors.laketech_inbox import LakeTechOptions, long_readings

    Path(name).write_text(text)
    with open_connection() as connection, pytest.raises(kind, match=words):
        long_readings(connection, Path(name), name, LakeTechOptions.of({"folder": "."}), "UTC")


@pytest.mark.daily(0.35)
def test_files_that_are_wrong_leave_the_others(shared: Pond, laketech: LakeTechSimulator, collect: Collect) -> None:
    laketech.change(hostile="broken")
    options = {"url": f"{laketech.url}/inbox", "timezone": NEW_YORK, "path": "/partly"}
    report = collect("laketech", options)
    assert list(errors(report)) == ["2024-01-01-surface.csv"]
    assert report.rows == 12


@pytest.mark.daily(0.35)
@pytest.mark.parametrize(
    ("hostile", "words"),
    [("html", "does not give a list of files"), ("mismatch", "is not what the list")],
)
def test_a_hostile_inbox_changes_nothing(
    shared: Pond, laketech: LakeTechSimulator, collect: Collect, hostile: str, words: str
) -> None:
    laketech.change(hostile=hostile)
    options = {"url": f"{laketech.url}/inbox", "timezone": NEW_YORK, "path": f"/bad-{hostile}"}
    if hostile == "html":
        with pytest.raises(ConnectorError, match=words):
            collect("laketech", options)
    else:
        failures = collect("laketech", options).failures
        assert len(failures) == 4
        assert all(isinstance(each.error, CorruptFileError) and words in each.error.message for each in failures)
    assert shared.fs().find(f"/bad-{hostile}") is None


@pytest.mark.daily(0.35)
def test_a_name_that_leads_elsewhere_is_not_followed(laketech: LakeTechSimulator, collect: Collect) -> None:
    laketech.change(hostile="escape")
    groups = {"all": "*"}
    options = {"url": f"{laketech.url}/inbox", "timezone": NEW_YORK, "path": "/escape", "groups": groups}
    assert "slash" in errors(collect("laketech", options))["../../etc/passwd"]
    assert not any("passwd" in each for each in laketech.requests)


@pytest.mark.parametrize(
    ("day", "count"), [("2024-11-03", 100), ("2024-03-10", 92), ("2024-11-04", 96)], ids=["back", "forward", "plain"]
)
def test_a_day_on_which_clocks_change_has_all_its_readings(
    shared: Pond, laketech: LakeTechSimulator, collect: Collect, day: str, count: int
) -> None:
    laketech.change(first_day=day, interval=900)
    report = collect("laketech", {"url": f"{laketech.url}/inbox", "timezone": NEW_YORK, "path": f"/clocks/{day}"})
    assert report.failures == ()
    for name in ("surface", "report"):
        found = rows(shared, f"/clocks/{day}/{name}.series").column("timestamp").to_pylist()
        assert len(found) == count
        assert {b - a for a, b in pairwise(found)} == {dt.timedelta(minutes=15)}


def test_a_time_that_may_be_two_needs_a_rule_and_leaves_the_other_files(
    shared: Pond, collect: Collect, tmp_path: Path
) -> None:
    for name, time in (("a-surface.csv", "2024-11-03 01:30:00"), ("b-surface.csv", "2024-11-04 01:30:00")):
        (tmp_path / "in").mkdir(exist_ok=True)
        text = f"Timestamp,Series Name,Location,Parameter,Value,Offset\n{time},Surface pH,Dock,pH,7,0\n"
        (tmp_path / "in" / name).write_text(text)
    options = {"folder": str(tmp_path / "in"), "timezone": NEW_YORK, "path": "/twice", "settle": "0s"}
    report = collect("laketech", options)
    assert list(errors(report)) == ["a-surface.csv"] and "comes twice" in errors(report)["a-surface.csv"]
    assert report.rows == 1
    assert collect("laketech", {**options, "ambiguous": "later"}).rows == 1
    first = rows(shared, "/twice/surface.series").column("timestamp").to_pylist()[0]
    assert first == dt.datetime(2024, 11, 3, 6, 30, tzinfo=dt.UTC)


@pytest.mark.daily(0.35)
def test_local_times_need_a_zone(laketech: LakeTechSimulator, collect: Collect) -> None:
    report = collect("laketech", {"url": f"{laketech.url}/inbox", "path": "/zoneless"})
    assert all("have no time zone" in message for message in errors(report).values())
    assert len(report.failures) == 4


@pytest.mark.parametrize(
    "options", [{}, {"url": "http://127.0.0.1", "folder": "x"}, {"folder": "x", "timezone": "Mars"}]
)
def test_wrong_options_are_refused(options: dict[str, str]) -> None:
    from quacklake_sensors.laketech_inbox import LakeTechOptions

    with pytest.raises((ConfigError, InputError)):
        LakeTechOptions.of(options)
