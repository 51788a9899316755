"""Decide which maintenance is due: pure rules over numbers from the catalog."""

from __future__ import annotations

import datetime as dt
import enum
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields

from quacklake.core.catalog import TableHealth
from quacklake.errors import ConfigError


class JobKind(enum.Enum):
    """The kinds of maintenance, in the order in which a pass runs them."""

    FLUSH = "flush_inlined_data"
    EXPIRE = "expire_snapshots"
    MERGE = "merge_adjacent_files"
    REWRITE = "rewrite_data_files"
    CLEANUP = "cleanup_old_files"
    ORPHANS = "delete_orphaned_files"


@dataclass(frozen=True, slots=True)
class Policy:
    """Thresholds for maintenance. None leaves a value to the lake's options, or skips the job if they do not set it.

    A table is flushed when it has ``flush_rows`` inlined rows, or one older than ``flush_age``. It is merged when it
    has ``small_files`` files of about the same size below ``small_ratio`` of the target size, and merging within
    partitions removes at least ``small_files - 1`` files, so that no row is rewritten very often. It is rewritten when
    a file has lost ``delete_ratio`` of its rows, or when ``small_files`` such small files have lost any. A pass runs
    every ``interval``, varied by ``jitter``; no other process runs one while this process holds and renews its
    ``lease``.
    """

    flush_rows: int | None = 10_000
    flush_age: dt.timedelta | None = dt.timedelta(hours=1)
    small_files: int | None = 16
    small_ratio: float = 0.25
    delete_ratio: float | None = 0.3
    expire_older_than: dt.timedelta | None = None
    delete_older_than: dt.timedelta | None = None
    orphans_every: dt.timedelta | None = dt.timedelta(days=1)
    interval: dt.timedelta = dt.timedelta(minutes=1)
    jitter: float = 0.2
    lease: dt.timedelta = dt.timedelta(minutes=5)

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if isinstance(value, dt.timedelta) and value < dt.timedelta(0):
                raise ConfigError(f"{field.name} of a maintenance policy is negative: {value}")
        _within("flush_rows", self.flush_rows, 1)
        _within("small_files", self.small_files, 2)
        _within("small_ratio", self.small_ratio, 0, 1)
        _within("delete_ratio", self.delete_ratio, 0, 1)
        _within("jitter", self.jitter, 0, 1)
        if self.lease < dt.timedelta(seconds=1):
            raise ConfigError("the lease of a maintenance policy is at least a second")


def _within(name: str, value: float | None, low: float, high: float | None = None) -> None:
    if value is not None and not (low <= value and (high is None or value <= high)):
        limits = f"at least {low}" if high is None else f"between {low} and {high}"
        raise ConfigError(f"{name} of a maintenance policy is {limits}, not {value}")


@dataclass(frozen=True, slots=True)
class LakeHealth:
    """The numbers that decide what is due. ``inlined_age`` is the age of a table's oldest inlined row."""

    tables: Mapping[int, TableHealth]
    names: Mapping[int, str]
    inlined_age: Mapping[int, dt.timedelta]
    oldest_snapshot_age: dt.timedelta
    removable_files: int


@dataclass(frozen=True, slots=True)
class Job:
    """A job that is due, and why. ``state`` shows whether anything has changed since the job last ran."""

    kind: JobKind
    reason: str
    table: str | None = None
    state: tuple[object, ...] = ()
    below: int | None = None
    """The size below which files count as small."""


def due(policy: Policy, health: LakeHealth) -> list[Job]:
    """Return the jobs that are due, in the order in which to run them."""
    found = [job for id_, table in health.tables.items() for job in _table_jobs(policy, health, id_, table)]
    found += _lake_jobs(policy, health)
    order = list(JobKind)
    return sorted(found, key=lambda job: order.index(job.kind))


def _table_jobs(policy: Policy, health: LakeHealth, id_: int, table: TableHealth) -> Iterator[Job]:
    name = health.names.get(id_)
    if name is None:
        return  # the table was dropped
    rows, age = table.inlined_rows, health.inlined_age.get(id_)
    if policy.flush_rows is not None and rows >= policy.flush_rows:
        yield Job(JobKind.FLUSH, _many(rows, "inlined row"), name, (rows,))
    elif policy.flush_age is not None and age is not None and age >= policy.flush_age:
        yield Job(JobKind.FLUSH, f"inlined rows for {_round_age(age)}", name, (rows, table.inlined_since))
    below = _find_crowded_size(policy, table, table.small)
    if below is not None:
        yield Job(JobKind.MERGE, _many(sum(table.small), "small file"), name, (table.files, table.small), below)
    if policy.delete_ratio is not None:
        below = _find_crowded_size(policy, table, table.chipped)
        state = (table.worn_files, table.chipped)
        if below is not None:
            reason = f"{_many(sum(table.chipped), 'small file')} with deletes"
            yield Job(JobKind.REWRITE, reason, name, state, below)
        elif table.worn_files:
            yield Job(JobKind.REWRITE, f"{_many(table.worn_files, 'file')} with many deletes", name, state)


def _find_crowded_size(policy: Policy, table: TableHealth, counts: Sequence[int]) -> int | None:
    """Return the size below which to merge files: the largest size class with enough files, and all below it."""
    if policy.small_files is None:
        return None
    return next((table.class_size(n) for n, count in enumerate(counts) if count >= policy.small_files), None)


def _lake_jobs(policy: Policy, health: LakeHealth) -> Iterator[Job]:
    age = health.oldest_snapshot_age
    if policy.expire_older_than is not None and age > policy.expire_older_than:
        yield Job(JobKind.EXPIRE, f"snapshots of {_round_age(age)}")
    if policy.delete_older_than is not None and health.removable_files:
        yield Job(JobKind.CLEANUP, f"{_many(health.removable_files, 'file')} to remove")
    if policy.orphans_every is not None:
        yield Job(JobKind.ORPHANS, f"every {_round_age(policy.orphans_every)}")


def _many(count: int, what: str) -> str:
    return f"{count:,} {what}{'' if count == 1 else 's'}"


def _round_age(age: dt.timedelta) -> str:
    """Return a duration in its two largest units.

    >>> [_round_age(dt.timedelta(seconds=age)) for age in (86_400, 3_907.8, 0)]
    ['1 day', '1 hour 5 minutes', '0 seconds']
    """
    left = round(age.total_seconds())
    parts = []
    for size, unit in ((86_400, "day"), (3_600, "hour"), (60, "minute"), (1, "second")):
        count, left = divmod(left, size)
        if count:
            parts.append(_many(count, unit))
    return " ".join(parts[:2]) or "0 seconds"
