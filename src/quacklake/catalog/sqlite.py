"""SQLite: how it is opened, queued and understood."""

from __future__ import annotations

import os
import sqlite3
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection, Engine

from quacklake.catalog.database import Database, Failure, Question
from quacklake.catalog.sqlite_wal import GuardedConnection, guard, log_replaced
from quacklake.catalog.url import CatalogUrl

__all__ = ["SqliteDatabase"]


class SqliteDatabase(Database):
    """SQLite in WAL mode, through the standard library's driver. ``BEGIN IMMEDIATE`` is the commit queue."""

    name = "sqlite"
    empty = "sqlite://"

    def tail(self, element: sa.ColumnElement[Any], length: int) -> sa.ColumnElement[str]:
        return sa.func.substr(element, -length)

    def create_engine(self, *, shared: bool = False) -> Engine:
        path = self.url.path
        if path is not None and (self.read_only or (path.exists() and not os.access(path, os.W_OK))):
            url = self.url.url.set(database=f"file:{path.resolve()}").update_query_dict({"mode": "ro", "uri": "true"})
            self.url = CatalogUrl(self.name, url, self.url.catalog, None, self.url.data_path)
        return super().create_engine(shared=shared)

    def engine_options(self) -> dict[str, Any]:
        if self.url.path is None:
            return {"poolclass": sa.pool.StaticPool, "connect_args": {"check_same_thread": False}}
        timeout = self.busy_timeout_ms / 1000
        arguments = {"check_same_thread": False, "timeout": timeout, "factory": GuardedConnection}
        return {**super().engine_options(), "connect_args": arguments}

    def listen(self, engine: Engine) -> None:
        if self.url.path is not None and not self.read_only:
            guard(engine, str(self.url.path))

        @sa.event.listens_for(engine, "connect")
        def own_transactions(connection: sqlite3.Connection, _: Any) -> None:
            # the driver's implicit transactions start too late for a consistent read
            connection.isolation_level = None

        @sa.event.listens_for(engine, "begin")
        def begin(connection: Connection) -> None:
            mode = "IMMEDIATE" if connection.get_execution_options().get("quacklake_commit") else "DEFERRED"
            connection.exec_driver_sql(f"BEGIN {mode}")

    def begin_commit(self, connection: Connection) -> Connection:
        return connection.execution_options(quacklake_commit=True)

    def enter_queue(self, connection: Connection, scope: str, ahead: Question | None = None) -> None:
        """``BEGIN IMMEDIATE`` has queued already."""

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
        # WAL is a property of the file: readers then never block the writer
        driver.execute("PRAGMA journal_mode=WAL")

    def index_names(self, connection: Connection, schema: str | None) -> set[str]:
        known = sa.table("sqlite_master", sa.column("type", sa.String), sa.column("name", sa.String))
        return set(connection.scalars(sa.select(known.c.name).where(known.c.type == "index")))

    def number(self, element: sa.ColumnElement[Any], kind: str) -> sa.ColumnElement[Any]:
        # a cast reads as far as it understands: only what is a number as a whole counts, as JSON has it
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
        if primary in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_FULL):
            return Failure.UNAVAILABLE
        if primary in (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM, sqlite3.SQLITE_AUTH):
            return Failure.FORBIDDEN
        return Failure.OTHER
