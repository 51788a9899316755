"""Keep a pond small and fast: the maintenance of its lake, and removal of large files that no state names."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow.compute as pc

from quacklake import Job, JobReport, Policy
from quacklake.extend import reporting
from quacklake.extend.reporting import Progress, silent
from quacklake.pond import reduces
from quacklake.pond.large_files import GRACE
from quacklake.pond.nodes import NODES
from quacklake.pond.pond import Pond
from quacklake.pond.reduces import Upkeep


@dataclass(frozen=True, slots=True)
class LargeReport:
    """Large files that no state of the pond names: their number and bytes, and whether they were removed."""

    files: int
    bytes: int
    removed: bool


@dataclass(frozen=True, slots=True)
class MaintenanceDone:
    """The work on the lake that was done, or is due; the large files, and the resolutions of series."""

    jobs: tuple[Job | JobReport, ...]
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

    Large files are removed when no snapshot names them and they are older than ``grace``. Raise ``LeaseHeldError``
    while another process maintains the pond.
    """
    reductions = Upkeep(0, 0, 0) if dry_run else reduces.maintain(pond)
    maintainer = pond.lake.maintenance.maintainer(policy)
    jobs: Sequence[Job | JobReport] = maintainer.due() if dry_run else maintainer.run_once(progress).jobs
    free = list(_find_unnamed(pond, grace))
    if free and not dry_run:
        reporting.reach("pond.maintain.large")
        pond.large_files.store.delete([path for path, _ in free])
    large = LargeReport(len(free), sum(size for _, size in free), not dry_run)
    return MaintenanceDone(tuple(jobs), large, reductions)


def _find_unnamed(pond: Pond, grace: dt.timedelta) -> Iterator[tuple[str, int]]:
    """Yield the path and size of large files that no snapshot names.

    Whoever writes a file that is there already makes it young, so they are listed after the names were read.
    """
    if next(pond.large_files.entries(), None) is None:
        return
    named, limit = _find_named(pond), dt.datetime.now(dt.UTC) - grace
    for file in pond.large_files.entries():
        if file.sha256 not in named and file.changed is not None and file.changed < limit:
            yield file.path, file.size


def _find_named(pond: Pond) -> set[str]:
    """Return the hashes that any state of the tree names: those of the oldest one, and all that came since."""
    snapshots = [row["snapshot_id"] for row in pond.lake.snapshots().to_pylist()]
    first = next(each for each in snapshots if NODES in pond.lake.at(version=each))
    oldest = pond.lake.at(version=first).table(NODES).scan(["sha256"], "sha256 IS NOT NULL").to_arrow()
    found = set(oldest.column("sha256").to_pylist())
    if first != snapshots[-1]:
        for batch in pond.lake.table(NODES).insertions(first + 1).select("sha256").to_reader():
            found.update(pc.drop_null(batch.column("sha256")).to_pylist())
    return found
