"""Backing a lake up."""

from __future__ import annotations

from pathlib import Path

from quacklake.errors import InputError
from quacklake.maintenance.backup import BackupReport, back_up
from quacklake.maintenance.reports import Progress, silent
from quacklake.operations.context import Shared
from quacklake.operations.handles import Handle
from quacklake.operations.stores import open_store

__all__ = ["BackingUp"]


class BackingUp:
    """Copies of a lake in another place."""

    handle: Handle

    @property
    def _shared(self) -> Shared:
        return self.handle.shared

    def backup(self, to: str | Path, progress: Progress = silent) -> BackupReport:
        """Back the lake up to a folder or ``s3://`` URL: its catalog as it is now, and the files that are new there.

        Backups in one place share their files. One that is interrupted does not exist, and the next one goes on with
        what it has copied. ``quacklake.restore_backup`` makes a lake of one, in any kind of database. The image of an
        encrypted lake's catalog holds the keys of its files. Files outside of the data path are not copied. Raises
        ``InputError`` for a place inside the lake's own data path, or in that of a shared lake.
        """
        shared = self._shared
        target = open_store(str(to), shared.config)
        if shared.store.hides(target.root):
            raise InputError(
                f"the backup would be in {target.root}, where catalogs of the shared lake have their files",
                hint="name another folder or bucket",
            )
        return back_up(shared.catalog, shared.store, target, progress)
