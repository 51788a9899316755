"""Maintain a lake with Spark, for tables that are too large for one process."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING

from quacklake.errors import UnsupportedFeatureError
from quacklake.maintenance.lake_maintenance import LakeMaintenance
from quacklake.maintenance.policy import Policy
from quacklake.maintenance.reports import CompactionReport
from quacklake.maintenance.scheduler import MaintenanceReport
from quacklake.maintenance.table_maintenance import TableMaintenance
from quacklake.operations.handles import LakeHandle
from quacklake.progress import Progress, silent
from quacklake.scan import Filter
from quacklake.storage import S3Options, Store

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from quacklake.spark.engine import SparkEngine


class SparkCompactors:
    """Creates the maintenance of lakes with Spark. All share one session, found or created for the first lake."""

    def __init__(self, session: SparkSession | None = None) -> None:
        from quacklake.spark.datasource.registration import require_pyspark

        require_pyspark()
        self._session = session
        self._lock = threading.Lock()
        self._keys: dict[str, S3Options] = {}

    def __call__(self, handle: LakeHandle) -> LakeMaintenance:
        """Return the maintenance of a lake. The lake that ``format("quacklake")`` refers to does not change.

        Raises ``UnsupportedFeatureError`` when two catalogs have different keys for one bucket.
        """
        from quacklake.spark.engine import SparkEngine
        from quacklake.spark.runtime.session import add_keys

        store = handle.context.store
        with self._lock:
            self._note_keys(store)
            engine = SparkEngine.of(handle, self._session)
            self._session = engine.writer.session
            add_keys(self._session, store)
        return spark_maintenance(engine)

    def _note_keys(self, store: Store) -> None:
        options, bucket = store.s3, store.root.partition("://")[2].partition("/")[0]
        if options is None or not options.scoped:
            return
        if self._keys.setdefault(bucket, options) != options:
            raise UnsupportedFeatureError(
                f"a session of Spark has one pair of keys for the bucket {bucket}, and catalogs there have their own",
                hint='maintain them with engine="duckdb"',
            )


def spark_maintenance(engine: SparkEngine) -> LakeMaintenance:
    """Return the maintenance of a lake whose files Spark writes."""
    from quacklake.spark.compaction import SparkTableMaintenance
    from quacklake.spark.runtime.compat import require

    require(engine.writer.session, "to compact")
    return LakeMaintenance(engine.handle, lambda handle, ref: SparkTableMaintenance(handle, ref, engine))


class SparkMaintaining:
    """The maintenance operations of ``Table`` and ``Lake``, with Spark reading and writing the files.

    Plans, commits, conflicts and reports are the same. One Spark job handles one group of files.
    """

    handle: LakeHandle
    _engine: SparkEngine

    @property
    def maintenance(self) -> LakeMaintenance:
        """The maintenance of the whole lake, with compactions by Spark."""
        return spark_maintenance(self._engine)

    def _compacted(self, name: str) -> TableMaintenance:
        return self.maintenance.table(name)

    def flush_inlined_data(self, name: str, *, progress: Progress = silent) -> CompactionReport:
        """Move the rows and deletes of a table from the catalog into files, like ``Table.flush_inlined_data``."""
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
        """Merge many small files into a few large ones, like ``Table.merge_adjacent_files``."""
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
        """Rewrite files with many deleted rows, like ``Table.rewrite_data_files``."""
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
        """Rewrite all files of a table, sorted or along a z-order curve, like ``Table.optimize``."""
        return self._compacted(name).optimize(order_by, zorder, where=where, progress=progress)

    def maintain(self, policy: Policy | None = None, *, progress: Progress = silent) -> MaintenanceReport:
        """Run the maintenance that is due under a policy, like ``Lake.maintain``, with compactions by Spark."""
        return self.maintenance.maintain(policy, progress=progress)
