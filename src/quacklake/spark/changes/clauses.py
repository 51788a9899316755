"""Statements that change rows on Spark: which rows, and what they become.

The rows of the table, joined with those of a source where there is one, get the number of the first clause whose
condition they satisfy. What the clauses make of them is staged, so that it is computed once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any

from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame
from pyspark.sql import functions as f
from pyspark.sql.types import StructField, StructType

from quacklake.errors import InputError, SchemaMismatchError
from quacklake.format.names import fold
from quacklake.format.objects import TableInfo
from quacklake.format.schema import Column, TableSchema
from quacklake.operations.conform import given_schema, type_problem
from quacklake.operations.expression import Expression
from quacklake.spark.changes.row_places import DELETED, KIND, SEEN, UPDATED
from quacklake.spark.changes.staged_changes import staged_schema
from quacklake.spark.expressions.translator import ExpressionScope
from quacklake.spark.read.scan import FILE_ID, POSITION, ROW_ID, VERSION
from quacklake.spark.runtime.compat import require_types
from quacklake.spark.runtime.failures import computing
from quacklake.spark.runtime.schema import arrow_schema, with_variants
from quacklake.spark.runtime.session import has_time
from quacklake.spark.runtime.types import adopted, literal, quote, required, stored, stored_type
from quacklake.spark.write.staging import Staging

__all__ = ["SOURCE_ID", "ChangeClause", "Value", "computed", "marked_deletes", "stage"]

#: What a column is set to: a value, SQL of the lake, or a column of Spark.
Value = Any
SOURCE_ID = "_ql_source_id"
_CLAUSE = "_ql_clause"


@dataclass(frozen=True, slots=True)
class ChangeClause:
    """What becomes of rows for which ``when`` holds: they are deleted, or columns are set (``values`` by column id)."""

    when: SparkColumn
    values: Mapping[int, SparkColumn] | None = None


def computed(value: Value, scope: ExpressionScope) -> SparkColumn:
    """A value, SQL or column of Spark as a column of Spark. Raises ``InputError`` for what Spark has no literal of."""
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


def stage(
    staging: Staging,
    joined: Sequence[DataFrame],
    table: TableInfo,
    clauses: Sequence[ChangeClause],
    *,
    source: bool = False,
) -> DataFrame:
    """The changes that clauses make of rows, computed once: ``staged_schema`` says what they look like.

    The rows, in one frame or more, have the table's columns under the alias ``target`` and where they are. With
    ``source`` they also have ``SOURCE_ID``, and rows with one are staged even where no clause changes anything.

    Raises ``SchemaMismatchError`` for a value of another type than its column, ``UnsupportedFeatureError`` for a column
    that this Spark cannot write.
    """
    time = has_time(staging.session)
    values = any(clause.values is not None for clause in clauses)
    if values:
        require_types(staging.session, table.schema.columns)
    places = [POSITION, FILE_ID, VERSION, ROW_ID, *([SOURCE_ID] if source else [])]
    with computing():
        given = _columns(table, clauses) if values else []
        parts = [_numbered(part, clauses, source=source).select(*places, _CLAUSE, *given) for part in joined]
        rows = reduce(DataFrame.union, parts)
        schema = rows.schema
    kinds = [UPDATED if clause.values is not None else DELETED for clause in clauses]
    known = ", ".join(f"{index}, {kind}" for index, kind in enumerate(kinds))
    kind = f"coalesce(try_element_at(map({known}), {_CLAUSE}), {SEEN})" if kinds else f"{SEEN}"
    select = [f"{kind} AS {KIND}", FILE_ID, VERSION, POSITION, ROW_ID]
    if values:
        types = _given(table, schema, time=time)
        columns = enumerate(table.schema.columns)
        select += [f"{_assigned(column, i, clauses, types, time=time)} AS c{i}" for i, column in columns]
    read = staged_schema(table, values=values, time=time)
    if source:
        select.append(SOURCE_ID)
        read += f", {SOURCE_ID} BIGINT"
    return staging.put(rows, select, read)


def marked_deletes(rows: DataFrame, clause: ChangeClause) -> DataFrame:
    """The rows that a clause deletes, marked as :func:`stage` does, computed whenever they are looked at."""
    with computing():
        return rows.filter(clause.when).select(f.lit(DELETED).alias(KIND), FILE_ID, VERSION, POSITION)


def _numbered(joined: DataFrame, clauses: Sequence[ChangeClause], *, source: bool) -> DataFrame:
    """The rows that matter, with the number of the first clause that holds for each."""
    number, some = f.lit(None).cast("int"), f.lit(False)
    for index, clause in reversed(list(enumerate(clauses))):
        number = f.when(clause.when, f.lit(index)).otherwise(number)
        some = clause.when | some
    # said as it is, so that Spark can use it while it reads
    rows = joined.filter(some | f.col(SOURCE_ID).isNotNull() if source else some)
    return rows.withColumn(_CLAUSE, number)


def _columns(table: TableInfo, clauses: Sequence[ChangeClause]) -> list[SparkColumn]:
    """What the values of columns are made of: ``t<i>`` is what they were, ``v<clause>_<i>`` what a clause sets."""
    columns = list(enumerate(table.schema.columns))
    found = [f.expr(f"target.{quote(column.name)}").alias(f"t{i}") for i, column in columns]
    for index, clause in enumerate(clauses):
        assigned = clause.values or {}
        # only where it counts: it may fail for other rows
        found += [
            f.when(f.col(_CLAUSE) == index, assigned[column.id]).alias(f"v{index}_{i}")
            for i, column in columns
            if column.id in assigned
        ]
    return found


def _given(table: TableInfo, schema: StructType, *, time: bool) -> dict[str, Column]:
    """The values that clauses give, as columns of the types they have. Raises ``SchemaMismatchError``."""
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


def _assigned(
    column: Column, i: int, clauses: Sequence[ChangeClause], given: Mapping[str, Column], *, time: bool
) -> str:
    """The SQL of what a column becomes, in the type as which Spark stores it."""
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
    """Assignments by the ids of their columns. Raises ``InputError``, and ``NotFoundError`` for an unknown column."""
    if not values:
        raise InputError("nothing is set", hint='pass {"column": value}')
    found = {schema.find(name).id: computed(value, scope) for name, value in values.items()}
    if len(found) != len(values):
        raise InputError("a column is set twice")
    return found


def column_of(names: Sequence[str], name: str) -> str | None:
    """A name as it is spelled among others, whatever its case."""
    return next((each for each in names if fold(each) == fold(name)), None)
