"""Times as users give them."""

from __future__ import annotations

import datetime as dt

from quacklake.errors import InputError
from quacklake.format.snapshots import parse_time

__all__ = ["instant"]


def instant(time: object) -> dt.datetime:
    """A time in UTC: text and naive times are taken for UTC. Raises ``InputError``."""
    if isinstance(time, str):
        try:
            return parse_time(time)
        except Exception as error:
            raise InputError(f"{time!r} is not a time", hint="write 2024-01-01 12:00:00+00") from error
    if not isinstance(time, dt.datetime):
        raise InputError(f"a timestamp must be a datetime or text, not {type(time).__name__}")
    return time.replace(tzinfo=dt.UTC) if time.tzinfo is None else time.astimezone(dt.UTC)
