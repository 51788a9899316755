"""The clauses of statements that change rows on Spark: which rows they change, and how.

The rows of the table, joined with those of a source if there is one, get the number of the first clause whose condition
they satisfy. Their new values are staged, so that they are computed only once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any, TypeAlias

import pyarrow.compute as pc
from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame
from pyspark.sql import functions as f
from pyspark.sql.types import StructField, StructType

from quacklake import Expression
from quacklake.core.operations import dml
from quacklake.core.operations.conform import given_schema, type_problem
from quacklake.errors import InputError, SchemaMismatchError
from quacklake.extend.names import TableRef, fold
from quacklake.extend.predicates import ANYTHING, Predicate, to_predicate
from quacklake.extend.schemas import Column, TableInfo, TableSchema
from quacklake.extend.writes import Operation, Transaction
from quacklake.spark.changes.staged_changes import DELETED, KIND, SEEN, UPDATED, ChangeMetrics, Changes, staged_schema
from quacklake.spark.engine import SparkEngine
from quacklake.spark.expressions.translator import ExpressionScope, Filter
from quacklake.spark.read.scan import FILE_ID, POSITION, ROW_ID, VERSION
from quacklake.spark.runtime.failures import computing
from quacklake.spark.runtime.local import arrow_schema, with_variants
from quacklake.spark.runtime.session import has_time, require, require_types
from quacklake.spark.runtime.types import adopted, literal, quote, required, stored, stored_type
from quacklake.spark.write.tasks import Staging

Condition: TypeAlias = "Filter | Expression | SparkColumn"
Value: TypeAlias = Any
"""A Python value, SQL as an ``Expression``, or a column of Spark."""

SOURCE_ID = "_ql_source_id"
_CLAUSE = "_ql_clause"


@dataclass(frozen=True, slots=True)
class ChangeClause:
    """A change of the rows for which ``when`` holds: delete them, or set columns (``values`` by column id)."""

    when: SparkColumn
    values: Mapping[int, SparkColumn] | None = None


def computed(value: Value, scope: ExpressionScope) -> SparkColumn:
    """Return a value, SQL or Spark column as a Spark column. Raise ``InputError`` if Spark has no literal for it."""
    if isinstance(value, SparkColumn):
        return value
    if isinstance(value, Expression):
        return f.expr(scope.value(value))
    if isinstance(value, str):
        return f.expr(literal(value))
    try:
        return f.lit(value)
    except Exception as error:
        raise InputError(f"Spark has no literal for a value of type {type(value).__name__}") from error


def condition_of(given: Condition, scope: ExpressionScope) -> SparkColumn:
    """Return a filter in the SQL of the lake, of ``pyarrow.compute`` or of Spark as a Spark column."""
    return given if isinstance(given, SparkColumn) else f.expr(scope.condition(given))


def stage(
    staging: Staging,
    joined: Sequence[DataFrame],
    table: TableInfo,
    clauses: Sequence[ChangeClause],
    *,
    source: bool = False,
) -> DataFrame:
    """Compute the changes of rows once, and return them in the form of ``staged_schema``.

    The rows have the table's columns under the alias ``target``, and their positions. With ``source``, rows with a
    ``SOURCE_ID`` are staged even if no clause changes them. Raise ``SchemaMismatchError`` for a value of another type
    than its column, ``UnsupportedFeatureError`` for a column that this Spark cannot write.
    """
    time = has_time(staging.session)
    values = any(clause.values is not None for clause in clauses)
    if values:
        require_types(staging.session, table.schema.columns)
    places = [POSITION, FILE_ID, VERSION, ROW_ID, *([SOURCE_ID] if source else [])]
    with computing():
        given = _columns(table, clauses) if values else []
        parts = [_number_clauses(part, clauses, source=source).select(*places, _CLAUSE, *given) for part in joined]
        rows = reduce(DataFrame.union, parts)
        schema = rows.schema
    kinds = [UPDATED if clause.values is not None else DELETED for clause in clauses]
    known = ", ".join(f"{index}, {kind}" for index, kind in enumerate(kinds))
    kind = f"coalesce(try_element_at(map({known}), {_CLAUSE}), {SEEN})" if kinds else f"{SEEN}"
    select = [f"{kind} AS {KIND}", FILE_ID, VERSION, POSITION, ROW_ID]
    if values:
        types = _type_values(table, schema, time=time)
        columns = enumerate(table.schema.columns)
        select += [f"{_assign_value(column, i, clauses, types, time=time)} AS c{i}" for i, column in columns]
    read = staged_schema(table, values=values, time=time)
    if source:
        select.append(SOURCE_ID)
        read += f", {SOURCE_ID} BIGINT"
    return staging.put(rows, select, read)


def _number_clauses(joined: DataFrame, clauses: Sequence[ChangeClause], *, source: bool) -> DataFrame:
    """Return the rows to change, each with the number of the first clause that applies."""
    number, some = f.lit(None).cast("int"), f.lit(False)
    for index, clause in reversed(list(enumerate(clauses))):
        number = f.when(clause.when, f.lit(index)).otherwise(number)
        some = clause.when | some
    # stated as a filter, so that Spark can use it while it reads
    rows = joined.filter(some | f.col(SOURCE_ID).isNotNull() if source else some)
    return rows.withColumn(_CLAUSE, number)


def _columns(table: TableInfo, clauses: Sequence[ChangeClause]) -> list[SparkColumn]:
    """Return the inputs of new values: ``t<i>`` are the old values, ``v<clause>_<i>`` those that a clause sets."""
    columns = list(enumerate(table.schema.columns))
    found = [f.expr(f"target.{quote(column.name)}").alias(f"t{i}") for i, column in columns]
    for index, clause in enumerate(clauses):
        assigned = clause.values or {}
        # only where the clause applies: the expression may fail for other rows
        found += [
            f.when(f.col(_CLAUSE) == index, assigned[column.id]).alias(f"v{index}_{i}")
            for i, column in columns
            if column.id in assigned
        ]
    return found


def _type_values(table: TableInfo, schema: StructType, *, time: bool) -> dict[str, Column]:
    """Return the values of clauses as columns with their own types. Raise ``SchemaMismatchError``."""
    fields = [field for field in schema.fields if field.name.startswith("v")]
    only = StructType([StructField(field.name, field.dataType) for field in fields])
    found = with_variants(given_schema(arrow_schema(only, required=False), table.qualified_name), only)
    given: dict[str, Column] = {}
    for one in found.columns:
        column = table.schema.columns[int(one.name.rpartition("_")[2])]
        named = adopted(replace(one, name=column.name), column, time=time)
        problem = type_problem(named, column, column.name, partial=True)
        if problem:
            raise SchemaMismatchError(f"the values do not fit {table.qualified_name}: {problem}", hint="cast them")
        given[one.name] = named
    return given


def _assign_value(
    column: Column, i: int, clauses: Sequence[ChangeClause], given: Mapping[str, Column], *, time: bool
) -> str:
    """Return the SQL of the new value of a column, in the type in which Spark stores it."""
    cases = []
    for index, clause in enumerate(clauses):
        if clause.values is None:
            continue
        if column.id in clause.values:
            name = f"v{index}_{i}"
            value = stored(name, given[name], column, column.name, time=time)
            value = value if column.nullable else required(value, column.name)
        else:
            value = stored(f"t{i}", column, column, column.name, time=time)
        cases.append(f"WHEN {_CLAUSE} = {index} THEN {value}")
    return f"CASE {' '.join(cases)} ELSE CAST(NULL AS {stored_type(column)}) END"


def named_values(schema: TableSchema, values: Mapping[str, Value], scope: ExpressionScope) -> dict[int, SparkColumn]:
    """Return assignments by column id. Raise ``InputError``, and ``NotFoundError`` for an unknown column."""
    if not values:
        raise InputError("nothing is set", hint='pass {"column": value}')
    found = {schema.find(name).id: computed(value, scope) for name, value in values.items()}
    if len(found) != len(values):
        raise InputError("a column is set twice")
    return found


def column_of(names: Sequence[str], name: str) -> str | None:
    """Return the spelling of a name among others, ignoring case, or None."""
    return next((each for each in names if fold(each) == fold(name)), None)


def delete(engine: SparkEngine, tx: Transaction, ref: TableRef, where: Condition | None) -> ChangeMetrics:
    """Delete the rows that match a filter. Without a filter, delete all rows without reading any."""
    tx.asks(Operation.DELETE)
    table = tx.find_table(ref.schema, ref.name)
    if where is not None:
        clause = ChangeClause(condition_of(where, engine.scope(target=table.schema)))
        return _where(engine, tx, table, clause, where)
    plan = tx.plan(table)
    deleted = dml.delete(engine.context, tx, table, None, counted=False)
    counted = engine.scan.frame(plan).count() if plan.count() is None else deleted
    return ChangeMetrics(deleted=counted, files_removed=plan.files.num_rows)


def update(
    engine: SparkEngine, tx: Transaction, ref: TableRef, values: Mapping[str, Value], where: Condition | None
) -> ChangeMetrics:
    tx.asks(Operation.UPDATE)
    table = tx.find_table(ref.schema, ref.name)
    scope = engine.scope(target=table.schema)
    when = f.lit(True) if where is None else condition_of(where, scope)
    return _where(engine, tx, table, ChangeClause(when, named_values(table.schema, values, scope)), where)


def _where(
    engine: SparkEngine, tx: Transaction, table: TableInfo, clause: ChangeClause, where: Condition | None
) -> ChangeMetrics:
    predicate = to_predicate(where, table.schema) if isinstance(where, str | pc.Expression) else ANYTHING

    def choose(rows: DataFrame) -> tuple[DataFrame, ChangeClause, Predicate]:
        return rows, clause, predicate

    text = where if isinstance(where, str | pc.Expression) else None
    return change(engine, tx, table, predicate, choose, deletes=clause.values is None, where=text)


def change(
    engine: SparkEngine,
    tx: Transaction,
    table: TableInfo,
    predicate: Predicate,
    choose: Callable[[DataFrame], tuple[DataFrame, ChangeClause, Predicate]],
    *,
    deletes: bool,
    where: Filter | None = None,
) -> ChangeMetrics:
    """Update or delete rows of a table that a predicate does not rule out.

    ``choose`` gets the rows with their positions. It returns the rows to change, each at most once, the change, and a
    predicate for the rows that the change depends on. A filter ``where`` in the SQL of the lake or of Arrow, if there
    is one, chooses the same rows. Raise ``UnsupportedFeatureError`` on Spark 3.5.
    """
    require(engine.writer.session, "to change rows")
    changes = Changes(engine, tx, table, tx.plan(table, predicate))
    if deletes and where is not None and changes.in_tasks:
        tx.pending(table).add_read(predicate)
        done = changes.delete_in_tasks(where)
        if done is not None:
            return done
    rows, clause, read = choose(changes.rows())
    tx.pending(table).add_read(read)
    rows = rows.alias("target")
    if deletes and changes.at_once:
        with computing():  # marked as by ``stage``, but computed again at each use
            gone = rows.filter(clause.when).select(f.lit(DELETED).alias(KIND), FILE_ID, VERSION, POSITION)
        return changes.delete(gone)
    staging = engine.staging(table)
    try:
        return changes.apply(stage(staging, [rows], table, [clause]), once=True)[0]
    finally:
        staging.discard()
