"""Cache the scan plans of a session for statements that are repeated."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import duckdb

if TYPE_CHECKING:
    from quacklake.format.objects import TableInfo
    from quacklake.operations.context import LakeContext
    from quacklake.scan import ScanPlan
    from quacklake.sql.scans import Scan

_MOST_PLANS = 64
_MOST_ROWS = 10_000
"""The most files, deletes and inlined rows of a plan that is cached."""
_SECONDS = 10.0
"""Seconds after which a plan expires, because a lake may be repaired in place."""
_MOST_FOOTERS = 4_000


@dataclass(frozen=True, slots=True)
class _Known:
    plan: ScanPlan
    table: TableInfo
    context: LakeContext
    since: float


@dataclass
class Plans:
    """Scan plans by snapshot, table and predicate. A committed snapshot does not change.

    Plans of older snapshots are not cached: a compaction gives them other files, and their former files may be removed.
    """

    _known: OrderedDict[Hashable, _Known] = field(default_factory=OrderedDict)

    def plan(self, scan: Scan, *, clean: bool) -> ScanPlan:
        """Return the plan of a scan. ``clean`` says that its transaction has changed nothing."""
        context = scan.attached.context
        most = context.config.plan_max_files
        old = scan.past or scan.attached.whole is None
        if not clean or old or scan.table.id < 0 or scan.tx.pendings():
            return scan.tx.plan(scan.table, scan.predicate, max_files=most)
        key = (scan.attached.alias, scan.tx.base.id, scan.table.id, scan.predicate, most)
        known, now = self._known.get(key), time.monotonic()
        if (
            known is not None
            and known.context is context
            and known.table == scan.table
            and now - known.since < _SECONDS
        ):
            self._known.move_to_end(key)
            return known.plan
        plan = scan.tx.plan(scan.table, scan.predicate, max_files=most)
        if plan.files.num_rows + plan.deletes.num_rows + (plan.inlined.num_rows if plan.inlined else 0) <= _MOST_ROWS:
            self._known[key] = _Known(plan, scan.table, context, now)
            if len(self._known) > _MOST_PLANS:
                self._known.popitem(last=False)
        return plan


@dataclass
class Footers:
    """Lets DuckDB cache the footers of a limited number of files. They take more memory than DuckDB counts."""

    _kept: set[str] = field(default_factory=set)
    _on: bool = False

    def prepare(self, connection: duckdb.DuckDBPyConnection, scans: list[Scan]) -> None:
        """Switch the cache on or off before a statement reads the files of its scans."""
        plans = [scan.plan for scan in scans if scan.plan is not None]
        paths = [path for plan in plans for path in plan.files.column("path").to_pylist()]
        # DuckDB cannot open an encrypted file by a cached footer, and its database becomes invalid when it tries
        encrypted = any(plan.files.column("encryption_key").null_count < plan.files.num_rows for plan in plans)
        few = len(self._kept) + len(paths) <= _MOST_FOOTERS or self._kept.issuperset(paths)
        wanted = bool(paths) and few and not encrypted
        if wanted:
            self._kept.update(paths)
        if paths and wanted != self._on:
            connection.execute(f"SET SESSION parquet_metadata_cache = {'true' if wanted else 'false'}")
            self._on = wanted
