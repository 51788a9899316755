"""Remove files: those that are scheduled for deletion, and orphans, which no row of the catalog names.

A scheduled file is removed before its row in the schedule, so no file is left without a row; an interrupted cleanup can
simply be run again. Orphans are left by crashes and failed commits.
"""

from __future__ import annotations

import datetime as dt
import itertools
import re
import sqlite3
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from quacklake import telemetry
from quacklake.core import faults
from quacklake.core.catalog import Reader, file_names
from quacklake.core.catalog.file_names import NamedFile, ScheduledFile, absolute_files, named_among
from quacklake.core.catalog.shared_lake import lent_below, named_by_borrowers
from quacklake.core.maintenance.reports import Skipped
from quacklake.core.operations.context import LakeContext
from quacklake.core.progress import Progress, Report, silent
from quacklake.core.storage import FileEntry, Store
from quacklake.errors import ConfigError, PathError, QuacklakeError

BATCH = 1000
"""The number of files to remove in one batch."""
_SOME = 500
# The names that the lake's writers give to files. A Parquet file with another name was put here by somebody else.
_NAME = re.compile(r"ducklake-[^/]*\.(?:parquet|puffin)")

#: Called with the path of every removed file.
OnPath = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class CleanupReport(Report):
    """Report of a cleanup: the number of removed ``files``, their ``bytes`` if known, and the first ``paths``.

    ``left`` counts files that stay although they were scheduled, or that cannot be removed; ``skipped`` lists the first
    with reasons. Files that ``failed`` are tried again next time. The setting ``report_paths`` limits both lists.
    """

    paths: tuple[str, ...] = ()
    files: int = 0
    bytes: int | None = None
    failed: int = 0
    left: int = 0
    skipped: Sequence[Skipped] = ()
    dry_run: bool = False


def place(store: Store, file: NamedFile) -> str | None:
    """Return the path of a file below the data root, or None if elsewhere. Raise ``PathError`` like ``_locate``."""
    if file.is_relative and not file.folder_is_relative:
        return _locate(store, f"{file.folder.rstrip('/')}/{file.path}", False)
    return _locate(store, file.path, file.is_relative, file.folder if file.is_relative else "")


def _locate(store: Store, path: str, is_relative: bool, base: str = "") -> str | None:
    """Return the path below the data root, or None if elsewhere. Raise ``PathError`` for one that leaves the root."""
    return store.resolve(path, True, base) if is_relative else store.locate(path)


def _places(store: Store, files: Iterable[NamedFile]) -> Iterator[str]:
    for file in files:
        try:
            path = place(store, file)
        except PathError:
            continue  # not below the root
        if path is not None:
            yield path


def absolute_places(reader: Reader, store: Store) -> set[str]:
    """Return the files below the data root that the catalog names by an absolute path; usually there are none."""
    return {path for page in absolute_files(reader) for path in _places(store, page)}


def named(reader: Reader, store: Store, paths: Iterable[str], absolute: set[str]) -> set[str]:
    """Return which of these files below the data root a data or delete file row still names."""
    wanted = set(paths)
    # the spellings that a catalog may have for a path: the path, or its part below some folder
    parts = [path.split("/") for path in wanted]
    tails = {"/".join(each[start:]) for each in parts for start in range(len(each))}
    return (wanted & absolute) | wanted.intersection(_places(store, named_among(reader, sorted(tails))))


class KnownPaths:
    """A set of paths that may be larger than memory; a context manager that removes its temporary file."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="quacklake-")
        self._database = sqlite3.connect(Path(self._folder.name, "paths"), isolation_level=None)
        self._database.execute("PRAGMA journal_mode = OFF")
        self._database.execute("PRAGMA synchronous = OFF")
        self._database.execute("CREATE TABLE known (path TEXT PRIMARY KEY) WITHOUT ROWID")

    def __enter__(self) -> KnownPaths:
        return self

    def __exit__(self, *_: object) -> None:
        self._database.close()
        self._folder.cleanup()

    def add(self, paths: Iterable[str]) -> None:
        """Add paths; sorted paths are fastest."""
        self._database.execute("BEGIN")
        self._database.executemany("INSERT OR IGNORE INTO known VALUES (?)", ((path,) for path in sorted(paths)))
        self._database.execute("COMMIT")

    def among(self, paths: Sequence[str]) -> set[str]:
        found: set[str] = set()
        for start in range(0, len(paths), _SOME):
            some = paths[start : start + _SOME]
            query = f"SELECT path FROM known WHERE path IN ({', '.join('?' * len(some))})"
            found.update(row[0] for row in self._database.execute(query, some))
        return found


@dataclass
class Removal:
    """Removes files in batches, tolerates failures, and counts; it keeps only the first paths."""

    context: LakeContext
    dry_run: bool
    on_path: OnPath | None
    files: int = 0
    bytes: int = 0
    failed: int = 0
    left: int = 0
    paths: list[str] = field(default_factory=list)
    skipped: list[Skipped] = field(default_factory=list)
    hopeless: bool = False
    """True when nothing of a batch could be removed because the store may be down: more tries would waste time."""

    def remove(self, sizes: Mapping[str, int], reached: str) -> set[str]:
        """Remove files, several at a time; return those that could not be removed. A missing file counts as removed."""
        failed: dict[str, QuacklakeError] = {}
        if not self.dry_run:
            failed = self._delete(list(sizes))
            faults.reach(reached)
        gone = [path for path in sizes if path not in failed]
        self.files += len(gone)
        self.bytes += sum(sizes[path] for path in gone)
        self.paths += gone[: self.context.config.report_paths - len(self.paths)]
        if self.on_path is not None:
            for path in gone:
                self.on_path(path)
        self.failed += len(failed)
        self.stay((path, error.message) for path, error in failed.items())
        self.hopeless = not gone and any(error.transient for error in failed.values())
        return set(failed)

    def _delete(self, paths: list[str]) -> dict[str, QuacklakeError]:
        """Delete files; return the errors, none of which stops another."""

        def attempt(path: str) -> QuacklakeError | None:
            try:
                self.context.store.delete([path])
            except QuacklakeError as error:
                return error
            return None

        if len(paths) <= 1:
            results = [attempt(path) for path in paths]
        else:
            threads = min(self.context.config.cleanup_threads, len(paths))
            with ThreadPoolExecutor(threads, "quacklake-remove") as pool:
                results = list(pool.map(attempt, paths))
        return {path: error for path, error in zip(paths, results, strict=True) if error is not None}

    def stay(self, paths: Iterable[tuple[str, str]]) -> None:
        for path, reason in paths:
            self.left += 1
            if len(self.skipped) < self.context.config.report_paths:
                self.skipped.append(Skipped(path, reason))

    def report(self, size: int | None) -> CleanupReport:
        paths, skipped = tuple(self.paths), tuple(self.skipped)
        return CleanupReport(paths, self.files, size, self.failed, self.left, skipped, self.dry_run)


def cleanup_old_files(work: Removal, before: dt.datetime | None, progress: Progress = silent) -> CleanupReport:
    """Remove the files scheduled before a time (None: all), unless a row of the catalog still names them.

    A file outside the data path is only unscheduled, never removed.
    """
    catalog, store = work.context.catalog, work.context.store
    with telemetry.timed("maintenance.cleanup", tenant=catalog.label):
        with catalog.read() as reader:
            absolute = absolute_places(reader, store)
        after = -1
        while not work.hopeless:
            with catalog.read() as reader:
                reader.snapshots.check_there()
                page = file_names.scheduled(reader, after, BATCH)
                due = [file for file in page if before is None or (file.since is not None and file.since < before)]
                # those that another catalog can need stay in the schedule until that catalog is gone
                lent = lent_below(reader)
                work.stay((file.path, "another catalog or lake shares it") for file in due if file.id < lent)
                due = [file for file in due if file.id >= lent]
                found = _below_root(store, due, work)
                shared = _find_shared(reader, store, found) if found else set()
                taken = named(reader, store, found, absolute) if found else set()
            if not page:
                break
            after = page[-1].id
            work.stay((path, "a table still has it") for path in sorted(taken))
            work.stay((path, "another catalog or lake shares it") for path in sorted(shared - taken))
            free = (path for path in found if path not in taken and path not in shared)
            failed = work.remove(dict.fromkeys(free, 0), "maintenance.cleanup.removed")
            # Unschedule files that a table still has or that are elsewhere: other clients go by the schedule alone.
            left = {id(file) for path in {*failed, *(shared - taken)} for file in found[path]}
            done = [file for file in due if id(file) not in left]
            if done and not work.dry_run:
                with catalog.commit() as writer:
                    writer.snapshots.check_there()
                    file_names.unschedule(writer, done)
            if not work.dry_run:
                faults.reach("maintenance.cleanup.unscheduled")
            progress("files", work.files, None)
    return work.report(None)


def _find_shared(reader: Reader, store: Store, paths: Iterable[str]) -> set[str]:
    """Return which files below the data root other catalogs share."""
    places = {f"{store.root}{path}": path for path in paths}
    return {places[place] for place in named_by_borrowers(reader, places)}


def _below_root(store: Store, due: Sequence[ScheduledFile], work: Removal) -> dict[str, list[ScheduledFile]]:
    """Return the files below the data root by path; a path may be scheduled more than once."""
    found: dict[str, list[ScheduledFile]] = {}
    for file in due:
        try:
            where = _locate(store, file.path, file.is_relative)
        except PathError:
            where = None
        if where is None:
            work.stay([(file.path, "it is not below the data path")])
        else:
            found.setdefault(where, []).append(file)
    return found


def _owns(path: str, folders: Set[str], foreign: tuple[str, ...]) -> bool:
    """Return whether only a writer of this lake can have written this file, by the folders of its and other tables.

    Tables contain only folders of partitions; a deeper one belongs to a lake whose data path is inside this one's.
    """
    if path.startswith(foreign):
        return False
    folder = path.rpartition("/")[0]
    while folder.rpartition("/")[2].find("=") > 0 and f"{folder}/" not in folders:
        folder = folder.rpartition("/")[0]
    return f"{folder}/" in folders or folder.count("/") == 1


def delete_orphaned_files(work: Removal, before: dt.datetime | None, progress: Progress = silent) -> CleanupReport:
    """Remove the files that no row names and that were last changed before a time (None: all of them).

    No transaction may be open for longer than that, because its files are not named yet. Raise ``ConfigError`` when
    another lake of the same database has the same data path, and ``PathError`` when a path in the catalog cannot be
    resolved to a file.
    """
    catalog, store, seen = work.context.catalog, work.context.store, 0
    with telemetry.timed("maintenance.orphans", tenant=catalog.label), KnownPaths() as known:
        with catalog.read() as reader:
            next_file = _remember(reader, store, known)
            folders = {folder for folder, relative in file_names.folders(reader).values() if relative}
            foreign = _other_lakes(reader, store)

        def candidates() -> Iterator[FileEntry]:
            """Yield the files that are old enough, have a name that the lake gives, and are in its own folders."""
            nonlocal seen
            for entry in store.stream():
                seen += 1
                old = before is None or (entry.mtime is not None and entry.mtime < before)
                mine = entry.is_temporary or _NAME.fullmatch(entry.path.rpartition("/")[2])
                if old and mine and _owns(entry.path, folders, foreign):
                    yield entry

        found = candidates()
        while not work.hopeless and (page := list(itertools.islice(found, BATCH))):
            orphans = _unknown(page, known)
            if orphans:
                with catalog.read() as reader:
                    next_file = _remember(reader, store, known, next_file)  # a commit since may name one of them
                    shared = _find_shared(reader, store, [entry.path for entry in orphans])
                orphans = [entry for entry in _unknown(orphans, known) if entry.path not in shared]
            work.remove({entry.path: entry.size for entry in orphans}, "maintenance.orphans.removed")
            progress("files", seen, None)
    return work.report(work.bytes)


def _remember(reader: Reader, store: Store, known: KnownPaths, since: int = 0) -> int:
    """Remember the paths of files from ``since``, at first the scheduled ones too; return the next file id."""
    next_file = reader.snapshots.latest().next_file_id
    for page in file_names.all_files(reader, since):
        known.add(path for file in page if (path := place(store, file)) is not None)
    after = -1
    while since == 0 and (waiting := file_names.scheduled(reader, after, file_names.PAGE)):
        after = waiting[-1].id
        found = (_locate(store, file.path, file.is_relative) for file in waiting)
        known.add(path for path in found if path is not None)
    return next_file


def _other_lakes(reader: Reader, store: Store) -> tuple[str, ...]:
    """Return the folders below the data path that are data paths of other lakes in the same database."""
    found = []
    for data_path in file_names.other_data_paths(reader, store.root):
        root = data_path if data_path.endswith("/") else f"{data_path}/"
        if root == store.root:
            raise ConfigError(
                f"another lake of this database has the data path {store.root} too",
                hint="Quacklake cannot tell whose files are there; give each lake its own data path",
            )
        if root.startswith(store.root):
            found.append(root.removeprefix(store.root))
    return tuple(found)


def _unknown(entries: list[FileEntry], known: KnownPaths) -> list[FileEntry]:
    named = known.among([entry.path for entry in entries])
    return [entry for entry in entries if entry.path not in named]
