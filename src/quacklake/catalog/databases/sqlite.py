"""SQLite as a catalog: how it is opened, how commits queue, and what its errors mean."""

from __future__ import annotations

import os
import sqlite3
from typing import Any
from urllib.parse import quote

import sqlalchemy as sa
from sqlalchemy.engine import Connection, Engine

from quacklake.catalog.databases.database import Database, Failure, PreparedSelect
from quacklake.catalog.databases.sqlite_connection import LockedConnection, open_locked
from quacklake.catalog.databases.sqlite_wal import GuardedConnection, guard, log_replaced


class SqliteDatabase(Database):
    """SQLite through the standard library's driver. ``BEGIN IMMEDIATE`` is the commit queue.

    Files have a rollback journal, and we lock them ourselves, so that another SQLite in this process cannot drop our
    locks. With the setting ``sqlite_journal``, and where the system has no such locks, SQLite does all of it.
    """

    name = "sqlite"
    empty = "sqlite://"

    def tail(self, element: sa.ColumnElement[Any], length: int) -> sa.ColumnElement[str]:
        return sa.func.substr(element, -length)

    def engine_options(self) -> dict[str, Any]:
        if self.url.path is None:
            return {"poolclass": sa.pool.StaticPool, "connect_args": {"check_same_thread": False}}
        return {**super().engine_options(), "creator": self._open}

    def _open(self) -> sqlite3.Connection:
        path = self.url.path
        assert path is not None
        read_only = self.read_only or (path.exists() and not os.access(path, os.W_OK))
        seconds = self.busy_timeout_ms / 1000
        if self.sqlite_journal == "rollback":
            connection = open_locked(str(path), seconds, read_only=read_only)
            if connection is not None:
                return connection
        name = f"file:{quote(str(path.resolve()))}?mode={'ro' if read_only else 'rwc'}"
        return sqlite3.connect(
            name, timeout=seconds, uri=True, isolation_level=None, check_same_thread=False, factory=GuardedConnection
        )

    def listen(self, engine: Engine) -> None:
        if self.url.path is not None:
            guard(engine, str(self.url.path), read_only=self.read_only)
        else:

            @sa.event.listens_for(engine, "connect")
            def own_transactions(connection: sqlite3.Connection, _: Any) -> None:
                # the driver's implicit transactions start too late for a consistent read
                connection.isolation_level = None

        @sa.event.listens_for(engine, "begin")
        def begin(connection: Connection) -> None:
            write = bool(connection.get_execution_options().get("quacklake_commit"))
            driver = connection.connection.driver_connection
            if isinstance(driver, LockedConnection):
                driver.begin(write=write)
            else:
                connection.exec_driver_sql(f"BEGIN {'IMMEDIATE' if write else 'DEFERRED'}")

    def begin_commit(self, connection: Connection) -> Connection:
        return connection.execution_options(quacklake_commit=True)

    def enter_queue(self, connection: Connection, scope: str, ahead: PreparedSelect | None = None) -> None:
        """Do nothing: ``BEGIN IMMEDIATE`` has queued already."""

    def committed(self, connection: Connection) -> bool:
        driver = connection.connection.driver_connection
        if not isinstance(driver, GuardedConnection) or not log_replaced(driver):
            return True
        driver.given_up = True
        connection.invalidate()
        return False

    def prepare_write(self, connection: Connection) -> None:
        driver = connection.connection.driver_connection
        assert driver is not None
        if self.sqlite_journal == "wal":
            # a property of the file: readers then never block the writer
            driver.execute("PRAGMA journal_mode=WAL")

    def index_names(self, connection: Connection, schema: str | None) -> set[str]:
        known = sa.table("sqlite_master", sa.column("type", sa.String), sa.column("name", sa.String))
        return set(connection.scalars(sa.select(known.c.name).where(known.c.type == "index")))

    def number(self, element: sa.ColumnElement[Any], kind: str) -> sa.ColumnElement[Any]:
        # a cast reads any leading digits: accept only a whole number, as JSON has it
        others = "*[^0-9-]*" if kind == "integer" else "*[^0-9.eE+-]*"
        good = sa.and_(element.op("NOT GLOB")(others), sa.func.json_valid(element))
        return sa.case((good, sa.cast(element, sa.Integer if kind == "integer" else sa.REAL)))

    def now_ms(self) -> sa.ColumnElement[Any]:
        return sa.cast((sa.func.julianday("now") - 2_440_587.5) * 86_400_000, sa.Integer)

    def classify(self, error: BaseException) -> Failure:
        code = getattr(error, "sqlite_errorcode", None)
        if code is None:
            return Failure.OTHER
        primary = code & 0xFF
        if primary == sqlite3.SQLITE_CONSTRAINT:
            return Failure.COLLISION
        if primary in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
            return Failure.BUSY
        if primary == sqlite3.SQLITE_FULL:
            return Failure.FULL
        if primary == sqlite3.SQLITE_IOERR:
            return Failure.UNAVAILABLE
        if primary in (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM, sqlite3.SQLITE_AUTH):
            return Failure.FORBIDDEN
        return Failure.OTHER
