"""Cleanup: remove the files that are scheduled for deletion, then their rows in the schedule.

A file is removed before its row, so no file is left without a row; an interrupted cleanup can simply be run again.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence

from quacklake import faults, telemetry
from quacklake.catalog import Catalog, file_names
from quacklake.catalog.file_names import ScheduledFile
from quacklake.catalog.shared_lake import lent_below
from quacklake.errors import PathError
from quacklake.maintenance.file_places import absolute_places, locate, named
from quacklake.maintenance.removal import BATCH, CleanupReport, OnPath, Tally, remove
from quacklake.progress import Progress, silent
from quacklake.storage import Store


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
