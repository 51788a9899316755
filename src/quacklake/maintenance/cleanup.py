"""Cleaning up: removing the files that are scheduled for deletion, and then their rows in the schedule.

Files go first, so that one whose row is gone is gone too; a cleanup that ends half way is simply run again.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from dataclasses import dataclass, field

from quacklake import faults, telemetry
from quacklake.catalog import Catalog, file_names
from quacklake.catalog.file_names import ScheduledFile
from quacklake.errors import PathError
from quacklake.maintenance.places import absolute_places, locate, named
from quacklake.maintenance.removal import BATCH, remove
from quacklake.maintenance.reports import Progress, Skipped, silent
from quacklake.storage import Store

__all__ = ["CleanupReport", "cleanup_old_files"]


@dataclass(frozen=True, slots=True)
class CleanupReport:
    """What was removed: ``paths`` below the data path, and how many ``bytes`` where that is known.

    ``skipped`` are files that stay although they were scheduled, or could not be removed, and why; those that
    ``failed`` are tried again next time.
    """

    paths: tuple[str, ...] = ()
    bytes: int | None = None
    failed: int = 0
    skipped: Sequence[Skipped] = ()
    dry_run: bool = False

    @property
    def files(self) -> int:
        """How many files were removed."""
        return len(self.paths)


@dataclass
class _Work:
    removed: list[str] = field(default_factory=list)
    skipped: list[Skipped] = field(default_factory=list)
    failed: int = 0


def cleanup_old_files(
    catalog: Catalog,
    store: Store,
    *,
    before: dt.datetime | None,
    threads: int,
    dry_run: bool = False,
    progress: Progress = silent,
) -> CleanupReport:
    """Remove the files scheduled before a time (None: all), unless a row of the catalog still names them.

    A file that is not below the data path is never removed: the lake only lets go of it.
    """
    work = _Work()
    with telemetry.timed("maintenance.cleanup"):
        with catalog.read() as reader:
            absolute = absolute_places(reader, store)
        after = -1
        while True:
            with catalog.read() as reader:
                page = file_names.scheduled(reader, after, BATCH)
                due = [file for file in page if before is None or (file.since is not None and file.since < before)]
                found = _sort_out(store, due, work)
                taken = named(reader, store, found, absolute) if found else set()
            if not page:
                break
            after = page[-1].id
            hopeless = _remove(catalog, store, due, found, taken, work, threads=threads, dry_run=dry_run)
            progress("files", len(work.removed), None)
            if hopeless:
                break
    return CleanupReport(tuple(work.removed), None, work.failed, work.skipped, dry_run)


def _sort_out(store: Store, due: Sequence[ScheduledFile], work: _Work) -> dict[str, list[ScheduledFile]]:
    """The files below the data root by their places; each may be scheduled more than once."""
    found: dict[str, list[ScheduledFile]] = {}
    for file in due:
        try:
            where = locate(store, file.path, file.is_relative)
        except PathError:
            where = None
        if where is None:
            work.skipped.append(Skipped(file.path, "it is not below the data path"))
        else:
            found.setdefault(where, []).append(file)
    return found


def _remove(
    catalog: Catalog,
    store: Store,
    due: Sequence[ScheduledFile],
    found: dict[str, list[ScheduledFile]],
    taken: set[str],
    work: _Work,
    *,
    threads: int,
    dry_run: bool,
) -> bool:
    """Remove one batch; True when there is no use in going on."""
    work.skipped += [Skipped(path, "a table still has it") for path in sorted(taken)]
    paths = [path for path in found if path not in taken]
    if dry_run:
        work.removed += paths
        return False
    removal = remove(store, paths, threads)
    work.removed += removal.gone
    work.failed += len(removal.failed)
    work.skipped += [Skipped(path, error.message) for path, error in removal.failed.items()]
    faults.reach("maintenance.cleanup.removed")
    # what a table still has, or is elsewhere, must not be left for a client that looks at the schedule alone
    left = {id(file) for path in removal.failed for file in found[path]}
    done = [file for file in due if id(file) not in left]
    if done:
        with catalog.commit() as writer:
            file_names.unschedule(writer, done)
    faults.reach("maintenance.cleanup.unscheduled")
    return removal.hopeless
