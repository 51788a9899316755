"""Dates, times and timestamps as nanoseconds, to and from the text DuckDB prints.

Nanoseconds since 1970 (or since midnight) are plain Python integers, so every date that the format can hold
compares rightly: years beyond 9999, years before Christ, and infinity.
"""

from __future__ import annotations

import datetime as dt
import re

NANOS = {"D": 86_400_000_000_000, "s": 1_000_000_000, "ms": 1_000_000, "us": 1_000, "ns": 1}
"""Nanoseconds in one unit of an Arrow date, time or timestamp."""

DAY = NANOS["D"]

INFINITY = 1 << 127
"""Later than every date; its negative is earlier than every date."""

_EPOCH = dt.date(1970, 1, 1).toordinal()
_PHYSICAL_INFINITY = {32: (1 << 31) - 1, 64: (1 << 63) - 1}
_TEMPORAL = re.compile(
    r"(?P<year>\d{1,7})-(?P<month>\d{1,2})-(?P<day>\d{1,2})(?P<bc> \(BC\))?"
    r"(?:[ T](?P<time>\d{1,2}:\d{2}(?::\d{2}(?:\.\d{1,9})?)?)"
    r"(?P<zone>Z|[+-]\d{2}(?::?\d{2}(?::?\d{2})?)?)?)?",
    re.ASCII,
)
_TIME = re.compile(r"(\d{1,2}):(\d{2})(?::(\d{2})(?:\.(\d{1,9}))?)?", re.ASCII)


def day_number(year: int, month: int, day: int) -> int:
    """Return the days since 1970-01-01 of a proleptic Gregorian date; year 0 is 1 BC."""
    if 1 <= year <= 9999:
        return dt.date(year, month, day).toordinal() - _EPOCH
    # The calendar repeats every 400 years of 146097 days.
    cycles, rest = divmod(year - 1, 400)
    return dt.date(rest + 1, month, day).toordinal() - _EPOCH + cycles * 146_097


def from_physical(value: int, unit: str, *, bits: int = 64) -> int:
    """Return nanoseconds for the integer inside an Arrow or DuckDB array, whose extreme values mean infinity."""
    extreme = _PHYSICAL_INFINITY[bits]
    if value == extreme:
        return INFINITY
    if value == -extreme:
        return -INFINITY
    return value * NANOS[unit]


def nanos(value: dt.date | dt.time) -> int:
    """Return nanoseconds since the epoch of a date or datetime (naive ones are UTC), or since midnight of a time."""
    if isinstance(value, dt.datetime):
        if value.tzinfo is not None:
            value = value.astimezone(dt.UTC)
        seconds = (value.toordinal() - _EPOCH) * 86_400 + value.hour * 3600 + value.minute * 60 + value.second
        # pandas timestamps carry three more digits than the standard library's.
        return seconds * NANOS["s"] + value.microsecond * 1000 + int(getattr(value, "nanosecond", 0))
    if isinstance(value, dt.time):
        return (value.hour * 3600 + value.minute * 60 + value.second) * NANOS["s"] + value.microsecond * 1000
    return (value.toordinal() - _EPOCH) * DAY


def date_text(value: int) -> str:
    """Return DuckDB's text of a date given as nanoseconds: ``2024-01-31``, ``0044-03-15 (BC)``, ``infinity``."""
    if abs(value) == INFINITY:
        return "infinity" if value > 0 else "-infinity"
    ordinal = value // DAY + _EPOCH
    if 1 <= ordinal <= 3_652_059:
        return dt.date.fromordinal(ordinal).isoformat()
    cycles, rest = divmod(ordinal - 1, 146_097)
    date = dt.date.fromordinal(rest + 1)
    year = date.year + cycles * 400
    if year > 0:
        return f"{year:04d}-{date.month:02d}-{date.day:02d}"
    return f"{1 - year:04d}-{date.month:02d}-{date.day:02d} (BC)"


def time_text(value: int) -> str:
    """Return DuckDB's text of a time given as nanoseconds since midnight, without trailing zeros."""
    seconds, fraction = divmod(value, NANOS["s"])
    text = f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}"
    return f"{text}.{fraction:09d}".rstrip("0") if fraction else text


def timestamp_text(value: int, *, zone: bool = False) -> str:
    """Return DuckDB's text of a timestamp given as nanoseconds; ``zone`` appends ``+00``."""
    if abs(value) == INFINITY:
        return "infinity" if value > 0 else "-infinity"
    text = f"{date_text(value)} {time_text(value % DAY)}"
    return f"{text}+00" if zone else text


def parse_time(text: str) -> int | None:
    """Return nanoseconds since midnight of a time's text (24:00:00 included), or ``None`` when it is none."""
    match = _TIME.fullmatch(text)
    if match is None:
        return None
    hours, minutes, seconds = int(match[1]), int(match[2]), int(match[3] or 0)
    value = (hours * 3600 + minutes * 60 + seconds) * NANOS["s"] + int((match[4] or "0").ljust(9, "0"))
    return value if minutes < 60 and seconds < 60 and value <= DAY else None


def parse_temporal(text: str) -> int | None:
    """Return nanoseconds since the epoch of a date's or timestamp's text, or ``None`` when it is none."""
    if text in ("infinity", "-infinity"):
        return INFINITY if text[0] == "i" else -INFINITY
    match = _TEMPORAL.fullmatch(text)
    if match is None:
        return None
    year = int(match["year"])
    if match["bc"]:
        year = 1 - year
    try:
        value = day_number(year, int(match["month"]), int(match["day"])) * DAY
    except ValueError:
        return None
    if match["time"]:
        time = parse_time(match["time"])
        if time is None:
            return None
        value += time - _offset(match["zone"])
    return value


def _offset(zone: str | None) -> int:
    if zone is None or zone == "Z":
        return 0
    digits = zone[1:].replace(":", "").ljust(6, "0")
    seconds = int(digits[:2]) * 3600 + int(digits[2:4]) * 60 + int(digits[4:6])
    return (-seconds if zone[0] == "-" else seconds) * NANOS["s"]
