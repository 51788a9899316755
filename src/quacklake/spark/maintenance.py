"""Maintain a lake with Spark, for tables that are too large for one process: Spark writes the files of compactions.

Rows and deletes in the catalog still go through this process. Spark is imported when it is used.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Concatenate, ParamSpec

import pyarrow.compute as pc

from quacklake.core.engines.duckdb.compaction import CompactionFiles
from quacklake.core.format.objects import FIELD_ROW_ID, FIELD_SNAPSHOT_ID
from quacklake.core.maintenance.compaction import Compactor
from quacklake.core.maintenance.lake_maintenance import LakeMaintenance
from quacklake.core.maintenance.policy import Policy
from quacklake.core.maintenance.reports import CompactionReport
from quacklake.core.maintenance.scheduler import MaintenanceReport
from quacklake.core.maintenance.table_maintenance import TableMaintenance
from quacklake.core.operations.handles import Handle, LakeHandle
from quacklake.core.transaction import NewDataFile
from quacklake.errors import UnsupportedFeatureError
from quacklake.extend.names import TableRef
from quacklake.extend.plans import ScanPlan
from quacklake.extend.reporting import Progress, silent
from quacklake.extend.schemas import Column, TableInfo
from quacklake.extend.stores import Store
from quacklake.extend.writes import Transaction
from quacklake.spark.runtime.settings import require_pyspark
from quacklake.spark.runtime.types import quote

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from quacklake.spark.engine import SparkEngine
    from quacklake.spark.write.rows import SparkRows


P = ParamSpec("P")


class SparkCompactors:
    """Creates the maintenance of lakes with Spark. All share one session, found or created for the first lake."""

    def __init__(self, session: SparkSession | None = None) -> None:
        require_pyspark()
        self._session = session
        self._lock = threading.Lock()
        self._keys: dict[str, object] = {}

    def __call__(self, handle: LakeHandle) -> LakeMaintenance:
        """Return the maintenance of a lake. Raise ``UnsupportedFeatureError`` for other keys of a bucket."""
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
                f"a Spark session has one pair of keys for the bucket {bucket}, and catalogs there have their own",
                hint='maintain them with engine="duckdb"',
            )


def spark_maintenance(engine: SparkEngine) -> LakeMaintenance:
    from quacklake.spark.runtime.session import require

    require(engine.session, "to compact")
    return LakeMaintenance(engine.handle, lambda handle, ref: _SparkTableMaintenance(handle, ref, engine))


def _of_table(
    method: Callable[Concatenate[TableMaintenance, P], CompactionReport],
) -> Callable[Concatenate[SparkMaintaining, str, P], CompactionReport]:
    """Return a method of a table as one that takes the name of the table first."""

    def call(self: SparkMaintaining, name: str, *args: P.args, **options: P.kwargs) -> CompactionReport:
        return method(self.maintenance.table(name), *args, **options)

    call.__name__, call.__doc__ = method.__name__, method.__doc__
    return call  # type: ignore[return-value]  # the name may be given by keyword too


class SparkMaintaining:
    """The maintenance operations of ``Table`` and ``Lake``; one Spark job reads and writes one group of files."""

    handle: LakeHandle
    _engine: SparkEngine

    @property
    def maintenance(self) -> LakeMaintenance:
        """The maintenance of the whole lake, with compactions by Spark."""
        return spark_maintenance(self._engine)

    flush_inlined_data = _of_table(TableMaintenance.flush_inlined_data)
    merge_adjacent_files = _of_table(TableMaintenance.merge_adjacent_files)
    rewrite_data_files = _of_table(TableMaintenance.rewrite_data_files)
    optimize = _of_table(TableMaintenance.optimize)

    def maintain(self, policy: Policy | None = None, *, progress: Progress = silent) -> MaintenanceReport:
        """Run the maintenance that is due under a policy, like ``Lake.maintain``, with compactions by Spark."""
        return self.maintenance.maintain(policy, progress=progress)


class _SparkTableMaintenance(TableMaintenance):
    def __init__(self, handle: Handle, ref: TableRef, engine: SparkEngine) -> None:
        super().__init__(handle, ref)
        self._engine = engine

    def _files(self) -> SparkFiles:
        context = self._context
        makers = (context.engine, context.writer, context.write_options, context.writes_vectors)
        return SparkFiles(*makers, self._engine)

    def _along(self, compactor: Compactor, columns: Sequence[Column]) -> None:
        assert isinstance(compactor.files, SparkFiles)
        compactor.files = replace(compactor.files, curve=tuple(columns))


@dataclass(frozen=True)
class SparkFiles(CompactionFiles):
    """Writes the files of compactions with Spark, sorted or along ``curve``; DuckDB writes rows of the catalog."""

    spark: SparkEngine
    curve: tuple[Column, ...] = ()

    def merge(self, tx: Transaction, table: TableInfo, plan: ScanPlan, folder: str) -> list[NewDataFile]:
        """Write the rows of a plan as one file that keeps their history."""
        table = replace(table, partition=None)
        return self._spark_rows(plan, table, 1, folder, history=True).files(tx, table)

    def rewrite(self, tx: Transaction, table: TableInfo, plan: ScanPlan) -> list[NewDataFile]:
        """Write the live rows of a plan as files of the table, with its partitioning and sort order."""
        from quacklake.spark.write.writer import z_order

        size = pc.sum(plan.files.column("file_size_bytes")).as_py() or 0
        target = self.options(table).target_file_size
        rows = self._spark_rows(plan, table, max(1, round(size / max(target, 1))))
        if self.curve:
            count = pc.sum(plan.files.column("record_count")).as_py() or 0
            rows.order = [z_order(rows.frame, self.curve, count)]
        return [replace(file, moved=True) for file in rows.files(tx, table)]

    def _spark_rows(
        self, plan: ScanPlan, table: TableInfo, tasks: int, folder: str = "", *, history: bool = False
    ) -> SparkRows:
        """Return the rows of a plan with their row ids, and with ``history`` the snapshots that added them."""
        from quacklake.spark.read.scan import ROW_ID, SNAPSHOT
        from quacklake.spark.write.rows import SparkRows, spark_order

        kept = {FIELD_ROW_ID: ROW_ID, FIELD_SNAPSHOT_ID: SNAPSHOT} if history else {FIELD_ROW_ID: ROW_ID}
        engine = self.spark
        frame = engine.scan.frame(plan, rows=True).select(*map(quote, plan.schema.names), *kept.values())
        order = spark_order(table)
        return SparkRows(engine.context, engine.writer, frame, kept=kept, folder=folder, tasks=tasks, order=order)


def build_compactors(session: SparkSession | None) -> SparkCompactors:
    """Return what makes the maintenance of a lake that compacts with Spark, all in one session."""
    return SparkCompactors(session)
