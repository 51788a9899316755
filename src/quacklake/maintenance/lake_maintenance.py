"""Care for a whole lake: what is due by a policy, or everything at once."""

from __future__ import annotations

import datetime as dt
import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, cast

from quacklake.catalog.leases import lease_left
from quacklake.maintenance.lake_expiry import DELETE_AFTER
from quacklake.maintenance.lease import Work
from quacklake.maintenance.policy import Job, JobKind, Policy
from quacklake.maintenance.reports import Progress, silent
from quacklake.maintenance.scheduler import MaintenanceReport, Scheduler, Stop
from quacklake.maintenance.table_maintenance import TableCompaction

if TYPE_CHECKING:
    from quacklake.lake.lake import Lake

__all__ = ["CheckpointReport", "Maintainer", "Maintaining"]


class Maintainer:
    """Does for a lake what a policy says: once, or until it is told to stop.

    ``table`` gives the tables that are compacted, where it is not the lake itself that compacts them. One pass makes at
    most ``most_merges`` files of the small ones of a table.
    """

    def __init__(
        self,
        lake: Lake,
        policy: Policy | None = None,
        table: Callable[[str], TableCompaction] | None = None,
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
        self._table = lake.table if table is None else table
        self._most_merges = most_merges
        self._scheduler = self._make_scheduler()

    def _make_scheduler(self) -> Scheduler:
        lake, policy = self._lake, self.policy
        shared = lake._shared
        default = int(int(shared.option("target_file_size")) * policy.small_ratio)
        own = {
            table.id: int(int(shared.option("target_file_size", table)) * policy.small_ratio)
            for table in lake.handle.view().tables()
        }
        workers: dict[JobKind, Callable[[Job], Any]] = {
            JobKind.FLUSH: lambda job: self._table(str(job.table)).flush_inlined_data(),
            JobKind.MERGE: lambda job: self._table(str(job.table)).merge_adjacent_files(
                self._most_merges, max_file_size=job.below
            ),
            JobKind.REWRITE: lambda job: self._table(str(job.table)).rewrite_data_files(
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
        return Scheduler(shared.catalog, policy, workers, default, small_of, checks)

    def _merge_is_useful(self, job: Job) -> bool:
        """Return whether a merge removes as many files as it does in a table without partitions at that number."""
        assert self.policy.small_files is not None
        saved = self._lake.table(str(job.table))._files_saved_by_merging(job.below)
        return saved >= self.policy.small_files - 1

    def _orphans_are_looked_for(self) -> bool:
        with self._lake._shared.catalog.read() as reader:
            return lease_left(reader, int(Work.ORPHANS)) > 0

    def due(self) -> list[Job]:
        """What a pass would do now."""
        return self._scheduler.due()

    def run_once(self, progress: Progress = silent, stop: Stop | None = None) -> MaintenanceReport:
        """One pass, which ends before its next job when ``stop`` is set.

        Raises ``LeaseHeldError`` when another process maintains the lake.
        """
        return self._scheduler.run_once(progress, stop)

    def run(
        self, stop: threading.Event, told: Callable[[MaintenanceReport], None], progress: Progress = silent
    ) -> None:
        """Pass after pass until ``stop`` is set, each report given to ``told``.

        While another process maintains the lake, this one waits, and takes over when that one is gone.
        """
        self._scheduler.run(stop, told, progress)


def _or_option(
    lake: Lake, given: dt.timedelta | None, name: str, otherwise: dt.timedelta | None = None
) -> dt.timedelta | None:
    found = given if given is not None else lake._shared.option(name)
    return found if isinstance(found, dt.timedelta) else otherwise


@dataclass(frozen=True, slots=True)
class CheckpointReport:
    """What each operation of a checkpoint did, by its name, in the order they ran."""

    reports: dict[str, Any]


class Maintaining:
    """Care for a whole lake."""

    def maintainer(self, policy: Policy | None = None) -> Maintainer:
        """Something that looks after the lake by a policy, for as long as it is wanted."""
        return Maintainer(cast("Lake", self), policy)

    def maintain(self, policy: Policy | None = None, *, progress: Progress = silent) -> MaintenanceReport:
        """Do what is due by a policy: flush, expire, merge, rewrite, clean up.

        Raises ``LeaseHeldError`` when another process is doing so.
        """
        return self.maintainer(policy).run_once(progress)

    def checkpoint(self, *, progress: Progress = silent) -> CheckpointReport:
        """Every kind of care at once, due or not, in the order of DuckLake's own ``CHECKPOINT``.

        Snapshots expire and files go as the options ``expire_older_than`` and ``delete_older_than`` say.
        """
        lake = cast("Lake", self)
        steps: dict[str, Callable[[], Any]] = {
            "flush_inlined_data": lake.flush_inlined_data,
            "expire_snapshots": lake.expire_snapshots,
            "merge_adjacent_files": lake.merge_adjacent_files,
            "rewrite_data_files": lake.rewrite_data_files,
            "cleanup_old_files": lake.cleanup_old_files,
            "delete_orphaned_files": lake.delete_orphaned_files,
        }
        reports: dict[str, Any] = {}
        for number, (name, step) in enumerate(steps.items()):
            progress(name, number, len(steps))
            reports[name] = step()
        return CheckpointReport(reports)
