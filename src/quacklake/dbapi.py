"""Python's database interface (PEP 249) over the SQL of a lake.

>>> import tempfile
>>> from quacklake import dbapi
>>> home = tempfile.mkdtemp()
>>> connection = dbapi.connect(f"sqlite:///{home}/lake.db", data_path=f"{home}/data")
>>> cursor = connection.cursor()
>>> cursor.execute("CREATE TABLE t (id BIGINT, name VARCHAR)").executemany(
...     "INSERT INTO t VALUES (?, ?)", [(1, "a"), (2, "b")]
... )
<quacklake.dbapi.Cursor, 2 rows changed>
>>> connection.commit()
>>> cursor.execute("SELECT name FROM t WHERE id = ?", [2]).fetchall()
[('b',)]
>>> connection.close()
"""

from __future__ import annotations

import datetime as dt
import itertools
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TypeVar

import pyarrow as pa

from quacklake import errors
from quacklake.format.evolution import PRIMARY_KEY, key_columns
from quacklake.lake.connect import connect as connect_lake
from quacklake.lake.lake import Lake
from quacklake.sql.result import Result
from quacklake.sql.sessions import session_of
from quacklake.sql.words import words_of

if TYPE_CHECKING:
    import pandas as pd

T = TypeVar("T")

apilevel = "2.0"
threadsafety = 1
"""Threads may share the module, but not connections: a connection has one transaction."""
paramstyle = "qmark"
"""``?``; ``$1`` and ``$name`` (with a dictionary of values) work, too."""

_CHUNK_ROWS = 10_000
"""The rows of ``executemany`` that are inserted by one statement."""

_ROWS = "quacklake_dbapi_rows"
_BOUNDARIES = frozenset({"BEGIN", "START", "COMMIT", "END", "ROLLBACK", "ABORT"})

Parameters = Sequence[Any] | Mapping[str, Any] | None


# -- exceptions --------------------------------------------------------------------------------------------------------


class Warning(Exception):  # PEP 249 wants this name
    """Never raised."""


class Error(Exception):
    """The base of all errors here. ``code`` and ``hint`` are those of the lake's own error, which is the cause."""

    code: str | None = None
    hint: str | None = None


class InterfaceError(Error):
    """The interface was used wrongly: a connection or cursor is closed, or there are no rows to fetch."""


class DatabaseError(Error):
    """The base of the errors that come from the lake."""


class DataError(DatabaseError):
    """Values do not fit."""


class OperationalError(DatabaseError):
    """The catalog or the store failed, another commit conflicts, or a limit was reached."""


class IntegrityError(DatabaseError):
    """A constraint does not hold, or an object exists already."""


class InternalError(DatabaseError):
    """A bug."""


class ProgrammingError(DatabaseError):
    """A statement is not valid, or names something that does not exist."""


class NotSupportedError(DatabaseError):
    """A feature does not exist here."""


_CLASSES: tuple[tuple[type[errors.QuacklakeError], type[DatabaseError]], ...] = (
    (errors.ConstraintError, IntegrityError),
    (errors.AlreadyExistsError, ProgrammingError),
    (errors.SchemaMismatchError, DataError),
    (errors.InputError, ProgrammingError),
    (errors.NotFoundError, ProgrammingError),
    (errors.NotPermittedError, ProgrammingError),
    (errors.ConfigError, ProgrammingError),
    (errors.UnsupportedFeatureError, NotSupportedError),
    (errors.ReadOnlyError, NotSupportedError),
    (errors.InternalError, InternalError),
    (errors.QuacklakeError, OperationalError),
)


@contextmanager
def _translated() -> Iterator[None]:
    try:
        yield
    except errors.QuacklakeError as error:
        wanted = next(ours for theirs, ours in _CLASSES if isinstance(error, theirs))
        raised = wanted(str(error))
        raised.code, raised.hint = error.code, error.hint
        raise raised from error


# -- types -------------------------------------------------------------------------------------------------------------


class TypeObject:
    """A group of column types, equal to the type of each column in ``description`` that belongs to it."""

    def __init__(self, name: str, *prefixes: str) -> None:
        self._name, self._prefixes = name, prefixes

    def __eq__(self, other: object) -> bool:
        if isinstance(other, TypeObject):
            return self is other
        return isinstance(other, str) and other.upper().startswith(self._prefixes) and not other.endswith("]")

    def __hash__(self) -> int:
        return hash(self._name)

    def __repr__(self) -> str:
        return self._name


STRING = TypeObject("STRING", "VARCHAR", "STRING", "LARGE_STRING", "UUID", "JSON", "ENUM", "BOOL")
BINARY = TypeObject("BINARY", "BLOB", "BINARY", "BIT", "LARGE_BINARY")
NUMBER = TypeObject(
    *("NUMBER", "TINYINT", "SMALLINT", "INTEGER", "BIGINT", "HUGEINT", "UTINYINT", "USMALLINT", "UINTEGER", "UBIGINT"),
    *("UHUGEINT", "DECIMAL", "FLOAT", "DOUBLE", "INT8", "INT16", "INT32", "INT64", "UINT"),
)
DATETIME = TypeObject("DATETIME", "DATE", "TIME", "INTERVAL")
ROWID = TypeObject("ROWID", "ROWID")

Date, Time, Timestamp, Binary = dt.date, dt.time, dt.datetime, bytes


def DateFromTicks(ticks: float) -> dt.date:
    """Return the local day of seconds since 1970."""
    return dt.date(*time.localtime(ticks)[:3])


def TimeFromTicks(ticks: float) -> dt.time:
    """Return the local time of day of seconds since 1970."""
    return dt.time(*time.localtime(ticks)[3:6])


def TimestampFromTicks(ticks: float) -> dt.datetime:
    """Return the local time of seconds since 1970."""
    return dt.datetime(*time.localtime(ticks)[:6])


# -- connections -------------------------------------------------------------------------------------------------------


def connect(
    lake: str | Lake | None = None, data_path: str | Path | None = None, *, autocommit: bool = False, **settings: Any
) -> Connection:
    """Open a connection to a lake: to an open one, which stays open, or as ``quacklake.connect`` opens it.

    Unless ``autocommit`` is true, the first statement begins a transaction, which lasts until ``commit`` or
    ``rollback``.
    """
    with _translated():
        if isinstance(lake, Lake):
            return Connection(lake, autocommit=autocommit)
        opened = connect_lake(lake, data_path, **settings)
        try:
            return Connection(opened, autocommit=autocommit, owned=True)
        except BaseException:
            opened.close()
            raise


class Connection:
    """A connection with one transaction, which its cursors share. Not for several threads at once."""

    Warning, Error, InterfaceError, DatabaseError = Warning, Error, InterfaceError, DatabaseError
    DataError, OperationalError, IntegrityError = DataError, OperationalError, IntegrityError
    InternalError, ProgrammingError, NotSupportedError = InternalError, ProgrammingError, NotSupportedError

    def __init__(self, lake: Lake, *, autocommit: bool = False, owned: bool = False) -> None:
        self.lake = lake
        self._owned = owned
        self._session = session_of(lake.handle)
        self._autocommit = autocommit
        self._closed = False

    @property
    def autocommit(self) -> bool:
        """True if each statement is committed by itself. Setting it commits the open transaction."""
        return self._autocommit

    @autocommit.setter
    def autocommit(self, value: bool) -> None:
        self.commit()
        self._autocommit = bool(value)

    def cursor(self) -> Cursor:
        """Return a new cursor."""
        self._check_open()
        return Cursor(self)

    def execute(self, sql: str, parameters: Parameters = None) -> Cursor:
        """Run a statement with a new cursor, and return that."""
        return self.cursor().execute(sql, parameters)

    def commit(self) -> None:
        """Commit the open transaction, if there is one. Raises ``OperationalError`` when another commit conflicts."""
        self._end("COMMIT")

    def rollback(self) -> None:
        """Undo the open transaction, if there is one."""
        self._end("ROLLBACK")

    def _end(self, word: str) -> None:
        self._check_open()
        if self._session.work.explicit:
            with _translated():
                self._session.statement(word)

    def close(self) -> None:
        """Undo the open transaction and close the connection, and the lake if the connection has opened it."""
        if self._closed:
            return
        self._closed = True
        with _translated():
            self._session.close()
            if self._owned:
                self.lake.close()

    def primary_key(self, schema: str, table: str) -> tuple[str, ...]:
        """Return the columns of a table's primary key, as the open transaction sees it; none if there is no table."""
        self._check_open()
        attached = self._session.attachments.get("lake")
        assert attached is not None
        with _translated():
            view = self._session.view(attached)
            found = view.get_table(schema, table)
            return () if found is None else key_columns(found.schema, view.objects.tags(found).own.get(PRIMARY_KEY))

    def cancel(self) -> bool:
        """Cancel the running statement from another thread. Return False when nothing runs."""
        return self._session.interrupt()

    def __enter__(self) -> Self:
        self._check_open()
        return self

    def __exit__(self, failure: type[BaseException] | None, *_: object) -> None:
        try:
            if failure is None:
                self.commit()
        finally:
            self.close()

    def __repr__(self) -> str:
        return f"<quacklake.dbapi.Connection {self.lake.url}{', closed' if self._closed else ''}>"

    def _check_open(self) -> None:
        if self._closed:
            raise InterfaceError("the connection is closed")

    def _run(self, sql: str, parameters: Parameters, *, begin: bool) -> Result:
        """Run statements, in a transaction of the connection if ``begin`` is true."""
        self._check_open()
        with _translated():
            if begin and not self._session.work.explicit and _first_word(sql) not in _BOUNDARIES:
                self._session.statement("BEGIN")
            return self._session.sql(sql, parameters)  # type: ignore[arg-type]

    @contextmanager
    def _several(self) -> Iterator[None]:
        """Run the statements of a block as one transaction, also with ``autocommit``."""
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

    @contextmanager
    def _frame(self, rows: pa.Table) -> Iterator[str]:
        """Give rows a name in statements."""
        self._session.register(_ROWS, rows)
        try:
            yield _ROWS
        finally:
            self._session.unregister(_ROWS)


# -- cursors -----------------------------------------------------------------------------------------------------------


class Cursor:
    """Runs statements and fetches their rows. Iterating over it yields the rows that are left."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.arraysize = 1000
        self.rowcount = -1
        self.lastrowid = None
        self._result: Result | None = None
        self._closed = False

    @property
    def description(self) -> list[tuple[str, str, None, None, None, None, None]] | None:
        """Name and type of each column of the rows; None when the statement has none."""
        return None if self._result is None else self._result.description

    def execute(self, sql: str, parameters: Parameters = None) -> Self:
        """Run a statement with values for its parameters."""
        self._check_open()
        self._result, self.rowcount = None, -1
        result = self.connection._run(sql, parameters or None, begin=not self.connection.autocommit)
        self.rowcount = result.rowcount
        if result.columns and not (result.rowcount >= 0 and result.columns == ["Count"]):
            self._result = result
        return self

    def executemany(self, sql: str, parameters: Iterable[Sequence[Any] | Mapping[str, Any]]) -> Self:
        """Run a statement once for each row of values, all in one transaction.

        Rows for ``INSERT INTO … VALUES (?, …)`` go in thousands at a time.
        """
        self._check_open()
        bulk, rows, changed = _bulk(sql), iter(parameters), 0
        with self.connection._several():
            while chunk := list(itertools.islice(rows, _CHUNK_ROWS)):
                changed += self._insert(bulk, chunk) if bulk is not None else self._each(sql, chunk)
        self._result, self.rowcount = None, changed
        return self

    def _each(self, sql: str, rows: Iterable[Sequence[Any] | Mapping[str, Any]]) -> int:
        return sum(max(0, self.execute(sql, row).rowcount) for row in rows)

    def _insert(self, bulk: _BulkInsert, rows: list[Sequence[Any] | Mapping[str, Any]]) -> int:
        """Insert rows by one statement, or one by one where their values have no common type."""
        table = bulk.table(rows)
        if table is None:
            return self._each(bulk.sql, rows)
        with self.connection._frame(table) as name:
            return self.execute(bulk.query(name)).rowcount

    def fetchone(self) -> tuple[Any, ...] | None:
        """Return the next row, or None."""
        return self._fetch(lambda result: result.fetchone())

    def fetchmany(self, size: int | None = None) -> list[tuple[Any, ...]]:
        """Return the next rows, ``arraysize`` unless told otherwise."""
        return self._fetch(lambda result: result.fetchmany(self.arraysize if size is None else size))

    def fetchall(self) -> list[tuple[Any, ...]]:
        """Return the rows that are left."""
        return self._fetch(lambda result: result.fetchall())

    def fetch_arrow_table(self) -> pa.Table:
        """Return the rows that are left as an Arrow table."""
        return self._fetch(lambda result: result.to_arrow())

    def fetch_record_batch(self) -> pa.RecordBatchReader:
        """Return the rows that are left as a stream of Arrow batches."""
        return self._fetch(lambda result: result.to_reader())

    def fetch_df(self) -> pd.DataFrame:
        """Return the rows that are left as a pandas DataFrame."""
        return self._fetch(lambda result: result.to_pandas())

    def _fetch(self, read: Callable[[Result], T]) -> T:
        self._check_open()
        if self._result is None:
            raise InterfaceError("there are no rows to fetch: run a query first")
        with _translated():
            return read(self._result)

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        return iter(partial(self.fetchone), None)

    def close(self) -> None:
        """Close the cursor; its rows cannot be fetched any more."""
        self._closed, self._result = True, None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        changed = f", {self.rowcount} rows changed" if self.rowcount >= 0 else ""
        return f"<quacklake.dbapi.Cursor{', closed' if self._closed else changed}>"

    def setinputsizes(self, sizes: Sequence[Any]) -> None:
        """Do nothing, as PEP 249 allows."""

    def setoutputsize(self, size: int, column: int | None = None) -> None:
        """Do nothing, as PEP 249 allows."""

    def _check_open(self) -> None:
        self.connection._check_open()
        if self._closed:
            raise InterfaceError("the cursor is closed")


class _BulkInsert:
    """An ``INSERT INTO … VALUES (?, …)`` whose values can come from a table."""

    def __init__(self, sql: str, head: str, width: int) -> None:
        self.sql, self._head, self._width = sql, head, width

    def query(self, name: str) -> str:
        """Return the statement that inserts the rows of a registered table."""
        return f'{self._head} SELECT * FROM "{name}"'

    def table(self, rows: list[Any]) -> pa.Table | None:
        """Return rows as a table; None where a column has no common type, or a row not the right length.

        Arrow would make 5.0 of a 5 beside a 1.5, which is another text.
        """
        if not all(isinstance(row, list | tuple) and len(row) == self._width for row in rows):
            return None
        given = list(zip(*rows, strict=True))
        if any(len(set(_kinds(column))) > 1 for column in given):
            return None
        try:
            columns = [pa.array(column) for column in given]
        except (pa.ArrowException, OverflowError, ValueError, TypeError):
            return None
        return pa.table(columns, names=[f"c{number}" for number in range(self._width)])


def _kinds(value: Any) -> Iterator[type]:
    """Yield the types of the values in a value, without that of NULL."""
    if isinstance(value, list | tuple | dict):
        for each in value.values() if isinstance(value, dict) else value:
            yield from _kinds(each)
    elif value is not None:
        yield type(value)


def _bulk(sql: str) -> _BulkInsert | None:
    """Return the statement if it inserts one row of parameters and does nothing else."""
    try:
        words = words_of(sql)
    except errors.SqlError:
        return None
    while words and words[-1].text == ";":
        words.pop()
    at = next((place for place, word in enumerate(words) if word.upper == "VALUES"), None)
    if at is None or [word.upper for word in words[:2]] != ["INSERT", "INTO"]:
        return None
    texts = [word.text for word in words[at + 1 :]]
    width = len(texts) // 2
    if width == 0 or texts != ["(", *",".join("?" * width), ")"]:
        return None
    return _BulkInsert(sql, sql[: words[at].start], width)


def _first_word(sql: str) -> str:
    return next(iter(str(sql).split(None, 1)), "").rstrip(";").upper()
