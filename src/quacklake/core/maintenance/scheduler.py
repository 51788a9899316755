"""Run the maintenance that is due: one pass, or passes until stopped."""

from __future__ import annotations

import datetime as dt
import enum
import logging
import random
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Protocol

from quacklake import telemetry
from quacklake.core.catalog import Catalog
from quacklake.core.catalog.own_tables import end_lease, held_lease, take_lease
from quacklake.core.catalog.reading.health import bytes_at, scheduled_files, table_health
from quacklake.core.format.objects import TableInfo
from quacklake.core.maintenance.holders import new_holder
from quacklake.core.maintenance.policy import Job, JobKind, LakeHealth, Policy, due
from quacklake.core.progress import Progress, Report, silent
from quacklake.errors import LeaseHeldError, NotFoundError, QuacklakeError, SnapshotExpiredError

if TYPE_CHECKING:
    from quacklake.core.maintenance.lake_maintenance import LakeMaintenance


_RENEWALS = 3  # the number of renewals within the length of a lease


class LeasedWork(enum.IntEnum):
    """The purposes of leases; catalogs store these numbers."""

    MAINTENANCE = 1
    ORPHANS = 2


class Leased(Protocol):
    """A piece of work that only one process at a time does, with the number of its lease."""

    @property
    def name(self) -> str: ...

    def __int__(self) -> int: ...


def claim(catalog: Catalog, work: Leased, length: dt.timedelta, holder: str) -> None:
    """Take or extend a lease. Raise ``LeaseHeldError``, or ``NotFoundError`` for a catalog that was dropped."""
    with catalog.commit() as writer:
        writer.snapshots.check_there()
        left = take_lease(writer, int(work), holder, int(length.total_seconds() * 1000))
    if left:
        raise LeaseHeldError(
            f"another process does the {work.name.lower()} of this lake",
            hint=f"its turn ends in {left / 1000:.0f} s unless it goes on working",
        )


@contextmanager
def hold(catalog: Catalog, work: Leased, length: dt.timedelta) -> Iterator[threading.Event]:
    """Hold and renew a lease for a block; yield an event, set when it is lost. Correctness does not depend on it."""
    holder = new_holder()
    claim(catalog, work, length, holder)
    done, lost = threading.Event(), threading.Event()

    def renew() -> None:
        while not done.wait(length.total_seconds() / _RENEWALS):
            try:
                claim(catalog, work, length, holder)
            except LeaseHeldError:
                lost.set()
                return
            except QuacklakeError as error:
                facts = telemetry.error_facts(error, lease=work.name.lower())
                _log.warning("the lease for %s was not renewed: %s", work.name.lower(), error.message, extra=facts)

    keeper = threading.Thread(target=renew, name="quacklake-lease", daemon=True)
    keeper.start()
    try:
        yield lost
    finally:
        done.set()
        keeper.join()
        with suppress(QuacklakeError), catalog.commit() as writer:
            end_lease(writer, int(work), holder)


_log = logging.getLogger("quacklake.maintenance")


class Stop(Protocol):
    """A stop signal, such as ``threading.Event``."""

    def is_set(self) -> bool: ...


@dataclass(frozen=True, slots=True)
class JobReport:
    """Result of a job: the report of its operation, or the error that ended it."""

    job: Job
    seconds: float
    report: Any = None
    error: QuacklakeError | None = None


@dataclass(frozen=True, slots=True)
class MaintenanceReport(Report):
    """Report of one pass."""

    jobs: Sequence[JobReport] = ()

    @property
    def failed(self) -> Sequence[JobReport]:
        return [job for job in self.jobs if job.error is not None]


@dataclass
class Scheduler:
    """Runs due jobs with ``workers``. Files below ``small`` bytes, or ``small_of`` some tables, are small.

    Numbers of the catalog say which jobs may be due; ``checks`` look closer, so that a due job also changes something.
    """

    catalog: Catalog
    policy: Policy
    workers: Mapping[JobKind, Callable[[Job], Any]]
    small: int
    small_of: Mapping[int, int] = field(default_factory=dict)
    checks: Mapping[JobKind, Callable[[Job], bool]] = field(default_factory=dict)
    _tried: dict[tuple[JobKind, str | None], tuple[object, ...]] = field(default_factory=dict)

    def examine(self) -> LakeHealth:
        """Measure the health of the lake; see the function of this name."""
        return examine(self.catalog, self.policy, self.small, self.small_of)

    def measure_growth(self, span: dt.timedelta) -> tuple[int, dt.timedelta]:
        """Return by how many bytes the files have grown in a span, or as far as the history goes, and that time."""
        now = dt.datetime.now(dt.UTC)
        with self.catalog.read() as reader:
            newest = reader.snapshots.latest()
            try:
                since = reader.snapshots.at_time(now - span)
            except (NotFoundError, SnapshotExpiredError):
                since = reader.snapshots.oldest_unbroken()
            grown = bytes_at(reader, newest.id) - bytes_at(reader, since.id)
        return grown, span if since.time is None else min(now - since.time, span)

    def due(self) -> list[Job]:
        """Return the jobs that a pass would run now."""
        health = self.examine()
        # one that already ran on this state of the table found nothing to do
        return [
            job
            for job in due(self.policy, health)
            if not (job.state and self._tried.get((job.kind, job.table)) == job.state) and self._useful(job)
        ]

    def run_once(self, progress: Progress = silent, stop: Stop | None = None) -> MaintenanceReport:
        """Run one pass; if ``stop`` is set, end before the next job. Raise ``LeaseHeldError`` if another runs one.

        Jobs that become due during the pass run in it too, such as a merge after a flush that leaves many small files.
        Each kind of job runs once for each table.
        """
        with hold(self.catalog, LeasedWork.MAINTENANCE, self.policy.lease) as lost:
            reports: list[JobReport] = []
            begun: set[tuple[JobKind, str | None]] = set()
            while jobs := [job for job in self.due() if (job.kind, job.table) not in begun]:
                for number, job in enumerate(jobs):
                    if lost.is_set() or (stop is not None and stop.is_set()):
                        return MaintenanceReport(tuple(reports))
                    begun.add((job.kind, job.table))
                    progress(f"{job.kind.value} {job.table or ''}".rstrip(), number, len(jobs))
                    with suppress(LeaseHeldError):
                        if job.kind is JobKind.ORPHANS:  # claimed for a while, and never released
                            assert self.policy.orphans_every is not None
                            claim(self.catalog, LeasedWork.ORPHANS, self.policy.orphans_every, new_holder())
                        reports.append(self._do(job))
            return MaintenanceReport(tuple(reports))

    def run(
        self, stop: threading.Event, told: Callable[[MaintenanceReport], None], progress: Progress = silent
    ) -> None:
        """Run passes until ``stop`` is set, and call ``told`` with each report; wait while another process works."""
        while not stop.is_set():
            try:
                told(self.run_once(progress, stop))
            except LeaseHeldError as error:
                _log.debug("waiting: %s", error.message)
            except QuacklakeError as error:
                if not error.transient:
                    raise
                _log.warning("a pass was given up: %s", error.message, extra=telemetry.error_facts(error))
            spread = random.uniform(-self.policy.jitter, self.policy.jitter)
            stop.wait(self.policy.interval.total_seconds() * (1 + spread))

    def _useful(self, job: Job) -> bool:
        """Return whether a job would change anything. If not, it is skipped until its numbers change."""
        check = self.checks.get(job.kind)
        if check is None:
            return True
        try:
            useful = check(job)
        except NotFoundError:
            return False  # the table was dropped
        if not useful:
            self._tried[job.kind, job.table] = job.state
        return useful

    def _do(self, job: Job) -> JobReport:
        begun = time.monotonic()
        report, failure = None, None
        try:
            with telemetry.timed(f"maintenance.{job.kind.value}", job.table):
                report = self.workers[job.kind](job)
        except NotFoundError as error:
            _log.info("%s: %s", job.kind.value, error.message)  # the table was dropped
        except QuacklakeError as error:
            facts = telemetry.error_facts(error, job=job.kind.value, table=job.table)
            _log.warning("%s of %s failed: %s", job.kind.value, job.table or "the lake", error.message, extra=facts)
            failure = error
        else:
            self._tried[job.kind, job.table] = job.state
        return JobReport(job, time.monotonic() - begun, report, failure)


def examine(catalog: Catalog, policy: Policy, small: int, small_of: Mapping[int, int]) -> LakeHealth:
    """Measure the health of a lake, with a constant number of statements per hundred tables with inlined rows."""
    worn = 1.0 if policy.delete_ratio is None else policy.delete_ratio
    now = dt.datetime.now(dt.UTC)
    with catalog.read() as reader:
        snapshot = reader.snapshots.latest()
        tables = table_health(reader, snapshot, small=small, small_of=small_of, worn=worn)
        names = {table.id: table.qualified_name for table in reader.tables.all(snapshot)}
        times = reader.snapshots.times(
            {table.inlined_since for table in tables.values() if table.inlined_since is not None}
        )
        oldest = reader.snapshots.oldest()
        scheduled = scheduled_files(reader, now - (policy.delete_older_than or dt.timedelta(0)))
    ages = {
        id_: now - times.get(table.inlined_since, dt.datetime.fromtimestamp(0, dt.UTC))
        for id_, table in tables.items()
        if table.inlined_since is not None
    }
    age = dt.timedelta(0) if oldest is None or oldest.time is None else now - oldest.time
    return LakeHealth(tables, names, ages, age, scheduled)


DELETE_AFTER = dt.timedelta(days=2)
"""The time that a file waits for removal without an option of the lake, as in stock DuckLake."""


class Maintainer(Scheduler):
    """Maintains a lake by a policy. A pass merges small files of a table into at most ``most_merges`` files."""

    def __init__(self, lake: LakeMaintenance, policy: Policy | None = None, *, most_merges: int | None = None) -> None:
        given, context = policy or Policy(), lake.handle.context

        def or_option(value: dt.timedelta | None, name: str, otherwise: dt.timedelta | None) -> dt.timedelta | None:
            found = value if value is not None else context.option(name)
            return found if isinstance(found, dt.timedelta) else otherwise

        policy = replace(
            given,
            expire_older_than=or_option(given.expire_older_than, "expire_older_than", None),
            delete_older_than=or_option(given.delete_older_than, "delete_older_than", DELETE_AFTER),
        )

        def small(table: TableInfo | None = None) -> int:
            return int(int(context.option("target_file_size", table)) * policy.small_ratio)

        def merge_is_useful(job: Job) -> bool:
            # as many files saved as with that many small files in one partition
            assert policy.small_files is not None
            return lake.table(str(job.table)).files_saved_by_merging(job.below) >= policy.small_files - 1

        def nobody_looks_for_orphans(_: Job) -> bool:
            with context.catalog.read() as reader:
                return held_lease(reader, int(LeasedWork.ORPHANS)) is None

        usual, sizes = small(), {table.id: small(table) for table in lake.handle.view().tables()}
        super().__init__(
            context.catalog,
            policy,
            workers={
                JobKind.FLUSH: lambda job: lake.table(str(job.table)).flush_inlined_data(),
                JobKind.MERGE: lambda job: lake.table(str(job.table)).merge_adjacent_files(
                    most_merges, max_file_size=job.below
                ),
                JobKind.REWRITE: lambda job: lake.table(str(job.table)).rewrite_data_files(
                    delete_threshold=policy.delete_ratio, small_file_size=job.below
                ),
                JobKind.EXPIRE: lambda _: lake.expire_snapshots(older_than=policy.expire_older_than),
                JobKind.CLEANUP: lambda _: lake.cleanup_old_files(older_than=policy.delete_older_than),
                JobKind.ORPHANS: lambda _: lake.delete_orphaned_files(),
            },
            small=usual,
            small_of={id_: size for id_, size in sizes.items() if size != usual},
            checks={
                JobKind.MERGE: merge_is_useful,
                JobKind.EXPIRE: lambda _: bool(
                    lake.expire_snapshots(older_than=policy.expire_older_than, dry_run=True).snapshots
                ),
                JobKind.ORPHANS: nobody_looks_for_orphans,
            },
        )
