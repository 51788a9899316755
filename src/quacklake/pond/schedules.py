"""Schedules: cron expressions, and durations such as ``every 10s``."""

from __future__ import annotations

import datetime as dt
import re
from dataclasses import dataclass
from zoneinfo import ZoneInfo

from quacklake.config.values import parse_duration
from quacklake.errors import ConfigError

_NAMES = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
_MONTHS = ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"]
_DAYS = ["sun", "mon", "tue", "wed", "thu", "fri", "sat"]
_FIELDS = (("minute", 0, 59), ("hour", 0, 23), ("day", 1, 31), ("month", 1, 12), ("weekday", 0, 7))
_PART = re.compile(r"(\*|[a-z0-9]+)(?:-([a-z0-9]+))?(?:/(\d+))?")
_EVERY = re.compile(r"@?every\s+(.+)")
_MAX_DAYS = 366 * 8 + 2
"""Days to look ahead: a 29th of February may be eight years away."""
_LEAST = 1.0


@dataclass(frozen=True, slots=True)
class Every:
    """A schedule by an interval."""

    seconds: float

    def next(self, after: dt.datetime) -> dt.datetime:
        """Return the first time after another."""
        return after + dt.timedelta(seconds=self.seconds)


@dataclass(frozen=True, slots=True)
class Cron:
    """A schedule by the clock on the wall of a zone.

    As in cron, a day fits when the day of the month or the weekday does, if both are restricted. A time that the clock
    skips is passed over, and one that it shows twice counts once.
    """

    minutes: tuple[int, ...]
    hours: tuple[int, ...]
    days: frozenset[int]
    months: frozenset[int]
    weekdays: frozenset[int]
    either: bool
    """True when one of the two fields of days is enough."""
    zone: str = "UTC"

    def next(self, after: dt.datetime) -> dt.datetime:
        """Return the first time after another. Raise ``ConfigError`` for a schedule that never comes."""
        zone = ZoneInfo(self.zone)
        date = after.astimezone(zone).date()
        for number in range(_MAX_DAYS):
            day = date + dt.timedelta(days=number)
            if self._fits(day):
                for moment in self._moments(day, zone):
                    if moment > after:
                        return moment
        raise ConfigError("the schedule names a day that never comes")

    def _fits(self, day: dt.date) -> bool:
        of_month, of_week = day.day in self.days, day.isoweekday() % 7 in self.weekdays
        return day.month in self.months and (of_month or of_week if self.either else of_month and of_week)

    def _moments(self, day: dt.date, zone: ZoneInfo) -> list[dt.datetime]:
        found = []
        for hour in self.hours:
            for minute in self.minutes:
                local = dt.datetime.combine(day, dt.time(hour, minute), zone)
                moment = local.astimezone(dt.UTC)
                if moment.astimezone(zone).replace(tzinfo=None) == local.replace(tzinfo=None):
                    found.append(moment)
        return found


Schedule = Every | Cron


def parse_schedule(text: str, zone: str = "UTC") -> Schedule:
    """Return the schedule of a text. Raise ``ConfigError``.

    >>> parse_schedule("*/20 6 * * mon-fri").next(dt.datetime(2024, 1, 5, 6, 40, tzinfo=dt.UTC)).isoformat()
    '2024-01-08T06:00:00+00:00'
    >>> parse_schedule("every 90s").seconds
    90.0
    """
    words = text.strip().lower()
    every = _EVERY.fullmatch(words)
    if every is not None:
        try:
            seconds = parse_duration(every[1], bare=False).total_seconds()
        except ValueError as error:
            raise ConfigError(f"the schedule {text!r}: {error}", hint="every 30s, every 10min") from None
        if seconds < _LEAST:
            raise ConfigError(f"the schedule {text!r} is shorter than a second")
        return Every(seconds)
    fields = _NAMES.get(words, words).split()
    if len(fields) != len(_FIELDS):
        raise ConfigError(
            f"the schedule {text!r} has {len(fields)} fields, and cron has 5",
            hint="minute hour day month weekday: */15 * * * *; or every 30s",
        )
    minutes, hours, days, months, weekdays = (
        _field(field, *facts, text) for field, facts in zip(fields, _FIELDS, strict=True)
    )
    either = not fields[2].startswith("*") and not fields[4].startswith("*")
    made = Cron(
        tuple(sorted(minutes)), tuple(sorted(hours)), days, months, frozenset(day % 7 for day in weekdays), either, zone
    )
    made.next(dt.datetime.now(dt.UTC))
    return made


def _field(text: str, what: str, low: int, high: int, whole: str) -> frozenset[int]:
    found: set[int] = set()
    for part in text.split(","):
        match = _PART.fullmatch(part)
        if match is None:
            raise _wrong(part, what, whole)
        first, last, step = match.groups()
        if first == "*":
            begin, end = low, high if what != "weekday" else 6
        else:
            begin = _number(first, what, whole)
            end = _number(last, what, whole) if last else (high if step else begin)
        if (last and first == "*") or not low <= begin <= end <= high or step == "0":
            raise _wrong(part, what, whole)
        found.update(range(begin, end + 1, int(step or 1)))
    return frozenset(found)


def _number(text: str, what: str, whole: str) -> int:
    names = {"month": _MONTHS, "weekday": _DAYS}.get(what, [])
    if text in names:
        return names.index(text) + (1 if what == "month" else 0)
    if not text.isdigit():
        raise _wrong(text, what, whole)
    return int(text)


def _wrong(part: str, what: str, whole: str) -> ConfigError:
    return ConfigError(
        f"the schedule {whole!r}: {part!r} is not valid for the {what}",
        hint="*/15 * * * * runs every quarter of an hour",
    )
