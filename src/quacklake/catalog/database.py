"""The four databases: how each is opened, locked and understood when it fails.

Everything that differs between databases and is not a column type lives here, one class each. Errors are told apart by
SQLSTATE, driver error number or driver class, never by their text.
"""

from __future__ import annotations

import enum
import os
import sqlite3
import threading
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, ClassVar

import duckdb
import pyarrow as pa
import sqlalchemy as sa
from sqlalchemy.engine import Connection, Engine
from sqlalchemy.sql import func

from quacklake.catalog.url import CatalogUrl
from quacklake.errors import MissingExtraError

__all__ = [
    "DATABASE_CLASSES",
    "Database",
    "DuckDBDatabase",
    "Failure",
    "MySQLDatabase",
    "PostgresDatabase",
    "SqliteDatabase",
]

Rows = Sequence[Sequence[Any]]
#: The advisory lock of the commit queue on PostgreSQL; one per metadata schema is derived from it.
_LOCK_SPACE = 0x51756163  # "Quac"


class Failure(enum.Enum):
    """What a database error means for the caller."""

    COLLISION = "collision"  # another writer took the same key, or the database asks to try again
    UNAVAILABLE = "unavailable"  # connection, lock or server trouble
    FORBIDDEN = "forbidden"  # no rights, or a read-only database
    ABSENT = "absent"  # a table that does not exist
    OTHER = "other"


class Database(ABC):
    """One kind of database. Subclasses say how it is opened, how commits queue and what its errors mean."""

    name: ClassVar[str]
    extra: ClassVar[str | None] = None
    driver: ClassVar[str | None] = None

    def __init__(
        self, url: CatalogUrl, *, busy_timeout_ms: int, pool_size: int, max_overflow: int, read_only: bool
    ) -> None:
        self.url = url
        self.busy_timeout_ms = busy_timeout_ms
        self.read_only = read_only
        self.pool_size = pool_size
        self.max_overflow = max_overflow
        self._inserts: dict[str, sa.Insert] = {}

    def create_engine(self) -> Engine:
        """An engine with a pool. Raises ``MissingExtraError`` when the driver is not installed."""
        try:
            engine = sa.create_engine(self.url.url, hide_parameters=True, **self.engine_options())
        except (ImportError, sa.exc.NoSuchModuleError):
            raise MissingExtraError(
                f"the {self.name} catalog needs the Python package {self.driver}",
                hint=f'pip install "quacklake[{self.extra}]"',
            ) from None
        self.listen(engine)
        return engine

    def engine_options(self) -> dict[str, Any]:
        return {
            "pool_size": self.pool_size,
            "max_overflow": self.max_overflow,
            "pool_timeout": self.busy_timeout_ms / 1000,
        }

    def listen(self, engine: Engine) -> None:  # noqa: B027  most databases need nothing
        """Attach what every new connection needs."""

    def begin_read(self, connection: Connection) -> Connection:
        """A connection whose transaction sees one consistent state."""
        return connection

    def begin_commit(self, connection: Connection) -> Connection:
        """A connection whose transaction sees what others commit while it waits in the queue."""
        return connection

    @abstractmethod
    def enter_queue(self, connection: Connection, scope: str) -> None:
        """Wait for the turn to commit; held until the transaction ends (or ``leave_queue``)."""

    def leave_queue(self, connection: Connection, scope: str) -> None:  # noqa: B027
        """Release what outlives the transaction."""

    def prepare_write(self, connection: Connection) -> None:  # noqa: B027
        """Once per catalog before its first write."""

    def batch(self, connection: Connection) -> AbstractContextManager[None]:
        """A block of statements whose results nobody reads: they may travel together."""
        return nullcontext()

    def insert_many(self, connection: Connection, table: sa.Table, keys: Sequence[str], rows: Rows) -> None:
        """Insert rows, values in the order of the column keys."""
        statement = self._inserts.get(table.key)
        if statement is None:
            statement = self._inserts[table.key] = sa.insert(table)
        connection.execute(statement, [dict(zip(keys, row, strict=True)) for row in rows])

    def bound(self, element: sa.ColumnElement[Any], kind: str) -> sa.ColumnElement[Any]:
        """A stored statistics text as a comparable value of ``kind``; NULL when it is not of the documented form."""
        if kind == "text":
            return self.binary_text(element)
        if kind == "date":
            return sa.case((self._like(element, "____-__-__"), element))
        if kind == "timestamp":
            return sa.case((self._like(element, "____-__-__ __:__:__%"), element))
        return self.number(element, kind)

    def _like(self, element: sa.ColumnElement[Any], pattern: str) -> sa.ColumnElement[bool]:
        # a sign or letter in front ('-infinity', BC years) must not pass for a year
        return sa.and_(element.like(pattern), element.between("0", "9~"))

    def binary_text(self, element: sa.ColumnElement[Any]) -> sa.ColumnElement[Any]:
        return element

    @abstractmethod
    def number(self, element: sa.ColumnElement[Any], kind: str) -> sa.ColumnElement[Any]:
        """A number from its text (``kind`` is ``integer`` or ``real``), NULL for any other text."""

    @abstractmethod
    def classify(self, error: BaseException) -> Failure:
        """What a driver's error means."""

    def fetch_arrow(self, connection: Connection, select: sa.Select[Any]) -> pa.Table:
        """The raw rows of a select as Arrow, in bulk; types are what the driver gives."""
        result = connection.execute(select)
        names = list(result.keys())
        rows = result.all()
        columns = zip(*rows, strict=True) if rows else [()] * len(names)
        return pa.table({name: _raw_array(values) for name, values in zip(names, columns, strict=True)})

    def default_metadata_schema(self) -> str | None:
        return None


def _raw_array(values: tuple[Any, ...]) -> pa.Array:
    try:
        return pa.array(values)
    except (pa.ArrowInvalid, pa.ArrowTypeError):
        # SQLite columns may hold mixed types: as text, DuckDB casts them all
        return pa.array([None if value is None else str(value) for value in values], pa.string())


class SqliteDatabase(Database):
    """SQLite in WAL mode, through the standard library's driver. ``BEGIN IMMEDIATE`` is the commit queue."""

    name = "sqlite"

    def create_engine(self) -> Engine:
        path = self.url.path
        if path is not None and (self.read_only or (path.exists() and not os.access(path, os.W_OK))):
            url = self.url.url.set(database=f"file:{path.resolve()}").update_query_dict({"mode": "ro", "uri": "true"})
            self.url = CatalogUrl(self.name, url, self.url.catalog, None, self.url.data_path)
        return super().create_engine()

    def engine_options(self) -> dict[str, Any]:
        if self.url.path is None:
            return {"poolclass": sa.pool.StaticPool, "connect_args": {"check_same_thread": False}}
        timeout = self.busy_timeout_ms / 1000
        return {**super().engine_options(), "connect_args": {"check_same_thread": False, "timeout": timeout}}

    def listen(self, engine: Engine) -> None:
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

    def enter_queue(self, connection: Connection, scope: str) -> None:
        """``BEGIN IMMEDIATE`` has queued already."""

    def prepare_write(self, connection: Connection) -> None:
        driver = connection.connection.driver_connection
        assert driver is not None
        # WAL is a property of the file: readers then never block the writer
        driver.execute("PRAGMA journal_mode=WAL")

    def number(self, element: sa.ColumnElement[Any], kind: str) -> sa.ColumnElement[Any]:
        if kind == "integer":
            good = sa.and_(element.op("NOT GLOB")("*[^0-9-]*"), element != "")
            return sa.case((good, sa.cast(element, sa.Integer)))
        good = sa.and_(element.op("NOT GLOB")("*[^0-9.eE+-]*"), element.op("GLOB")("*[0-9]*"))
        return sa.case((good, sa.cast(element, sa.REAL)))

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


class DuckDBDatabase(Database):
    """A DuckDB file, open in this process only. A lock in the process is the commit queue."""

    name = "duckdb"
    _locks: ClassVar[dict[str, threading.RLock]] = {}
    _guard: ClassVar[threading.Lock] = threading.Lock()

    def engine_options(self) -> dict[str, Any]:
        arguments: dict[str, Any] = {"read_only": True} if self.read_only else {}
        return {**super().engine_options(), "poolclass": sa.pool.QueuePool, "connect_args": arguments}

    def _lock(self) -> threading.RLock:
        path = self.url.path
        with self._guard:
            return self._locks.setdefault(str(path.resolve()) if path else str(id(self)), threading.RLock())

    def enter_queue(self, connection: Connection, scope: str) -> None:
        self._lock().acquire()
        # the transaction began before its turn came: start it again to see what was committed meanwhile
        driver = connection.connection.driver_connection
        assert driver is not None
        driver.rollback()
        driver.begin()

    def leave_queue(self, connection: Connection, scope: str) -> None:
        self._lock().release()

    def number(self, element: sa.ColumnElement[Any], kind: str) -> sa.ColumnElement[Any]:
        return sa.try_cast(element, sa.BigInteger if kind == "integer" else sa.Double)

    def fetch_arrow(self, connection: Connection, select: sa.Select[Any]) -> pa.Table:
        compiled = select.compile(connection.engine, compile_kwargs={"literal_binds": True})
        driver = connection.connection.driver_connection
        assert driver is not None
        return driver.execute(str(compiled)).to_arrow_table()

    def classify(self, error: BaseException) -> Failure:
        if isinstance(error, duckdb.ConstraintException | duckdb.TransactionException | duckdb.SerializationException):
            return Failure.COLLISION
        if isinstance(error, duckdb.IOException | duckdb.ConnectionException):
            return Failure.UNAVAILABLE
        if isinstance(error, duckdb.PermissionException):
            return Failure.FORBIDDEN
        if isinstance(error, duckdb.CatalogException):
            return Failure.ABSENT
        return Failure.OTHER


class PostgresDatabase(Database):
    """PostgreSQL through psycopg 3. A transaction-level advisory lock is the commit queue."""

    name = "postgres"
    extra = "postgres"
    driver = "psycopg"

    def engine_options(self) -> dict[str, Any]:
        return {**super().engine_options(), "connect_args": {"application_name": "quacklake"}}

    def insert_many(self, connection: Connection, table: sa.Table, keys: Sequence[str], rows: Rows) -> None:
        # COPY takes a third of the time of the same rows as inserts
        if len(rows) == 1:
            return super().insert_many(connection, table, keys, rows)
        import psycopg

        preparer = connection.dialect.identifier_preparer
        columns = ", ".join(preparer.quote(table.c[key].name) for key in keys)
        driver = connection.connection.driver_connection
        assert driver is not None
        statement = f"COPY {preparer.format_table(table)} ({columns}) FROM STDIN"
        try:
            with driver.cursor() as cursor, cursor.copy(statement) as copy:
                for row in rows:
                    copy.write_row(row)
        except psycopg.Error as error:
            raise sa.exc.DBAPIError(statement, None, error, connection_invalidated=driver.closed) from error

    def begin_read(self, connection: Connection) -> Connection:
        return connection.execution_options(isolation_level="REPEATABLE READ")

    def begin_commit(self, connection: Connection) -> Connection:
        # each statement must see what was committed while this one waited for the lock
        return connection.execution_options(isolation_level="READ COMMITTED")

    def enter_queue(self, connection: Connection, scope: str) -> None:
        connection.execute(_POSTGRES_LOCK, {"space": _LOCK_SPACE, "scope": scope})

    @contextmanager
    def batch(self, connection: Connection) -> Iterator[None]:
        import psycopg

        driver = connection.connection.driver_connection
        assert driver is not None
        try:
            with driver.pipeline():
                yield
        except psycopg.Error as error:
            # raised when the batch ends, outside SQLAlchemy: give it the same form
            raise sa.exc.DBAPIError("batch", None, error, connection_invalidated=driver.closed) from error

    def binary_text(self, element: sa.ColumnElement[Any]) -> sa.ColumnElement[Any]:
        return element.collate("C")

    def _like(self, element: sa.ColumnElement[Any], pattern: str) -> sa.ColumnElement[bool]:
        return sa.and_(element.like(pattern), element.collate("C").between("0", "9~"))

    def bound(self, element: sa.ColumnElement[Any], kind: str) -> sa.ColumnElement[Any]:
        found = super().bound(element, kind)
        return found.collate("C") if kind in ("date", "timestamp") else found

    def number(self, element: sa.ColumnElement[Any], kind: str) -> sa.ColumnElement[Any]:
        if kind == "integer":
            return sa.case((element.op("~")("^-?[0-9]{1,18}$"), sa.cast(element, sa.BigInteger)))
        return sa.case(
            (element.op("~")(r"^-?[0-9]{1,300}(\.[0-9]+)?(e[+-]?[0-9]{1,2})?$"), sa.cast(element, sa.Double))
        )

    def classify(self, error: BaseException) -> Failure:
        state: str | None = getattr(error, "sqlstate", None)
        if state is None:
            return (
                Failure.UNAVAILABLE if type(error).__name__ in ("OperationalError", "InterfaceError") else Failure.OTHER
            )
        if state in ("23505", "40001", "40P01", "42P07"):
            return Failure.COLLISION
        if state[:2] in ("08", "53", "57", "58") or state == "55P03":
            return Failure.UNAVAILABLE
        if state in ("42501", "25006"):
            return Failure.FORBIDDEN
        return Failure.ABSENT if state in ("42P01", "3F000") else Failure.OTHER

    def fetch_arrow(self, connection: Connection, select: sa.Select[Any]) -> pa.Table:
        from quacklake.catalog.postgres_copy import copy_arrow

        return copy_arrow(connection, select)


class MySQLDatabase(Database):
    """MySQL 8 and MariaDB through PyMySQL. A named lock is the commit queue."""

    name = "mysql"
    extra = "mysql"
    driver = "pymysql"

    def engine_options(self) -> dict[str, Any]:
        return {
            **super().engine_options(),
            "connect_args": {"charset": "utf8mb4"},
        }

    def _lock_name(self, scope: str) -> str:
        return f"quacklake:{self.url.url.database}:{scope}"[:64]

    def enter_queue(self, connection: Connection, scope: str) -> None:
        seconds = max(1, self.busy_timeout_ms // 1000)
        got = connection.execute(sa.select(func.get_lock(self._lock_name(scope), seconds))).scalar()
        if got != 1:
            raise TimeoutError("the commit queue was not free in time")

    def leave_queue(self, connection: Connection, scope: str) -> None:
        # the lock belongs to the session: a connection that is gone has released it already
        if not connection.closed and not connection.invalidated:
            driver = connection.connection.driver_connection
            assert driver is not None
            try:
                with driver.cursor() as cursor:
                    cursor.execute("SELECT RELEASE_LOCK(%s)", (self._lock_name(scope),))
            except Exception:
                # the commit stands or falls without this; a session that ends has no lock
                connection.invalidate()

    def number(self, element: sa.ColumnElement[Any], kind: str) -> sa.ColumnElement[Any]:
        if kind == "integer":
            return sa.case((element.op("REGEXP")("^-?[0-9]{1,18}$"), sa.cast(element, sa.BigInteger)))
        good = element.op("REGEXP")("^-?[0-9]+([.][0-9]+)?(e[+-]?[0-9]{1,2})?$")
        return sa.case((good, sa.cast(element, sa.Double)))

    def classify(self, error: BaseException) -> Failure:
        arguments = getattr(error, "args", ())
        number = arguments[0] if arguments and isinstance(arguments[0], int) else None
        return _MYSQL.get(number, Failure.OTHER) if number is not None else Failure.OTHER


_POSTGRES_LOCK = sa.select(
    func.pg_advisory_xact_lock(sa.cast(sa.bindparam("space"), sa.Integer), func.hashtext(sa.bindparam("scope")))
)
_MYSQL: Mapping[int, Failure] = {
    1062: Failure.COLLISION,
    1213: Failure.COLLISION,
    1050: Failure.COLLISION,
    1205: Failure.UNAVAILABLE,
    1040: Failure.UNAVAILABLE,
    2002: Failure.UNAVAILABLE,
    2003: Failure.UNAVAILABLE,
    2006: Failure.UNAVAILABLE,
    2013: Failure.UNAVAILABLE,
    1044: Failure.FORBIDDEN,
    1045: Failure.FORBIDDEN,
    1142: Failure.FORBIDDEN,
    1290: Failure.FORBIDDEN,
    1792: Failure.FORBIDDEN,
    1146: Failure.ABSENT,
}
DATABASE_CLASSES: Mapping[str, type[Database]] = {
    cls.name: cls for cls in (SqliteDatabase, DuckDBDatabase, PostgresDatabase, MySQLDatabase)
}
