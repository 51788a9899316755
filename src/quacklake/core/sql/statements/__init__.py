"""The statements of a session. ``handler`` chooses the function that runs one by its first words."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any

from quacklake.core.sql.extensions import is_of_access, is_of_pipelines, is_of_views, run_of_pipelines, run_of_views
from quacklake.core.sql.words import Cursor
from quacklake.errors import SqlError

if TYPE_CHECKING:
    from quacklake.core.sql.result import Result
    from quacklake.core.sql.session import Session

    Handler = Callable[[Session, Cursor, Any], Result]

#: Functions in the modules of this package, which are imported when a statement needs them.
_CREATED: Mapping[str, str] = {
    "SCHEMA": "objects.create_schema",
    "TABLE": "tables.create_table",
    "VIEW": "objects.create_view",
    "MACRO": "objects.create_macro",
    "FUNCTION": "objects.create_macro",
    "SECRET": "databases.create_secret",
}
_HANDLERS: Mapping[str, str] = {
    **dict.fromkeys(("SELECT", "FROM", "VALUES", "TABLE", "SUMMARIZE", "("), "queries.query"),
    "ABORT": "transactions.rollback",
    "ALTER": "alter.alter",
    "ATTACH": "databases.attach",
    "BEGIN": "transactions.begin",
    "CALL": "queries.call",
    "CHECKPOINT": "queries.checkpoint",
    "COMMENT": "objects.comment",
    "COMMIT": "transactions.commit",
    "COPY": "tables.copy",
    "DEALLOCATE": "transactions.deallocate",
    "DELETE": "rows.delete",
    "DESC": "queries.describe",
    "DESCRIBE": "queries.describe",
    "DETACH": "databases.detach",
    "DROP": "objects.drop",
    "END": "transactions.commit",
    "EXECUTE": "transactions.execute",
    "EXPLAIN": "queries.explain",
    "EXPORT": "queries.not_for_lakes",
    "IMPORT": "queries.not_for_lakes",
    "INSERT": "inserting.insert",
    "INSTALL": "databases.extension",
    "LOAD": "databases.extension",
    "MERGE": "inserting.merge",
    "PRAGMA": "databases.settings",
    "PREPARE": "transactions.prepare",
    "RESET": "databases.settings",
    "ROLLBACK": "transactions.rollback",
    "SET": "databases.settings",
    "SHOW": "queries.show",
    "START": "transactions.begin",
    "TRUNCATE": "rows.truncate",
    "UPDATE": "rows.update",
    "USE": "databases.use",
}


def handler(cursor: Cursor) -> Handler:
    """Return the function that runs the statement of a cursor."""
    if is_of_pipelines(cursor):
        return run_of_pipelines
    if is_of_views(cursor):
        return run_of_views
    module, _, function = ("access.run" if is_of_access(cursor) else _home(cursor)).partition(".")
    found: Handler = getattr(import_module(f"quacklake.core.sql.statements.{module}"), function)
    return found


def is_query(found: Handler) -> bool:
    """Return True for the function that runs a query, and nothing besides."""
    from quacklake.core.sql.statements import queries

    return found is queries.query


def _home(cursor: Cursor) -> str:
    first = cursor.peek()
    word = "" if first is None else first.upper
    following = [other.upper for other in cursor.words[1:4]]
    if word == "CREATE":
        temporary = "TEMP" in following or "TEMPORARY" in following
        kinds = (kind for kind in following if kind not in ("OR", "REPLACE", "TEMP", "TEMPORARY", "PERSISTENT"))
        found = _CREATED.get(next(kinds, ""), "")
        beside = temporary and found not in ("tables.create_table", "databases.create_secret")
        return "queries.native_ddl" if not found or beside else found
    if word == "WITH":  # the statement after the common tables decides
        ahead = Cursor(cursor.text, cursor.words)
        try:
            ahead.common_tables()
        except SqlError:
            return "queries.query"  # DuckDB reports what is wrong with it
        after = ahead.peek()
        word = "" if after is None else after.upper
        return _HANDLERS[word] if word in ("INSERT", "UPDATE", "DELETE", "MERGE") else "queries.query"
    if word == "DROP" and "SECRET" in following[:2]:
        return "databases.drop_secret"
    return _HANDLERS.get(word, "queries.native")
