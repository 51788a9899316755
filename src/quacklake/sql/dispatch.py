"""Choose the function that runs a statement by its first words."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any

from quacklake.errors import SqlError
from quacklake.sql.words import Cursor

if TYPE_CHECKING:
    from quacklake.sql.result import Result
    from quacklake.sql.session import Session

    Handler = Callable[[Session, Cursor, Any], Result]

#: Functions in the modules of ``statements``, which are imported when a statement needs them.
_CREATED: Mapping[str, str] = {
    "SCHEMA": "objects.create_schema",
    "TABLE": "tables.create_table",
    "VIEW": "objects.create_view",
    "MACRO": "objects.create_macro",
    "FUNCTION": "objects.create_macro",
    "SECRET": "secrets.create_secret",
}
_HANDLERS: Mapping[str, str] = {
    "ABORT": "transactions.rollback",
    "ALTER": "alter.alter",
    "ATTACH": "databases.attach",
    "BEGIN": "transactions.begin",
    "CALL": "queries.call",
    "CHECKPOINT": "queries.checkpoint",
    "COMMENT": "objects.comment",
    "COMMIT": "transactions.commit",
    "COPY": "copying.copy",
    "DEALLOCATE": "prepared.deallocate",
    "DELETE": "rows.delete",
    "DESC": "queries.describe",
    "DESCRIBE": "queries.describe",
    "DETACH": "databases.detach",
    "DROP": "objects.drop",
    "END": "transactions.commit",
    "EXECUTE": "prepared.execute",
    "EXPLAIN": "queries.explain",
    "EXPORT": "queries.not_for_lakes",
    "IMPORT": "queries.not_for_lakes",
    "INSERT": "inserting.insert",
    "INSTALL": "databases.extension",
    "LOAD": "databases.extension",
    "MERGE": "merging.merge",
    "PRAGMA": "databases.settings",
    "PREPARE": "prepared.prepare",
    "RESET": "databases.settings",
    "ROLLBACK": "transactions.rollback",
    "SET": "databases.settings",
    "SHOW": "queries.show",
    "START": "transactions.begin",
    "TRUNCATE": "rows.truncate",
    "UPDATE": "rows.update",
    "USE": "databases.use",
}
_QUERIES = frozenset({"SELECT", "FROM", "VALUES", "TABLE", "SUMMARIZE", "("})
_CREATE_WORDS = frozenset({"OR", "REPLACE", "TEMP", "TEMPORARY", "PERSISTENT"})


def handler(cursor: Cursor) -> Handler:
    """Return the function that runs the statement of a cursor."""
    module, _, function = _home(cursor).partition(".")
    found: Handler = getattr(import_module(f"quacklake.sql.statements.{module}"), function)
    return found


def _home(cursor: Cursor) -> str:
    first = cursor.peek()
    word = "" if first is None else first.upper
    if word == "CREATE":
        return _creator(cursor)
    if word == "WITH":
        return _with(cursor)
    if word == "DROP" and any(other.upper == "SECRET" for other in cursor.words[1:3]):
        return "secrets.drop_secret"
    if word in _QUERIES:
        return "queries.query"
    return _HANDLERS.get(word, "queries.native")


def _creator(cursor: Cursor) -> str:
    kinds = (word.upper for word in cursor.words[1:4] if word.upper not in _CREATE_WORDS)
    temporary = any(word.upper in ("TEMP", "TEMPORARY") for word in cursor.words[1:4])
    found = _CREATED.get(next(kinds, ""))
    if found is None or (temporary and found not in ("tables.create_table", "secrets.create_secret")):
        return "queries.native_ddl"
    return found


def _with(cursor: Cursor) -> str:
    """Choose by the statement after the common tables."""
    ahead = Cursor(cursor.text, cursor.words)
    try:
        ahead.common_tables()
    except SqlError:
        return "queries.query"  # DuckDB reports what is wrong with it
    word = ahead.peek()
    if word is not None and word.upper in ("INSERT", "UPDATE", "DELETE", "MERGE"):
        return _HANDLERS[word.upper]
    return "queries.query"


def ends_transaction(cursor: Cursor) -> bool:
    """Return True for a statement that ends a transaction, whether it has failed or not."""
    first = cursor.peek()
    return first is not None and first.upper in ("ROLLBACK", "ABORT", "COMMIT", "END")
