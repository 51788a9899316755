"""Run a Spark statement by its first words; DESCRIBE, SHOW and EXPLAIN over a lake."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

import pyarrow as pa
from pyspark.sql import DataFrame

from quacklake.core.sql.sessions import LakeSessions
from quacklake.extend.names import DEFAULT_SCHEMA, fold
from quacklake.spark.engine import SparkEngine
from quacklake.spark.runtime.words import SparkCursor
from quacklake.spark.sql import merging, metadata, rows, tables
from quacklake.spark.sql.parsing import Parameters, only_statement, with_values
from quacklake.spark.sql.queries import run_query, run_stored_query
from quacklake.spark.sql.statement import Statement

Handler = Callable[[Statement, SparkCursor], "DataFrame"]

_QUERIES = frozenset({"SELECT", "FROM", "VALUES", "TABLE", "WITH", "("})
_SPARKS = ("DATABASE", "SCHEMA", "NAMESPACE", "CATALOG", "FUNCTION", "PROCEDURE")


def run(engine: SparkEngine, sessions: LakeSessions, text: str, params: Parameters = None) -> DataFrame:
    """Run one statement, and return its rows or counts. Raise ``SqlError``, or the error of the operation itself."""
    sql = with_values(only_statement(text), params)
    # with its own transaction, independent of the thread's session
    with sessions.current().cursor() as session:
        cursor = SparkCursor(sql)
        handler = _handler(cursor)
        cursor.at = 0
        return handler(Statement(engine, session), cursor)


def run_stored(engine: SparkEngine, sessions: LakeSessions, text: str, own: Collection[str]) -> DataFrame:
    """Run a query of somebody else over the lake and views of the Spark session."""
    with sessions.current().cursor() as session:
        return run_stored_query(Statement(engine, session), text, own)


def _handler(cursor: SparkCursor) -> Handler:
    first = cursor.peek()
    word = "" if first is None else first.upper
    if word == "WITH":
        cursor.until(*_CHANGES, "SELECT", "FROM", "VALUES", "TABLE")
        behind = cursor.peek()
        return _query if behind is None else _CHANGES.get(behind.upper, _query)
    return _query if word in _QUERIES else _HANDLERS.get(word, Statement.native)


def _query(statement: Statement, cursor: SparkCursor) -> DataFrame:
    return run_query(statement, cursor.text)


def _explain(statement: Statement, cursor: SparkCursor) -> DataFrame:
    """Run EXPLAIN [EXTENDED | …] of a query; Spark explains other statements."""
    cursor.expect("EXPLAIN")
    for word in ("EXTENDED", "FORMATTED", "COST", "CODEGEN", "LOGICAL"):
        cursor.accept(word)
    following = cursor.peek()
    if following is None or following.upper not in _QUERIES:
        return statement.native(cursor)
    head = cursor.slice(0, cursor.at)
    return run_query(statement, cursor.rest(), f"{head} ")


def _describe(statement: Statement, cursor: SparkCursor) -> DataFrame:
    """Run DESCRIBE [TABLE] [EXTENDED] name, which lists columns with Spark's types, or DESCRIBE [QUERY] query."""
    first = cursor.take()
    cursor.accept("QUERY")
    following = cursor.peek()
    if following is not None and following.upper in _QUERIES - {"TABLE"}:
        return run_query(statement, cursor.rest(), f"{first.text} QUERY ")
    if following is None or following.upper in _SPARKS:
        return statement.native(cursor)
    cursor.accept("TABLE")
    cursor.accept("EXTENDED") or cursor.accept("FORMATTED")
    names = cursor.names() if not cursor.done else []
    info = statement.find(names, statement.view()) if names and cursor.done else None
    if info is None:
        return statement.native(cursor)
    shown = run_query(statement, f"SELECT * FROM {cursor.slice(cursor.at - 2 * len(names) + 1, cursor.at)}")
    query = "SELECT lower(column_name), comment FROM duckdb_columns() WHERE schema_name = $1 AND table_name = $2"
    own = [info.schema_name, info.name, statement.attached.alias]
    comments = dict(statement.session.sql(f"{query} AND database_name = $3", own).fetchall())
    columns = {
        "col_name": [field.name for field in shown.schema],
        "data_type": [field.dataType.simpleString() for field in shown.schema],
        "comment": [comments.get(fold(field.name)) for field in shown.schema],
    }
    return statement.rows(pa.table({name: pa.array(texts, pa.string()) for name, texts in columns.items()}))


def _show(statement: Statement, cursor: SparkCursor) -> DataFrame:
    """Run SHOW TABLES [IN schema] of the lake, with Spark's temporary views. Spark runs every other SHOW."""
    cursor.expect("SHOW")
    if not cursor.accept("TABLES"):
        return statement.native(cursor)
    schema, alias = DEFAULT_SCHEMA, fold(statement.attached.alias)
    if cursor.accept("IN") or cursor.accept("FROM"):
        names = cursor.names()
        names = names[1:] if len(names) == 2 and fold(names[0]) == alias else names
        if fold(names[-1]) != alias and not statement.session.names.has_schema(statement.attached, names[-1]):
            return statement.native(cursor)
        schema = DEFAULT_SCHEMA if fold(names[-1]) == alias else names[-1]
    if not cursor.done:
        return statement.native(cursor)
    tx = statement.view()
    known = [(info.schema_name, info.name) for info in tx.tables()]
    known += [(info.schema_name, info.name) for info in tx.objects.views()]
    temporary = [found.name for found in statement.engine.session.catalog.listTables() if found.isTemporary]
    found = sorted((owner, name, False) for owner, name in known if fold(owner) == fold(schema))
    found += sorted(("", name, True) for name in temporary)
    types = [("namespace", pa.string()), ("tableName", pa.string()), ("isTemporary", pa.bool_())]
    columns = [[row[number] for row in found] for number in range(len(types))]
    return statement.rows(pa.table(columns, schema=pa.schema(types)))


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
    "DESC": _describe,
    "DESCRIBE": _describe,
    "DROP": tables.drop,
    "EXPLAIN": _explain,
    "SHOW": _show,
    "TRUNCATE": tables.truncate,
}
