"""Write the files of compactions with Spark. Rows and deletes in the catalog still go through this process."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import functions as f

from quacklake.catalog import DatedDeletes
from quacklake.format.layout import SortSpec
from quacklake.format.objects import FIELD_ROW_ID, FIELD_SNAPSHOT_ID, TableInfo
from quacklake.format.schema import Column
from quacklake.maintenance.compaction import Compactor, Files
from quacklake.maintenance.table_maintenance import TableMaintenance
from quacklake.operations.handles import Handle
from quacklake.operations.reference import TableRef
from quacklake.scan import ScanPlan
from quacklake.spark.engine import SparkEngine
from quacklake.spark.read.scan import ROW_ID, SNAPSHOT
from quacklake.spark.runtime.types import quote
from quacklake.spark.write.curve import z_order
from quacklake.spark.write.rows import SparkRows, spark_order
from quacklake.transaction import NewDataFile, PastDeleteFile, TouchedFile, Transaction

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


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
        kept = {FIELD_ROW_ID: ROW_ID, FIELD_SNAPSHOT_ID: SNAPSHOT}
        table = replace(table, partition=None)
        rows = self._rows(self._frame(plan, kept), kept, table, 1, folder)
        return [
            replace(file, partition_id=partition_id, partition_values=partition_values)
            for file in rows.files(tx, table)
        ]

    def rewrite(self, tx: Transaction, table: TableInfo, plan: ScanPlan) -> list[NewDataFile]:
        """Write the live rows of a plan as files of the table, with its partitioning and sort order."""
        kept = {FIELD_ROW_ID: ROW_ID}
        size = pc.sum(plan.files.column("file_size_bytes")).as_py() or 0
        target = self.engine.context.write_options(table).target_file_size
        rows = self._rows(self._frame(plan, kept), kept, table, max(1, round(size / max(target, 1))))
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

    def _frame(self, plan: ScanPlan, kept: Mapping[int, str]) -> DataFrame:
        frame = self.engine.scan.frame(plan, rows=True)
        return frame.select(*(f.expr(quote(name)) for name in plan.schema.names), *kept.values())

    def _rows(
        self, frame: DataFrame, kept: Mapping[int, str], table: TableInfo, tasks: int, folder: str = ""
    ) -> SparkRows:
        context, writer = self.engine.context, self.engine.writer
        return SparkRows(context, writer, frame, kept=kept, folder=folder, tasks=tasks, order=spark_order(table))


class SparkTableMaintenance(TableMaintenance):
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
