"""Schedules: cron expressions and intervals."""

from __future__ import annotations

import datetime as dt

import pytest

from quacklake.errors import ConfigError
from quacklake.pond.schedules import parse_schedule


def following(text: str, after: str, zone: str = "UTC", count: int = 1) -> list[str]:
    moment, found = dt.datetime.fromisoformat(after).replace(tzinfo=dt.UTC), []
    for _ in range(count):
        moment = parse_schedule(text, zone).next(moment)
        found.append(moment.strftime("%Y-%m-%d %H:%M"))
    return found


@pytest.mark.parametrize(
    ("text", "after", "times"),
    [
        ("* * * * *", "2024-01-01T00:00:30", ["2024-01-01 00:01", "2024-01-01 00:02"]),
        ("*/20 * * * *", "2024-01-01T00:40", ["2024-01-01 01:00", "2024-01-01 01:20"]),
        ("5,35 6-7 * * *", "2024-01-01T06:35", ["2024-01-01 07:05", "2024-01-01 07:35"]),
        ("0 0 29 2 *", "2024-03-01", ["2028-02-29 00:00"]),
        ("0 12 * jan-mar sun", "2024-03-31T13:00", ["2025-01-05 12:00"]),
        ("0 0 13 * fri", "2024-09-01", ["2024-09-06 00:00", "2024-09-13 00:00"]),
        ("0 0 * * 7", "2024-01-01", ["2024-01-07 00:00"]),
        ("10/15 0 * * *", "2024-01-01", ["2024-01-01 00:10", "2024-01-01 00:25"]),
        ("@daily", "2024-12-31T05:00", ["2025-01-01 00:00"]),
        ("every 2h", "2024-01-01T00:30", ["2024-01-01 02:30"]),
    ],
)
def test_the_times_that_follow(text: str, after: str, times: list[str]) -> None:
    assert following(text, after, count=len(times)) == times


def test_a_time_that_the_clock_skips_is_passed_over_and_one_that_it_repeats_counts_once() -> None:
    assert following("30 2 * * *", "2024-03-30T12:00", "Europe/Berlin", 2) == ["2024-04-01 00:30", "2024-04-02 00:30"]
    assert following("30 2 * * *", "2024-10-26T12:00", "Europe/Berlin", 2) == ["2024-10-27 00:30", "2024-10-28 01:30"]


@pytest.mark.parametrize(
    "text",
    ["", "* * * *", "60 * * * *", "* 24 * * *", "* * 0 * *", "*/0 * * * *", "5-1 * * * *", "* * * foo *", "0 0 31 2 *",
     "*-5 * * * *", "every", "every 10", "every 10ms", "a b c d e", "1,,2 * * * *"],
)  # fmt: skip
def test_what_is_no_schedule_is_refused_with_a_hint(text: str) -> None:
    with pytest.raises(ConfigError, match="schedule"):
        parse_schedule(text)
