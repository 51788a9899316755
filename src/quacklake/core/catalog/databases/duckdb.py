"""DuckDB as a catalog: how it is opened, how commits queue, and what its errors mean."""

from __future__ import annotations

import errno
import os
import threading
import weakref
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import duckdb
import pyarrow as pa
import sqlalchemy as sa
from sqlalchemy.engine import Connection, Engine

from quacklake.core.catalog import scoped
from quacklake.core.catalog.databases.database import Database, Failure, PreparedSelect, Rows
from quacklake.core.duckdb_versions import IS_2, TRANSACTION_POLICY, arrow_table, connect
from quacklake.core.format.names import literal
from quacklake.errors import CatalogError, ConfigError

_NO_ROOM = tuple(os.strerror(number) for number in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG))
"""The texts of the errors of a file that cannot grow: the disk, a quota or a limit of the process is full."""
_BULK = 100
"""From this many rows on, a table of Arrow is quicker than one statement for each."""


class DuckDBDatabase(Database):
    """A DuckDB file, open in this process only. A lock in the process is the commit queue."""

    name = "duckdb"
    empty = "duckdb:///:memory:"
    _locks: ClassVar[dict[str, threading.Lock]] = {}
    _guard: ClassVar[threading.Lock] = threading.Lock()
    #: Those with connections, and the process that has opened them.
    _open: ClassVar[weakref.WeakSet[DuckDBDatabase]] = weakref.WeakSet()
    _process: int = 0
    #: The catalog of a shared lake that each file is open for, and by how many.
    _users: ClassVar[dict[str, tuple[int, weakref.WeakSet[Any]]]] = {}

    def engine_options(self) -> dict[str, Any]:
        arguments: dict[str, Any] = {"read_only": True} if self.read_only else {}
        return {**super().engine_options(), "poolclass": sa.pool.QueuePool, "connect_args": arguments}

    def make_file(self) -> None:
        """Choose the form of the file: from 1.5 on VARIANT can live in the catalog; that of 2.0, 1.5 cannot open."""
        path = self.url.path
        if path is not None and not path.exists():
            with connect(":memory:") as connection:
                try:
                    connection.execute(
                        f"ATTACH {literal(str(path))} AS made (STORAGE_VERSION {literal(self.storage_version)})"
                    )
                except duckdb.InvalidInputException as error:
                    raise ConfigError(
                        f"DuckDB {duckdb.__version__} cannot create files for DuckDB {self.storage_version}",
                        hint="set duckdb_storage_version to a version such as v1.5.0, or to latest",
                    ) from error
                connection.execute("DETACH made")

    def listen(self, engine: Engine) -> None:
        @sa.event.listens_for(engine, "connect")
        def own(driver: object, _: object) -> None:
            # a forked child would get the parent's database without the parent's threads
            file = self._file()
            if any(other._process != os.getpid() for other in list(self._open) if other._file() == file):
                raise CatalogError(
                    f"the DuckDB file {self.url.path} is open in the parent of this process",
                    hint="open it after the fork, start processes with spawn, or use SQLite or PostgreSQL",
                )
            self._process = os.getpid()
            self._open.add(self)

        if not IS_2:
            return

        @sa.event.listens_for(engine, "connect")
        def prepare(driver: Any, _: object) -> None:
            # has_table asks for tables that may be missing; no part of the configuration, which all who open a file
            # in one process have to share
            driver.execute(f"SET GLOBAL {TRANSACTION_POLICY[0]} = {literal(TRANSACTION_POLICY[1])}")

    def _file(self) -> str:
        path = self.url.path
        return str(path.resolve()) if path else str(id(self))

    def _lock(self) -> threading.Lock:
        with self._guard:
            return self._locks.setdefault(self._file(), threading.Lock())

    def enter_file(self, user: object, catalog: int) -> None:
        with self._guard:
            known, users = self._users.get(self._file(), (catalog, weakref.WeakSet()))
            if users and known != catalog:
                raise ConfigError(
                    f'Unique file handle conflict: the file "{self.url.path}" is already attached for another catalog',
                    hint="close that lake first, or keep the metadata in PostgreSQL, MySQL or SQLite",
                )
            users.add(user)
            self._users[self._file()] = (catalog, users)

    def leave_file(self, user: object) -> None:
        with self._guard:
            self._open.discard(self)
            users = self._users.get(self._file())
            if users is not None:
                users[1].discard(user)

    def enter_queue(self, connection: Connection, scope: str, ahead: PreparedSelect | None = None) -> None:
        if not self._lock().acquire(timeout=self.busy_timeout_ms / 1000):
            raise TimeoutError
        # the transaction began before its turn came: start it again to see what was committed meanwhile
        driver = connection.connection.driver_connection
        assert driver is not None
        driver.rollback()
        driver.begin()

    def leave_queue(self, connection: Connection, scope: str) -> None:
        self._lock().release()

    def insert_many(self, connection: Connection, table: sa.Table, keys: Sequence[str], rows: Rows) -> None:
        # rows one by one are slow here; only the driver knows how values of inlined rows are stored
        if len(rows) < _BULK or table.name.startswith("ducklake_inlined_"):
            return super().insert_many(connection, table, keys, rows)
        columns = [pa.array(values) for values in zip(*rows, strict=True)]
        target, fixed = scoped.fixed(connection, table)
        columns += [pa.array([value] * len(rows), pa.int64()) for value in fixed.values()]
        driver: Any = connection.connection.driver_connection
        quote = connection.dialect.identifier_preparer
        names = ", ".join(quote.quote(name) for name in (*(table.c[key].name for key in keys), *fixed))
        driver.register("quacklake_rows", pa.table(columns, names=[*keys, *fixed]))
        try:
            driver.execute(f"INSERT INTO {quote.format_table(target)} ({names}) FROM quacklake_rows")
        finally:
            driver.unregister("quacklake_rows")

    def has_table(self, connection: Connection, name: str, schema: str | None) -> bool:
        # DuckDB builds its list of tables from the whole file each time: selecting no rows is ten times as fast
        quote = connection.dialect.identifier_preparer.quote_identifier
        try:
            connection.exec_driver_sql(f"SELECT 1 FROM {quote(schema or 'main')}.{quote(name)} LIMIT 0")
        except sa.exc.DBAPIError as error:
            if isinstance(error.orig, duckdb.CatalogException):
                return False
            raise
        return True

    def number(self, element: sa.ColumnElement[Any], kind: str) -> sa.ColumnElement[Any]:
        # the cast alone would also read hexadecimal numbers and nan
        form = "-?[0-9]+" if kind == "integer" else "-?[0-9]*[.]?[0-9]+(e[+-]?[0-9]+)?"
        number = sa.try_cast(element, sa.BigInteger if kind == "integer" else sa.Double)
        return sa.case((sa.func.regexp_full_match(element, form), number))

    def fetch_arrow(self, connection: Connection, select: sa.Select[Any], given: Mapping[str, Any]) -> pa.Table:
        compiled = select.params(given).compile(connection.engine, compile_kwargs=scoped.literal_options(connection))
        driver = connection.connection.driver_connection
        assert driver is not None
        return arrow_table(driver, str(compiled))

    def now_ms(self) -> sa.ColumnElement[Any]:
        return sa.func.epoch_ms(sa.func.now())

    def classify(self, error: BaseException) -> Failure:
        if isinstance(error, duckdb.Error) and any(reason in str(error) for reason in _NO_ROOM):
            return Failure.FULL  # DuckDB has no number for this: a commit that fails so is a TransactionException
        if isinstance(error, duckdb.ConstraintException | duckdb.TransactionException | duckdb.SerializationException):
            return Failure.COLLISION
        if isinstance(error, duckdb.IOException | duckdb.ConnectionException):
            return Failure.UNAVAILABLE
        if isinstance(error, duckdb.PermissionException):
            return Failure.FORBIDDEN
        if isinstance(error, duckdb.CatalogException):
            return Failure.ABSENT
        return Failure.OTHER
