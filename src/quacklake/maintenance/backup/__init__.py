"""Backups of a lake: an image of its catalog, and copies of its files.

A backup place has this layout::

    data/…                   the files of the lake, under their own paths; all backups share them
    backups/<id>/*.arrow     the catalog: one file for each of its tables, and for each table of inlined rows
    backups/<id>/manifest.json   written last: a backup without one does not exist
    pruning/…                present while backups are being removed

=================  ==============================================
module             contents
=================  ==============================================
:mod:`.manifest`   the manifest of a backup, and listing backups
:mod:`.image`      the catalog to and from Arrow files
:mod:`.create`     creating a backup
:mod:`.restore`    restoring a lake from a backup
:mod:`.pruning`    removing backups and the files only they have
=================  ==============================================
"""

from quacklake.maintenance.backup.create import BackupReport, back_up
from quacklake.maintenance.backup.manifest import BackupInfo, list_backups
from quacklake.maintenance.backup.pruning import PruneReport, prune
from quacklake.maintenance.backup.restore import restore

__all__ = ["BackupInfo", "BackupReport", "PruneReport", "back_up", "list_backups", "prune", "restore"]
