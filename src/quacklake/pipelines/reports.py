"""Reports of batches and of runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from quacklake.extend.reporting import Report


@dataclass(frozen=True)
class BatchReport:
    """One batch: its checkpoint, the rows that the source gave, those of each sink, and those that were no rows."""

    checkpoint_id: int
    rows: int
    sinks: Mapping[str, int] = field(default_factory=dict)
    rejected: int = 0
    milliseconds: float = 0.0
    position: str = ""


@dataclass(frozen=True)
class RunReport(Report):
    """A run: how many batches and rows it passed on, how many checkpoints of earlier runs it finished."""

    batches: int = 0
    rows: int = 0
    rejected: int = 0
    sinks: Mapping[str, int] = field(default_factory=dict)
    recovered: int = 0
    restarts: int = 0
    seconds: float = 0.0

    def plus(self, batch: BatchReport) -> RunReport:
        """Return the report with one more batch."""
        sinks = {name: self.sinks.get(name, 0) + batch.sinks.get(name, 0) for name in {**self.sinks, **batch.sinks}}
        return RunReport(
            self.batches + 1,
            self.rows + batch.rows,
            self.rejected + batch.rejected,
            sinks,
            self.recovered,
            self.restarts,
            self.seconds,
        )


@dataclass(frozen=True)
class Lag:
    """The messages or versions of a source that were not passed on, and for how long the first of them has waited.

    ``seconds`` is None if the source cannot tell.
    """

    count: int
    seconds: float | None
