"""The knowledge that all checks of a verification share, and the collector of findings."""

from __future__ import annotations

import bisect
from array import array
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from quacklake.format.snapshots import Snapshot
from quacklake.maintenance.reports import Skipped
from quacklake.maintenance.verify.findings import Finding

LIMIT = 100
"""How many findings of one code are reported."""


@dataclass
class Known:
    """The lake as the checks see it."""

    latest: Snapshot
    tables: dict[int, str]
    encrypted: bool
    snapshots: array[int] = field(default_factory=lambda: array("q"))
    #: The highest values that the counters of catalog ids and file ids have ever had.
    counted: tuple[int, int] = (0, 0)

    def name(self, table_id: int | None) -> str:
        """Return a name for a table in messages."""
        return self.tables.get(table_id, f"table {table_id}") if table_id is not None else "the lake"

    def seen(self, begin: int, end: int) -> bool:
        """Return whether a snapshot exists from ``begin`` to before ``end``; rows that no snapshot shows do no harm."""
        place = bisect.bisect_left(self.snapshots, begin)
        return place < len(self.snapshots) and self.snapshots[place] < end


class Collector:
    """Collects the first findings of each code, so that a ruined lake does not fill the memory."""

    def __init__(self) -> None:
        self.findings: list[Finding] = []
        self.skipped: list[Skipped] = []
        self.files = 0
        self._counts: Counter[str] = Counter()

    def take(self, found: Iterable[Finding]) -> None:
        """Add findings; beyond the limit of a code they are only counted."""
        for each in found:
            self._counts[each.code] += 1
            if self._counts[each.code] <= LIMIT:
                self.findings.append(each)

    def skip(self, what: str, reason: str) -> None:
        """Record something that could not be checked."""
        if len(self.skipped) < LIMIT:
            self.skipped.append(Skipped(what, reason))

    def overflow(self) -> list[Skipped]:
        """Return the codes with findings that were only counted."""
        return [
            Skipped(f"{count - LIMIT} more findings of {code}", f"only the first {LIMIT} of a kind are told")
            for code, count in self._counts.items()
            if count > LIMIT
        ]
