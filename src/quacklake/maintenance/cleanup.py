"""Cleanup: remove the files that are scheduled for deletion, then their rows in the schedule.

A file is removed before its row, so no file is left without a row; an interrupted cleanup can simply be run again.
"""

from __future__ import annotations

import datetime as dt
import re
import sqlite3
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType

from quacklake import faults, telemetry
from quacklake.catalog import Catalog, Reader, file_names
from quacklake.catalog.file_names import NamedFile, ScheduledFile, absolute_files, named_among
from quacklake.catalog.shared_lake import lent_below
from quacklake.errors import ConfigError, PathError, QuacklakeError
from quacklake.maintenance.reports import Skipped
from quacklake.progress import Progress, silent
from quacklake.storage import FileEntry, Store


def place(store: Store, file: NamedFile) -> str | None:
    """Return the path of a file below the data root, or None if elsewhere. Raises ``PathError`` like ``locate``."""
    if file.is_relative and not file.folder_is_relative:
        return locate(store, f"{file.folder.rstrip('/')}/{file.path}", False)
    return locate(store, file.path, file.is_relative, file.folder if file.is_relative else "")


def locate(store: Store, path: str, is_relative: bool, base: str = "") -> str | None:
    """Return the normalized path below the data root, or None if it is elsewhere.

    Raises ``PathError`` for a relative path that leaves the root.
    """
    return store.resolve(path, True, base) if is_relative else store.locate(path)


def absolute_places(reader: Reader, store: Store) -> set[str]:
    """Return the files below the data root that the catalog names by an absolute path; usually there are none."""
    found = (_place(store, file) for page in absolute_files(reader) for file in page)
    return {path for path in found if path is not None}


def named(reader: Reader, store: Store, paths: Iterable[str], absolute: set[str]) -> set[str]:
    """Return which of these files below the data root a data or delete file row still names."""
    wanted = set(paths)
    tails = {tail for path in wanted for tail in _tails(path)}
    found = (_place(store, file) for file in named_among(reader, sorted(tails)))
    return (wanted & absolute) | wanted.intersection(path for path in found if path is not None)


def _place(store: Store, file: NamedFile) -> str | None:
    try:
        return place(store, file)
    except PathError:
        return None  # not below the root


def _tails(path: str) -> list[str]:
    """Return the spellings that a catalog may have for a path: the path, or its part below some folder."""
    parts = path.split("/")
    return ["/".join(parts[start:]) for start in range(len(parts))]


BATCH = 1000
"""The number of files to remove in one batch."""


#: Called with the path of every removed file.
OnPath = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class CleanupReport:
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


@dataclass
class Tally:
    """Counts removed and remaining files; keeps only the first ``keep`` paths."""

    keep: int
    on_path: OnPath | None = None
    files: int = 0
    failed: int = 0
    _paths: list[str] = field(default_factory=list)
    _left: int = 0
    _skipped: list[Skipped] = field(default_factory=list)

    def gone(self, paths: Sequence[str]) -> None:
        """Count files as removed."""
        self.files += len(paths)
        self._paths += paths[: self.keep - len(self._paths)]
        if self.on_path is not None:
            for path in paths:
                self.on_path(path)

    def stay(self, paths: Iterable[tuple[str, str]]) -> None:
        """Count files as left in place, each with its reason."""
        for path, reason in paths:
            self._left += 1
            if len(self._skipped) < self.keep:
                self._skipped.append(Skipped(path, reason))

    def tried(self, removal: Removal) -> None:
        """Count the results of one batch."""
        self.gone(removal.gone)
        self.failed += len(removal.failed)
        self.stay((path, error.message) for path, error in removal.failed.items())

    def report(self, size: int | None, *, dry_run: bool) -> CleanupReport:
        """Return the report."""
        return CleanupReport(
            tuple(self._paths), self.files, size, self.failed, self._left, tuple(self._skipped), dry_run
        )


@dataclass(frozen=True, slots=True)
class Removal:
    """The removed files, and the reasons why others could not be removed."""

    gone: Sequence[str]
    failed: dict[str, QuacklakeError]

    @property
    def hopeless(self) -> bool:
        """True when nothing could be removed because the store may be down, so that more tries would waste time."""
        return not self.gone and any(error.transient for error in self.failed.values())


def remove(store: Store, paths: Sequence[str], threads: int) -> Removal:
    """Remove files, at most ``threads`` at a time. A missing file counts as removed; a failure stops no other."""

    def attempt(path: str) -> QuacklakeError | None:
        try:
            store.delete([path])
        except QuacklakeError as error:
            return error
        return None

    if len(paths) <= 1:
        results = [attempt(path) for path in paths]
    else:
        with ThreadPoolExecutor(min(threads, len(paths)), "quacklake-remove") as pool:
            results = list(pool.map(attempt, paths))
    failed = {path: error for path, error in zip(paths, results, strict=True) if error is not None}
    return Removal([path for path in paths if path not in failed], failed)


def cleanup_old_files(
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
    """Remove the files scheduled before a time (None: all), unless a row of the catalog still names them.

    A file outside the data path is only unscheduled, never removed. The report lists the first ``keep`` paths.
    """
    work = Tally(keep, on_path)
    with telemetry.timed("maintenance.cleanup", tenant=catalog.label):
        with catalog.read() as reader:
            absolute = absolute_places(reader, store)
        after = -1
        while True:
            with catalog.read() as reader:
                reader.snapshots.check_there()
                page = file_names.scheduled(reader, after, BATCH)
                due = [file for file in page if before is None or (file.since is not None and file.since < before)]
                due = _not_lent(due, lent_below(reader), work)
                found = _sort_out(store, due, work)
                taken = named(reader, store, found, absolute) if found else set()
            if not page:
                break
            after = page[-1].id
            hopeless = _remove(catalog, store, due, found, taken, work, threads=threads, dry_run=dry_run)
            progress("files", work.files, None)
            if hopeless:
                break
    return work.report(None, dry_run=dry_run)


def _not_lent(due: Sequence[ScheduledFile], below: int, work: Tally) -> list[ScheduledFile]:
    """Return the files that no other catalog can need; the others stay in the schedule until that catalog is gone."""
    work.stay((file.path, "another catalog or lake shares it") for file in due if file.id < below)
    return [file for file in due if file.id >= below]


def _sort_out(store: Store, due: Sequence[ScheduledFile], work: Tally) -> dict[str, list[ScheduledFile]]:
    """Return the files below the data root by path; a path may be scheduled more than once."""
    found: dict[str, list[ScheduledFile]] = {}
    for file in due:
        try:
            where = locate(store, file.path, file.is_relative)
        except PathError:
            where = None
        if where is None:
            work.stay([(file.path, "it is not below the data path")])
        else:
            found.setdefault(where, []).append(file)
    return found


def _remove(
    catalog: Catalog,
    store: Store,
    due: Sequence[ScheduledFile],
    found: dict[str, list[ScheduledFile]],
    taken: set[str],
    work: Tally,
    *,
    threads: int,
    dry_run: bool,
) -> bool:
    """Remove one batch; return True when further batches would fail too."""
    work.stay((path, "a table still has it") for path in sorted(taken))
    paths = [path for path in found if path not in taken]
    if dry_run:
        work.gone(paths)
        return False
    removal = remove(store, paths, threads)
    work.tried(removal)
    faults.reach("maintenance.cleanup.removed")
    # Unschedule files that a table still has or that are elsewhere: other clients go by the schedule alone.
    left = {id(file) for path in removal.failed for file in found[path]}
    done = [file for file in due if id(file) not in left]
    if done:
        with catalog.commit() as writer:
            writer.snapshots.check_there()
            file_names.unschedule(writer, done)
    faults.reach("maintenance.cleanup.unscheduled")
    return removal.hopeless


_SOME = 500


class KnownPaths:
    """A set of paths on disk; a context manager that removes its file."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="quacklake-")
        self._database = sqlite3.connect(Path(self._folder.name, "paths"), isolation_level=None)
        self._database.execute("PRAGMA journal_mode = OFF")
        self._database.execute("PRAGMA synchronous = OFF")
        self._database.execute("CREATE TABLE known (path TEXT PRIMARY KEY) WITHOUT ROWID")

    def __enter__(self) -> KnownPaths:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._database.close()
        self._folder.cleanup()

    def add(self, paths: Iterable[str]) -> None:
        """Add paths; sorted paths are fastest."""
        self._database.execute("BEGIN")
        self._database.executemany("INSERT OR IGNORE INTO known VALUES (?)", ((path,) for path in sorted(paths)))
        self._database.execute("COMMIT")

    def among(self, paths: Sequence[str]) -> set[str]:
        """Return which of these paths are in the set."""
        found: set[str] = set()
        for start in range(0, len(paths), _SOME):
            some = paths[start : start + _SOME]
            marks = ", ".join("?" * len(some))
            found.update(
                row[0] for row in self._database.execute(f"SELECT path FROM known WHERE path IN ({marks})", some)
            )
        return found


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
            hopeless = _remove_orphans(store, orphans, work, threads=threads, dry_run=dry_run)
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


def _remove_orphans(store: Store, orphans: list[FileEntry], work: _Work, *, threads: int, dry_run: bool) -> bool:
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
