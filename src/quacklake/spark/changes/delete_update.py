"""DELETE and UPDATE on Spark, within a transaction."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from pyspark.sql import functions as f

from quacklake.format.objects import TableInfo
from quacklake.format.operations import Operation
from quacklake.format.predicate import ANYTHING, Predicate
from quacklake.operations import dml
from quacklake.operations.reference import TableRef
from quacklake.operations.statements import Condition, Value
from quacklake.scan import to_predicate
from quacklake.spark.changes.clauses import ChangeClause, condition_of, marked_deletes, named_values, stage
from quacklake.spark.changes.staged_changes import ChangeMetrics, Changes
from quacklake.spark.engine import SparkEngine
from quacklake.spark.runtime.compat import require
from quacklake.transaction import Transaction

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def delete(engine: SparkEngine, tx: Transaction, ref: TableRef, where: Condition | None) -> ChangeMetrics:
    """Delete the rows that match a filter. Without a filter, delete all rows without reading any."""
    tx.asks(Operation.DELETE)
    table = tx.find_table(ref.schema, ref.name)
    if where is not None:
        clause = ChangeClause(condition_of(where, engine.scope(target=table.schema)))
        return _where(engine, tx, table, clause, where)
    plan = tx.plan(table)
    count = dml.delete(engine.context, tx, table, None)
    counted = engine.scan.frame(plan).count() if count is None else count
    return ChangeMetrics(deleted=counted, files_removed=plan.files.num_rows)


def update(
    engine: SparkEngine, tx: Transaction, ref: TableRef, values: Mapping[str, Value], where: Condition | None
) -> ChangeMetrics:
    """Set columns of the rows that match a filter, or of all rows."""
    tx.asks(Operation.UPDATE)
    table = tx.find_table(ref.schema, ref.name)
    scope = engine.scope(target=table.schema)
    when = f.lit(True) if where is None else condition_of(where, scope)
    return _where(engine, tx, table, ChangeClause(when, named_values(table.schema, values, scope)), where)


def _where(
    engine: SparkEngine, tx: Transaction, table: TableInfo, clause: ChangeClause, where: Condition | None
) -> ChangeMetrics:
    predicate = to_predicate(where, table.schema) if isinstance(where, str) else ANYTHING

    def choose(rows: DataFrame) -> tuple[DataFrame, ChangeClause, Predicate]:
        return rows, clause, predicate

    return change(engine, tx, table, predicate, choose, deletes=clause.values is None)


def change(
    engine: SparkEngine,
    tx: Transaction,
    table: TableInfo,
    predicate: Predicate,
    choose: Callable[[DataFrame], tuple[DataFrame, ChangeClause, Predicate]],
    *,
    deletes: bool,
) -> ChangeMetrics:
    """Update or delete rows of a table that a predicate does not rule out.

    ``choose`` gets the rows with their positions. It returns the rows to change, each at most once, the change, and a
    predicate for the rows that the change depends on. Raises ``UnsupportedFeatureError`` on Spark 3.5.
    """
    require(engine.writer.session, "to change rows")
    changes = Changes(engine, tx, table, tx.plan(table, predicate))
    rows, clause, read = choose(changes.rows())
    tx.pending(table).add_read(read)
    rows = rows.alias("target")
    if deletes and changes.at_once:
        return changes.delete(marked_deletes(rows, clause))
    staging = engine.staging(table)
    try:
        return changes.apply(stage(staging, [rows], table, [clause]), once=True)[0]
    finally:
        staging.discard()
