"""Upkeep of the tables that sinks write: when it is due, and what it did.

A sink never waits for upkeep when it commits. Whoever runs the sink calls ``maintain()`` between batches, as often as
it likes; the sink does something when the interval has passed and there is something to do.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Protocol, runtime_checkable

from quacklake.connectors.options import ConnectorOptions


@dataclass(frozen=True)
class MaintenanceReport:
    """The report of ``maintain``: files that others have replaced, those others, and files removed for good.

    ``conflict`` says that another writer was quicker and the table is as it was; the next call tries again.
    """

    due: bool = False
    files_compacted: int = 0
    files_written: int = 0
    files_removed: int = 0
    conflict: bool = False


@runtime_checkable
class Maintained(Protocol):
    """A sink that looks after its table."""

    def maintain(self, now: datetime | None = None) -> MaintenanceReport:
        """Compact small files and remove old ones if that is due at a time, by default now."""


@dataclass(frozen=True)
class MaintenanceOptions:
    """The schedule of compaction, and how long files stay that no version of the table needs any more."""

    enabled: bool
    min_files: int
    interval: timedelta
    retention: timedelta

    @classmethod
    def of(cls, read: ConnectorOptions) -> MaintenanceOptions:
        """Take the options. Raise ``ConfigError``."""
        return cls(
            read.boolean("compaction", True),
            read.number("compaction_min_files", 10, least=2) or 2,
            read.duration("compaction_interval", timedelta(hours=1)),
            read.duration("vacuum_retention", timedelta(hours=168)),
        )

    @property
    def orphan_age(self) -> timedelta:
        """The age of files that no commit will take any more: a checkpoint may wait long for its second phase."""
        return max(self.retention, timedelta(hours=168))

    def is_due(self, last: datetime | None, now: datetime) -> bool:
        """Return True when upkeep is wanted, and the last was at least an interval ago."""
        return self.enabled and (last is None or now - last >= self.interval)

    def is_sweep_due(self, last: datetime | None, now: datetime) -> bool:
        """Return True when orphans were looked for at least a day ago: every file of the table is listed for that."""
        return last is None or now - last >= timedelta(days=1)
