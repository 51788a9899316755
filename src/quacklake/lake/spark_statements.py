"""DELETE and UPDATE on Spark, inside a transaction."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pyspark.sql import functions as f

from quacklake.format.objects import TableInfo
from quacklake.lake import operations
from quacklake.lake.reference import TableRef
from quacklake.lake.spark_changing import Clause, Value, named_values, spark_sql, stage
from quacklake.lake.spark_dml import ChangeMetrics, Changes, SparkParts
from quacklake.scan import to_predicate
from quacklake.transaction import Transaction

__all__ = ["delete", "update"]


def delete(parts: SparkParts, tx: Transaction, ref: TableRef, where: str | None) -> ChangeMetrics:
    """Delete the rows that satisfy a filter; all of them without reading any."""
    table = tx.find_table(ref.schema, ref.name)
    if where is not None:
        return _change(parts, tx, table, [Clause(f.expr(spark_sql(where)))], where)
    plan = tx.plan(table)
    count = operations.delete(parts.shared, tx, table, None)
    counted = parts.scan.frame(plan).count() if count is None else count
    return ChangeMetrics(rows_deleted=counted, files_removed=plan.files.num_rows)


def update(
    parts: SparkParts, tx: Transaction, ref: TableRef, values: Mapping[str, Value], where: str | None
) -> ChangeMetrics:
    """Set columns of the rows that satisfy a filter, or of all."""
    table = tx.find_table(ref.schema, ref.name)
    when = f.lit(True) if where is None else f.expr(spark_sql(where))
    return _change(parts, tx, table, [Clause(when, named_values(table.schema, values))], where)


def _change(
    parts: SparkParts, tx: Transaction, table: TableInfo, clauses: Sequence[Clause], where: str | None
) -> ChangeMetrics:
    predicate = to_predicate(where, table.schema)
    plan = tx.plan(table, predicate)
    tx.pending(table).add_read(predicate)
    staging = parts.staging(table)
    try:
        rows = parts.scan.frame(plan, rows=True).alias("target")
        staged = stage(staging, rows, table, clauses)
        return Changes(parts, tx, table, plan).apply(staged, once=True)
    finally:
        staging.discard()
