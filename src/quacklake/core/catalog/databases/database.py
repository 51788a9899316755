"""The differences between databases but for column types: opening, locking, bulk work, the meaning of errors.

Each database is a subclass in a module of its own. Errors are told apart by SQLSTATE, number or class, never by text.
"""

from __future__ import annotations

import enum
import functools
import json
import os
import select
import stat
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any, ClassVar

import pyarrow as pa
import sqlalchemy as sa
from sqlalchemy.engine import Connection, Dialect, Engine
from sqlalchemy.util import LRUCache

from quacklake.core.catalog import scoped
from quacklake.core.catalog.databases.urls import CatalogUrl
from quacklake.errors import MissingExtraError

Rows = Sequence[Sequence[Any]]
_Aggregate = Callable[[sa.ColumnElement[Any]], sa.ColumnElement[Any]]


@dataclass(frozen=True, slots=True)
class PreparedSelect:
    """A select that is built once and run often; ``fresh`` when it must be planned for the tables as they are now."""

    statement: sa.Select[Any]
    parameters: Mapping[str, Any] = field(default_factory=dict)
    fresh: bool = False


class Failure(enum.Enum):
    """The meaning of a database error for the caller."""

    COLLISION = "collision"  # another writer took the same key, or the database asks to try again
    UNAVAILABLE = "unavailable"  # connection or server trouble
    BUSY = "busy"  # another client had a lock for too long; nothing was changed
    FULL = "full"  # the database has no room left; nothing was changed
    FORBIDDEN = "forbidden"  # no rights, or a read-only database
    ABSENT = "absent"  # a table that does not exist
    OTHER = "other"


#: The number of compiled statements that all lakes of a process keep together.
_COMPILED = 2_000


@functools.cache
def _shared_dialect(url: str, shared: bool) -> tuple[Dialect, LRUCache[Any, Any]]:
    """Return what all files of a kind of database are spoken to with, and the statements compiled for it so far."""
    engine = sa.create_engine(url)
    with engine.connect():  # the first connection tells the dialect what the library can do
        pass
    engine.dispose()
    return engine.dialect, LRUCache(_COMPILED)


#: The number of servers that are remembered; a URL of another user or database counts as another server.
_SERVERS = 64
_known: LRUCache[tuple[sa.URL, bool], Dialect] = LRUCache(_SERVERS)
_compiled: LRUCache[Any, Any] = LRUCache(_COMPILED)


def _reuse_dialect(engine: Engine, shared: bool) -> Engine:
    """Return an engine for a server that speaks to it as earlier engines of the process did.

    The first connection of the first one asks the server what it can do; the others need not ask again, and do not
    compile again what was compiled before. The lines "connect and first query of a lake" of
    ``benchmarks/README.md`` measure it.
    """
    key = (engine.url, shared)
    dialect = _known.get(key)
    if dialect is None:
        dialect = own = engine.dialect

        @sa.event.listens_for(engine, "connect")
        def connected(driver: object, record: object) -> None:
            _known[key] = own  # it has just been asked
    else:
        engine.dialect.initialize = lambda connection: None  # type: ignore[method-assign]
    options = {"compiled_cache": _compiled}
    return Engine(engine.pool, dialect, engine.url, execution_options=options, hide_parameters=True)


def _file_size(path: str) -> int:
    """Return the bytes of a file, 0 if there is none."""
    try:
        found = os.stat(path)  # noqa: PTH116 - a Path takes longer, and this runs in every commit
    except OSError:
        return 0
    return found.st_size if stat.S_ISREG(found.st_mode) else 0


@dataclass(eq=False, repr=False)
class Database(ABC):
    """One kind of database. Subclasses define how it is opened, how commits queue and what its errors mean."""

    name: ClassVar[str]
    extra: ClassVar[str | None] = None
    driver: ClassVar[str | None] = None
    #: The address of an empty database, where all are spoken to alike: no server is of another version.
    empty: ClassVar[str | None] = None
    #: The maximum number of rows in an insert inside ``batch``.
    batch_rows: ClassVar[int] = sys.maxsize
    #: Whether ``fetch_columns`` may have an answer.
    lists_columns: ClassVar[bool] = False

    url: CatalogUrl
    read_only: bool = False
    busy_timeout_ms: int = 30_000
    pool_size: int = 5
    max_overflow: int = 20
    #: The oldest DuckDB that shall open a new file; only DuckDB's own have such a form.
    storage_version: str = "v1.5.0"
    #: ``rollback`` or ``wal``; only SQLite has the choice.
    sqlite_journal: str = "rollback"
    _inserts: dict[sa.Table, sa.Insert] = field(default_factory=dict, init=False)
    _updates: dict[sa.Table, sa.Update] = field(default_factory=dict, init=False)

    def create_engine(self, *, shared: bool = False) -> Engine:
        """Return an engine with a pool, which for catalogs of a ``shared`` lake binds every statement to one of them.

        Raise ``MissingExtraError`` when the driver is not installed.
        """
        try:
            engine = sa.create_engine(self.url.url, hide_parameters=True, **self.engine_options())
        except (ImportError, sa.exc.NoSuchModuleError):
            raise MissingExtraError(
                f"the {self.name} catalog needs the Python package {self.driver}",
                hint=f'pip install "quacklake[{self.extra}]"',
            ) from None
        if self.empty is not None:
            # compiling takes longer than running: lakes in files share compiled statements
            dialect, compiled = _shared_dialect(self.empty, shared)
            options = {"compiled_cache": compiled}
            engine = Engine(engine.pool, dialect, engine.url, execution_options=options, hide_parameters=True)
        else:
            engine = _reuse_dialect(engine, shared)
        if shared:
            scoped.attach(engine)
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
        """Return a connection whose transaction sees one consistent state."""
        return connection

    def begin_question(self, connection: Connection) -> Connection:
        """Return a connection for a single statement, or for several that need not see the same state."""
        return connection

    def begin_commit(self, connection: Connection) -> Connection:
        """Return a connection whose transaction sees what others commit while it waits in the queue."""
        return connection

    @abstractmethod
    def enter_queue(self, connection: Connection, scope: str, ahead: PreparedSelect | None = None) -> Rows | None:
        """Wait for the turn to commit; held until the transaction ends (or ``leave_queue``).

        Where one message to the database can do both, return the answer to the question ``ahead``, asked in that turn.
        """

    def size(self, connection: Connection, schema: str | None) -> int | None:
        """Return the bytes of the metadata, or of the whole file; None where the database cannot tell."""
        path = self.url.path
        return None if path is None else _file_size(f"{path}") + _file_size(f"{path}-wal") + _file_size(f"{path}.wal")

    def ask(self, connection: Connection, question: PreparedSelect) -> Rows:
        """Return the rows of a prepared select."""
        return connection.execute(question.statement, question.parameters).all()

    def write(
        self, connection: Connection, statement: sa.Insert | sa.Update, rows: Sequence[Mapping[str, Any]]
    ) -> None:
        """Run a statement, which is built once, for each of some rows; it does not report what it has changed."""
        connection.execute(statement, rows)

    def leave_queue(self, connection: Connection, scope: str) -> None:  # noqa: B027
        """Release what outlives the transaction."""

    def limit_idle(self, connection: Connection, milliseconds: int) -> None:  # noqa: B027
        """End the transaction when its client is silent for so long, where the database can."""

    def enter_file(self, user: object, catalog: int) -> None:  # noqa: B027
        """Note that a catalog of a shared lake is used: not every database can be open for several of them."""

    def leave_file(self, user: object) -> None:  # noqa: B027
        """Note that it is used no more."""

    def make_file(self) -> None:  # noqa: B027
        """Make the file of a new database, where its form has to be chosen."""

    def prepare_write(self, connection: Connection) -> None:  # noqa: B027
        """Prepare the database once per catalog, before its first write."""

    def committed(self, connection: Connection) -> bool:
        """Return false when a commit that the database has confirmed may be lost all the same."""
        return True

    def batch(self, connection: Connection) -> AbstractContextManager[None]:
        """Return a block of writes that may travel as one: none reads what another wrote, or changes the same row."""
        return nullcontext()

    def insert_many(self, connection: Connection, table: sa.Table, keys: Sequence[str], rows: Rows) -> None:
        """Insert rows, values in the order of the column keys."""
        # the key is the table object: the name of an inlined table may come back with other columns
        statement = self._inserts.get(table)
        if statement is None:
            statement = self._inserts[table] = sa.insert(table)
        self.write(connection, statement, [dict(zip(keys, row, strict=True)) for row in rows])

    def update_many(
        self, connection: Connection, table: sa.Table, where: Sequence[str], keys: Sequence[str], rows: Rows
    ) -> None:
        """Update rows, each found by its values of ``where``; values in the order of ``where``, then ``keys``."""
        statement = self._updates.get(table)
        if statement is None:
            same_key = [table.c[key] == sa.bindparam(f"old_{key}") for key in where]
            values = {key: sa.bindparam(key, type_=table.c[key].type) for key in keys}
            statement = self._updates[table] = sa.update(table).where(*same_key).values(values)
        names = [*(f"old_{key}" for key in where), *keys]
        self.write(connection, statement, [dict(zip(names, row, strict=True)) for row in rows])

    def bound(self, element: sa.ColumnElement[Any], kind: str) -> sa.ColumnElement[Any]:
        """Return a statistics text as a comparable value of ``kind``; NULL when it is not of the documented form."""
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

    @classmethod
    def among(cls, element: sa.ColumnElement[str], parameter: str) -> sa.ColumnElement[bool]:
        """Return the condition that holds for one of the texts that a parameter lists."""
        return element.in_(sa.bindparam(parameter, expanding=True))

    def among_ids(self, element: sa.ColumnElement[int], parameter: str) -> sa.ColumnElement[bool]:
        """Return the condition that holds for one of the ids of a parameter, which has the form of ``listed``."""
        return element.in_(sa.bindparam(parameter, expanding=True))

    def listed(self, ids: Sequence[int]) -> Any:
        """Return ids as a parameter of ``among_ids``."""
        return ids

    def tail(self, element: sa.ColumnElement[Any], length: int) -> sa.ColumnElement[str]:
        """Return the last characters of a text."""
        return sa.func.right(element, length)

    def has_table(self, connection: Connection, name: str, schema: str | None) -> bool:
        """Return whether there is a table of that name, which another may be making at this moment."""
        return sa.inspect(connection).has_table(name, schema=schema)

    def column_names(self, connection: Connection, name: str, schema: str | None) -> list[str]:
        """Return the columns of a table in their order; none if it does not exist."""
        if not self.has_table(connection, name, schema):
            return []
        table = scoped.registry(sa.Table(name, sa.MetaData(), schema=schema))
        every: sa.Select[Any] = sa.select(sa.literal_column("*")).select_from(table).limit(0)
        result = connection.execute(every)
        names = list(result.keys())
        result.close()
        return names

    def index_names(self, connection: Connection, schema: str | None) -> set[str]:
        """Return the existing indexes."""
        by_table = sa.inspect(connection).get_multi_indexes(schema=schema).values()
        return {str(index["name"]) for indexes in by_table for index in indexes}

    def binary_text(self, element: sa.ColumnElement[Any]) -> sa.ColumnElement[Any]:
        return element

    @abstractmethod
    def number(self, element: sa.ColumnElement[Any], kind: str) -> sa.ColumnElement[Any]:
        """Return a number from its text (``kind`` is ``integer`` or ``real``), NULL for any other text."""

    @abstractmethod
    def now_ms(self) -> sa.ColumnElement[Any]:
        """Return the time by the database's clock, which is the same for everybody: milliseconds since 1970."""

    @abstractmethod
    def classify(self, error: BaseException) -> Failure:
        """Return what a driver's error means."""

    def fetch_arrow(self, connection: Connection, select: sa.Select[Any], given: Mapping[str, Any]) -> pa.Table:
        """Return the raw rows of a select as Arrow, in bulk; types are what the driver gives."""
        result = connection.execute(select, dict(given))
        names = list(result.keys())
        rows = result.all()
        columns = zip(*rows, strict=True) if rows else [()] * len(names)
        return pa.table({name: _raw_array(values) for name, values in zip(names, columns, strict=True)})

    def extent(self, inlined: sa.Table, packed: sa.Table | None, schema: str | None) -> sa.ColumnElement[int] | None:
        """Return the extent of each table that ``inlined`` names, or of its ``packed`` rows, for ``fetch_parts``.

        It is NULL for rows that are better fetched at once, and None in a database where all are.
        """
        return None

    def fetch_parts(
        self,
        connection: Connection,
        select: sa.Select[Any],
        given: Mapping[str, Any],
        take: Callable[[pa.Table], None],
        *,
        extent: int | None = None,
        row_id: sa.Column[Any] | None = None,
    ) -> None:
        """Hand the rows of a select from one table to ``take``, in parts such as ``fetch_arrow`` returns.

        Bytes may come as they are. ``row_id`` is the key of packed rows.
        """
        take(self.fetch_arrow(connection, select, given))

    def fetch_texts(self, connection: Connection, select: sa.Select[Any], given: Mapping[str, Any]) -> pa.Table:
        """Return rows of integers, flags and texts as Arrow, a few or very many; anything else may become NULL."""
        return Database.fetch_arrow(self, connection, select, given)

    def fetch_columns(
        self, connection: Connection, select: sa.Select[Any], given: Mapping[str, Any]
    ) -> Sequence[str] | None:
        """Return the columns of very many rows, each a list in JSON, the rows in any order; None to fetch them."""
        return None

    @staticmethod
    def _fetch_lists(
        connection: Connection, select: sa.Select[Any], given: Mapping[str, Any], listed: _Aggregate
    ) -> pa.Table:
        """Return the rows of a select, fetched as one row with a list in JSON for each column.

        A driver makes objects of every row and value, which takes several times as long.
        """
        rows = select.subquery("listed_rows")
        found = connection.execute(sa.select(*(listed(column) for column in rows.c)), given).one()
        lists = [pa.array(json.loads(text or "[]")) for text in found]
        return pa.table(lists, names=[column.name for column in rows.c])


def _raw_array(values: tuple[Any, ...]) -> pa.Array:
    try:
        return pa.array(values)
    except (pa.ArrowInvalid, pa.ArrowTypeError):
        # SQLite columns may hold mixed types: as text, DuckDB casts them all
        return pa.array([None if value is None else str(value) for value in values], pa.string())


#: The other side has closed. What is there to read says nothing: a server may send notices.
_CLOSED = getattr(select, "POLLRDHUP", 0)


def replace_closed(engine: Engine, socket_of: Callable[[Any], int]) -> None:
    """Replace pooled connections of an engine whose server has closed them, which costs no message to see.

    ``socket_of`` gives the socket of one: a server that was restarted, or ends idle sessions, says so at once there.
    """

    @sa.event.listens_for(engine, "checkout")
    def check(driver: Any, record: object, fairy: object) -> None:
        if _is_closed(driver, socket_of):
            raise sa.exc.DisconnectionError("the server has closed the connection")


def _is_closed(driver: Any, socket_of: Callable[[Any], int]) -> bool:
    try:
        number = socket_of(driver)
    except Exception:
        return True  # the driver knows already
    watch = select.poll()
    watch.register(number, _CLOSED)
    return bool(watch.poll(0))
