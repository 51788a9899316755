"""BEGIN, COMMIT and ROLLBACK; PREPARE, EXECUTE and DEALLOCATE.

The text of a prepared statement is kept and bound anew for each EXECUTE, because its tables may change.
"""

from __future__ import annotations

import logging
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import duckdb
import pyarrow as pa

from quacklake.core.format.names import fold
from quacklake.core.sql.binder import Binder
from quacklake.core.sql.result import Result
from quacklake.core.sql.session_transaction import ROLLED_BACK
from quacklake.core.sql.words import Cursor
from quacklake.errors import SqlError, nearest

if TYPE_CHECKING:
    from quacklake.core.sql.session import Session

_log = logging.getLogger("quacklake.sql")


def begin(session: Session, cursor: Cursor, _: Any) -> Result:
    """Start a transaction over the lakes and DuckDB's own tables."""
    session.connection.execute(cursor.text)  # inside of a transaction, this fails and aborts it
    session.work.begin()
    return Result()


def commit(session: Session, cursor: Cursor, _: Any) -> Result:
    """Commit the lake that was written. If that fails, everything in the transaction is rolled back.

    A transaction that has been aborted is rolled back, without an error, as in DuckDB. The result says so.
    """
    if session.work.is_aborted(session.connection):
        _log.warning(ROLLED_BACK)
        rollback(session, cursor, None)
        return Result(pa.table({"Warning": [ROLLED_BACK]}))
    try:
        session.work.commit()
    except BaseException:
        _roll_back_duckdb(session)
        raise
    session.connection.execute("COMMIT")
    return Result()


def rollback(session: Session, _: Cursor, __: Any) -> Result:
    if not session.work.explicit:
        raise SqlError("TransactionContext Error: cannot rollback - no transaction is active")
    session.work.rollback()
    _roll_back_duckdb(session)
    return Result()


def _roll_back_duckdb(session: Session) -> None:
    with suppress(duckdb.TransactionException):  # DuckDB's own transaction has ended already
        session.connection.execute("ROLLBACK")


def prepare(session: Session, cursor: Cursor, _: Any) -> Result:
    """Run PREPARE name AS statement."""
    cursor.expect("PREPARE")
    name = fold(cursor.name())
    cursor.expect("AS")
    session.prepared[name] = cursor.rest()
    return Result()


def execute(session: Session, cursor: Cursor, params: Any) -> Result:
    """Run EXECUTE name [(value, …)] or EXECUTE name (parameter := value, …)."""
    cursor.expect("EXECUTE")
    name = cursor.name()
    text = session.prepared.get(fold(name))
    if text is None:
        raise SqlError(f'Prepared statement "{name}" does not exist', hint=nearest(name, session.prepared))
    positional: list[Any] = []
    named: dict[str, Any] = {}
    for item in cursor.items() if cursor.sees("(") else ():
        inner = Cursor(item)
        key = inner.until(":=", "=>")
        binder = Binder(session, params)
        if inner.accept(":=") or inner.accept("=>"):
            named[_unquote(key)] = binder.evaluate_text(inner.rest())
        else:
            positional.append(binder.evaluate_text(item))
    cursor.end()
    if positional and named:
        raise SqlError("parameters are given by place or by name, not both")
    return session.statement(text, named or positional or None)


def _unquote(name: str) -> str:
    word = Cursor(name).peek()
    return name if word is None else word.value


def deallocate(session: Session, cursor: Cursor, _: Any) -> Result:
    """Run DEALLOCATE [PREPARE] name."""
    cursor.expect("DEALLOCATE")
    cursor.accept("PREPARE")
    name = cursor.name()
    cursor.end()
    if session.prepared.pop(fold(name), None) is None:
        raise SqlError(f'Prepared statement "{name}" does not exist')
    return Result()
