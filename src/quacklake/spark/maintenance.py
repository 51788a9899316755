"""Maintain a lake with Spark, for tables that are too large for one process: Spark writes the files of compactions.

Rows and deletes in the catalog still go through this process. Spark is imported when it is used.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from quacklake.catalog import DatedDeletes
from quacklake.errors import UnsupportedFeatureError
from quacklake.format.layout import SortSpec
from quacklake.format.objects import FIELD_ROW_ID, FIELD_SNAPSHOT_ID, TableInfo
from quacklake.format.schema import Column
from quacklake.maintenance.compaction import Compactor, Files
from quacklake.maintenance.lake_maintenance import LakeMaintenance
from quacklake.maintenance.policy import Policy
from quacklake.maintenance.reports import CompactionReport
from quacklake.maintenance.scheduler import MaintenanceReport
from quacklake.maintenance.table_maintenance import TableMaintenance
from quacklake.operations.handles import Handle, LakeHandle
from quacklake.operations.reference import TableRef
from quacklake.progress import Progress, silent
from quacklake.scan import Filter, ScanPlan
from quacklake.spark.runtime.settings import require_pyspark
from quacklake.spark.runtime.types import quote
from quacklake.storage import S3Options, Store
from quacklake.transaction import NewDataFile, PastDeleteFile, TouchedFile, Transaction

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from quacklake.spark.engine import SparkEngine
    from quacklake.spark.write.rows import SparkRows


class SparkCompactors:
    """Creates the maintenance of lakes with Spark. All share one session, found or created for the first lake."""

    def __init__(self, session: SparkSession | None = None) -> None:
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
            self._session = engine.session
            add_keys(self._session, store)
        return spark_maintenance(engine)

    def _note_keys(self, store: Store) -> None:
        options, bucket = store.s3, store.root.partition("://")[2].partition("/")[0]
        if options is not None and options.scoped and self._keys.setdefault(bucket, options) != options:
            raise UnsupportedFeatureError(
                f"a session of Spark has one pair of keys for the bucket {bucket}, and catalogs there have their own",
                hint='maintain them with engine="duckdb"',
            )


def spark_maintenance(engine: SparkEngine) -> LakeMaintenance:
    """Return the maintenance of a lake whose files Spark writes."""
    from quacklake.spark.runtime.session import require

    require(engine.session, "to compact")
    return LakeMaintenance(engine.handle, lambda handle, ref: _SparkTableMaintenance(handle, ref, engine))


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

    def flush_inlined_data(self, name: str, *, progress: Progress = silent) -> CompactionReport:
        """Move the rows and deletes of a table from the catalog into files, like ``Table.flush_inlined_data``."""
        return self.maintenance.table(name).flush_inlined_data(progress=progress)

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
        sizes = (max_compacted_files, min_file_size, max_file_size)
        return self.maintenance.table(name).merge_adjacent_files(*sizes, where=where, progress=progress)

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
        return self.maintenance.table(name).rewrite_data_files(
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
        return self.maintenance.table(name).optimize(order_by, zorder, where=where, progress=progress)

    def maintain(self, policy: Policy | None = None, *, progress: Progress = silent) -> MaintenanceReport:
        """Run the maintenance that is due under a policy, like ``Lake.maintain``, with compactions by Spark."""
        return self.maintenance.maintain(policy, progress=progress)


# -- compaction --------------------------------------------------------------------------------------------------------


class _SparkTableMaintenance(TableMaintenance):
    """The maintenance of a table whose files Spark writes."""

    def __init__(self, handle: Handle, ref: TableRef, engine: SparkEngine) -> None:
        super().__init__(handle, ref)
        self._engine = engine

    def _files(self) -> Files:
        return SparkFiles(self._engine, super()._files())

    def _along(self, compactor: Compactor, columns: Sequence[Column]) -> SortSpec | None:
        assert isinstance(compactor.files, SparkFiles)
        compactor.files = replace(compactor.files, curve=tuple(columns))
        return None


@dataclass(frozen=True, slots=True)
class SparkFiles:
    """Writes the files of compactions with Spark. ``local`` writes rows and deletes that are in the catalog.

    Rewritten rows follow the z-order curve ``curve`` if it is set, otherwise the table's sort order.
    """

    engine: SparkEngine
    local: Files
    curve: tuple[Column, ...] = ()

    def merge(
        self,
        tx: Transaction,
        table: TableInfo,
        plan: ScanPlan,
        folder: str,
        partition_id: int | None,
        partition_values: Mapping[int, str | None],
    ) -> list[NewDataFile]:
        """Write the rows of a plan as one file that keeps their history."""
        table = replace(table, partition=None)
        rows = self._rows(plan, table, 1, folder, history=True)
        return [
            replace(file, partition_id=partition_id, partition_values=partition_values)
            for file in rows.files(tx, table)
        ]

    def rewrite(self, tx: Transaction, table: TableInfo, plan: ScanPlan) -> list[NewDataFile]:
        """Write the live rows of a plan as files of the table, with its partitioning and sort order."""
        from quacklake.spark.write.writer import z_order

        size = pc.sum(plan.files.column("file_size_bytes")).as_py() or 0
        target = self.engine.context.write_options(table).target_file_size
        rows = self._rows(plan, table, max(1, round(size / max(target, 1))))
        if self.curve:
            count = pc.sum(plan.files.column("record_count")).as_py() or 0
            rows.order = [z_order(rows.frame, self.curve, count)]
        return [replace(file, moved=True) for file in rows.files(tx, table)]

    def flush(
        self, tx: Transaction, table: TableInfo, rows: pa.Table
    ) -> tuple[list[NewDataFile], list[PastDeleteFile]]:
        """Write inlined rows as files, with delete files for the deleted ones."""
        return self.local.flush(tx, table, rows)

    def dated_deletes(
        self, tx: Transaction, table: TableInfo, file_id: int, file: TouchedFile, dated: DatedDeletes
    ) -> PastDeleteFile:
        """Write all deletes of a data file up to now, with their snapshots."""
        return self.local.dated_deletes(tx, table, file_id, file, dated)

    def _rows(
        self, plan: ScanPlan, table: TableInfo, tasks: int, folder: str = "", *, history: bool = False
    ) -> SparkRows:
        """Return the rows of a plan with their row ids, and with ``history`` the snapshots that added them."""
        from quacklake.spark.read.scan import ROW_ID, SNAPSHOT
        from quacklake.spark.write.rows import SparkRows, spark_order

        kept = {FIELD_ROW_ID: ROW_ID, FIELD_SNAPSHOT_ID: SNAPSHOT} if history else {FIELD_ROW_ID: ROW_ID}
        engine = self.engine
        frame = engine.scan.frame(plan, rows=True).select(*map(quote, plan.schema.names), *kept.values())
        order = spark_order(table)
        return SparkRows(engine.context, engine.writer, frame, kept=kept, folder=folder, tasks=tasks, order=order)
