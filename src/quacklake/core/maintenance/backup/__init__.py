"""Backups of a lake: an image of its catalog, and copies of its files.

A backup place has this layout::

    data/…                   the files of the lake, under their own paths; all backups share them
    backups/<id>/*.arrow     the catalog: one file for each of its tables, and for each table of inlined rows
    backups/<id>/manifest.json   written last: a backup without one does not exist
    pruning/…                present while backups are being removed

``image`` has the manifests and the catalog as Arrow files, ``create`` makes, restores and removes backups.
"""

from quacklake.core.maintenance.backup.create import (
    BackupReport,
    PruneMark,
    PruneReport,
    back_up,
    check_not_pruned,
    lend,
    prune,
    restore,
)
from quacklake.core.maintenance.backup.image import BackupInfo, list_backups

__all__ = [
    "BackupInfo",
    "BackupReport",
    "PruneMark",
    "PruneReport",
    "back_up",
    "check_not_pruned",
    "lend",
    "list_backups",
    "prune",
    "restore",
]
