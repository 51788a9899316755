"""BEGIN, COMMIT and ROLLBACK."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import duckdb

from quacklake.errors import SqlError
from quacklake.sql.result import Result
from quacklake.sql.words import Cursor

if TYPE_CHECKING:
    from quacklake.sql.session import Session


def begin(session: Session, cursor: Cursor, _: Any) -> Result:
    """Start a transaction over the lakes and DuckDB's own tables."""
    session.work.begin()
    try:
        session.connection.execute(cursor.text)
    except BaseException:
        session.work.rollback()
        raise
    return Result()


def commit(session: Session, _: Cursor, __: Any) -> Result:
    """Commit the lake that was written. If that fails, everything in the transaction is rolled back."""
    if session.work.aborted:
        rollback(session, _, __)
        raise SqlError("TransactionContext Error: Failed to commit: the transaction was aborted and is rolled back")
    try:
        session.work.commit()
    except BaseException:
        _end(session, "ROLLBACK")
        raise
    session.connection.execute("COMMIT")
    return Result()


def rollback(session: Session, _: Cursor, __: Any) -> Result:
    if not session.work.explicit:
        raise SqlError("TransactionContext Error: cannot rollback - no transaction is active")
    session.work.rollback()
    _end(session, "ROLLBACK")
    return Result()


def _end(session: Session, how: str) -> None:
    try:
        session.connection.execute(how)
    except duckdb.TransactionException:
        return  # DuckDB's own transaction has ended already
