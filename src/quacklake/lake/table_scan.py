"""Lazy reads of a table at a snapshot, also as relations, datasets and lazy frames of other libraries."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, cast

import pyarrow as pa
import pyarrow.compute as pc

from quacklake.core.catalog.reading.health import column_statistics
from quacklake.core.engines.duckdb import RunningScan
from quacklake.core.engines.duckdb.engine import ROW_ID
from quacklake.core.format.objects import TableInfo
from quacklake.core.format.schema import TableSchema
from quacklake.core.operations.context import boundary
from quacklake.core.operations.handles import LakeHandle
from quacklake.core.operations.lazy_reads import Frame
from quacklake.core.scan import ScanPlan, to_predicate
from quacklake.core.scan.plan import encode_manifest, find_column
from quacklake.core.transaction import Transaction
from quacklake.errors import NotPermittedError

if TYPE_CHECKING:
    import duckdb
    import polars

    from quacklake.lake.arrow_dataset import TableDataset


@dataclass(frozen=True, repr=False)
@boundary
class TableScan(Frame):
    """A lazy read of one table: every ``to_…`` method reads the rows again. Also a stream of the Arrow C interface."""

    _row_ids: bool = False
    _files: tuple[int, ...] | None = None
    """The data files of a part; none for the part with the rows of the catalog."""

    def plan(self) -> ScanPlan:
        """Return the scan plan: the files, deletes and inlined rows of this read."""
        if self._handle.restricted:
            raise NotPermittedError("only administrators get the plans of scans: they name files")
        return self._make_plan()

    def _make_plan(self) -> ScanPlan:
        view = self._handle.view()
        plan = self._plan(view, view.find_table(self._ref.schema, self._ref.name))
        if self._files is None:
            return plan
        part = plan.of_files(self._files)
        return part if self._files else replace(part, inlined=plan.inlined)

    def _plan(self, view: Transaction, table: TableInfo) -> ScanPlan:
        predicate = to_predicate(self._where, table.schema)
        return view.plan(table, predicate, max_files=self._handle.context.config.plan_max_files)

    def manifest(self) -> bytes:
        """Return the scan plan as an Arrow IPC file, with partition values and statistics of each file."""
        if self._handle.restricted:
            raise NotPermittedError("only administrators get the plans of scans: they name files")
        view = self._handle.view()
        table = view.find_table(self._ref.schema, self._ref.name)
        plan = self._plan(view, table)
        with self._handle.context.catalog.read() as reader:
            values = reader.files.partition_values(table.id, plan.files.column("data_file_id").to_pylist())
            return encode_manifest(plan, values, column_statistics(reader, view.base, table.id))

    def scan(self, batch_rows: int | None = None) -> RunningScan:
        """Start a scan that can be cancelled."""
        context = self._handle.context
        if context.lineage is not None:
            view = self._handle.view()
            context.lineage.read(view, view.find_table(self._ref.schema, self._ref.name))
        with context.reading():
            return context.engine.scan(
                self._make_plan(),
                columns=self._columns,
                where=self._where,
                limit=self._limit,
                row_ids=self._row_ids,
                batch_rows=batch_rows or context.config.fetch_batch_rows,
            )

    def count(self) -> int:
        """Return the number of rows, from the metadata alone if possible."""
        plan = self._make_plan()
        if self._where is None or isinstance(self._where, str):
            known = plan.count() if self._where is None else None
            with self._handle.context.reading():
                total = self._handle.context.engine.count(plan, self._where) if known is None else known
        else:
            total = sum(batch.num_rows for batch in self.to_batches())
        return total if self._limit is None else min(total, self._limit)

    def to_duckdb(
        self, connection: duckdb.DuckDBPyConnection | None = None, *, push_filters: bool = True
    ) -> duckdb.DuckDBPyRelation:
        """Return the rows as a DuckDB relation; see ``Table.to_duckdb``."""
        from quacklake.lake.arrow_dataset import relation

        return relation(self, connection, push_filters=push_filters)

    def to_arrow_dataset(self) -> TableDataset:
        """Return the rows as an Arrow dataset; see ``Table.to_arrow_dataset``."""
        from quacklake.lake.arrow_dataset import TableDataset

        return TableDataset(self)

    def parts(self) -> list[TableScan]:
        """Return scans that have the rows of this one together, all at one snapshot: of one data file each, and of the
        rows in the catalog. There is one only for a scan with a limit, and for a principal.
        """
        handle = self._handle
        if handle.is_lake and not handle.restricted:
            handle = cast("LakeHandle", handle).at(version=handle.view().base.id)
        scan = replace(self, _handle=handle)
        if self._limit is not None or self._files is not None or handle.restricted:
            return [scan]
        plan = scan._make_plan()
        found = [replace(scan, _files=(number,)) for number in plan.files.column("data_file_id").to_pylist()]
        inlined = plan.inlined is not None and plan.inlined.num_rows > 0
        return [*found, replace(scan, _files=())] if inlined or not found else found

    def scan_polars(self) -> polars.LazyFrame:
        """Return the rows as a lazy frame of polars; see ``Table.scan_polars``."""
        from quacklake.lake.polars_frames import lazy_frame

        return lazy_frame(self.schema, self._part)

    def _part(
        self, columns: Sequence[str], condition: Callable[[TableSchema], str | None], rows: int | None = None
    ) -> TableScan:
        """Return a scan of some columns of ``schema``, for a caller who applies its own condition to the rows.

        ``condition`` gives SQL that is true for at least the rows which the caller keeps, or None. With ``rows``, there
        are at most so many before the caller's condition.
        """
        part = replace(self, _columns=tuple(columns), _row_ids=False)
        if rows is not None:
            return replace(part, _limit=rows if self._limit is None else min(rows, self._limit))
        if self._limit is not None or isinstance(self._where, pc.Expression):
            return part  # its limit comes first; text cannot be added to an expression
        text = condition(self.table_schema)
        return part if text is None else part.where(text)

    @property
    def table_schema(self) -> TableSchema:
        """The columns of the table, as the format has them."""
        return self._handle.view().find_table(self._ref.schema, self._ref.name).schema

    @property
    def schema(self) -> pa.Schema:
        """The Arrow schema of the rows."""
        known = self.table_schema
        if self._columns is None:
            schema = known.to_arrow()
        else:
            schema = pa.schema([find_column(known, name).arrow_field() for name in self._columns])
        return schema.append(ROW_ID) if self._row_ids else schema
