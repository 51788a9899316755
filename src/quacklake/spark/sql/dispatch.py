"""Choose the function that runs a Spark statement by its first words."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import pyarrow as pa

from quacklake.format.names import fold
from quacklake.operations.reference import DEFAULT_SCHEMA
from quacklake.spark.sql import dispatch, merging, metadata, rows, tables
from quacklake.spark.sql.parsing import Parameters, SparkCursor, only_statement, with_values
from quacklake.spark.sql.queries import run_query
from quacklake.spark.sql.statement import SqlText, Statement
from quacklake.sql.sessions import LakeSessions

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from quacklake.spark.engine import SparkEngine


Handler = Callable[[Statement, SparkCursor], "DataFrame"]

_CHANGES: Mapping[str, Handler] = {
    "INSERT": rows.insert,
    "DELETE": rows.delete,
    "UPDATE": rows.update,
    "MERGE": merging.merge,
}
_HANDLERS: Mapping[str, Handler] = {
    **_CHANGES,
    "ALTER": tables.alter,
    "CALL": metadata.call,
    "COMMENT": tables.comment,
    "CREATE": tables.create,
    "DESC": dispatch.describe,
    "DESCRIBE": dispatch.describe,
    "DROP": tables.drop,
    "EXPLAIN": dispatch.explain,
    "SHOW": dispatch.show,
    "TRUNCATE": tables.truncate,
}
_QUERIES = frozenset({"SELECT", "FROM", "VALUES", "TABLE", "WITH", "("})


def run(engine: SparkEngine, sessions: LakeSessions, text: str, params: Parameters = None) -> DataFrame:
    """Run one statement, and return its rows or counts. Raises ``SqlError``, or the error of the operation itself."""
    sql = with_values(only_statement(text), params)
    # with its own transaction, independent of the thread's session
    with sessions.current().cursor() as session:
        statement = Statement(engine, session)
        return _handler(SparkCursor(sql))(statement, SparkCursor(sql))


def _handler(cursor: SparkCursor) -> Handler:
    first = cursor.peek()
    word = "" if first is None else first.upper
    if word == "WITH":
        cursor.until(*_CHANGES, "SELECT", "FROM", "VALUES", "TABLE")
        behind = cursor.peek()
        return _query if behind is None else _CHANGES.get(behind.upper, _query)
    return _query if word in _QUERIES else _HANDLERS.get(word, _native)


def _query(statement: Statement, cursor: SparkCursor) -> DataFrame:
    return run_query(statement, cursor.text)


def _native(statement: Statement, cursor: SparkCursor) -> DataFrame:
    return statement.run(SqlText(cursor.text), cursor.text)


_EXPLAINED = ("EXTENDED", "FORMATTED", "COST", "CODEGEN", "LOGICAL")


def explain(statement: Statement, cursor: SparkCursor) -> DataFrame:
    """Run EXPLAIN [EXTENDED | …] of a query; Spark explains other statements."""
    cursor.expect("EXPLAIN")
    for word in _EXPLAINED:
        cursor.accept(word)
    following = cursor.peek()
    if following is None or following.upper not in _QUERIES:
        return statement.run(SqlText(cursor.text), cursor.text)
    head = cursor.slice(0, cursor.at)
    return run_query(statement, cursor.rest(), f"{head} ")


def describe(statement: Statement, cursor: SparkCursor) -> DataFrame:
    """Run DESCRIBE [TABLE] [EXTENDED] name, which lists columns with Spark's types, or DESCRIBE [QUERY] query."""
    first = cursor.take()
    cursor.accept("QUERY")
    following = cursor.peek()
    if following is not None and following.upper in _QUERIES - {"TABLE"}:
        return run_query(statement, cursor.rest(), f"{first.text} QUERY ")
    if following is None or following.upper in ("DATABASE", "SCHEMA", "NAMESPACE", "CATALOG", "FUNCTION", "PROCEDURE"):
        return statement.run(SqlText(cursor.text), cursor.text)
    cursor.accept("TABLE")
    cursor.accept("EXTENDED") or cursor.accept("FORMATTED")
    names = cursor.names() if not cursor.done else []
    tx = statement.view()
    info = statement.find(names, tx) if names and cursor.done else None
    if info is None:
        return statement.run(SqlText(cursor.text), cursor.text)
    shown = run_query(statement, f"SELECT * FROM {cursor.slice(cursor.at - 2 * len(names) + 1, cursor.at)}")
    comments = _comments(statement, info.schema_name, info.name)
    fields = shown.schema.fields
    return statement.rows(
        pa.table(
            {
                "col_name": pa.array([field.name for field in fields], pa.string()),
                "data_type": pa.array([field.dataType.simpleString() for field in fields], pa.string()),
                "comment": pa.array([comments.get(fold(field.name)) for field in fields], pa.string()),
            }
        )
    )


def _comments(statement: Statement, schema: str, name: str) -> dict[str, str]:
    query = "SELECT lower(column_name), comment FROM duckdb_columns() WHERE schema_name = $1 AND table_name = $2"
    found = statement.session.sql(f"{query} AND database_name = $3", [schema, name, statement.attached.alias])
    return {str(column): str(comment) for column, comment in found.fetchall() if comment is not None}


def show(statement: Statement, cursor: SparkCursor) -> DataFrame:
    """Run SHOW TABLES [IN schema] of the lake, with Spark's temporary views. Spark runs every other SHOW."""
    cursor.expect("SHOW")
    if not cursor.accept("TABLES"):
        return statement.run(SqlText(cursor.text), cursor.text)
    schema, alias = DEFAULT_SCHEMA, statement.attached.alias
    if cursor.accept("IN") or cursor.accept("FROM"):
        names = cursor.names()
        names = names[1:] if len(names) == 2 and fold(names[0]) == fold(alias) else names
        if fold(names[-1]) != fold(alias) and not statement.session.names.has_schema(statement.attached, names[-1]):
            return statement.run(SqlText(cursor.text), cursor.text)
        schema = DEFAULT_SCHEMA if fold(names[-1]) == fold(alias) else names[-1]
    if not cursor.done:
        return statement.run(SqlText(cursor.text), cursor.text)
    tx = statement.view()
    known = [(info.schema_name, info.name) for info in tx.tables()]
    known += [(info.schema_name, info.name) for info in tx.objects.views()]
    temporary = [found.name for found in statement.engine.session.catalog.listTables() if found.isTemporary]
    rows = sorted((owner, name, False) for owner, name in known if fold(owner) == fold(schema))
    rows += sorted(("", name, True) for name in temporary)
    columns = list(zip(*rows, strict=True)) or [(), (), ()]
    return statement.rows(
        pa.table(
            {
                "namespace": pa.array(columns[0], pa.string()),
                "tableName": pa.array(columns[1], pa.string()),
                "isTemporary": pa.array(columns[2], pa.bool_()),
            }
        )
    )
