"""Reports of maintenance operations."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from quacklake.core.progress import Report


@dataclass(frozen=True, slots=True)
class Skipped:
    """A table, file or snapshot that was left as it is, and why."""

    what: str
    reason: str


@dataclass(frozen=True, slots=True)
class CompactionReport(Report):
    """Report of one compaction; ``snapshot`` is None if nothing was done. ``groups`` count old and new files."""

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
