"""Maintenance by a policy: once, or continuously."""

from __future__ import annotations

import datetime as dt
import threading
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from quacklake.catalog.own_tables import lease_left
from quacklake.maintenance.lease import LeasedWork
from quacklake.maintenance.policy import Job, JobKind, Policy
from quacklake.maintenance.scheduler import MaintenanceReport, Scheduler, Stop
from quacklake.progress import Progress, silent

if TYPE_CHECKING:
    from quacklake.maintenance.lake_maintenance import LakeMaintenance

DELETE_AFTER = dt.timedelta(days=2)
"""How long a file waits for removal if the lake has no option for it, as in stock DuckLake."""


class Maintainer:
    """Maintains a lake by a policy, once or until stopped.

    One pass merges the small files of a table into at most ``most_merges`` files.
    """

    def __init__(
        self,
        lake: LakeMaintenance,
        policy: Policy | None = None,
        *,
        most_merges: int | None = None,
    ) -> None:
        given = policy or Policy()
        self.policy = replace(
            given,
            expire_older_than=_or_option(lake, given.expire_older_than, "expire_older_than"),
            delete_older_than=_or_option(lake, given.delete_older_than, "delete_older_than", DELETE_AFTER),
        )
        self._lake = lake
        self._most_merges = most_merges
        self._scheduler = self._make_scheduler()

    def _make_scheduler(self) -> Scheduler:
        lake, policy = self._lake, self.policy
        context = lake.handle.context
        default = int(int(context.option("target_file_size")) * policy.small_ratio)
        own = {
            table.id: int(int(context.option("target_file_size", table)) * policy.small_ratio)
            for table in lake.handle.view().tables()
        }
        workers: dict[JobKind, Callable[[Job], Any]] = {
            JobKind.FLUSH: lambda job: lake.table(str(job.table)).flush_inlined_data(),
            JobKind.MERGE: lambda job: lake.table(str(job.table)).merge_adjacent_files(
                self._most_merges, max_file_size=job.below
            ),
            JobKind.REWRITE: lambda job: lake.table(str(job.table)).rewrite_data_files(
                delete_threshold=policy.delete_ratio, small_file_size=job.below
            ),
            JobKind.EXPIRE: lambda _: lake.expire_snapshots(older_than=policy.expire_older_than),
            JobKind.CLEANUP: lambda _: lake.cleanup_old_files(older_than=policy.delete_older_than),
            JobKind.ORPHANS: lambda _: lake.delete_orphaned_files(),
        }
        small_of = {id_: size for id_, size in own.items() if size != default}
        checks: dict[JobKind, Callable[[Job], bool]] = {
            JobKind.MERGE: self._merge_is_useful,
            JobKind.EXPIRE: lambda _: bool(
                lake.expire_snapshots(older_than=policy.expire_older_than, dry_run=True).snapshots
            ),
            JobKind.ORPHANS: lambda _: not self._orphans_are_looked_for(),
        }
        return Scheduler(context.catalog, policy, workers, default, small_of, checks)

    def _merge_is_useful(self, job: Job) -> bool:
        """Return whether a merge saves as many files as it would with that many small files in one partition."""
        assert self.policy.small_files is not None
        saved = self._lake.table(str(job.table)).files_saved_by_merging(job.below)
        return saved >= self.policy.small_files - 1

    def _orphans_are_looked_for(self) -> bool:
        with self._lake.handle.context.catalog.read() as reader:
            return lease_left(reader, int(LeasedWork.ORPHANS)) > 0

    def due(self) -> list[Job]:
        """Return the jobs that a pass would run now."""
        return self._scheduler.due()

    def run_once(self, progress: Progress = silent, stop: Stop | None = None) -> MaintenanceReport:
        """Run one pass; if ``stop`` is set, end before the next job. Raises ``LeaseHeldError`` like ``maintain``."""
        return self._scheduler.run_once(progress, stop)

    def run(
        self, stop: threading.Event, told: Callable[[MaintenanceReport], None], progress: Progress = silent
    ) -> None:
        """Run passes until ``stop`` is set, and call ``told`` with each report.

        While another process maintains the lake, this one waits, and takes over when the other is gone.
        """
        self._scheduler.run(stop, told, progress)


def _or_option(
    lake: LakeMaintenance, given: dt.timedelta | None, name: str, otherwise: dt.timedelta | None = None
) -> dt.timedelta | None:
    found = given if given is not None else lake.handle.context.option(name)
    return found if isinstance(found, dt.timedelta) else otherwise
