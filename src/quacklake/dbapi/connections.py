"""Connections, and that to a lake in this process."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, ClassVar, Self

from quacklake import Lake, Result
from quacklake.dbapi import failures
from quacklake.dbapi.bulk_inserts import BulkInsert
from quacklake.dbapi.cursors import Cursor, Parameters
from quacklake.dbapi.failures import InterfaceError, translated
from quacklake.errors import NotFoundError
from quacklake.extend.names import quote, uuid7
from quacklake.extend.sql import open_session, view_lake

_BOUNDARIES = frozenset({"BEGIN", "START", "COMMIT", "END", "ROLLBACK", "ABORT"})


class Connection(ABC):
    """A connection with one transaction, which its cursors share. Not for several threads at once."""

    Warning, Error, InterfaceError, DatabaseError = (
        failures.Warning,
        failures.Error,
        failures.InterfaceError,
        failures.DatabaseError,
    )
    DataError, OperationalError, IntegrityError = (
        failures.DataError,
        failures.OperationalError,
        failures.IntegrityError,
    )
    InternalError, ProgrammingError, NotSupportedError = (
        failures.InternalError,
        failures.ProgrammingError,
        failures.NotSupportedError,
    )

    chunk_rows: ClassVar[int | None]
    """The rows of ``executemany`` that are inserted by one statement; None for all of them."""

    def __init__(self, lake: Any, *, owned: bool) -> None:
        self.lake = lake
        self._owned = owned
        self._closed = False

    @property
    @abstractmethod
    def autocommit(self) -> bool:
        """True if each statement is committed by itself. Setting it commits the open transaction."""

    @autocommit.setter
    @abstractmethod
    def autocommit(self, value: bool) -> None: ...

    def cursor(self) -> Cursor:
        """Return a new cursor."""
        self.check_open()
        return Cursor(self)

    def execute(self, sql: str, parameters: Parameters = None) -> Cursor:
        """Run a statement with a new cursor, and return that."""
        return self.cursor().execute(sql, parameters)

    @abstractmethod
    def commit(self) -> None:
        """Commit the open transaction, if there is one. Raise ``OperationalError`` when another commit conflicts."""

    @abstractmethod
    def rollback(self) -> None:
        """Undo the open transaction, if there is one."""

    def close(self) -> None:
        """Undo the open transaction and close the connection, and the lake if the connection has opened it."""
        if self._closed:
            return
        self._closed = True
        with translated():
            self._end_session()
            if self._owned:
                self.lake.close()

    @abstractmethod
    def _end_session(self) -> None: ...

    @abstractmethod
    def primary_key(self, schema: str, table: str) -> tuple[str, ...]:
        """Return the columns of a table's primary key, as the open transaction sees it; none if there is no table."""

    @abstractmethod
    def cancel(self) -> bool:
        """Cancel the running statement from another thread. Return False when nothing runs."""

    @abstractmethod
    def run(self, sql: str, parameters: Parameters) -> Result:
        """Run statements, and return the result of the last one."""

    @abstractmethod
    def insert(self, bulk: BulkInsert, rows: list[Any]) -> Result | None:
        """Insert rows by one statement; return None where their values have no common type."""

    @contextmanager
    def several(self) -> Iterator[None]:
        """Run the statements of a block as one transaction, where there are transactions."""
        yield

    def check_open(self) -> None:
        """Raise ``InterfaceError`` once the connection is closed."""
        if self._closed:
            raise InterfaceError("the connection is closed")

    def __enter__(self) -> Self:
        self.check_open()
        return self

    def __exit__(self, failure: type[BaseException] | None, *_: object) -> None:
        try:
            if failure is None:
                self.commit()
        finally:
            self.close()

    def __repr__(self) -> str:
        return f"<quacklake.dbapi.Connection {self.lake.url}{', closed' if self._closed else ''}>"


class LakeConnection(Connection):
    """A connection to a lake in this process."""

    chunk_rows = 10_000
    lake: Lake

    def __init__(self, lake: Lake, *, autocommit: bool, owned: bool) -> None:
        super().__init__(lake, owned=owned)
        self._session = open_session(lake)
        self._autocommit = autocommit
        self._rows = f"rows_{uuid7().hex}"  # which no table is called

    @property
    def autocommit(self) -> bool:
        return self._autocommit

    @autocommit.setter
    def autocommit(self, value: bool) -> None:
        self.commit()
        self._autocommit = bool(value)

    def commit(self) -> None:
        self.check_open()
        if self._session.work.explicit:
            with translated():
                self._session.commit()

    def rollback(self) -> None:
        self.check_open()
        if self._session.work.explicit:
            with translated():
                self._session.statement("ROLLBACK")

    def _end_session(self) -> None:
        self._session.close()

    def primary_key(self, schema: str, table: str) -> tuple[str, ...]:
        self.check_open()
        with translated():
            try:
                return view_lake(self._session).table(f"{quote(schema)}.{quote(table)}").primary_key
            except NotFoundError:
                return ()

    def cancel(self) -> bool:
        return self._session.interrupt()

    def run(self, sql: str, parameters: Parameters) -> Result:
        return self._run(sql, parameters, begin=not self._autocommit)

    def _run(self, sql: str, parameters: Parameters, *, begin: bool) -> Result:
        """Run statements, in a transaction of the connection if ``begin`` is true."""
        self.check_open()
        with translated():
            if begin and not self._session.work.explicit and _first_word(sql) not in _BOUNDARIES:
                self._session.statement("BEGIN")
            return self._session.sql(sql, parameters)  # type: ignore[arg-type]

    def insert(self, bulk: BulkInsert, rows: list[Any]) -> Result | None:
        columns = bulk.columns(rows)
        if columns is None:
            return None
        table = None if self._session.guard.safe else bulk.table(columns)  # a safe session reads tables of lakes alone
        if table is None:
            return self.run(bulk.from_lists(), columns)
        self._session.register(self._rows, table)
        try:
            return self.run(bulk.from_table(self._rows), None)
        finally:
            self._session.unregister(self._rows)

    @contextmanager
    def several(self) -> Iterator[None]:
        alone = self._autocommit and not self._session.work.explicit
        if alone:
            self._run("BEGIN", None, begin=False)
        try:
            yield
        except BaseException:
            if alone:
                self._run("ROLLBACK", None, begin=False)
            raise
        if alone:
            self._run("COMMIT", None, begin=False)


def _first_word(sql: str) -> str:
    return next(iter(str(sql).split(None, 1)), "").rstrip(";").upper()
