"""Viewports: the right resolution for a range and a width, and what it reads."""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Iterator

import pyarrow as pa
import pytest

from quacklake.errors import InputError, NotFoundError
from quacklake.pond import Pond
from quacklake.pond.series import append_series
from quacklake.pond.viewports import viewport
from tests.pond.conftest import START

DAYS = 30


@pytest.fixture(scope="module")
def pond() -> Iterator[Pond]:
    """A month of readings, one a minute, with a day missing and a peak; and its reductions."""
    minutes = [n for n in range(DAYS * 1440) if not 14_400 <= n < 15_840]
    times = pa.array([START + dt.timedelta(minutes=n) for n in minutes], pa.timestamp("us", "UTC"))
    temps = pa.array([99.0 if n == 20_000 else math.sin(n / 700) for n in minutes], pa.float64())
    with Pond.memory() as made:
        table = pa.table({"timestamp": times, "temp": temps, "name": pa.array(["x"] * len(minutes))})
        half = len(minutes) // 2
        for part in (table.slice(0, half), table.slice(half)):
            made.run(["test"], lambda fs, part=part: append_series(fs, "/dock.series", part))
        config = {"in_pattern": "/*.series", "resolutions": ["10m", "1h", "1d"]}
        made.run(["test"], lambda fs: fs.make_node("/reduced", "temporal-reduce", config))
        yield made


@pytest.mark.daily(0.35)
@pytest.mark.parametrize(
    ("days", "width", "expected"),
    [(DAYS, 20, "1d"), (DAYS, 200, "1h"), (DAYS, 2_000, "10m"), (DAYS, 6_000, None), (1, 200, None), (7, 100, "1h")],
)
def test_the_resolution_follows_the_range_and_the_width(
    pond: Pond, days: int, width: int, expected: str | None
) -> None:
    found = viewport(pond, "/dock.series", START, START + dt.timedelta(days=days), width)
    assert found.resolution == expected
    assert len(found.lines["temp"]) <= 3 * width + 20


@pytest.mark.daily(0.3)
@pytest.mark.parametrize("width", [60, 200, 6_000])
def test_the_peak_and_the_gap_are_seen_at_every_resolution(pond: Pond, width: int) -> None:
    line = viewport(pond, "/dock.series", width=width).lines["temp"]
    assert max(v for v in (line.high or line.values) if v is not None) == 99.0
    (hole,) = [t for t, v in zip(line.times, line.values, strict=True) if v is None]
    first, last = (START + dt.timedelta(minutes=n) for n in (14_399, 15_840))
    assert first.timestamp() - 86400 < hole / 1e6 < last.timestamp()


def test_the_points_of_a_short_range_are_the_readings(pond: Pond) -> None:
    begin = START + dt.timedelta(days=2)
    found = viewport(pond, "/dock.series", begin, begin + dt.timedelta(minutes=9), 500)
    assert found.to_arrow().column("value").to_pylist() == [math.sin(n / 700) for n in range(2880, 2890)]
    assert list(found.lines) == ["temp"]


def test_a_computed_series_has_a_viewport_too(pond: Pond) -> None:
    found = viewport(pond, "/reduced/dock/res=1d.series", width=100, columns=["temp.max"])
    assert len(found.lines["temp.max"]) == DAYS  # one day is a gap
    assert found.resolution is None


def test_late_readings_are_seen_at_once(pond: Pond) -> None:
    late = [{"timestamp": START + dt.timedelta(seconds=30), "temp": -50.0}]
    pond.run(["test"], lambda fs: append_series(fs, "/dock.series", late))
    line = viewport(pond, "/dock.series", width=60).lines["temp"]
    assert line.low is not None and line.low[0] == -50.0


def test_what_cannot_be_shown_is_refused(pond: Pond) -> None:
    with pytest.raises(NotFoundError, match="no column of numbers 'tmp'") as caught:
        viewport(pond, "/dock.series", columns=["tmp"])
    assert "temp" in str(caught.value.hint)
    with pytest.raises(InputError, match="pixels wide"):
        viewport(pond, "/dock.series", width=0)
    with pytest.raises(InputError, match="no rows"):
        viewport(pond, "/reduced")
    with pytest.raises(InputError, match="after the last"):
        viewport(pond, "/dock.series", START, START - dt.timedelta(1))
