"""Local times that come twice or never, and missing values: what a series, its reductions and its pictures make of them."""

from __future__ import annotations

import datetime as dt
import math
import random
from itertools import pairwise
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pyarrow as pa
import pytest

from quacklake.errors import ConstraintError
from quacklake.pond import FS, ImportOptions
from quacklake.pond.copying import copy_in, targets
from quacklake.pond.downsampling import Range, buckets_query, choose, of_rows
from quacklake.pond.inputs import parse_host
from quacklake.pond.local_times import LocalRule, changes
from quacklake.pond.paths import table_of
from quacklake.pond.queries import rows
from quacklake.pond.reductions import EVERYTHING, Reduction, Resolution
from quacklake.pond.series import append_series
from quacklake.pond.verifying import verify
from tests.pond.conftest import Home
from tests.seeds import LONG, chance

pytestmark = pytest.mark.daily(0.25)

NEW_YORK = "America/New_York"
ZONES = (NEW_YORK, "Europe/Berlin", "Australia/Lord_Howe", "America/St_Johns", "Africa/Casablanca", "UTC", "Asia/Tokyo")


def put(home: Home, times: list[str], zone: str = NEW_YORK, name: str = "s", **options: Any) -> Any:
    lines = [f"{time},{n}.5" for n, time in enumerate(times)]
    Path("in.csv").write_text("\n".join(["timestamp,temp", *lines]) + "\n")
    rule = LocalRule(**{key: options.pop(key) for key in ("ambiguous", "nonexistent") if key in options})
    given = ImportOptions(timezone=zone, local=rule, **options)
    return take(home, f"{home.path}/{name}.series", given)


def take(home: Home, path: str, given: ImportOptions) -> Any:
    def work(fs: FS) -> Any:
        (target,) = targets(fs, [parse_host("in.csv")], path)
        return copy_in(fs, target, given)

    return home.change_fs(work)


def instants(home: Home, name: str = "s") -> list[str]:
    with rows(home.pond, f"{home.path}/{name}.series", "SELECT timestamp FROM series ORDER BY temp") as found:
        return [f"{each:%H:%M}" for each in found.read_all().column("timestamp").to_pylist()]


def test_a_repeated_hour_in_order_is_read_as_such(home: Home) -> None:
    local = ["00:30", "01:00", "01:30", "01:00", "01:30", "02:00"]
    done = put(home, [f"2024-11-03 {time}:00" for time in local])
    assert instants(home) == ["04:30", "05:00", "05:30", "06:00", "06:30", "07:00"]
    assert not done.sorted


def test_a_repeated_hour_is_told_for_each_sensor(home: Home) -> None:
    lines = [
        f"2024-11-03 {time}:00,{sensor},{number}"
        for number, (sensor, time) in enumerate((s, t) for s in "ab" for t in ("01:00", "01:30", "01:00", "01:30"))
    ]
    Path("in.csv").write_text("\n".join(["timestamp,sensor,temp", *lines]) + "\n")
    take(home, f"{home.path}/s.series", ImportOptions(timezone=NEW_YORK))
    assert instants(home) == ["05:00", "05:30", "06:00", "06:30"] * 2


def test_one_time_that_comes_twice_is_refused_unless_a_rule_tells_which_it_is(home: Home) -> None:
    local = [f"2024-11-03 {time}:00" for time in ("00:30", "01:30", "02:30")]
    with pytest.raises(ConstraintError, match=r"(?s)line 3 .* 01:30:00 comes twice in America/New_York.*--ambiguous"):
        put(home, local)
    for rule, expected in (("earlier", "05:30"), ("later", "06:30")):
        put(home, local, name=rule, ambiguous=rule)
        assert instants(home, rule) == ["04:30", expected, "07:30"]


def test_a_time_that_never_comes_is_refused_unless_it_is_shifted(home: Home) -> None:
    local = [f"2024-03-10 {time}:00" for time in ("01:30", "02:30", "04:30")]
    with pytest.raises(ConstraintError, match=r"(?s)02:30:00 does not exist in America/New_York.*--nonexistent shift"):
        put(home, local)
    put(home, local, nonexistent="shift")
    assert instants(home) == ["06:30", "07:30", "08:30"]


def test_two_local_times_of_one_instant_are_two_different_readings(home: Home) -> None:
    local = [f"2024-03-10 {time}:00" for time in ("01:30", "02:30", "03:30")]
    with pytest.raises(ConstraintError, match="two different readings at 2024-03-10 07:30"):
        put(home, local, nonexistent="shift")
    done = put(home, local, nonexistent="shift", keep_conflicts=True)
    assert done.rows == 3
    assert verify(home.pond, deep=True).problems == ()  # it was told to keep both


def test_verify_finds_two_readings_of_one_time(home: Home) -> None:
    put(home, ["2024-01-01 00:00:00", "2024-01-01 01:00:00"], zone="UTC", name="twice")
    table = table_of(f"{home.path}/twice.series")
    home.pond.lake.sql(f"INSERT INTO {table} SELECT timestamp, temp + 1 FROM {table} WHERE temp < 1")
    try:
        problems = [each for each in verify(home.pond, deep=True).problems if "two readings" in each.what]
        assert [each.path for each in problems] == [f"{home.path}/twice.series"]
        assert "2024-01-01 00:00:00+00" in problems[0].what
    finally:
        home.pond.lake.sql(f"DELETE FROM {table} WHERE temp = 1.5 AND timestamp = TIMESTAMPTZ '2024-01-01 00:00:00+00'")


@pytest.mark.parametrize("zone", ZONES)
def test_any_steps_of_local_time_are_the_instants_they_were(home: Home, zone: str) -> None:
    """A clock on the wall that is read at even steps, against the clock of Python."""
    given = chance("a clock", zone)
    for number in range(60 if LONG else 3):
        name = f"{zone.replace('/', ' ')} {number}"
        place, minutes = ZoneInfo(zone), given.choice((10, 15, 30, 60))
        year = given.randint(2000, 2025)
        begin = dt.datetime(year, given.choice((3, 4, 10, 11)), 1, tzinfo=dt.UTC)
        found = changes(zone, begin.replace(tzinfo=None), begin.replace(tzinfo=None) + dt.timedelta(days=35))
        if found:
            begin = (given.choice(found).moment - dt.timedelta(hours=given.randint(2, 30))).replace(tzinfo=dt.UTC)
        truth = [begin + dt.timedelta(minutes=minutes * n) for n in range(60 * 48 // minutes)]
        local = [each.astimezone(place).replace(tzinfo=None) for each in truth]
        form = given.choice(("%Y-%m-%d %H:%M:%S", "%Y-%m-%dT%H:%M:%S"))
        single = _single_pass(local, changes(zone, min(local), max(local)))
        if single:  # one reading within the hour: nothing tells which pass it is
            with pytest.raises(ConstraintError, match="comes twice"):
                put(home, [f"{each:{form}}" for each in local], zone, name)
            continue
        put(home, [f"{each:{form}}" for each in local], zone, name)
        with rows(home.pond, f"{home.path}/{name}.series", "SELECT timestamp FROM series ORDER BY temp") as read:
            assert read.read_all().column("timestamp").to_pylist() == truth, (zone, begin, minutes)


def _single_pass(local: list[dt.datetime], found: list[Any]) -> bool:
    for each in (change for change in found if change.repeated):
        inside = [time for time in local if each.begin <= time < each.end]
        if inside and not any(b < a for a, b in pairwise(inside)):
            return True
    return False


@pytest.mark.parametrize("number", range(100 if LONG else 4))
def test_missing_values_are_left_out_of_reductions_pictures_and_neither_lost_in_exports(
    home: Home, number: int
) -> None:
    given = chance("values", number)
    path = f"{home.path}/n{number}.series"
    values = [_value(given) for _ in range(given.randint(1, 200))]
    begin = dt.datetime(2024, 1, 1, tzinfo=dt.UTC)
    times = [begin + dt.timedelta(minutes=given.choice((7, 20)) + 30 * n) for n in range(len(values))]
    table = pa.table({"timestamp": pa.array(times, pa.timestamp("us", "UTC")), "temp": pa.array(values, pa.float64())})
    home.change(lambda wd: append_series(wd.fs, path, table))
    query = Reduction(Resolution.parse("6h"), EVERYTHING).query("series", "timestamp", ["temp"])
    with rows(home.pond, path, query) as found:
        reduced = found.read_all().to_pylist()
    model: dict[dt.datetime, list[float]] = {}
    for time, value in zip(times, values, strict=True):
        there = model.setdefault(time.replace(hour=time.hour // 6 * 6, minute=0), [])
        there += [value] if value is not None and not math.isnan(value) else []
    assert [row["timestamp"] for row in reduced] == sorted(model)
    for row in reduced:
        there = model[row["timestamp"]]
        assert row["temp.count"] == len(there)
        assert (row["temp.max"], row["temp.min"]) == ((max(there), min(there)) if there else (None, None))
        if not there:
            assert row["temp.avg"] is None
        elif all(map(math.isfinite, there)):
            assert row["temp.avg"] == pytest.approx(sum(there) / len(there))
    # the picture of the readings, and that of the reduction, show the same highest and lowest value
    over = Range(_micros(begin), _micros(times[-1]) + 1, 50)
    for source, column, low, high in (
        ("series", "temp", None, None),
        (f"({query})", '"temp.avg"', '"temp.min"', '"temp.max"'),
    ):
        with rows(home.pond, path, buckets_query(source, "epoch_us(timestamp)", column, over, low, high)) as found:
            line = choose(of_rows(found.read_all().to_pydict()), over)
        shown = [each for each in (line.high or line.values) if each is not None]
        every = [each for there in model.values() for each in there]
        if every and all(map(math.isfinite, every)):
            assert max(shown) == max(every)
    # what is read or exported has the readings as they are
    with rows(home.pond, path) as found:
        stored = found.read_all().sort_by("timestamp").column("temp").to_pylist()
    assert [str(each) for each in stored] == [str(each) for each in values]


def _value(given: random.Random) -> float | None:
    kind = given.random()
    if kind < 0.15:
        return math.nan
    if kind < 0.2:
        return None
    if kind < 0.22:
        return given.choice((math.inf, -math.inf))
    return 1000.0 if kind < 0.25 else given.choice((given.uniform(-5, 5), 0.0, -0.0))


def _micros(time: dt.datetime) -> int:
    return int(time.timestamp()) * 1_000_000
