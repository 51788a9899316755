"""A guard against a second copy of SQLite in the same process.

DuckDB's SQLite extension brings a SQLite of its own. POSIX file locks do not hold between two copies in one process, so
when the other copy closes the last connection it knows of, it removes the write-ahead log under ours: what we commit
after that would be seen by nobody else, and lost in a crash. So every connection remembers the log it has open, and is
given up when the file in its place is another one.
"""

from __future__ import annotations

import ctypes
import sqlite3
from contextlib import suppress
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Engine

from quacklake.catalog.databases.sqlite_connection import LockedConnection
from quacklake.catalog.databases.sqlite_cursors import TidyConnection

_Identity = tuple[int, int]


class GuardedConnection(TidyConnection):
    """A connection that remembers which write-ahead log it has open."""

    log_path: str | None = None
    log: _Identity | None = None
    given_up = False

    def commit(self) -> None:
        """Commit, or undo it all: nobody may wait for a transaction that has failed."""
        try:
            super().commit()
        except BaseException:
            self.rollback()
            raise

    def close(self) -> None:
        """Close, except where that would remove a log that is not ours."""
        with suppress(sqlite3.Error):
            # a statement that was not read to its end would keep the connection, and its locks, alive
            self.rollback()
        if self.given_up and self.log_path is not None and _identity(self.log_path) is not None:
            # SQLite removes the log when it believes to be the last user: prevent that
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(self))
            return
        super().close()


def guard(engine: Engine, path: str, *, read_only: bool = False) -> None:
    """Watch every pooled connection to the database file at ``path``."""
    log_path = f"{path}-wal"

    @sa.event.listens_for(engine, "checkout")
    def look_at_journal(connection: Any, record: Any, proxy: Any) -> None:
        if isinstance(connection, LockedConnection) and connection.lock.is_wal():
            raise sa.exc.DisconnectionError("the database has got a write-ahead log meanwhile")

    if read_only:
        return

    @sa.event.listens_for(engine, "checkin")
    def remember(connection: Any, _: Any) -> None:
        if isinstance(connection, GuardedConnection) and connection.log is None:
            connection.log_path, connection.log = log_path, _identity(log_path)

    @sa.event.listens_for(engine, "checkout")
    def look(connection: Any, record: Any, proxy: Any) -> None:
        if isinstance(connection, GuardedConnection) and log_replaced(connection):
            connection.given_up = True
            raise sa.exc.DisconnectionError("the write-ahead log was removed by another SQLite in this process")


def log_replaced(connection: GuardedConnection) -> bool:
    """Return whether the log that a connection has open is no longer the database's."""
    return (
        connection.log is not None
        and connection.log_path is not None
        and _identity(connection.log_path) != connection.log
    )


def _identity(path: str) -> _Identity | None:
    try:
        status = Path(path).stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino
