"""Choose the function that runs a Spark statement by its first words."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from quacklake.spark.sql import calls, listing, merging, rows, tables
from quacklake.spark.sql.lexer import Parameters, SparkCursor, only_statement, with_values
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
    "CALL": calls.call,
    "COMMENT": tables.comment,
    "CREATE": tables.create,
    "DESC": listing.describe,
    "DESCRIBE": listing.describe,
    "DROP": tables.drop,
    "EXPLAIN": listing.explain,
    "SHOW": listing.show,
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
