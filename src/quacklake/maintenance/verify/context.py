"""What every check of a verification knows, and how findings are collected."""

from __future__ import annotations

import bisect
from array import array
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from quacklake.format.snapshots import Snapshot
from quacklake.maintenance.reports import Skipped
from quacklake.maintenance.verify.findings import Finding

__all__ = ["LIMIT", "Collector", "Known"]

LIMIT = 100
"""How many findings of one code are told."""


@dataclass
class Known:
    """The lake as the checks see it."""

    latest: Snapshot
    tables: dict[int, str]
    encrypted: bool
    snapshots: array[int] = field(default_factory=lambda: array("q"))
    #: The highest that the counters of catalog ids and of file ids have ever been.
    counted: tuple[int, int] = (0, 0)

    def name(self, table_id: int | None) -> str:
        """What a table is called, for people."""
        return self.tables.get(table_id, f"table {table_id}") if table_id is not None else "the lake"

    def seen(self, begin: int, end: int) -> bool:
        """Whether there is a snapshot from ``begin`` until before ``end``: what no snapshot shows harms nobody."""
        place = bisect.bisect_left(self.snapshots, begin)
        return place < len(self.snapshots) and self.snapshots[place] < end


class Collector:
    """Keeps findings, the first of each code only, so that a ruined lake does not fill the memory."""

    def __init__(self) -> None:
        self.findings: list[Finding] = []
        self.skipped: list[Skipped] = []
        self.files = 0
        self._counts: Counter[str] = Counter()

    def take(self, found: Iterable[Finding]) -> None:
        """Add findings; those of a code that is full are only counted."""
        for each in found:
            self._counts[each.code] += 1
            if self._counts[each.code] <= LIMIT:
                self.findings.append(each)

    def skip(self, what: str, reason: str) -> None:
        """Note what could not be looked at."""
        if len(self.skipped) < LIMIT:
            self.skipped.append(Skipped(what, reason))

    def overflow(self) -> list[Skipped]:
        """What was only counted."""
        return [
            Skipped(f"{count - LIMIT} more findings of {code}", f"only the first {LIMIT} of a kind are told")
            for code, count in self._counts.items()
            if count > LIMIT
        ]
