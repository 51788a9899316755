"""Convert keys of rows to the form in which Spark shows the keys of the table.

A key has one value and many spellings: a UUID in capitals, a time without seconds, a number with more digits than the
column keeps. All of them are compared as the value that the table would store.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import DataFrame
from pyspark.sql import functions as f
from pyspark.sql.types import StructType

from quacklake.errors import SchemaMismatchError, UnsupportedFeatureError
from quacklake.format.evolution import evolve_to
from quacklake.format.objects import TableInfo
from quacklake.format.schema import TableSchema
from quacklake.operations.conform import type_problem
from quacklake.spark.runtime.failures import computing
from quacklake.spark.runtime.types import as_shown, quote
from quacklake.spark.write.rows import given_columns

_SPELLED = ("interval", "timetz", "time_ns")
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
    not for the table. The caller handles keys that the rows or the table lack. Raises ``SchemaMismatchError`` for keys
    that do not fit the table, ``UnsupportedFeatureError`` for keys of a type that Spark cannot compare.
    """
    fields = StructType([each for each in rows.schema.fields if each.name not in beside])
    given = given_columns(fields, table, time=time)
    schema = _evolved(table, given) if evolve else table.schema
    changed = {}
    for name in on:
        one, column = given.get(name), schema.get(name)
        if one is None or column is None:
            continue
        problem = type_problem(one, column, column.name, partial=False)
        if problem:
            raise SchemaMismatchError(f"the keys do not fit {table.qualified_name}: {problem}", hint="cast them")
        if column.nested or column.type in _SPELLED:
            raise UnsupportedFeatureError(
                f'Spark cannot compare keys of type {column.type}, as "{column.name}" has',
                hint="use lake.table(…).merge",
            )
        made = as_shown(quote(one.name), one, column, column.name, time=time)
        if made != quote(one.name):
            changed[one.name] = f.expr(made)
    with computing():
        return rows.withColumns(changed) if changed else rows


def _evolved(table: TableInfo, given: TableSchema) -> TableSchema:
    """Return the columns of a table after it has been widened for rows. The ids of new columns have no meaning here."""
    return evolve_to(table.schema, given, max(column.id for each in table.schema.columns for column in each.walk()) + 1)
