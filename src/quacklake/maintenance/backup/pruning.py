"""Remove backups, and the files that only they have.

A prune first reads the backups to keep. Then it ends the others one by one, and only then removes the files that no
backup names. So an interrupted prune damages no remaining backup, and the next one continues it.

A running backup relies on the files it has found, so backups and prunes exclude each other: each leaves a mark before
it looks for the other's. The mark of a backup is its image of the catalog.
"""

from __future__ import annotations

import datetime as dt
import itertools
import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from types import TracebackType

from quacklake import faults
from quacklake.errors import StorageUnavailableError
from quacklake.format.names import uuid7
from quacklake.maintenance.backup.image import image_files
from quacklake.maintenance.backup.manifest import (
    ABANDONED,
    MANIFEST,
    BackupInfo,
    folder_of,
    folders,
    list_backups,
    remove_unfinished,
)
from quacklake.maintenance.path_set import KnownPaths
from quacklake.maintenance.removal import BATCH
from quacklake.progress import Progress, silent
from quacklake.storage import FileEntry, Store

_MARKS = "pruning/"
_SIGN = 60.0
"""Seconds between signs of life."""
_SILENCE = dt.timedelta(hours=1)
"""A prune without a sign of life for this long no longer removes anything."""
_PRUNED = "pruned"
"""The name of a file that marks a backup as being removed."""


@dataclass(frozen=True, slots=True)
class PruneReport:
    """Report of a prune: the ids of the removed backups, and the files that only they had."""

    backups: tuple[str, ...]
    kept: tuple[str, ...]
    files: int
    bytes: int
    dry_run: bool = False


def prune(
    store: Store,
    *,
    keep_last: int | None,
    before: dt.datetime | None,
    dry_run: bool = False,
    progress: Progress = silent,
) -> PruneReport:
    """Remove the backups made before a time, except the last ``keep_last``; the newest always stays.

    Raises ``StorageUnavailableError`` while a backup is being made, and ``CorruptFileError`` when a remaining one
    cannot be read.
    """
    with _Mark(store, dry_run=dry_run) as mark, KnownPaths() as known:
        _check_no_backup_is_made(store)
        found = list_backups(store)  # only now, when no other backup can appear
        gone = _chosen(found, keep_last, before)
        ids = {info.id for info in gone}
        kept = [info for info in found if info.id not in ids]
        for number, info in enumerate(kept):
            progress("reading backups", number, len(kept))
            paths = _paths(store, info)
            while page := list(itertools.islice(paths, BATCH)):
                mark.live()
                known.add(page)
        if not dry_run:
            for info in gone:
                mark.live()
                _end(store, info.id)
        files, size = _remove_files(store, known, mark, dry_run=dry_run, progress=progress)
        if not dry_run:
            _remove_folders(store)
    return PruneReport(tuple(info.id for info in gone), tuple(info.id for info in kept), files, size, dry_run)


def check_not_pruned(store: Store) -> None:
    """Raise ``StorageUnavailableError`` while backups are being removed; called after the image is written."""
    if any(_within(entry, _SILENCE) for entry in store.list(_MARKS)):
        raise StorageUnavailableError(
            f"backups in {store.root} are being removed",
            hint="try again later: in an hour if that was interrupted",
        )


def _chosen(found: Sequence[BackupInfo], keep_last: int | None, before: dt.datetime | None) -> list[BackupInfo]:
    old = found[: -max(keep_last or 1, 1)]
    return [info for info in old if before is None or dt.datetime.fromisoformat(info.time) < before]


def _within(entry: FileEntry, span: dt.timedelta) -> bool:
    return entry.mtime is None or entry.mtime >= dt.datetime.now(dt.UTC) - span


class _Mark:
    """Shows others that backups are being removed; it expires without a sign of life."""

    def __init__(self, store: Store, *, dry_run: bool) -> None:
        self._store = store
        self._path = None if dry_run else f"{_MARKS}{uuid7().hex}"
        self._written = -math.inf

    def __enter__(self) -> _Mark:
        self.live()
        faults.reach("prune.marked")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._path is not None:
            old = [entry.path for entry in self._store.list(_MARKS) if not _within(entry, ABANDONED)]
            self._store.delete([self._path, *old])

    def live(self) -> None:
        """Give a sign of life; called before every step."""
        if self._path is not None and time.monotonic() - self._written > _SIGN:
            self._store.write(self._path, b"")
            self._written = time.monotonic()


def _check_no_backup_is_made(store: Store) -> None:
    for name, entries in folders(store).items():
        names = {entry.path.rpartition("/")[2] for entry in entries}
        if not names & {MANIFEST, _PRUNED} and any(_within(entry, ABANDONED) for entry in entries):
            raise StorageUnavailableError(
                f"the backup {name} in {store.root} is being made, or was interrupted within the last day",
                hint="try again when it has ended",
            )


def _paths(store: Store, info: BackupInfo) -> Iterator[str]:
    """Yield the files of a backup."""
    files = image_files(store, folder_of(info.id), info.data_path)
    return (f"data/{file.path}" for file in files if file.path is not None)


def _end(store: Store, id_: str) -> None:
    """End a backup, and mark its folder to distinguish it from a backup being made."""
    store.write(f"{folder_of(id_)}{_PRUNED}", b"")
    faults.reach("prune.backup.before")
    store.delete([f"{folder_of(id_)}{MANIFEST}"])
    faults.reach("prune.backup.after")


def _remove_files(
    store: Store, known: KnownPaths, mark: _Mark, *, dry_run: bool, progress: Progress
) -> tuple[int, int]:
    """Remove the files that no backup has; return their number and size."""
    files = size = seen = 0
    entries = store.list("data/")
    while page := list(itertools.islice(entries, BATCH)):
        named = known.among([entry.path for entry in page])
        free = [entry for entry in page if entry.path not in named]
        if not dry_run:
            mark.live()
            faults.reach("prune.files.before")
            store.delete([entry.path for entry in free])
            faults.reach("prune.files.after")
        files += len(free)
        size += sum(entry.size for entry in free)
        seen += len(page)
        progress("files", seen, None)
    return files, size


def _remove_folders(store: Store) -> None:
    """Remove the folders of ended backups, the mark of each at the very end."""
    for entries in folders(store).values():
        paths = {entry.path.rpartition("/")[2]: entry.path for entry in entries}
        if _PRUNED in paths and MANIFEST not in paths:
            store.delete([path for name, path in paths.items() if name != _PRUNED])
            faults.reach("prune.folder.before")
        if _PRUNED in paths:
            store.delete([paths[_PRUNED]])
    remove_unfinished(store)
