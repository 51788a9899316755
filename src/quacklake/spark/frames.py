"""DataFrames of Spark as what ``Table`` takes for rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from quacklake.errors import InputError
from quacklake.format.operations import Operation
from quacklake.operations import dml
from quacklake.operations.expression import Expression
from quacklake.operations.handles import Handle, LakeHandle
from quacklake.operations.reference import TableRef
from quacklake.operations.statements import MergeResult
from quacklake.spark.changes.merge import SparkMerge
from quacklake.spark.changes.staged_changes import counted
from quacklake.spark.engine import SparkEngine
from quacklake.transaction import Transaction

if TYPE_CHECKING:
    from pyspark.sql import Column as SparkColumn
    from pyspark.sql import DataFrame

    from quacklake.spark.write.rows import SparkRows


def append_frame(handle: Handle, ref: TableRef, frame: DataFrame) -> int:
    """Add the rows of a DataFrame to a table, in one snapshot; return how many. Executors write the files."""
    return _written(handle, ref, frame)


def overwrite_frame(handle: Handle, ref: TableRef, frame: DataFrame, where: str | None) -> int:
    """Replace the rows that satisfy a filter by those of a DataFrame, in one snapshot; return how many are new."""
    return _written(handle, ref, frame, where, replace=True)


def merge_frame(
    handle: Handle, ref: TableRef, frame: DataFrame, keys: Sequence[str], *, evolve: bool = False
) -> MergeResult:
    """Update the rows whose keys a DataFrame has and insert the others, in one snapshot."""
    merge = frame_merge(handle, ref, frame, list(keys))
    merge.when_matched_update_all().when_not_matched_insert_all()
    if evolve:
        merge.with_schema_evolution()
    done = merge.execute()
    return MergeResult(done.updated, done.inserted)


def frame_merge(
    handle: Handle, ref: TableRef, frame: DataFrame, on: str | Sequence[str] | Expression | SparkColumn
) -> SparkMerge:
    """Return a builder of a merge of a DataFrame, in one snapshot."""
    return SparkMerge(_engine(handle, frame), ref, frame, on)


def _engine(handle: Handle, frame: DataFrame) -> SparkEngine:
    if not isinstance(handle, LakeHandle):
        raise InputError(
            "a DataFrame of Spark is written in a snapshot of its own, not in an open transaction",
            hint="write it with lake.table(…), outside of the transaction",
        )
    return SparkEngine.of(handle, frame.sparkSession)


def _written(
    handle: Handle, ref: TableRef, frame: DataFrame, where: str | None = None, *, replace: bool = False
) -> int:
    engine, rows_written = _engine(handle, frame), [0]

    def work(tx: Transaction, rows: SparkRows) -> None:
        table = tx.find_table(ref.schema, ref.name)
        if replace:
            dml.delete(engine.context, tx, table, where, asked=Operation.OVERWRITE)
        rows_written[:] = [counted(tx, table, rows)]

    engine.write(frame, work)
    return rows_written[0]
