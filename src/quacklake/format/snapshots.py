"""Snapshots, the only clock: what one is, what is visible in it, how its time is written, and names people give it."""

from __future__ import annotations

import datetime as dt
import re
from dataclasses import dataclass
from functools import lru_cache

from quacklake.errors import CatalogError, InvalidNameError
from quacklake.format.changes import Change
from quacklake.format.temporal import INFINITY, parse_temporal

MAX_TAG = 128
"""The longest tag, in characters."""

# A letter first, so that no tag looks like the number or the time of a snapshot.
_TAG = re.compile(r"[^\W\d][\w.+/-]*")


@dataclass(frozen=True, slots=True)
class Snapshot:
    """One snapshot: when it was made and which ids come next. ``time`` is aware and in UTC."""

    id: int
    time: dt.datetime | None
    schema_version: int
    next_catalog_id: int
    next_file_id: int


@dataclass(frozen=True, slots=True)
class SnapshotInfo:
    """What a snapshot changed, and what its author said about it."""

    id: int
    time: dt.datetime | None
    schema_version: int
    changes: tuple[Change, ...] = ()
    author: str | None = None
    message: str | None = None
    extra: str | None = None


def visible(begin: int | None, end: int | None, snapshot: int) -> bool:
    """Return True when an object that lives from ``begin`` until before ``end`` exists at ``snapshot``.

    >>> visible(3, None, 3), visible(3, 5, 4), visible(3, 5, 5), visible(3, None, 2)
    (True, True, False, False)
    """
    return begin is not None and begin <= snapshot and (end is None or snapshot < end)


@lru_cache(maxsize=64)
def format_time(time: dt.datetime) -> str:
    """Return the text of a snapshot's time in catalogs without a timestamp type; a naive time is UTC.

    >>> format_time(dt.datetime(2026, 11, 15, 3, 7, 52, 14000, tzinfo=dt.UTC))
    '2026-11-15 03:07:52.014+00'
    """
    time = time.replace(tzinfo=dt.UTC) if time.tzinfo is None else time.astimezone(dt.UTC)
    text = time.strftime("%H:%M:%S.%f").rstrip("0").rstrip(".")
    return f"{time.date().isoformat()} {text}+00"


def parse_time(text: str) -> dt.datetime:
    """Return the aware UTC time of a catalog's text, with any zone; without one it is UTC.

    Raises :class:`CatalogError` when the text is no time or one that Python cannot hold.
    """
    value = parse_temporal(text.strip())
    try:
        if value is None or abs(value) == INFINITY:
            raise ValueError
        return dt.datetime(1970, 1, 1, tzinfo=dt.UTC) + dt.timedelta(microseconds=value // 1000)
    except (ValueError, OverflowError):
        raise CatalogError(f"{text!r} is not a snapshot time") from None


@dataclass(frozen=True, slots=True)
class SnapshotTag:
    """A name of a snapshot, and when it was given."""

    name: str
    snapshot_id: int
    created: dt.datetime | None = None


def is_tag(text: str) -> bool:
    """Return True when a text can be a tag: never for a number or a time.

    >>> is_tag("v1.0"), is_tag("2024-01-01"), is_tag("7"), is_tag("a b")
    (True, False, False, False)
    """
    return len(text) <= MAX_TAG and _TAG.fullmatch(text) is not None


def check_tag(name: object) -> str:
    """Return the name if a snapshot may be called so; raise :class:`InvalidNameError` if not."""
    if not isinstance(name, str):
        raise InvalidNameError(f"a tag must be text, not {type(name).__name__}")
    if not is_tag(name):
        raise InvalidNameError(
            f"a snapshot cannot have the tag {name[:MAX_TAG]!r}",
            hint=f"a tag starts with a letter; letters, digits and any of . _ - + / follow, {MAX_TAG} in all at most",
        )
    return name
