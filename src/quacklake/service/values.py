"""Values that requests carry: snapshots, times, names and pages."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from fastapi import Path, Query
from starlette.convertors import register_url_convertor

from quacklake.errors import InputError
from quacklake.service.paths import PartConvertor

if TYPE_CHECKING:
    from quacklake.lake import Lake

__all__ = ["LakeName", "TableName", "Timestamp", "Version", "resolved_version"]

register_url_convertor("part", PartConvertor())  # before any route is made

MAX_VALUE = 2**63 - 1
MAX_NAME = 4_200
"""Letters of the name of a table with its schema, both quoted and full of quotes."""

Version = Annotated[int | None, Query(ge=0, le=MAX_VALUE, description="Read the lake at this snapshot.")]
Timestamp = Annotated[
    str | None, Query(max_length=64, description="Read the lake at this time (UTC).", examples=["2026-01-31T12:00:00"])
]
LakeName = Annotated[str | None, Query(max_length=200, description="The lake; a principal with one lake needs none.")]
TableName = Annotated[
    str,
    Path(
        max_length=MAX_NAME,
        description="`table` in `main`, or `schema.table`; a name with other characters in quotes, percent-encoded.",
        examples=["main.orders"],
    ),
]


def resolved_version(lake: Lake, version: int | None, timestamp: str | None) -> int | None:
    """Return the snapshot of a version or a time; None for neither. Raise ``InputError`` for both."""
    if version is None and timestamp is None:
        return None
    if version is not None and timestamp is not None:
        raise InputError("pass version or timestamp, not both")
    return lake.at(version=version, timestamp=timestamp).snapshot_id
