"""MERGE on Spark: a builder with the usual clauses, and their execution."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import reduce

from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame
from pyspark.sql import functions as f
from pyspark.sql.types import LongType, NullType, StructField, StructType

from quacklake.core.format.evolution import evolve_to
from quacklake.core.operations import evolution
from quacklake.core.operations.conform import given_schema, match_given, type_problem
from quacklake.core.operations.statements import Clause, Merge, MergeBuilder
from quacklake.errors import SchemaMismatchError, UnsupportedFeatureError
from quacklake.extend.names import TableRef
from quacklake.extend.predicates import ANYTHING, Predicate, compare, every
from quacklake.extend.schemas import Column, TableInfo, TableSchema
from quacklake.extend.writes import Operation, Transaction
from quacklake.spark.changes.clauses import (
    SOURCE_ID,
    ChangeClause,
    Condition,
    column_of,
    computed,
    condition_of,
    named_values,
    stage,
)
from quacklake.spark.changes.staged_changes import ChangeMetrics, Changes, add_rows
from quacklake.spark.engine import SparkEngine
from quacklake.spark.expressions.translator import ExpressionScope
from quacklake.spark.runtime.failures import computing
from quacklake.spark.runtime.local import arrow_schema, with_variants
from quacklake.spark.runtime.session import has_time
from quacklake.spark.runtime.types import as_shown, quote
from quacklake.spark.write.rows import SparkRows, given_columns
from quacklake.spark.write.tasks import Staging

SPELLED = ("interval", "timetz", "time_ns")
"""Types whose values are texts in Spark, which cannot normalise them."""


def conform_keys(
    rows: DataFrame,
    table: TableInfo,
    on: Sequence[str],
    *,
    time: bool,
    evolve: bool = False,
    beside: Sequence[str] = (),
) -> DataFrame:
    """Return rows whose key columns have the values that the table would store, in the form that Spark shows.

    With ``evolve``, the types are those that the table gets in order to hold the rows. ``beside`` are columns that are
    not for the table. The caller handles keys that the rows or the table lack. Raise ``SchemaMismatchError`` for keys
    that do not fit the table, ``UnsupportedFeatureError`` for keys of a type that Spark cannot compare.
    """
    fields = StructType([each for each in rows.schema.fields if each.name not in beside])
    given = given_columns(fields, table, time=time)
    schema = table.schema
    if evolve:  # the ids of new columns have no meaning here
        schema = evolve_to(schema, given, max(node.id for column in schema.columns for node in column.walk()) + 1)
    changed = {}
    for name in on:
        one, column = given.get(name), schema.get(name)
        if one is None or column is None:
            continue
        problem = type_problem(one, column, column.name, partial=False)
        if problem:
            raise SchemaMismatchError(f"the keys do not fit {table.qualified_name}: {problem}", hint="cast them")
        if column.nested or column.type in SPELLED:
            raise UnsupportedFeatureError(
                f'Spark cannot compare keys of type {column.type}, as "{column.name}" has',
                hint="use lake.table(…).merge",
            )
        made = as_shown(quote(one.name), one, column, column.name, time=time)
        if made != quote(one.name):
            changed[one.name] = f.expr(made)
    with computing():
        return rows.withColumns(changed) if changed else rows


_WHOLE = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32")
_MAX_JOINS = 4  # the most parts of a table that are joined with the source one by one
_RANGED = (*((one, two) for one in _WHOLE for two in _WHOLE), ("date", "date"), ("varchar", "varchar"))
"""Pairs of key types in table and source for which Spark and the format sort values alike."""


class SparkMerge(MergeBuilder):
    """A merge of a DataFrame into a table: add clauses, then ``execute``, or commit what is ``staged`` with more."""

    #: Columns of the source that control the merge, and are not columns of the table.
    _beside: Sequence[str] = ()
    #: Checks the source once it is staged, and raises an error when it is invalid.
    _check: Callable[[DataFrame], None] | None = None

    def __init__(
        self,
        engine: SparkEngine,
        ref: TableRef,
        source: DataFrame,
        on: Condition | Sequence[str],
    ) -> None:
        self._engine, self._ref, self._source, self._on = engine, ref, source, on

    def execute(self) -> ChangeMetrics:
        """Run the merge. Raise ``ConstraintError``, with a few keys, if several source rows would change one row."""
        with self.staged() as work:
            metrics: ChangeMetrics = self._engine.handle.run(work)
            return metrics

    @contextmanager
    def staged(self) -> Iterator[Callable[[Transaction], ChangeMetrics]]:
        """Stage the source for a block, and yield the function that merges it in a transaction."""
        table = self._engine.handle.view().find_table(self._ref.schema, self._ref.name)
        statement = self._statement(self._on, table.schema)
        if isinstance(statement.on, tuple):
            time = has_time(self._engine.writer.session)
            self._source = conform_keys(
                self._source, table, statement.on, time=time, evolve=self._evolve, beside=self._beside
            )
        staging = self._engine.staging(table)
        try:
            source = self._staged_source(staging)
            if self._check is not None:
                self._check(source)
            yield lambda tx: self._merge(tx, source, statement)
        finally:
            staging.discard()

    @property
    def _columns(self) -> StructType:
        return StructType([each for each in self._source.schema.fields if each.name not in self._beside])

    def _staged_source(self, staging: Staging) -> DataFrame:
        """Stage the source, with a number for each row."""
        given = self._source.schema.fields
        fields = [(f"c{i}", field) for i, field in enumerate(given) if not isinstance(field.dataType, NullType)]
        schema = StructType([StructField(name, field.dataType) for name, field in fields]).add(SOURCE_ID, LongType())
        neutral = self._source.toDF(*(f"c{i}" for i in range(len(given))))
        numbers = f"monotonically_increasing_id() AS {SOURCE_ID}"
        rows = staging.put(neutral, [*(name for name, _ in fields), numbers], schema)
        select = [
            f.lit(None).alias(field.name) if isinstance(field.dataType, NullType) else rows[f"c{i}"].alias(field.name)
            for i, field in enumerate(given)
        ]
        return rows.select(*select, SOURCE_ID).alias("source")

    def _merge(self, tx: Transaction, source: DataFrame, statement: Merge) -> ChangeMetrics:
        tx.asks(Operation.MERGE)
        table = tx.find_table(self._ref.schema, self._ref.name)
        time = has_time(self._engine.writer.session)
        given = given_columns(self._columns, table, time=time)
        if self._evolve:
            schema = evolve_to(table.schema, given, tx.next_column_id(table))
            table = evolution.alter(self._engine.context, tx, table, schema)
            given = given_columns(self._columns, table, time=time)
        if any(clause.takes_all for clause in statement.clauses):
            match_given(given, table.schema, table.qualified_name, partial=True)
        known = self._type_source(table)
        both, own = self._engine.scope(target=table.schema, source=known), self._engine.scope(source=known)
        keys, on = _matching(statement, table, given, both)
        lonely, inserts = statement.has("target"), statement.has("source")
        predicate, least = (ANYTHING, 0) if lonely else self._key_range(source, keys, given)
        plan = tx.plan(table, predicate)
        plan = replace(plan, columns_since=None) if self._evolve else plan
        tx.pending(table).add_read(predicate)
        parts = self._engine.scan.parts(plan, rows=True)
        parts = parts if len(parts) <= _MAX_JOINS else [reduce(DataFrame.union, parts)]
        with computing():
            joined = [part.alias("target").join(source, on, "left" if lonely else "inner") for part in parts]
        staging = self._engine.staging(table)
        try:
            clauses = _changes(statement, table, given, both)
            staged = stage(staging, joined, table, clauses, source=inserts)
            changes = Changes(self._engine, tx, table, plan)
            done, found = changes.apply(staged, [key.name for key in keys])
            if not inserts:
                return done
            before = len(tx.pending(table).files)
            seen = staged.filter(f"{SOURCE_ID} IS NOT NULL").select(SOURCE_ID)
            least -= least if found.rows is None else found.rows
            inserted = self._insert(tx, table, source.join(seen, SOURCE_ID, "left_anti"), statement, own, least)
            added = len(tx.pending(table).files) - before
            return replace(done, inserted=inserted, files_added=done.files_added + added)
        finally:
            staging.discard()

    def _type_source(self, table: TableInfo) -> TableSchema:
        """Return the columns of the source with their own types, for expressions."""
        schema = self._source.schema
        found = with_variants(given_schema(arrow_schema(schema, required=False), table.qualified_name), schema)
        return TableSchema(tuple(column for column in found.columns if column.type != "unknown"))

    def _key_range(self, source: DataFrame, keys: Sequence[Column], given: TableSchema) -> tuple[Predicate, int]:
        """Return a predicate for the range of the source's keys, and a lower bound of its number of rows."""
        fit = [key for key in keys if (key.type, given.find(key.name).type) in _RANGED]
        if not fit:
            return ANYTHING, 0
        names = [quote(str(column_of(given.names, key.name))) for key in fit]
        sides = [f"{side}({name}) AS {side}{i}" for i, name in enumerate(names) for side in ("min", "max")]
        bounds = source.selectExpr(*sides, "count(*) AS n").toArrow()
        parts = []
        for i, key in enumerate(fit):
            parts.append(compare(key, ">=", bounds.column(f"min{i}")[0]))
            parts.append(compare(key, "<=", bounds.column(f"max{i}")[0]))
        return every(parts), bounds.column("n")[0].as_py()

    def _insert(
        self,
        tx: Transaction,
        table: TableInfo,
        fresh: DataFrame,
        statement: Merge,
        scope: ExpressionScope,
        least: int,
    ) -> int:
        """Insert the rows without a match, by the first clause that applies. There are at least ``least`` rows."""
        count, rest = 0, f.lit(True)
        for clause in statement.clauses:
            if clause.matched != "source":
                continue
            if clause.takes_all:
                select = [f.expr(f"source.{quote(name)}") for name in self._columns.names]
            else:
                select = [computed(value, scope).alias(name) for name, value in clause.assigned().items()]
            with computing():
                chosen = fresh.filter(_when(clause, rest, scope)).select(*select)
            least = least if clause.condition is None else 0
            new = SparkRows(self._engine.context, self._engine.writer, chosen, partial=True, count=least)
            count += add_rows(tx, table, new)
            if clause.condition is None:
                break
            rest = rest & ~f.coalesce(condition_of(clause.condition, scope), f.lit(False))
        return count


def _matching(
    statement: Merge, table: TableInfo, given: TableSchema, scope: ExpressionScope
) -> tuple[list[Column], SparkColumn]:
    """Return the key columns, if the merge compares keys, and the condition."""
    if not isinstance(statement.on, tuple):
        return [], condition_of(statement.on, scope)
    keys = [table.schema.find(name) for name in statement.on]
    condition = f.lit(True)
    for key in keys:
        name = column_of(given.names, key.name)
        if name is None:
            raise SchemaMismatchError(
                f"the rows lack the key column {key.name!r}", hint=f"they have {', '.join(given.names)}"
            )
        condition &= f.expr(f"target.{quote(key.name)} = source.{quote(name)}")
    return keys, condition


def _changes(statement: Merge, table: TableInfo, given: TableSchema, scope: ExpressionScope) -> list[ChangeClause]:
    there = f.col(SOURCE_ID).isNotNull()
    found = []
    for clause in statement.clauses:
        if clause.matched == "source":
            continue
        values = None
        if clause.takes_all:
            values = {table.schema.find(name).id: f.expr(f"source.{quote(name)}") for name in given.names}
        elif clause.action == "update":
            values = named_values(table.schema, clause.assigned(), scope)
        found.append(ChangeClause(_when(clause, there if clause.matched == "both" else ~there, scope), values))
    return found


def _when(clause: Clause, otherwise: SparkColumn, scope: ExpressionScope) -> SparkColumn:
    return otherwise if clause.condition is None else otherwise & condition_of(clause.condition, scope)
