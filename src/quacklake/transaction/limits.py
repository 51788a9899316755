"""Keeping a catalog of a shared lake within its limits, inside the commit that would exceed them."""

from __future__ import annotations

import datetime as dt
import random
import time

from quacklake.catalog import Writer
from quacklake.catalog.reading.health import Usage, live_bytes, usage
from quacklake.errors import TenantBusyError, TenantLimitError
from quacklake.format.objects import Limits
from quacklake.transaction.changeset import ChangeSet

_JITTER = 0.05
"""Seconds by which those who wait for the same moment are spread."""


class Allowance:
    """The part of a catalog's limits that a change set may use.

    Commits of one catalog come one after the other, so no two use the same remainder. A change set that only moves rows
    (a compaction, a flush) always passes: it makes a catalog smaller, or its contents countable. Without limits nothing
    is read.
    """

    def __init__(self, writer: Writer, changes: ChangeSet) -> None:
        self._writer = writer
        self._changes = changes
        self._limits: Limits = writer.limits
        self._free = changes.only_moves
        self._weigh = False

    def check(self) -> None:
        """Check the limits before anything is written. Raise ``TenantLimitError`` or ``TenantBusyError``."""
        limits, changes = self._limits, self._changes
        more_tables = changes.more_tables
        tables = limits.tables is not None and more_tables > 0
        size = limits.bytes is not None and changes.adds_rows
        pace = limits.pace
        if self._free or not (tables or size or pace or limits.snapshots is not None):
            return
        used = usage(
            self._writer,
            snapshots=limits.snapshots is not None,
            tables=tables,
            size=size,
            commits=None if pace is None else pace[0],
        )
        self._check_pace(used)
        if limits.snapshots is not None and (used.snapshots or 0) >= limits.snapshots:
            raise _exceeded("snapshots", limits.snapshots, "snapshots", "lake.expire_snapshots() removes old ones")
        if tables and (used.tables or 0) + more_tables > (limits.tables or 0):
            raise _exceeded("tables", limits.tables or 0, "tables", "drop tables that are not needed")
        # the totals of tables are cheap and never too low; sum up the files only if they exceed the limit
        enough = (used.bytes or 0) + changes.added_bytes <= (limits.bytes or 0)
        self._weigh = size and not (enough and not changes.revived_tables)

    def weigh(self) -> None:
        """Check the bytes once files are inserted. Raise ``TenantLimitError`` when there are more than allowed."""
        limit = self._limits.bytes or 0
        if self._weigh and live_bytes(self._writer) > limit:
            hint = "delete rows or drop tables, then rewrite_data_files() makes room"
            raise _exceeded("bytes", limit, "bytes of data", hint)

    def _check_pace(self, used: Usage) -> None:
        pace = self._limits.pace
        if pace is None or used.paced is None:
            return
        _, seconds = pace
        passed = (dt.datetime.now(dt.UTC) - used.paced).total_seconds()
        # ignore clocks that differ by more than that
        if -seconds < passed < seconds:
            after = min(seconds - passed, seconds)
            raise TenantBusyError(
                f"the catalog may make {self._limits.commits_per_second:g} commits per second",
                limit="commits_per_second",
                after=after,
                hint=f"try again in {after:.1f} s, commit more at a time, or wait longer by limit_wait_ms",
            )


def _exceeded(limit: str, number: int, what: str, hint: str) -> TenantLimitError:
    return TenantLimitError(
        f"the catalog may have at most {number:,} {what}",
        limit=limit,
        hint=f"{hint}; the operator of the shared lake can raise the limit",
    )


class Patience:
    """The time for which a commit that is refused for now goes on waiting."""

    def __init__(self, seconds: float) -> None:
        self._end = time.monotonic() + seconds

    def wait(self, error: TenantBusyError) -> None:
        """Sleep until there may be room; raise the error when that would be too long."""
        pause = error.after + random.uniform(0, _JITTER)
        if time.monotonic() + pause > self._end:
            raise error
        time.sleep(pause)
