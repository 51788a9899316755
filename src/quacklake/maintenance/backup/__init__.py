"""Copies of a lake that outlive it: an image of its catalog, and its files.

A backup place looks like this::

    data/…                   the files of the lake, under the paths they have there; all backups share them
    backups/<id>/*.arrow     the catalog: one file for each of its tables, and for each table of inlined rows
    backups/<id>/manifest.json   written last: a backup without one does not exist
    pruning/…                there while backups are being removed

=================  ==================================================
module             what it holds
=================  ==================================================
:mod:`.manifest`   what a backup says of itself, and listing backups
:mod:`.image`      the catalog to and from Arrow files
:mod:`.create`     making a backup
:mod:`.restore`    making a lake of a backup
:mod:`.pruning`    removing backups, and the files that only they have
=================  ==================================================
"""

from quacklake.maintenance.backup.create import BackupReport, back_up
from quacklake.maintenance.backup.manifest import BackupInfo, list_backups
from quacklake.maintenance.backup.pruning import PruneReport, prune
from quacklake.maintenance.backup.restore import restore

__all__ = ["BackupInfo", "BackupReport", "PruneReport", "back_up", "list_backups", "prune", "restore"]
