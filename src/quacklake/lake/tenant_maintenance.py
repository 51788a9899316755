"""Maintain the catalogs (tenants) of a shared lake in rounds that give each catalog its turn.

A round continues after the last catalog of the previous one, in order of ids, and visits those that may need
maintenance. So a busy catalog is visited no more often than the others. A round is bounded; the next one does the rest.
"""

from __future__ import annotations

import datetime as dt
import logging
import random
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import sqlalchemy as sa

from quacklake import telemetry
from quacklake.config import Config, parse_duration
from quacklake.core.catalog.registry import Registry
from quacklake.core.catalog.statements import ROWS
from quacklake.core.catalog.tables import ClaimedInstant, claimed_time
from quacklake.core.format.objects import MATERIALIZED_VIEW
from quacklake.core.format.options import option
from quacklake.core.maintenance.lake_maintenance import LakeMaintenance
from quacklake.core.maintenance.policy import Policy
from quacklake.core.maintenance.reports import CompactionReport
from quacklake.core.maintenance.scheduler import LeasedWork, Maintainer, MaintenanceReport
from quacklake.core.operations.handles import LakeHandle
from quacklake.core.progress import Progress, silent
from quacklake.core.tenancy.tenancy import Tenancy
from quacklake.errors import ConfigError, InputError, InternalError, LeaseHeldError, NotFoundError, QuacklakeError

_log = logging.getLogger("quacklake.maintenance")
_PAGE = 1_000
_LEAST_FILES = 2
"""The fewest files that a compaction can merge."""
_TARGET = int(str(option("target_file_size").default))
_DELETE_AFTER = dt.timedelta(days=2)
"""The default if neither a policy nor a catalog sets an age, as in ``Lake.cleanup_old_files``."""


@dataclass(frozen=True, slots=True)
class RoundLimits:
    """Bounds of a round: the number of visited ``tenants``, the number of handled ``files``, and the ``time``.

    ``looks`` bounds the catalogs that a round looks at. A round also ends after all of them; it finishes begun work.
    """

    tenants: int = 100
    files: int = 10_000
    time: dt.timedelta = dt.timedelta(minutes=10)
    looks: int = 100_000

    def __post_init__(self) -> None:
        for name in ("tenants", "files", "looks"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} of a round of maintenance must be at least 1, not {getattr(self, name)}")
        if self.time <= dt.timedelta(0):
            raise ConfigError(f"the time of a round of maintenance must be positive, not {self.time}")


@dataclass(frozen=True, slots=True)
class TenantVisit:
    """Result of a visit: the report of a pass, or the error that prevented it."""

    name: str
    seconds: float
    report: MaintenanceReport = field(default_factory=MaintenanceReport)
    error: QuacklakeError | None = None

    @property
    def busy(self) -> bool:
        """True when another process was already maintaining the catalog."""
        return isinstance(self.error, LeaseHeldError)

    @property
    def failed(self) -> bool:
        """True when something failed."""
        return bool(self.report.failed) or (self.error is not None and not self.busy)


@dataclass(frozen=True, slots=True)
class RoundReport:
    """Report of a round.

    ``looked`` counts the catalogs it looked at; ``complete`` is true when all had their turn and no bound was reached.
    """

    tenants: Sequence[TenantVisit] = ()
    looked: int = 0
    files: int = 0
    complete: bool = False

    @property
    def failed(self) -> Sequence[TenantVisit]:
        """The visits that failed."""
        return [visit for visit in self.tenants if visit.failed]


class RoundBudget:
    """The remaining budget of a round. Safe to share between threads."""

    def __init__(self, bounds: RoundLimits, stop: threading.Event | None) -> None:
        self._bounds = bounds
        self._stop = stop
        self._end = time.monotonic() + bounds.time.total_seconds()
        self._lock = threading.Lock()
        self.files = 0

    @property
    def files_left(self) -> int:
        """The number of files that may still be handled."""
        return max(self._bounds.files - self.files, 0)

    def spend(self, files: int) -> None:
        """Count handled files."""
        with self._lock:
            self.files += files

    def is_set(self) -> bool:
        """Return whether the round must end."""
        stopped = self._stop is not None and self._stop.is_set()
        return stopped or not self.files_left or time.monotonic() >= self._end


class TenantMaintainer:
    """Maintains the catalogs of a shared lake by a policy, in one round or in rounds until stopped.

    ``maintenance`` makes the maintenance object of a catalog when DuckDB is not the engine. ``refresh`` refreshes the
    materialized views of a catalog that are due.
    """

    def __init__(
        self,
        tenancy: Tenancy,
        open_: Callable[..., LakeHandle],
        config: Config,
        policy: Policy | None,
        bounds: RoundLimits | None,
        threads: int,
        maintenance: Callable[[LakeHandle], LakeMaintenance] = LakeMaintenance,
        refresh: Callable[[LakeHandle], object] | None = None,
    ) -> None:
        if threads < 1:
            raise InputError(f"threads must be at least 1, not {threads}")
        if tenancy.database == "duckdb":
            threads = 1  # a database file is open for one catalog at a time
        self.policy = policy or Policy()
        self._open = open_
        self._most_files = config.compaction_max_files
        self._maintenance = maintenance
        self._refresh = refresh
        self._tenancy = tenancy
        self._bounds = bounds or RoundLimits()
        self._threads = threads

    def due(self) -> list[str]:
        """Return the names of the catalogs that the next round would visit."""
        now = dt.datetime.now(dt.UTC)
        seen = islice(self._circle(), self._bounds.looks)
        return list(islice((need.name for need in seen if self._wants(need, now)), self._bounds.tenants))

    def run_once(self, progress: Progress = silent, stop: threading.Event | None = None) -> RoundReport:
        """Run one round; if ``stop`` is set, finish the running visits and end early."""
        budget = RoundBudget(self._bounds, stop)
        visits: list[TenantVisit] = []
        running: set[Future[TenantVisit]] = set()
        looked, last, ended = 0, None, False
        with telemetry.timed("maintenance.round"), ThreadPoolExecutor(self._threads, "quacklake-round") as pool:
            for need in self._circle():
                if self._wants(need, dt.datetime.now(dt.UTC)):
                    while len(running) >= self._threads:
                        running = _collect(running, visits)
                    ended = budget.is_set() or len(visits) + len(running) >= self._bounds.tenants
                    if ended:
                        break
                    progress(need.name, len(visits), None)
                    running.add(pool.submit(self._visit, need, budget))
                looked, last = looked + 1, need.id
                ended = looked >= self._bounds.looks
                if ended:
                    break
            while running:
                running = _collect(running, visits)
        if last is not None:
            with self._tenancy.writing() as registry:
                registry.set_maintained(last)
        return RoundReport(tuple(visits), looked, budget.files, complete=not (ended or budget.is_set()))

    def run(self, stop: threading.Event, told: Callable[[RoundReport], None], progress: Progress = silent) -> None:
        """Run rounds until ``stop`` is set, and call ``told`` with each report.

        The next round starts after the policy's interval, or at once if one round was not enough for all the work. A
        round that handled no file is followed by a pause, because the next one would find the same.
        """
        while not stop.is_set():
            complete = True
            try:
                report = self.run_once(progress, stop)
                told(report)
                complete = report.complete or not report.files
            except QuacklakeError as error:
                if not error.transient:
                    raise
                _log.warning("a round was given up: %s", error.message, extra=telemetry.error_facts(error))
            if complete:
                spread = random.uniform(-self.policy.jitter, self.policy.jitter)
                stop.wait(self.policy.interval.total_seconds() * (1 + spread))

    def _circle(self) -> Iterator[CatalogNeed]:
        """Yield every catalog once, starting after the one that was looked at last."""
        with self._tenancy.reading() as registry:
            start = after = registry.last_maintained()
        around = start < 0
        worn = 1.0 if self.policy.delete_ratio is None else self.policy.delete_ratio
        counted = Thresholds(int(_TARGET * self.policy.small_ratio), worn)
        while True:
            with self._tenancy.reading() as registry:
                page = needs(registry, after, _PAGE, counted, int(LeasedWork.ORPHANS))
            for need in page:
                if around and need.id > start >= 0:
                    return
                yield need
            if len(page) == _PAGE:
                after = page[-1].id
            elif around:
                return
            else:
                around, after = True, -1

    def _wants(self, need: CatalogNeed, now: dt.datetime) -> bool:
        due = self._refresh is not None and need.views > 0
        return due or wants(self.policy, need, now)

    def _visit(self, need: CatalogNeed, budget: RoundBudget) -> TenantVisit:
        begun = time.monotonic()
        report, failure = MaintenanceReport(), None
        try:
            report = self._maintain(need, budget)
        except NotFoundError as error:
            _log.info("maintenance of a catalog ended: %s", error.message)  # the catalog was dropped or renamed
        except QuacklakeError as error:
            failure = error
            if not isinstance(error, LeaseHeldError):
                facts = telemetry.error_facts(error, catalog=need.name)
                _log.warning("maintenance of the catalog %s failed: %s", need.name, error.message, extra=facts)
        except Exception as error:  # a failure in one catalog must not stop the others
            facts = telemetry.error_facts(error, catalog=need.name)
            _log.warning("maintenance of the catalog %s failed", need.name, exc_info=True, extra=facts)
            failure = InternalError(f"{type(error).__name__}: {error}")
        for job in report.jobs:
            files = getattr(job.report, "files", 0)
            if isinstance(job.report, CompactionReport):
                files = job.report.files_before + job.report.files_after
            budget.spend(int(files))
        return TenantVisit(need.name, time.monotonic() - begun, report, failure)

    def _maintain(self, need: CatalogNeed, budget: RoundBudget) -> MaintenanceReport:
        left = max(budget.files_left, _LEAST_FILES)
        files = min(left, self._most_files)
        with self._open(need.name, compaction_max_files=files) as lake:
            row = lake.context.catalog.tenant_row
            if row is None or row.id != need.id:
                return MaintenanceReport()  # another catalog has this name now; it has its own turn
            if self._refresh is not None and need.views:
                self._refresh(lake)
            maintainer = Maintainer(self._maintenance(lake), self.policy, most_merges=max(left // files, 1))
            return maintainer.run_once(stop=budget)


def _collect(running: set[Future[TenantVisit]], visits: list[TenantVisit]) -> set[Future[TenantVisit]]:
    """Wait for a visit to end and record it; return those still running."""
    done, left = wait(running, return_when=FIRST_COMPLETED)
    visits.extend(future.result() for future in done)
    return left


def wants(policy: Policy, need: CatalogNeed, now: dt.datetime) -> bool:
    """Return whether a catalog may need maintenance; a closer look may show that it does not."""
    expire = policy.expire_older_than or _duration(need.expire)
    delete = policy.delete_older_than or _duration(need.delete) or _DELETE_AFTER
    return (
        (policy.small_files is not None and need.small_files >= policy.small_files)
        or (policy.delete_ratio is not None and need.worn_files > 0)
        or (policy.flush_rows is not None and need.inlined_rows >= policy.flush_rows)
        or (need.inlined_rows > 0 and _older(need.inlined_since, policy.flush_age, now))
        or _older(need.snapshot_since, expire, now)
        or (need.removable_since is not None and _older(need.removable_since, delete, now))
        or (policy.orphans_every is not None and need.looked_ms <= now.timestamp() * 1000)
    )


def _older(since: dt.datetime | None, age: dt.timedelta | None, now: dt.datetime) -> bool:
    """Return whether something has reached an age; anything older than all remaining snapshots has."""
    return age is not None and (since is None or now - since >= age)


def _duration(text: str | None) -> dt.timedelta | None:
    try:
        return None if text is None else parse_duration(text)
    except ValueError:
        return dt.timedelta(0)  # not in our form: look closer


# -- finding the catalogs that may need maintenance, with one statement per page instead of opening each ---------------


@dataclass(frozen=True, slots=True)
class Thresholds:
    """Thresholds for counts: files below ``small`` bytes, and files that lost the share ``worn`` of their rows."""

    small: int
    worn: float


@dataclass(frozen=True, slots=True)
class CatalogNeed:
    """The numbers that show whether a catalog may need maintenance.

    ``small_files`` and ``inlined_rows`` are the highest of any of its tables; times are those of the oldest. ``expire``
    and ``delete`` are options of the catalog; ``looked_ms`` is the time until which no search for orphans is needed.
    ``views`` counts the materialized views with a schedule.
    """

    id: int
    name: str
    small_files: int = 0
    worn_files: int = 0
    inlined_rows: int = 0
    inlined_since: dt.datetime | None = None
    snapshot_since: dt.datetime | None = None
    removable_since: dt.datetime | None = None
    expire: str | None = None
    delete: str | None = None
    looked_ms: int = 0
    views: int = 0


def needs(registry: Registry, after: int, limit: int, counted: Thresholds, orphans: int) -> list[CatalogNeed]:
    """Return the next catalogs by id; ``orphans`` is the lease for the search for orphans."""
    needed = []
    for row in registry.run("needs", _select_needs(registry, after, limit, counted, orphans)):
        id_, name, small, worn, inlined, inlined_since, removable, expire, delete, looked, views, snapshot = row
        numbers = (int(small or 0), int(worn or 0), int(inlined or 0))
        since = (inlined_since, snapshot, removable)
        needed.append(CatalogNeed(id_, name, *numbers, *since, expire, delete, int(looked or 0), int(views or 0)))
    return needed


def _select_needs(registry: Registry, after: int, limit: int, counted: Thresholds, orphans: int) -> sa.Select[Any]:
    """Return a page of catalogs, joined with the numbers from each table of the lake."""
    meta, catalog = registry.meta, registry.meta.catalog
    f, d, s, t, m = (meta[name] for name in ("data_file", "delete_file", "snapshot", "table", "metadata"))
    rows, leases = meta.definitions[ROWS], meta.definitions["quacklake_leases"]
    waiting, count = meta["files_scheduled_for_deletion"], sa.func.count().label("n")
    living = sa.select(catalog.c.catalog_id, catalog.c.catalog_name).where(catalog.c.dropped_ms.is_(None))
    page = living.where(catalog.c.catalog_id > after).order_by(catalog.c.catalog_id).limit(limit).cte("page")

    def first(time: sa.ColumnElement[Any]) -> sa.ColumnElement[Any]:
        return claimed_time(sa.func.min(time), registry.backend.name, "since")

    def of_page(table: sa.Table, *columns: Any, joined: Sequence[Any] = (), outer: Sequence[Any] = ()) -> Any:
        source: Any = page.join(table, table.c.catalog_id == page.c.catalog_id)
        for other, condition in (*joined, *outer):
            same = sa.and_(other.c.catalog_id == table.c.catalog_id, condition)
            source = source.join(other, same, isouter=(other, condition) in outer)
        return sa.select(table.c.catalog_id, *columns).select_from(source)

    def option(name: str) -> Any:
        found = of_page(m, sa.func.max(m.c.value).label("value"))
        return found.where(m.c.key == name, m.c.scope.is_(None)).group_by(m.c.catalog_id)

    small = of_page(f, count).where(f.c.end_snapshot.is_(None), f.c.file_size_bytes < counted.small)
    small = small.group_by(f.c.catalog_id, f.c.table_id).subquery()
    mine = sa.and_(f.c.data_file_id == d.c.data_file_id, f.c.end_snapshot.is_(None))
    lost = (d.c.end_snapshot.is_(None), d.c.delete_count > 0, d.c.delete_count >= counted.worn * f.c.record_count)
    alive = sa.and_(t.c.table_id == rows.c.table_id, t.c.end_snapshot.is_(None))
    came = s.c.snapshot_id == rows.c.begin_snapshot
    inlined = of_page(rows, count, first(s.c.snapshot_time), joined=[(t, alive)], outer=[(s, came)])
    inlined = inlined.group_by(rows.c.catalog_id, rows.c.table_id).subquery()
    # Compare times in the form that the database stores, which may be text.
    oldest = sa.type_coerce(sa.func.min(inlined.c.since), ClaimedInstant()).label("since")
    tag = meta["tag"]
    manual = '%"kind": "manual"%'
    scheduled = (tag.c.key == MATERIALIZED_VIEW, tag.c.end_snapshot.is_(None), tag.c.value.not_like(manual))
    parts = (
        sa.select(small.c.catalog_id, sa.func.max(small.c.n).label("n")).group_by(small.c.catalog_id),
        of_page(d, sa.func.count().label("worn"), joined=[(f, mine)]).where(*lost).group_by(d.c.catalog_id),
        sa.select(inlined.c.catalog_id, sa.func.max(inlined.c.n).label("n"), oldest).group_by(inlined.c.catalog_id),
        of_page(waiting, first(waiting.c.schedule_start)).group_by(waiting.c.catalog_id),
        option("expire_older_than"),
        option("delete_older_than"),
        of_page(leases, leases.c.expires_ms).where(leases.c.lease_id == orphans),
        of_page(tag, count).where(*scheduled).group_by(tag.c.catalog_id),
    )
    source: Any = page
    columns: list[Any] = [page.c.catalog_id, page.c.catalog_name]
    for number, part in enumerate(parts):
        found = part.subquery(f"part_{number}")
        source = source.outerjoin(found, found.c.catalog_id == page.c.catalog_id)
        columns += [column for column in found.c if column.name != "catalog_id"]
    # One subquery per catalog: an index answers it, however many snapshots there are.
    kept = sa.select(first(s.c.snapshot_time)).where(s.c.catalog_id == page.c.catalog_id).correlate(page)
    return sa.select(*columns, kept.scalar_subquery()).select_from(source).order_by(page.c.catalog_id)
