"""Finish a transaction: write the files that its change set needs before the commit."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.compute as pc

from quacklake.catalog import DatedDeletes
from quacklake.format.names import quote
from quacklake.format.objects import NAME_ROW_ID, TableInfo
from quacklake.operations.context import LakeContext
from quacklake.operations.inserting import write_rows
from quacklake.transaction import NewDeleteFile, PastDeleteFile, PendingTable, TouchedFile, Transaction


def seal(context: LakeContext, tx: Transaction) -> None:
    """Write many small inserts of one table to a file before the commit.

    Inserts into a table that gained a column which cannot be inlined are also written. With the option ``update_mode``
    set to ``copy_on_write``, files that have lost rows are rewritten.
    """
    for pending in tx.pendings():
        rewrite(context, tx, pending)
        limit = context.inline_limit(pending.table)
        if sum(insert.rows.num_rows for insert in pending.inserts) > limit:
            spill(context, tx, pending, updated=not limit)


def rewrite(context: LakeContext, tx: Transaction, pending: PendingTable) -> None:
    """Rewrite the remaining rows of changed files with their row ids, if the table's options require it."""
    deleted = {id_: len(gone) for id_, gone in pending.deleted_positions().items() if id_ >= 0}
    if not deleted or context.option("update_mode", pending.table) != "copy_on_write":
        return
    table = pending.table
    plan = tx.plan(table)
    partly = {id_ for id_, count in deleted.items() if pending.touched[id_].live != count}
    chosen = pc.is_in(plan.files.column("data_file_id"), value_set=pa.array(sorted(partly), pa.int64()))
    changed = replace(plan, files=plan.files.filter(chosen), inlined=None)
    if not changed.files.num_rows:
        return
    names = ", ".join(quote(column.name) for column in table.schema.columns)
    with context.engine.connection() as connection:
        rows = context.engine.bind(connection, changed, rows=True)
        query = f"SELECT {names}, _ql_row_id AS {quote(NAME_ROW_ID)} FROM ({rows})"
        write_rows(context, tx, connection, query, table, row_ids=True)
    pending.end_files(plan, changed.files.column("data_file_id").to_pylist())


def spill(context: LakeContext, tx: Transaction, pending: PendingTable, *, updated: bool = True) -> None:
    """Write the small inserts of a table to files, and ``updated`` rows too, which keep their ids."""
    table = pending.table
    new = [insert for insert in pending.inserts if insert.rows.num_rows]
    chosen = [insert for insert in new if updated or all(row_id is None for row_id in insert.row_ids)]
    if not chosen:
        return
    rows = pa.concat_tables([insert.rows for insert in chosen], promote_options="permissive")
    rows = rows.rename_columns(list(table.schema.names))
    row_ids = pa.array([row_id for insert in chosen for row_id in insert.row_ids], pa.int64())
    pending.keep_inserts([insert for insert in new if insert not in chosen])
    select = ", ".join(f"CAST({quote(c.name)} AS {c.duckdb_type()}) AS {quote(c.name)}" for c in table.schema.columns)
    for kept in (True, False):
        part = rows.filter(pc.is_valid(row_ids) if kept else pc.is_null(row_ids))
        if part.num_rows:
            _write_sealed(context, tx, table, select, part, row_ids.drop_null() if kept else None)


def _write_sealed(
    context: LakeContext, tx: Transaction, table: TableInfo, select: str, rows: pa.Table, row_ids: pa.Array | None
) -> None:
    if row_ids is not None:
        rows = rows.append_column(NAME_ROW_ID, row_ids)
        select += f", {quote(NAME_ROW_ID)}"
    with context.engine.connection() as connection:
        connection.register("ql_source", rows)
        query = f"SELECT {select} FROM ql_source"
        write_rows(context, tx, connection, query, table, row_ids=row_ids is not None, size=rows.nbytes)


@dataclass(frozen=True, slots=True)
class DeleteFiles:
    """Writes the delete files of a transaction's change set."""

    context: LakeContext

    def write(
        self,
        tx: Transaction,
        table: TableInfo,
        file_id: int,
        file: TouchedFile,
        positions: pa.Array,
        begin_snapshot: int | None,
    ) -> NewDeleteFile:
        """Write all deletes of a data file, including the given positions."""
        writer = self.context.writer
        vectors = self.context.writes_vectors(table)
        return writer.write_deletes(
            table, file_id, file, positions, tx.wrote, tx.base.id, begin_snapshot, vectors=vectors
        )

    def write_past(
        self, tx: Transaction, table: TableInfo, file_id: int, file: TouchedFile, dated: DatedDeletes
    ) -> PastDeleteFile:
        """Write the deletes that a data file had before it ended."""
        vectors = self.context.writes_vectors(table)
        return self.context.writer.write_past_deletes(
            table, file_id, file, tx.wrote, tx.base.id, dated, vectors=vectors
        )

    def redate(self, tx: Transaction, table: TableInfo, file: NewDeleteFile, snapshot: int) -> NewDeleteFile:
        """Write a delete file again with another snapshot for its new deletes."""
        return self.context.writer.redate_deletes(table, file, tx.wrote, snapshot)
