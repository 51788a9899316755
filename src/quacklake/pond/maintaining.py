"""Keep a pond small and fast: the maintenance of its two lakes, and removal of large files that no state names."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow.compute as pc

from quacklake import faults
from quacklake.errors import LeaseHeldError
from quacklake.maintenance.policy import Job, Policy
from quacklake.maintenance.scheduler import JobReport, Maintainer
from quacklake.pond import reduces
from quacklake.pond.control import BEGIN, is_running
from quacklake.pond.nodes import NODES
from quacklake.pond.places import CONTROL, DATA
from quacklake.pond.pond import Pond
from quacklake.pond.reduces import Upkeep
from quacklake.progress import Progress, silent

GRACE = dt.timedelta(days=2)
"""The age from which on a large file that nothing names is removed."""


@dataclass(frozen=True, slots=True)
class LargeReport:
    """Large files that no state of the pond names: their number and bytes, and whether they were removed."""

    files: int
    bytes: int
    removed: bool


@dataclass(frozen=True, slots=True)
class MaintenanceDone:
    """The work that was done, or is due, by lake; the large files, and the resolutions of series."""

    jobs: tuple[tuple[str, Job | JobReport], ...]
    large: LargeReport
    reductions: Upkeep


def maintain(
    pond: Pond,
    policy: Policy | None = None,
    *,
    dry_run: bool = False,
    grace: dt.timedelta = GRACE,
    progress: Progress = silent,
) -> MaintenanceDone:
    """Bring resolutions up to date, and run the maintenance that is due under a policy; with ``dry_run`` only tell it.

    Large files are removed when no snapshot names them and they are older than ``grace``. Raises ``LeaseHeldError``
    while another process maintains the pond, or a command that changes it runs and large files are to be removed.
    """
    reductions = Upkeep(0, 0, 0) if dry_run else reduces.maintain(pond)
    jobs: list[tuple[str, Job | JobReport]] = []
    for name, lake in ((DATA, pond.lake), (CONTROL, pond.control.lake)):
        maintainer = Maintainer(lake.maintenance, policy)
        found = maintainer.due() if dry_run else maintainer.run_once(progress).jobs
        jobs += [(name, job) for job in found]
    free = list(_unnamed(pond, grace))
    if free and not dry_run:
        running = [each for each in pond.control.transactions() if each.state == BEGIN and is_running(each.process)]
        if running:
            raise LeaseHeldError(
                f"the command {running[0].command!r} is running", hint="large files are removed when it has ended"
            )
        faults.reach("pond.maintain.large")
        pond.large_files.store.delete([path for path, _ in free])
    large = LargeReport(len(free), sum(size for _, size in free), not dry_run)
    return MaintenanceDone(tuple(jobs), large, reductions)


def _unnamed(pond: Pond, grace: dt.timedelta) -> Iterator[tuple[str, int]]:
    """Yield the path and size of large files that no snapshot names."""
    stored = list(pond.large_files.entries())
    if not stored:
        return
    named, limit = _named(pond), dt.datetime.now(dt.UTC) - grace
    for sha256, entry in stored:
        if sha256 not in named and entry.mtime is not None and entry.mtime < limit:
            yield entry.path, entry.size


def _named(pond: Pond) -> set[str]:
    """Return the hashes that any state of the tree names: those of the oldest one, and all that came since."""
    snapshots = [row["snapshot_id"] for row in pond.lake.snapshots().to_pylist()]
    first = next(each for each in snapshots if NODES in pond.lake.at(version=each))
    oldest = pond.lake.at(version=first).table(NODES).scan(["sha256"], "sha256 IS NOT NULL").to_arrow()
    found = set(oldest.column("sha256").to_pylist())
    if first != snapshots[-1]:
        for batch in pond.lake.table(NODES).insertions(first + 1).select("sha256").to_reader():
            found.update(pc.drop_null(batch.column("sha256")).to_pylist())
    return found
