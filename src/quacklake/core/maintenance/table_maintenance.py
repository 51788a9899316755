"""Compaction of one table."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

from quacklake.core.engines.duckdb.compaction import CompactionFiles, z_order
from quacklake.core.format.layout import SortKey, SortSpec
from quacklake.core.format.objects import TableInfo
from quacklake.core.format.schema import Column
from quacklake.core.format.snapshots import Snapshot
from quacklake.core.maintenance.compaction import Compactor
from quacklake.core.maintenance.planning import (
    Group,
    SourceFile,
    TableFiles,
    merge_groups,
    optimize_groups,
    read_files,
    rewrite_groups,
)
from quacklake.core.maintenance.reports import CompactionReport
from quacklake.core.operations import evolution, handles
from quacklake.core.operations.context import LakeContext
from quacklake.core.operations.handles import Handle
from quacklake.core.operations.reference import TableRef
from quacklake.core.progress import Progress, silent
from quacklake.core.scan import Filter, to_predicate
from quacklake.core.transaction import Transaction
from quacklake.errors import InputError

_MAX_CURVE = 8  # the most columns of a z-order curve; with more, each has too few bits to separate its values


class TableMaintenance:
    """The compaction methods of a table. They keep rows, row ids, history and change feed unchanged."""

    def __init__(self, handle: Handle, ref: TableRef) -> None:
        self.handle = handle
        self._ref = ref

    def _find(self, view: Transaction) -> TableInfo:
        return view.find_table(self._ref.schema, self._ref.name)

    @property
    def _context(self) -> LakeContext:
        return self.handle.context

    def flush_inlined_data(self, *, progress: Progress = silent) -> CompactionReport:
        """Move inlined rows and deletes from the catalog into files."""
        compactor, table, base = self._compactor(progress)
        return compactor.flush(table, base)

    def merge_adjacent_files(
        self,
        max_compacted_files: int | None = None,
        min_file_size: int | None = None,
        max_file_size: int | None = None,
        *,
        where: Filter | None = None,
        progress: Progress = silent,
    ) -> CompactionReport:
        """Merge many small files into few large ones; the small files leave the lake, and the history stays.

        Files with deletes, and files as large as ``target_file_size``, stay as they are. The call writes at most
        ``max_compacted_files`` files, from files of ``min_file_size`` to below ``max_file_size`` bytes. ``where``
        limits it to files that may have matching rows by their partition and statistics.
        """
        check_sizes(max_compacted_files, min_file_size, max_file_size)
        compactor, table, base = self._compactor(progress)
        chosen = self._choice(table, where)
        sizes = {"min_size": min_file_size, "max_size": max_file_size, "max_groups": max_compacted_files}
        target, most = compactor.target_size, compactor.max_files
        return compactor.merge(table, base, lambda files: merge_groups(chosen(files), target, max_files=most, **sizes))

    def files_saved_by_merging(self, max_file_size: int | None = None) -> int:
        """Return how many files ``merge_adjacent_files`` would remove; it merges only within a partition."""
        view = self.handle.view()
        table = self._find(view)
        target, most = int(self._context.option("target_file_size", table)), self._context.config.compaction_max_files
        files = read_files(self._context.catalog, self._context.store, view.base, table).files.values()
        groups = merge_groups(files, target, max_files=most, max_size=max_file_size)
        return sum(len(group.files) - 1 for group in groups)

    def rewrite_data_files(
        self,
        delete_threshold: float | None = None,
        *,
        small_file_size: int | None = None,
        where: Filter | None = None,
        progress: Progress = silent,
    ) -> CompactionReport:
        """Rewrite files without their deleted rows if at least a share of ``delete_threshold`` is deleted.

        The default is the option ``rewrite_delete_threshold``. Files smaller than ``small_file_size`` bytes are
        rewritten, and merged, for any deleted row. Older snapshots keep the old files. ``where`` works as in
        ``merge_adjacent_files``.
        """
        check_threshold(delete_threshold)
        _check_count("small_file_size", small_file_size, 1)
        compactor, table, base = self._compactor(progress)
        option = self._context.option("rewrite_delete_threshold", table)
        threshold = float(option if delete_threshold is None else delete_threshold)
        chosen, small = self._choice(table, where), small_file_size or 0

        def groups(files: TableFiles) -> list[Group]:
            most = compactor.max_files
            return rewrite_groups(chosen(files), threshold, compactor.target_size, max_files=most, small=small)

        return compactor.rewrite("rewrite_data_files", table, base, groups)

    def optimize(
        self,
        order_by: str | Sequence[str] | None = None,
        zorder: str | Sequence[str] | None = None,
        *,
        where: Filter | None = None,
        progress: Progress = silent,
    ) -> CompactionReport:
        """Rewrite all files, partition by partition, into files of ``target_file_size``.

        ``order_by`` takes the keys of ``set_sorted_by`` for this run only; the default is the table's own order.
        ``zorder`` names columns to cluster together, for filters on any of them. Older snapshots keep the old files.
        ``where`` selects files as in ``merge_adjacent_files``.
        """
        if order_by is not None and zorder is not None:
            raise InputError("pass order_by= or zorder=, not both")
        compactor, table, base = self._compactor(progress)
        sort = table.sort
        if order_by is not None:
            sort = evolution.sort_spec(self._context, -1, table.schema, evolution.texts(order_by))
        elif zorder is not None:
            sort = self._along(compactor, _curve(table, evolution.texts(zorder)))
        chosen = self._choice(table, where)

        def groups(files: TableFiles) -> list[Group]:
            partition = files.table.partition
            return optimize_groups(chosen(files), partition.id if partition and partition.keys else None)

        return compactor.rewrite("optimize", table, base, groups, replace(table, sort=sort))

    def _choice(self, table: TableInfo, where: Filter | None) -> Callable[[TableFiles], list[SourceFile]]:
        """Return a function that selects files that may match a filter. Raise ``PredicateError``."""
        if where is None:
            return lambda files: list(files.files.values())
        plan = self.handle.view().plan(table, to_predicate(where, table.schema))
        nothing = replace(plan, files=plan.files.slice(0, 0), deletes=plan.deletes.slice(0, 0))
        self._context.engine.scan(nothing, where=where).reader.read_all()  # DuckDB raises for an invalid filter
        ids = frozenset(plan.files.column("data_file_id").to_pylist())
        return lambda files: [file for file in files.files.values() if file.id in ids]

    def _files(self) -> CompactionFiles:
        context = self._context
        return CompactionFiles(context.engine, context.writer, context.write_options, context.writes_vectors)

    def _along(self, compactor: Compactor, columns: Sequence[Column]) -> SortSpec | None:
        return SortSpec(-1, (SortKey(z_order(columns)),))

    def _compactor(self, progress: Progress) -> tuple[Compactor, TableInfo, Snapshot]:
        view = self.handle.view()
        table = self._find(view)
        self.handle.once(view.base, Transaction.check_writable)  # raises in a past snapshot and in a transaction
        return Compactor(self.handle, table, self._files(), progress), table, view.base

    def flush_within(self, tx: Transaction, table: TableInfo) -> CompactionReport | None:
        """Flush as part of an open transaction; return None if the flush must wait for the commit.

        The transaction's own small inserts always become files at once. Committed rows can move only if the transaction
        has not changed the table, and stay moved only until it does: see ``Transaction.unflush``.
        """
        name = table.qualified_name
        pending = next((found for found in tx.pendings() if found.table.id == table.id), None)
        if pending is not None:
            rows = sum(insert.rows.num_rows for insert in pending.inserts)
            handles.spill(self._context, tx, pending)
            moved = tx.base.id if rows else None
            return CompactionReport("flush_inlined_data", name, moved, rows=rows) if table.id < 0 else None
        if table.id < 0 or tx.has_flushed(table):
            return CompactionReport("flush_inlined_data", name)
        macros = table.sort is not None and tx.objects.changes().created_macros  # which the sort order may use
        if macros or tx.plan(table).deleted_counts:
            return None
        return Compactor(self.handle, table, self._files()).flush_within(tx, table)


def _curve(table: TableInfo, names: Sequence[str]) -> list[Column]:
    columns = [table.schema.find(name) for name in names]
    if not 1 <= len(columns) <= _MAX_CURVE:
        raise InputError(f"a z-order curve goes through 1 to {_MAX_CURVE} columns, not {len(columns)}")
    if len({column.id for column in columns}) != len(columns):
        raise InputError("a column of the z-order curve is named twice")
    wrong = next((column.name for column in columns if column.nested or column.type in ("variant", "geometry")), None)
    if wrong is not None:
        raise InputError(f'the column "{wrong}" has no order that a curve could follow')
    return columns


def check_sizes(max_compacted_files: int | None, min_file_size: int | None, max_file_size: int | None) -> None:
    _check_count("max_compacted_files", max_compacted_files, 1)
    _check_count("min_file_size", min_file_size, 0)
    _check_count("max_file_size", max_file_size, 1)
    if min_file_size is not None and max_file_size is not None and min_file_size >= max_file_size:
        raise InputError("min_file_size must be less than max_file_size")


def _check_count(name: str, value: object, least: int) -> None:
    if value is None:
        return
    if isinstance(value, bool) or not isinstance(value, int):
        raise InputError(f"The {name} option must be a whole number, not {value!r}")
    if value < 0:
        raise InputError(f"Type INT32 with value {value} can't be cast: the {name} option must not be negative")
    if value < least:
        raise InputError(f"The {name} option must be greater than zero.")


def check_threshold(value: object) -> None:
    if value is None:
        return
    if isinstance(value, bool) or not isinstance(value, int | float) or math.isnan(value) or not 0 <= value <= 1:
        raise InputError(f"The delete_threshold option must be between 0 and 1, not {value!r}")
