"""The snapshots that users name: by a number, a tag or a time."""

from __future__ import annotations

import datetime as dt
from contextlib import suppress
from operator import index
from typing import TypeAlias

from quacklake.core.catalog import own_tables
from quacklake.core.catalog.reading.reader import Reader
from quacklake.core.format.snapshots import Snapshot, check_tag, is_tag
from quacklake.core.operations.times import instant
from quacklake.errors import InputError, NotFoundError

Version: TypeAlias = "int | dt.datetime | str"
"""A state of the lake: a snapshot id, a tag or a time."""


def choose_version(
    to: Version | None = None,
    *,
    version: int | str | None = None,
    timestamp: dt.datetime | str | None = None,
    tag: str | None = None,
    name: str = "to",
) -> Version:
    """Return the one version that a caller gives; ``name`` is what ``to`` is called there.

    >>> choose_version(version=3), choose_version("release"), choose_version(timestamp="2024-01-01")
    (3, 'release', datetime.datetime(2024, 1, 1, 0, 0, tzinfo=datetime.timezone.utc))
    """
    if [to, version, timestamp, tag].count(None) != 3:
        raise InputError(f"pass one of {name}=, version=, timestamp= and tag=")
    if timestamp is not None:
        return instant(timestamp)
    if tag is not None:
        return _check_tag(tag)
    if isinstance(version, str):
        return _check_tag(version)
    chosen = version if to is None else to
    assert chosen is not None
    return chosen


def _check_tag(tag: str) -> str:
    try:
        return check_tag(tag)
    except InputError as error:
        with suppress(InputError):
            instant(tag)
            error.hint = f'for a time, pass timestamp="{tag}"'
        raise


def find_snapshot(reader: Reader, version: Version) -> Snapshot:
    """Return the snapshot of a version. Raise ``NotFoundError`` when it does not exist or has expired."""
    if isinstance(version, str) and is_tag(version):
        try:
            return own_tables.tagged(reader, version)
        except NotFoundError as error:
            with suppress(InputError):
                instant(version)
                error.hint = f'for a time, pass timestamp="{version}"'
            raise
    if isinstance(version, str | dt.datetime):
        return reader.snapshots.at_time(instant(version))
    if isinstance(version, bool) or not hasattr(version, "__index__"):
        raise InputError(f"a version must be a number, a tag or a time, not {type(version).__name__}")
    return reader.snapshots.at_version(index(version))
