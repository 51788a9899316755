"""Maintenance of a lake by Spark, for tables that one process would take too long for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from quacklake.lake.lake import Lake
from quacklake.maintenance.lake_maintenance import Maintainer
from quacklake.maintenance.policy import Policy
from quacklake.maintenance.reports import CompactionReport, Progress, silent
from quacklake.maintenance.scheduler import MaintenanceReport
from quacklake.scan import Filter

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from quacklake.spark.changes.changes import SparkParts
    from quacklake.spark.compaction import SparkTable

__all__ = ["SparkMaintaining", "compacted_by"]


def compacted_by(lake: Lake, session: SparkSession | None) -> tuple[Callable[[str], SparkTable], SparkSession]:
    """The tables of a lake as a session compacts them, and the session: without one the active one, or a new one.

    What the session means by ``format("quacklake")`` stays as it is.
    """
    from quacklake.spark.changes.changes import SparkParts
    from quacklake.spark.compaction import SparkTable
    from quacklake.spark.runtime.compat import require

    parts = SparkParts.of(lake._shared, session)
    require(parts.writer.session, "to compact")
    return (lambda name: SparkTable.of(lake.table(name), parts)), parts.writer.session


class SparkMaintaining:
    """The operations of ``Table`` and ``Lake`` that put files in order, with Spark as what reads and writes them.

    Plans, commits, conflicts and reports are the same. A job of Spark handles one group of files.
    """

    _lake: Lake
    _parts: SparkParts

    def _compacted(self, name: str) -> SparkTable:
        from quacklake.spark.compaction import SparkTable
        from quacklake.spark.runtime.compat import require

        require(self._parts.writer.session, "to compact")
        return SparkTable.of(self._lake.table(name), self._parts)

    def flush_inlined_data(self, name: str, *, progress: Progress = silent) -> CompactionReport:
        """Move the rows and deletes of a table that are in the catalog into files, as ``Table.flush_inlined_data``."""
        return self._compacted(name).flush_inlined_data(progress=progress)

    def merge_adjacent_files(
        self,
        name: str,
        max_compacted_files: int | None = None,
        min_file_size: int | None = None,
        max_file_size: int | None = None,
        *,
        where: Filter | None = None,
        progress: Progress = silent,
    ) -> CompactionReport:
        """Make few large files of many small ones, as ``Table.merge_adjacent_files``."""
        table = self._compacted(name)
        sizes = (max_compacted_files, min_file_size, max_file_size)
        return table.merge_adjacent_files(*sizes, where=where, progress=progress)

    def rewrite_data_files(
        self,
        name: str,
        delete_threshold: float | None = None,
        *,
        small_file_size: int | None = None,
        where: Filter | None = None,
        progress: Progress = silent,
    ) -> CompactionReport:
        """Write files with many deleted rows anew, as ``Table.rewrite_data_files``."""
        table = self._compacted(name)
        return table.rewrite_data_files(
            delete_threshold, small_file_size=small_file_size, where=where, progress=progress
        )

    def optimize(
        self,
        name: str,
        order_by: str | Sequence[str] | None = None,
        zorder: str | Sequence[str] | None = None,
        *,
        where: Filter | None = None,
        progress: Progress = silent,
    ) -> CompactionReport:
        """Write all files of a table anew, in an order or along a z-order curve, as ``Table.optimize``."""
        return self._compacted(name).optimize(order_by, zorder, where=where, progress=progress)

    def maintain(self, policy: Policy | None = None, *, progress: Progress = silent) -> MaintenanceReport:
        """Do what is due by a policy, as ``Lake.maintain``; Spark compacts."""
        return Maintainer(self._lake, policy, self._compacted).run_once(progress)
