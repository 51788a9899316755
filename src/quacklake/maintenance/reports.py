"""What maintenance tells of its work: reports, and reasons for leaving something alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

__all__ = ["CompactionReport", "Skipped"]


@dataclass(frozen=True, slots=True)
class Skipped:
    """Something that was left as it is, and why: a table, a file, a snapshot."""

    what: str
    reason: str


@dataclass(frozen=True, slots=True)
class CompactionReport:
    """What one operation did to the files of one table. ``snapshot`` is None when there was nothing to do.

    ``groups`` has for each group of files how many there were, and how many took their place.
    """

    operation: str
    table: str
    snapshot: int | None = None
    files_before: int = 0
    files_after: int = 0
    bytes_before: int = 0
    bytes_after: int = 0
    rows: int = 0
    skipped: Sequence[Skipped] = ()
    groups: Sequence[tuple[int, int]] = ()
