"""Orphans: files below the data path that no row of the catalog names, left by crashes and failed commits."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from quacklake import faults, telemetry
from quacklake.catalog import Catalog, Reader, file_names
from quacklake.errors import ConfigError
from quacklake.maintenance.file_places import locate, place
from quacklake.maintenance.path_set import KnownPaths
from quacklake.maintenance.removal import BATCH, CleanupReport, OnPath, Tally, remove
from quacklake.progress import Progress, silent
from quacklake.storage import FileEntry, Store

# The names that the lake's writers give to files. A Parquet file with another name was put here by somebody else.
_NAME = re.compile(r"ducklake-[^/]*\.(?:parquet|puffin)")


@dataclass
class _Work(Tally):
    bytes: int = 0
    seen: int = 0


@dataclass(frozen=True, slots=True)
class _Ground:
    """The places where files of this lake can be: the folders of its tables, present or forgotten."""

    folders: frozenset[str]
    foreign: tuple[str, ...]

    def owns(self, path: str) -> bool:
        """Return whether only a writer of this lake can have written this file.

        A table folder contains only partition folders, ``key=value``; a deeper folder belongs to another lake whose
        data path is inside this one's.
        """
        if path.startswith(self.foreign):
            return False
        folder = path.rpartition("/")[0]
        while folder.rpartition("/")[2].find("=") > 0 and f"{folder}/" not in self.folders:
            folder = folder.rpartition("/")[0]
        return f"{folder}/" in self.folders or folder.count("/") == 1


def delete_orphaned_files(
    catalog: Catalog,
    store: Store,
    *,
    before: dt.datetime | None,
    threads: int,
    keep: int,
    dry_run: bool = False,
    on_path: OnPath | None = None,
    progress: Progress = silent,
) -> CleanupReport:
    """Remove the files that no row names and that were last changed before a time (None: all of them).

    No transaction may be open for longer than that, because its files are not named yet. Raises ``ConfigError`` when
    another lake of the same database has the same data path, and ``PathError`` when a path in the catalog cannot be
    resolved to a file.
    """
    work = _Work(keep, on_path)
    with telemetry.timed("maintenance.orphans", tenant=catalog.label), KnownPaths() as known:
        with catalog.read() as reader:
            next_file = _remember(reader, store, known)
            ground = _Ground(
                frozenset(folder for folder, relative in file_names.folders(reader).values() if relative),
                _other_lakes(reader, store),
            )
        for page in _pages(_candidates(store, ground, before, work)):
            orphans = _unknown(page, known)
            if orphans:
                with catalog.read() as reader:
                    next_file = _remember(reader, store, known, next_file)  # a commit since may name one of them
                orphans = _unknown(orphans, known)
            hopeless = _remove(store, orphans, work, threads=threads, dry_run=dry_run)
            progress("files", work.seen, None)
            if hopeless:
                break
    return work.report(work.bytes, dry_run=dry_run)


def _remember(reader: Reader, store: Store, known: KnownPaths, since: int = 0) -> int:
    """Remember every path that rows of files ``since`` or later name; return the next file id.

    The first call also remembers the files that are scheduled for the cleanup, which removes them.
    """
    next_file = reader.snapshots.latest().next_file_id
    for page in file_names.all_files(reader, since):
        known.add(path for file in page if (path := place(store, file)) is not None)
    if since == 0:
        for paths in _scheduled(reader, store):
            known.add(paths)
    return next_file


def _scheduled(reader: Reader, store: Store) -> Iterator[list[str]]:
    after = -1
    while page := file_names.scheduled(reader, after, file_names.PAGE):
        after = page[-1].id
        found = (locate(store, file.path, file.is_relative) for file in page)
        yield [path for path in found if path is not None]


def _other_lakes(reader: Reader, store: Store) -> tuple[str, ...]:
    """Return the folders below the data path that are data paths of other lakes in the same database."""
    found = []
    for data_path in file_names.other_data_paths(reader, store.root):
        root = data_path if data_path.endswith("/") else f"{data_path}/"
        if root == store.root:
            raise ConfigError(
                f"another lake of this database has the data path {store.root} too",
                hint="which files are nobody's cannot be told; give each lake a data path of its own",
            )
        if root.startswith(store.root):
            found.append(root.removeprefix(store.root))
    return tuple(found)


def _candidates(store: Store, ground: _Ground, before: dt.datetime | None, work: _Work) -> Iterator[FileEntry]:
    """Yield the files that are old enough, have a name that the lake gives, and are in its own folders."""
    for entry in store.stream():
        work.seen += 1
        old = before is None or (entry.mtime is not None and entry.mtime < before)
        mine = entry.is_temporary or _NAME.fullmatch(entry.path.rpartition("/")[2])
        if old and mine and ground.owns(entry.path):
            yield entry


def _pages(entries: Iterable[FileEntry]) -> Iterator[list[FileEntry]]:
    page: list[FileEntry] = []
    for entry in entries:
        page.append(entry)
        if len(page) == BATCH:
            yield page
            page = []
    if page:
        yield page


def _unknown(entries: list[FileEntry], known: KnownPaths) -> list[FileEntry]:
    named = known.among([entry.path for entry in entries])
    return [entry for entry in entries if entry.path not in named]


def _remove(store: Store, orphans: list[FileEntry], work: _Work, *, threads: int, dry_run: bool) -> bool:
    """Remove one page; return True when further pages would fail too."""
    sizes = {entry.path: entry.size for entry in orphans}
    if dry_run:
        work.gone(list(sizes))
        work.bytes += sum(sizes.values())
        return False
    removal = remove(store, list(sizes), threads)
    faults.reach("maintenance.orphans.removed")
    work.tried(removal)
    work.bytes += sum(sizes[path] for path in removal.gone)
    return removal.hopeless
