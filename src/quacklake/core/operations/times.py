"""Parse times and ages from users."""

from __future__ import annotations

import datetime as dt
from operator import index
from typing import TypeAlias

from quacklake.config import parse_duration
from quacklake.core.format.snapshots import parse_time
from quacklake.errors import InputError


def instant(time: object) -> dt.datetime:
    """Return a time in UTC; text and naive times are UTC. Raise ``InputError``."""
    if isinstance(time, str):
        try:
            return parse_time(time)
        except Exception as error:
            raise InputError(f"{time!r} is not a time", hint="write 2024-01-01 12:00:00+00") from error
    if not isinstance(time, dt.datetime):
        raise InputError(f"a timestamp must be a datetime or text, not {type(time).__name__}")
    try:
        return time.replace(tzinfo=dt.UTC) if time.tzinfo is None else time.astimezone(dt.UTC)
    except OverflowError as error:
        raise InputError(f"{time} is not a time in UTC", hint="write 2024-01-01 12:00:00+00") from error


Age: TypeAlias = "dt.datetime | dt.timedelta | str"
"""An age: older than a time, or than a span such as ``7 days`` or ``7d``."""


def span(age: object) -> dt.timedelta:
    """Return the span of a ``timedelta`` or of text such as ``7 days`` or ``7d``. Raise ``InputError``."""
    try:
        found = parse_duration(age, bare=False)
    except ValueError:
        hint = "write 7d, 12h, 7 days, or 12 hours 30 minutes"
        raise InputError(f"{age!r} is not a span of time", hint=hint) from None
    if found < dt.timedelta():
        raise InputError("a span of time cannot be negative")
    return found


def before(age: object) -> dt.datetime:
    """Return the cutoff time of an age: a time in UTC, as text or ``datetime``, or a span such as ``7d`` before now.

    Raise ``InputError`` for anything else.

    >>> before("2024-01-31 12:00").isoformat()
    '2024-01-31T12:00:00+00:00'
    """
    if isinstance(age, dt.datetime):
        return instant(age)
    if isinstance(age, str) and age[:1].isdigit() and "-" in age:
        return instant(age)
    try:
        return dt.datetime.now(dt.UTC) - span(age)
    except OverflowError:
        return dt.datetime.min.replace(tzinfo=dt.UTC)


def check_version(version: object) -> int:
    """Return the id of a snapshot. Raise ``InputError`` for anything else."""
    try:
        if isinstance(version, bool):
            raise TypeError
        number = index(version)  # type: ignore[arg-type]
    except TypeError:
        raise InputError(f"a version is the number of a snapshot, not {version!r}") from None
    if number < 0:
        raise InputError(f"a snapshot cannot be {number}", hint="snapshots are numbered from 0")
    return number
