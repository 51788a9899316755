"""SQLite as a catalog: how it is opened, how commits queue, and what its errors mean."""

from __future__ import annotations

import ctypes
import json
import os
import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from itertools import repeat
from typing import Any
from urllib.parse import quote

import pyarrow as pa
import sqlalchemy as sa
from sqlalchemy.engine import Connection, Engine

from quacklake.core.catalog import scoped
from quacklake.core.catalog.databases.database import Database, Failure, PreparedSelect, Rows
from quacklake.core.catalog.databases.direct import DirectStatements, VaryingStatement
from quacklake.core.catalog.databases.sqlite_connection import (
    Identity,
    LockedConnection,
    TidyConnection,
    identity_of,
    open_locked,
)

_FAILURES = {
    sqlite3.SQLITE_CONSTRAINT: Failure.COLLISION,
    sqlite3.SQLITE_BUSY: Failure.BUSY,
    sqlite3.SQLITE_LOCKED: Failure.BUSY,
    sqlite3.SQLITE_FULL: Failure.FULL,
    sqlite3.SQLITE_IOERR: Failure.UNAVAILABLE,
    sqlite3.SQLITE_READONLY: Failure.FORBIDDEN,
    sqlite3.SQLITE_PERM: Failure.FORBIDDEN,
    sqlite3.SQLITE_AUTH: Failure.FORBIDDEN,
}

_MANY = 100
"""From this many rows on the values of an insert are prepared by the column."""


class GuardedConnection(TidyConnection):
    """A connection that remembers which write-ahead log it has open, and is given up when another is in its place.

    DuckDB's extension brings a SQLite of its own, whose locks do not exclude ours. When it closes the last connection
    it knows of, it removes the log under ours: what we commit then would be seen by nobody else, and lost in a crash.
    """

    log_path: str | None = None
    log: Identity | None = None
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
        if self.given_up and self.log_path is not None and identity_of(self.log_path) is not None:
            # SQLite removes the log when it believes to be the last user: prevent that
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(self))
            return
        super().close()


def log_replaced(connection: GuardedConnection) -> bool:
    """Return whether the log that a connection has open is no longer the database's."""
    log, path = connection.log, connection.log_path
    return log is not None and path is not None and identity_of(path) != log


class SqliteDatabase(Database):
    """SQLite through the standard library's driver. ``BEGIN IMMEDIATE`` is the commit queue.

    Files have a rollback journal, and we lock them ourselves, so that another SQLite in this process cannot drop our
    locks. With the setting ``sqlite_journal``, and where the system has no such locks, SQLite does all of it.
    """

    name = "sqlite"
    empty = "sqlite://"
    lists_columns = True

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._direct = DirectStatements()

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
        if self.url.path is None:

            @sa.event.listens_for(engine, "connect")
            def own_transactions(connection: sqlite3.Connection, _: Any) -> None:
                # the driver's implicit transactions start too late for a consistent read
                connection.isolation_level = None

        log_path = f"{self.url.path}-wal"

        @sa.event.listens_for(engine, "checkout")
        def look(connection: Any, record: Any, proxy: Any) -> None:
            if isinstance(connection, LockedConnection) and connection.lock.is_wal():
                raise sa.exc.DisconnectionError("the database has got a write-ahead log in the meantime")
            if isinstance(connection, GuardedConnection) and not self.read_only and log_replaced(connection):
                connection.given_up = True
                raise sa.exc.DisconnectionError("the write-ahead log was removed by another SQLite in this process")

        @sa.event.listens_for(engine, "checkin")
        def remember(connection: Any, _: Any) -> None:
            if isinstance(connection, GuardedConnection) and not self.read_only and connection.log is None:
                connection.log_path, connection.log = log_path, identity_of(log_path)

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

    def ask(self, connection: Connection, question: PreparedSelect) -> Rows:
        try:
            direct = self._direct.find(connection, question.statement, question.parameters)
        except VaryingStatement:
            return super().ask(connection, question)
        cursor = _cursor(connection).execute(direct.text, direct.placed(connection, question.parameters))
        return direct.rows(cursor)

    def write(
        self, connection: Connection, statement: sa.Insert | sa.Update, rows: Sequence[Mapping[str, Any]]
    ) -> None:
        try:
            direct = self._direct.find(connection, statement, rows[0])
        except VaryingStatement:
            return super().write(connection, statement, rows)
        cursor = _cursor(connection)
        if len(rows) == 1:
            cursor.execute(direct.text, direct.placed(connection, rows[0]))
        else:
            cursor.executemany(direct.text, [direct.placed(connection, row) for row in rows])
        return None

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

    def insert_many(self, connection: Connection, table: sa.Table, keys: Sequence[str], rows: Rows) -> None:
        if len(rows) < _MANY:
            return super().insert_many(connection, table, keys, rows)
        # a dictionary of each row would take longer than the database
        dialect = connection.dialect
        target, fixed = scoped.fixed(connection, table)
        values: list[Iterable[Any]] = list(zip(*rows, strict=True))
        for at, key in enumerate(keys):
            process = table.c[key].type.dialect_impl(dialect).bind_processor(dialect)
            if process is not None:
                values[at] = map(process, values[at])
        values += [repeat(value, len(rows)) for value in fixed.values()]
        preparer = dialect.identifier_preparer
        columns = [preparer.quote(name) for name in (*(table.c[key].name for key in keys), *fixed)]
        marks = ", ".join("?" * len(columns))
        text = f"INSERT INTO {preparer.format_table(target)} ({', '.join(columns)}) VALUES ({marks})"
        connection.exec_driver_sql(text, list(zip(*values, strict=True)))
        return None

    def has_table(self, connection: Connection, name: str, schema: str | None) -> bool:
        # asked for with most reads: SQLAlchemy would make an inspector and read the columns
        found = connection.exec_driver_sql("SELECT 1 FROM pragma_table_info(?) LIMIT 1", (name,))
        return found.first() is not None

    def index_names(self, connection: Connection, schema: str | None) -> set[str]:
        known = sa.table("sqlite_master", sa.column("type", sa.String), sa.column("name", sa.String))
        return set(connection.scalars(sa.select(known.c.name).where(known.c.type == "index")))

    def among_ids(self, element: sa.ColumnElement[int], parameter: str) -> sa.ColumnElement[bool]:
        # one parameter for all ids: one for each takes longer to compile than to run
        given = sa.func.json_each(sa.bindparam(parameter, type_=sa.String)).table_valued("value")
        return element.in_(sa.select(given.c.value))

    def listed(self, ids: Sequence[int]) -> Any:
        return json.dumps(list(ids))

    def fetch_texts(self, connection: Connection, select: sa.Select[Any], given: Mapping[str, Any]) -> pa.Table:
        # a column may have bytes in it, whatever its type, and JSON cannot hold them
        return self._fetch_lists(
            connection,
            select,
            given,
            lambda column: sa.func.json_group_array(sa.case((sa.func.typeof(column) != "blob", column))),
        )

    def fetch_columns(
        self, connection: Connection, select: sa.Select[Any], given: Mapping[str, Any]
    ) -> Sequence[str] | None:
        rows = select.order_by(None).subquery("listed_rows")
        lists = sa.select(*(sa.func.json_group_array(column) for column in rows.c))
        try:
            return tuple(connection.execute(lists, given).one())
        except (sa.exc.OperationalError, sa.exc.DataError):
            # bytes, which JSON cannot hold, or more of it than SQLite allows: rows will do, or tell why not
            return None

    def number(self, element: sa.ColumnElement[Any], kind: str) -> sa.ColumnElement[Any]:
        # a cast reads any leading digits: accept only the whole text
        if kind == "integer":
            number = sa.cast(element, sa.Integer)  # the nearest where there is none
            return sa.case((sa.cast(number, sa.Text) == element, number))
        good = sa.and_(element.op("NOT GLOB")("*[^0-9.eE+-]*"), sa.func.json_valid(element))
        return sa.case((good, sa.cast(element, sa.REAL)))

    def now_ms(self) -> sa.ColumnElement[Any]:
        return sa.cast((sa.func.julianday("now") - 2_440_587.5) * 86_400_000, sa.Integer)

    def classify(self, error: BaseException) -> Failure:
        code = getattr(error, "sqlite_errorcode", None)
        return Failure.OTHER if code is None else _FAILURES.get(code & 0xFF, Failure.OTHER)


def _cursor(connection: Connection) -> Any:
    """Return a cursor of the driver, which SQLAlchemy knows nothing of."""
    driver: Any = connection.connection.driver_connection
    return driver.cursor()
