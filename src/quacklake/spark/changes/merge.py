"""MERGE on Spark: a builder with the usual clauses, and their execution."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce

import pyarrow as pa
from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame
from pyspark.sql import functions as f
from pyspark.sql.types import LongType, NullType, StructField, StructType

from quacklake.errors import InputError, SchemaMismatchError
from quacklake.format.bounds import ANYTHING, Predicate, compare, decode, every
from quacklake.format.evolution import evolve_to
from quacklake.format.objects import TableInfo
from quacklake.format.schema import Column, TableSchema
from quacklake.format.snapshots import Operation
from quacklake.format.stats import of_array
from quacklake.operations import evolution
from quacklake.operations.conform import given_schema, match_given
from quacklake.operations.expression import Expression
from quacklake.operations.reference import TableRef
from quacklake.spark.changes.clauses import SOURCE_ID, ChangeClause, Value, column_of, computed, named_values, stage
from quacklake.spark.changes.keys import conform_keys
from quacklake.spark.changes.staged_changes import ChangeMetrics, Changes, add_rows
from quacklake.spark.engine import SparkEngine
from quacklake.spark.expressions.translator import ExpressionScope
from quacklake.spark.runtime.failures import computing
from quacklake.spark.runtime.local import arrow_schema, with_variants
from quacklake.spark.runtime.session import has_time
from quacklake.spark.runtime.types import quote
from quacklake.spark.write.rows import SparkRows, given_columns
from quacklake.spark.write.tasks import Staging
from quacklake.transaction import Transaction

#: A condition: SQL of the lake, or a Spark column.
Condition = str | Expression | SparkColumn

_WHOLE = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32")
_MOST_JOINS = 4
"""The most parts of a table that are joined with the source one by one."""
_RANGED = (*((one, two) for one in _WHOLE for two in _WHOLE), ("date", "date"), ("varchar", "varchar"))
"""Pairs of key types in table and source for which Spark and the format sort values alike."""


@dataclass(frozen=True, slots=True)
class _Clause:
    """A clause of the builder. ``values`` is None for a delete, and ``{}`` for all columns of the source."""

    condition: Condition | None
    values: Mapping[str, Value] | None = None

    @property
    def takes_all(self) -> bool:
        return self.values is not None and not self.values

    def when(self, otherwise: SparkColumn, scope: ExpressionScope) -> SparkColumn:
        return otherwise if self.condition is None else otherwise & _condition(self.condition, scope)


def _condition(given: Condition, scope: ExpressionScope) -> SparkColumn:
    return given if isinstance(given, SparkColumn) else f.expr(scope.condition(given))


def _checked(values: Mapping[str, Value]) -> Mapping[str, Value]:
    if not values:
        raise InputError("nothing is set", hint='pass {"column": quacklake.expr("source.column")}')
    wrong = next((name for name, value in values.items() if isinstance(value, str)), None)
    if wrong is not None:
        raise InputError(
            f'the text for the column "{wrong}" may be meant as SQL or as a value',
            hint='pass quacklake.expr("source.x") for SQL, or functions.lit("x") of PySpark for the text itself',
        )
    return dict(values)


@dataclass
class SparkMerge:
    """A merge of a DataFrame into a table: add clauses, then ``execute``.

    In conditions and expressions, ``target`` refers to the rows of the table and ``source`` to those of the DataFrame.
    Of the clauses of one kind, the first whose condition holds applies. A row without such a clause stays unchanged.
    """

    _engine: SparkEngine
    _ref: TableRef
    _source: DataFrame
    _on: Condition | Sequence[str]
    #: Runs the change in a transaction, by default one of the lake.
    _run: Callable[[Callable[[Transaction], ChangeMetrics]], ChangeMetrics] | None = None
    _matched: list[_Clause] = field(default_factory=list)
    _inserts: list[_Clause] = field(default_factory=list)
    _lonely: list[_Clause] = field(default_factory=list)
    _evolve: bool = False
    #: Columns of the source that control the merge, and are not columns of the table.
    _beside: Sequence[str] = ()
    #: Checks the source once it is staged, and raises an error when it is invalid.
    _check: Callable[[DataFrame], None] | None = None

    # -- clauses -------------------------------------------------------------------------------------------------------

    def when_matched_update(self, set: Mapping[str, Value], condition: Condition | None = None) -> SparkMerge:
        """Set columns of rows that have a match in the source."""
        self._matched.append(_Clause(condition, _checked(set)))
        return self

    def when_matched_update_all(self, condition: Condition | None = None) -> SparkMerge:
        """Set every column that the source has, in rows that have a match in the source."""
        self._matched.append(_Clause(condition, {}))
        return self

    def when_matched_delete(self, condition: Condition | None = None) -> SparkMerge:
        """Delete rows that have a match in the source."""
        self._matched.append(_Clause(condition))
        return self

    def when_not_matched_insert(self, values: Mapping[str, Value], condition: Condition | None = None) -> SparkMerge:
        """Insert the source rows without a match. Columns that are not given get their default."""
        self._inserts.append(_Clause(condition, _checked(values)))
        return self

    def when_not_matched_insert_all(self, condition: Condition | None = None) -> SparkMerge:
        """Insert the source rows without a match, with every column of the source."""
        self._inserts.append(_Clause(condition, {}))
        return self

    def when_not_matched_by_source_update(
        self, set: Mapping[str, Value], condition: Condition | None = None
    ) -> SparkMerge:
        """Set columns of rows that have no match in the source."""
        self._lonely.append(_Clause(condition, _checked(set)))
        return self

    def when_not_matched_by_source_delete(self, condition: Condition | None = None) -> SparkMerge:
        """Delete rows that have no match in the source."""
        self._lonely.append(_Clause(condition))
        return self

    def with_schema_evolution(self) -> SparkMerge:
        """Add columns that only the source has to the table, and widen types where necessary."""
        self._evolve = True
        return self

    whenMatchedUpdate = when_matched_update
    whenMatchedUpdateAll = when_matched_update_all
    whenMatchedDelete = when_matched_delete
    whenNotMatchedInsert = when_not_matched_insert
    whenNotMatchedInsertAll = when_not_matched_insert_all
    whenNotMatchedBySourceUpdate = when_not_matched_by_source_update
    whenNotMatchedBySourceDelete = when_not_matched_by_source_delete
    withSchemaEvolution = with_schema_evolution

    # -- execution -----------------------------------------------------------------------------------------------------

    def execute(self) -> ChangeMetrics:
        """Run the merge, in one snapshot.

        Raises ``ConstraintError``, with a few keys, when several rows of the source would change one row.
        """
        if not (self._matched or self._inserts or self._lonely):
            raise InputError("a merge needs at least one clause", hint="add when_matched_update_all()")
        table = self._engine.handle.view().find_table(self._ref.schema, self._ref.name)
        names = self._key_names(table)
        if names is not None:
            time = has_time(self._engine.writer.session)
            self._source = conform_keys(self._source, table, names, time=time, evolve=self._evolve, beside=self._beside)
        staging = self._engine.staging(table)
        try:
            source = self._staged_source(staging)
            if self._check is not None:
                self._check(source)
            return (self._run or self._engine.handle.run)(lambda tx: self._merge(tx, source))
        finally:
            staging.discard()

    @property
    def _columns(self) -> StructType:
        """The columns of the source that are meant for the table."""
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

    def _merge(self, tx: Transaction, source: DataFrame) -> ChangeMetrics:
        tx.asks(Operation.MERGE)
        table = tx.find_table(self._ref.schema, self._ref.name)
        time = has_time(self._engine.writer.session)
        given = given_columns(self._columns, table, time=time)
        if self._evolve:
            schema = evolve_to(table.schema, given, tx.next_column_id(table))
            table = evolution.alter(self._engine.context, tx, table, schema)
            given = given_columns(self._columns, table, time=time)
        if any(clause.takes_all for clause in (*self._matched, *self._inserts)):
            match_given(given, table.schema, table.qualified_name, partial=True)
        known = self._known(table)
        both, own = self._engine.scope(target=table.schema, source=known), self._engine.scope(source=known)
        keys, on = self._condition(table, given, both)
        predicate, least = (ANYTHING, 0) if self._lonely else self._key_range(source, keys, given)
        plan = tx.plan(table, predicate)
        plan = replace(plan, columns_since=None) if self._evolve else plan
        tx.pending(table).add_read(predicate)
        parts = self._engine.scan.parts(plan, rows=True)
        parts = parts if len(parts) <= _MOST_JOINS else [reduce(DataFrame.union, parts)]
        with computing():
            joined = [part.alias("target").join(source, on, "left" if self._lonely else "inner") for part in parts]
        staging = self._engine.staging(table)
        try:
            inserts = bool(self._inserts)
            staged = stage(staging, joined, table, self._clauses(table, given, both), source=inserts)
            changes = Changes(self._engine, tx, table, plan)
            done, found = changes.apply(staged, [key.name for key in keys])
            if not inserts:
                return done
            before = len(tx.pending(table).files)
            seen = staged.filter(f"{SOURCE_ID} IS NOT NULL").select(SOURCE_ID)
            least -= least if found.rows is None else found.rows
            inserted = self._insert(tx, table, source.join(seen, SOURCE_ID, "left_anti"), own, least)
            added = len(tx.pending(table).files) - before
            return replace(done, rows_inserted=inserted, files_added=done.files_added + added)
        finally:
            staging.discard()

    def _known(self, table: TableInfo) -> TableSchema:
        """Return the columns of the source with their own types, for expressions."""
        schema = self._source.schema
        found = with_variants(given_schema(arrow_schema(schema, required=False), table.qualified_name), schema)
        return TableSchema(tuple(column for column in found.columns if column.type != "unknown"))

    def _key_names(self, table: TableInfo) -> list[str] | None:
        """Return the names of the key columns, or None when the condition is an expression."""
        on = self._on
        if isinstance(on, SparkColumn | Expression) or (isinstance(on, str) and table.schema.get(on) is None):
            return None
        return [on] if isinstance(on, str) else list(on)

    def _condition(
        self, table: TableInfo, given: TableSchema, scope: ExpressionScope
    ) -> tuple[list[Column], SparkColumn]:
        """Return the condition, with the key columns if it compares keys."""
        names = self._key_names(table)
        if names is None:
            assert isinstance(self._on, str | SparkColumn | Expression)
            return [], _condition(self._on, scope)
        if not names:
            raise InputError("merge needs at least one key column", hint='pass on="id"')
        keys = [table.schema.find(name) for name in names]
        condition = f.lit(True)
        for key in keys:
            name = column_of(given.names, key.name)
            if name is None:
                raise SchemaMismatchError(
                    f"the rows lack the key column {key.name!r}", hint=f"they have {', '.join(given.names)}"
                )
            condition &= f.expr(f"target.{quote(key.name)} = source.{quote(name)}")
        return keys, condition

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
            for side, operator in (("min", ">="), ("max", "<=")):
                array = bounds.column(f"{side}{i}")
                try:
                    found = of_array(array.cast(key.arrow_type()), key)[0]
                except pa.ArrowInvalid:  # the value does not fit the column, so no row has it
                    continue
                bound = found.min if side == "min" else found.max
                if bound is not None:
                    parts.append(compare(key, operator, decode(bound, key.type)))
        return every(parts) if parts else ANYTHING, bounds.column("n")[0].as_py()

    def _clauses(self, table: TableInfo, given: TableSchema, scope: ExpressionScope) -> list[ChangeClause]:
        there = f.col(SOURCE_ID).isNotNull()
        chosen = [(clause, there) for clause in self._matched] + [(clause, ~there) for clause in self._lonely]
        return [
            ChangeClause(clause.when(holds, scope), self._values(clause, table, given, scope))
            for clause, holds in chosen
        ]

    def _values(
        self, clause: _Clause, table: TableInfo, given: TableSchema, scope: ExpressionScope
    ) -> dict[int, SparkColumn] | None:
        if clause.values is None:
            return None
        if clause.values:
            return named_values(table.schema, clause.values, scope)
        return {table.schema.find(name).id: f.expr(f"source.{quote(name)}") for name in given.names}

    def _insert(self, tx: Transaction, table: TableInfo, fresh: DataFrame, scope: ExpressionScope, least: int) -> int:
        """Insert the rows without a match, by the first clause that applies. There are at least ``least`` rows."""
        rows, count = fresh, 0
        rest = f.lit(True)
        for clause in self._inserts:
            when = clause.when(rest, scope)
            if clause.values:
                select = [computed(value, scope).alias(name) for name, value in clause.values.items()]
            else:
                select = [f.expr(f"source.{quote(name)}") for name in self._columns.names]
            with computing():
                chosen = rows.filter(when).select(*select)
            least = least if clause.condition is None else 0
            new = SparkRows(self._engine.context, self._engine.writer, chosen, partial=True, count=least)
            count += add_rows(tx, table, new)
            if clause.condition is None:
                break
            rest = rest & ~f.coalesce(_condition(clause.condition, scope), f.lit(False))
        return count
