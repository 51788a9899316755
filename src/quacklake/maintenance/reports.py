"""What maintenance tells of its work: reports, reasons for leaving something alone, and progress."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

__all__ = ["CompactionReport", "Progress", "Skipped", "silent"]

#: Told what is being worked on, how much of it is done and, where it is known, how much there is.
Progress = Callable[[str, int, int | None], None]


def silent(what: str, done: int, total: int | None) -> None:
    """Tell nobody."""


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
