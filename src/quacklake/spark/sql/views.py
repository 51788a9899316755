"""Views of the lake in Spark: translated if that is known to give the same rows, else computed by DuckDB.

DuckDB computes them in the driver, when the statement is prepared, and only if that is little work.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import pyarrow.compute as pc
from pyspark.sql import DataFrame
from sqlglot import exp

from quacklake.engines.duckdb.binder import session_function
from quacklake.engines.duckdb.queries import LAKE
from quacklake.engines.duckdb.trees import serialize
from quacklake.errors import QuacklakeError, UnsupportedFeatureError
from quacklake.format.names import fold
from quacklake.format.objects import ViewInfo
from quacklake.format.predicate import ANYTHING, Predicate, every
from quacklake.format.schema import TableSchema
from quacklake.operations.views import view_rows, view_tables
from quacklake.scan import to_predicate
from quacklake.scan.plan import column_key
from quacklake.spark.engine import SparkEngine
from quacklake.spark.runtime.local import inlined_columns, inlined_rows
from quacklake.spark.runtime.session import has_time
from quacklake.spark.runtime.types import quote, shown
from quacklake.spark.sql.view_queries import Named, Relation, ViewQuery, escaped
from quacklake.transaction import Transaction

_MOST_BYTES = 1 << 30  # the most bytes of files that DuckDB reads for a view, in the driver
_MOST_ROWS = 100_000  # the most rows of a view that the driver holds in memory


def translated_view(engine: SparkEngine, view: ViewInfo, find: Callable[[Named], Relation]) -> Relation:
    """Translate a view into Spark SQL. Raises an error when that fails; then DuckDB has to compute the view."""
    session = engine.session
    with engine.context.engine.connection() as connection:
        query = ViewQuery(connection, find, time=has_time(session))
        found = query.translated(view.sql.replace(LAKE, ""))
    if query.strict and session.conf.get("spark.sql.ansi.enabled") != "true":
        raise UnsupportedFeatureError("the session goes on with a wrong number where one is too large")
    if not view.aliases:
        return found
    names = [*view.aliases, *(column.name for column in found.columns[len(view.aliases) :])]
    columns = tuple(replace(column, name=name) for column, name in zip(found.columns, names, strict=True))
    sql = f"(SELECT * FROM {found.sql} AS ql_view({', '.join(escaped(quote(name)) for name in names)}))"
    return Relation(sql, columns)


def computed_view(
    engine: SparkEngine, tx: Transaction, view: ViewInfo, reason: QuacklakeError
) -> tuple[DataFrame, TableSchema]:
    """Return the rows of a view that DuckDB computes. Raises ``UnsupportedFeatureError`` if that is too much work."""
    context = engine.context
    what = f'the view "{view.qualified_name}" cannot be computed by Spark with the same meaning ({reason.message})'
    with context.engine.connection() as connection:
        if session_function(serialize(connection, view.sql.replace(LAKE, ""))) is not None:
            raise UnsupportedFeatureError(what, hint="read it with lake.sql")
    plans = [tx.plan(table) for table in view_tables(context, tx, view)]
    size = sum(pc.sum(plan.files.column("file_size_bytes")).as_py() or 0 for plan in plans)
    if size > _MOST_BYTES:
        raise UnsupportedFeatureError(
            f"{what}, and it reads {size >> 20} MB, too much for DuckDB in the driver",
            hint="read it with lake.sql, or say its query to Spark",
        )
    schema, rows = view_rows(context, tx, view, _MOST_ROWS + 1)
    if rows.num_rows > _MOST_ROWS:
        raise UnsupportedFeatureError(
            f"{what}, and it has more than {_MOST_ROWS} rows, too many for DuckDB in the driver",
            hint="read it with lake.sql, or say its query to Spark",
        )
    columns, time = schema.columns, has_time(engine.session)
    pairs = zip(inlined_columns(columns), columns, strict=True)
    select = [
        f"{column_key(column)} AS {quote(column.name)}"
        if column.type == "int128"
        else f"{shown(column_key(column), stored, column, time=time)} AS {quote(column.name)}"
        for stored, column in pairs
    ]
    return inlined_rows(engine.session, rows, columns).selectExpr(*select), schema


def where_predicate(named: Named, schema: TableSchema) -> Predicate:
    """Return a predicate on the bounds of a table's files from the conditions of a view."""
    parts = []
    for text in named.where:
        try:
            parts.append(to_predicate(text, schema))
        except QuacklakeError:
            continue
    return every(parts) if parts else ANYTHING


def outside_conditions(named: Named, outside: Sequence[exp.Expr]) -> list[exp.Expr]:
    """Turn conditions on the rows of a view into conditions on its table."""
    found: list[exp.Expr] = []
    if named.outputs is None:
        return found
    for condition in outside:
        copy = condition.copy()
        columns = list(copy.find_all(exp.Column))
        names = []  # columns of the table behind those of the view; nothing for a computed one
        for column in columns:
            otherwise = column.name if "*" in named.outputs else None
            names.append(named.outputs.get(fold(column.name), otherwise) if len(column.parts) == 1 else None)
        if all(names):
            for column, name in zip(columns, names, strict=True):
                column.set("this", exp.to_identifier(name, quoted=True))
            found.append(copy)
    return found
