"""Backups of lakes in a place: made, listed, removed and read, with the settings and the key of that place."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa

from quacklake.config import Config
from quacklake.core.maintenance import backup
from quacklake.core.maintenance.backup import BackupInfo, BackupReport, PruneMark, PruneReport
from quacklake.core.maintenance.backup.image import folder_of, read_batches
from quacklake.core.operations.stores import open_backups
from quacklake.extend.reporting import Progress, silent
from quacklake.extend.stores import Store
from quacklake.lake.lake import Lake

__all__ = ["Backups"]


@dataclass(frozen=True, slots=True)
class Backups:
    """The backups of a place, and beside them what a product keeps in the same ``store``.

    >>> import tempfile
    >>> from quacklake.config import resolve
    >>> from quacklake.extend.example import example_lake
    >>> with example_lake() as lake, tempfile.TemporaryDirectory() as folder:
    ...     backups = Backups.open(folder, resolve(env={}))
    ...     report = backups.add(lake)
    ...     [info.id for info in backups.list()] == [report.id], report.snapshot
    (True, 4)
    """

    store: Store

    @classmethod
    def open(cls, url: str, config: Config) -> Backups:
        """Open a folder or a place in an object store, encrypted if the settings have a key. Raise ``ConfigError``."""
        return cls(open_backups(url, config))

    def add(self, lake: Lake, progress: Progress = silent) -> BackupReport:
        """Back up a lake; see ``LakeMaintenance.backup``."""
        context = lake.handle.context
        return backup.back_up(context.catalog, context.store, self.store, progress)

    def list(self) -> list[BackupInfo]:
        """Return every complete backup, oldest first."""
        return backup.list_backups(self.store)

    def prune(self, before: dt.datetime, *, dry_run: bool = False, progress: Progress = silent) -> PruneReport:
        """Remove the backups made before a time; the newest always stays. See ``quacklake.prune_backups``."""
        return backup.prune(self.store, keep_last=None, before=before, dry_run=dry_run, progress=progress)

    def mark_pruning(self, *, dry_run: bool = False) -> PruneMark:
        """Return a block that shows others that backups are being removed; ``live`` renews it in long work."""
        return PruneMark(self.store, dry_run=dry_run)

    def check_not_pruned(self) -> None:
        """Raise ``StorageUnavailableError`` while backups are being removed; call it after the last file is written."""
        backup.check_not_pruned(self.store)

    def read_table(self, id_: str, name: str) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a metadata table, such as ``ducklake_snapshot_changes``, as a backup has them."""
        batches = read_batches(self.store, folder_of(id_), name)
        return (batch for batch in batches if isinstance(batch, pa.RecordBatch))
