"""CALL: maintain a lake, with Spark where possible."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from quacklake.errors import SqlError, UnsupportedFeatureError, nearest
from quacklake.format.names import fold, quote
from quacklake.spark.maintenance import spark_maintenance
from quacklake.spark.sql.lexer import SparkCursor
from quacklake.spark.sql.metadata import argument, arguments
from quacklake.spark.sql.statement import Statement
from quacklake.sql import lake_functions
from quacklake.sql.binder import Binder
from quacklake.sql.lake_calls import LakeCall
from quacklake.sql.lake_functions import FUNCTIONS, bind

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


#: Procedures that Spark runs on the files of tables.
_ON_SPARK = ("flush_inlined_data", "merge_adjacent_files", "rewrite_data_files")
_OPTIMIZE = ("table_name", "order_by", "zorder")
_FILTER = ("where", "filter")


def call(statement: Statement, cursor: SparkCursor) -> DataFrame:
    """Run CALL [lake.][system.]procedure(argument, name => argument, …)."""
    cursor.expect("CALL")
    names = cursor.names()
    items = cursor.items()
    cursor.end()
    name = fold(names[-1]).removeprefix("ducklake_")
    if name == "optimize":
        return _optimize(statement, items)
    if name not in FUNCTIONS:
        raise SqlError(f'a lake has no procedure "{names[-1]}"', hint=nearest(name, FUNCTIONS))
    if name == "set_commit_message":
        raise UnsupportedFeatureError(
            "a statement of Spark is a commit of its own, which no message can wait for",
            hint='sign the lake first: quacklake.spark(lake.signed("message", "author"))',
        )
    if name not in _ON_SPARK:
        text, values = arguments(statement, items)
        return statement.lake_sql(f"CALL {quote(name)}({text})", values)
    given = _given(statement, name, items, FUNCTIONS[name].parameters, FUNCTIONS[name].named)
    made = LakeCall(
        statement.session,
        Binder(statement.session),
        statement.attached,
        given,
        keeper=spark_maintenance(statement.engine),
    )
    rows: pa.Table = getattr(lake_functions, name)(made)
    return statement.rows(rows)


def _given(
    statement: Statement, name: str, items: Sequence[str], parameters: Sequence[str], others: Sequence[str] = ()
) -> dict[str, Any]:
    found = [(key, statement.constant(value)) for key, value in map(argument, items)]
    positional = [value for key, value in found if not key]
    return bind(name, positional, {fold(key): value for key, value in found if key}, parameters, others)


def _optimize(statement: Statement, items: Sequence[str]) -> DataFrame:
    """Run ``optimize(table, order_by => …, zorder => array(…), filter => …)``."""
    given = _given(statement, "optimize", items, _OPTIMIZE, _FILTER)
    if given.get("table_name") is None:
        raise SqlError('the argument "table_name" is missing')
    where = given.get("where", given.get("filter"))
    table = spark_maintenance(statement.engine).table(str(given["table_name"]))
    report = table.optimize(given.get("order_by"), given.get("zorder"), where=where)
    return statement.rows(lake_functions.groups(report))
