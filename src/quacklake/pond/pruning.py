"""Remove old backups of a pond, and the files that only they have."""

from __future__ import annotations

import datetime as dt
import json
from dataclasses import dataclass

from quacklake.errors import InputError
from quacklake.extend import reporting
from quacklake.extend.inputs import before
from quacklake.extend.reporting import Progress, silent
from quacklake.pond.backup import LISTS, BackupPlace, PondBackup, manifest_of

_YOUNG = dt.timedelta(days=1)
"""Files of this age may be those of a backup that is being made."""
_LIMIT = 64 << 20


@dataclass(frozen=True, slots=True)
class Pruned:
    """The report of a prune: the backups that were removed and kept, and the files that only the former had."""

    backups: tuple[PondBackup, ...]
    kept: tuple[PondBackup, ...]
    files: int
    bytes: int
    dry_run: bool = False


def prune(
    place: BackupPlace,
    *,
    keep_last: int | None = None,
    older_than: str | dt.timedelta | dt.datetime | None = None,
    dry_run: bool = False,
    progress: Progress = silent,
) -> Pruned:
    """Remove backups older than ``older_than`` or beyond the last ``keep_last``, and the files that only they have.

    If both are given, a backup is removed only if neither keeps it; the newest always stays. ``dry_run`` removes
    nothing. An interrupted run damages no other backup, and the next run finishes the work. Raise ``InputError`` when
    neither is given, and ``StorageUnavailableError`` while a backup is being made.
    """
    if keep_last is None and older_than is None:
        raise InputError("say which backups to keep", hint="--keep-last 10, or --older-than 90d")
    if keep_last is not None and keep_last < 1:
        raise InputError(f"the number of backups to keep is at least 1, not {keep_last}")
    store = place.store()
    with place.whole.mark_pruning(dry_run=dry_run) as mark:
        known = place.backups()
        if not known:
            return Pruned((), (), 0, 0, dry_run)
        cutoff = None if older_than is None else before(older_than)
        old = known[: -(keep_last or 1)]
        gone = tuple(each for each in old if cutoff is None or dt.datetime.fromisoformat(each.time) < cutoff)
        kept = tuple(each for each in known if each not in gone)
        if not dry_run:
            store.delete([manifest_of(each.id) for each in gone])
            reporting.reach("pond.prune.manifests")
        mark.live()
        files, size = _prune_lake(place, kept, dry_run=dry_run, progress=progress)
        reporting.reach("pond.prune.lake")
        mark.live()
        large = _prune_large(place, kept, dry_run=dry_run)
    return Pruned(gone, kept, files + large[0], size + large[1], dry_run)


def _prune_lake(
    place: BackupPlace, kept: tuple[PondBackup, ...], *, dry_run: bool, progress: Progress
) -> tuple[int, int]:
    """Remove the backups of the lake that are older than all that are kept, and return the number and size of files."""
    lakes, wanted = place.lakes, {each.data for each in kept}
    times = [dt.datetime.fromisoformat(each.time) for each in lakes.list() if each.id in wanted]
    if not times:
        return 0, 0
    done = lakes.prune(min(times), dry_run=dry_run, progress=progress)
    return done.files, done.bytes


def _prune_large(place: BackupPlace, kept: tuple[PondBackup, ...], *, dry_run: bool) -> tuple[int, int]:
    """Remove the large files that no list names, and return their number and size.

    A backup writes its list before its files. One of an older version has no list: then all files stay.
    """
    store, young = place.store(), dt.datetime.now(dt.UTC) - _YOUNG
    lists = {entry.path: entry for entry in store.list(LISTS)}
    wanted = {f"{LISTS}{each.id}.json" for each in kept}
    if not wanted <= set(lists):
        return 0, 0
    live = {path for path, entry in lists.items() if path in wanted or entry.mtime is None or entry.mtime >= young}
    named = {sha256 for path in live for sha256 in json.loads(store.read(path, limit=_LIMIT))}
    unused = [file for file in place.large_files.entries() if file.sha256 not in named]
    if not dry_run:
        place.large_files.store.delete([file.path for file in unused])
        store.delete([path for path in lists if path not in live])
    return len(unused), sum(file.size for file in unused)
