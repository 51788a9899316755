"""Axes: where ticks are, and what they say. Times are microseconds since 1970 and shown in UTC."""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Iterable

_SECOND = 1_000_000
_STEPS = (1, 2, 5, 10, 30, 60, 120, 300, 600, 1800, 3600, 7200, 10800, 21600, 43200, 86400, 172800, 604800, 1209600)
"""Distances of ticks in seconds; longer ones are months and years."""
_MONTHS = (1, 2, 3, 6, 12, 24, 60, 120, 240, 600, 1200)
_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_MONDAY = 4 * 86400
"""The first Monday after 1970 began, in seconds."""


def value_ticks(low: float, high: float, most: int = 5) -> list[float]:
    """Return round numbers between two values, at most about so many.

    >>> value_ticks(0, 10, 5), value_ticks(-0.31, 0.42, 4)
    ([0.0, 2.0, 4.0, 6.0, 8.0, 10.0], [-0.2, 0.0, 0.2, 0.4])
    """
    span = high - low
    if not span > 0 or not math.isfinite(span):
        return [low]
    raw = span / max(most, 1)
    power = 10.0 ** math.floor(math.log10(raw))
    step = next((power * factor for factor in (1, 2, 5, 10) if power * factor >= raw * 0.999), power * 10)
    first = math.ceil(low / step - 1e-9)
    last = math.floor(high / step + 1e-9)
    return [float(f"{n * step:.12g}") for n in range(first, last + 1)]


def number_text(value: float) -> str:
    """Return a number for people.

    >>> number_text(1234567.0), number_text(0.30000000000000004), number_text(2e-9)
    ('1.23457e+06', '0.3', '2e-09')
    """
    return f"{value:.6g}"


def extent(values: Iterable[float | None]) -> tuple[float, float]:
    """Return the lowest and highest value with a little room; values that are all the same get some."""
    known = [value for value in values if value is not None]
    low, high = min(known, default=0.0), max(known, default=1.0)
    room = (high - low) * 0.04 or abs(low) * 0.05 or 1.0
    return low - room, high + room


def time_ticks(start: int, end: int, most: int = 6) -> list[tuple[int, str]]:
    """Return round times between two, at most about so many, with what to write there.

    >>> time_ticks(0, 3600 * 1_000_000, 4)
    [(0, '00:00'), (1800000000, '00:30'), (3600000000, '01:00')]
    """
    wanted = (end - start) / _SECOND / max(most, 1)
    step = next((step for step in _STEPS if step >= wanted), None)
    if step is None:
        return _month_ticks(start, end, wanted)
    base = _MONDAY if step % 604800 == 0 else 0
    first = -(-(start // _SECOND - base) // step) * step + base
    if first * _SECOND < start:
        first += step
    form = "%H:%M:%S" if step < 60 else "%H:%M" if step < 86400 else "%Y-%m-%d"
    found = []
    for second in range(first, end // _SECOND + 1, step):
        moment = _EPOCH + dt.timedelta(seconds=second)
        # midnight says which day it is
        is_midnight = step < 86400 and second % 86400 == 0 and end - start > 86400 * _SECOND
        found.append((second * _SECOND, f"{moment:%m-%d}" if is_midnight else f"{moment:{form}}"))
    return found


def _month_ticks(start: int, end: int, wanted: float) -> list[tuple[int, str]]:
    step = next((step for step in _MONTHS if step * 30.4 * 86400 >= wanted), _MONTHS[-1])
    month = _month(start) // step * step
    found = []
    while month <= _month(end):
        moment = dt.datetime(month // 12, month % 12 + 1, 1, tzinfo=dt.UTC)
        at = int((moment - _EPOCH).total_seconds()) * _SECOND
        if start <= at <= end:
            found.append((at, f"{moment:%Y-%m}" if step < 12 else f"{moment:%Y}"))
        month += step
    return found


def _month(since: int) -> int:
    """Return the months since the year 0."""
    moment = _EPOCH + dt.timedelta(microseconds=since)
    return moment.year * 12 + moment.month - 1


def time_text(since: int) -> str:
    """Return a time for people, in UTC."""
    return f"{_EPOCH + dt.timedelta(microseconds=since):%Y-%m-%d %H:%M:%S} UTC"
