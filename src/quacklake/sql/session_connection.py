"""The connection of a session: resolve names, read lakes in its transaction, and run bound SQL."""

from __future__ import annotations

import datetime as dt
import itertools
import os
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from types import FrameType
from typing import TYPE_CHECKING, Any, TypeVar

import duckdb
import pyarrow as pa

from quacklake.config import carries_secret, redact_message
from quacklake.duckdb_versions import arrow_table, first_row, run
from quacklake.errors import QuacklakeError, SqlError
from quacklake.format.names import fold, quote
from quacklake.sql.attached import PREFIX, Attached, Attachments
from quacklake.sql.error_texts import in_own_words
from quacklake.sql.failures import translated
from quacklake.sql.guard import Guard
from quacklake.sql.names import Names
from quacklake.sql.plans import Footers, Plans
from quacklake.sql.result import Result
from quacklake.sql.running import Running, TimeBudget
from quacklake.sql.session_transaction import SessionTransaction

if TYPE_CHECKING:
    from quacklake.scan import ScanPlan
    from quacklake.sql.scans import Scan
    from quacklake.sql.titles import Title
    from quacklake.sql.tree import Node
    from quacklake.transaction import Transaction

T = TypeVar("T")
Parameters = Sequence[Any] | dict[str, Any] | None

_TEXT_TYPES = ("VARIANT", "UHUGEINT", "BIGNUM", "VARINT")
"""Types that Arrow cannot carry without loss."""
_LEFT_BEHIND = 50
_TEMPORARY = """
    SELECT 'VIEW', view_name FROM duckdb_views() WHERE temporary AND starts_with(view_name, $1)
    UNION ALL SELECT 'TABLE', table_name FROM duckdb_tables() WHERE temporary AND starts_with(table_name, $1)
"""
#: Macros have a query of their own, because listing functions is slow.
_MACROS = """
    SELECT DISTINCT CASE function_type WHEN 'table_macro' THEN 'MACRO TABLE' ELSE 'MACRO' END, function_name
    FROM duckdb_functions() WHERE database_name = 'temp' AND starts_with(function_name, $1)
"""


class SessionConnection(ABC):
    """The connection that the parts of a session share. ``Session`` runs whole statements on it."""

    def __init__(self, attachments: Attachments, *, python_frames: bool = True, guard: Guard | None = None) -> None:
        self.attachments = attachments
        self.connection = attachments.root.cursor()
        self.python_frames = python_frames
        self.guard = Guard() if guard is None else guard
        self.running = Running(self._stop)
        self.names = Names(attachments, self.view)
        self.work = SessionTransaction(committed=attachments.committed)
        self.prepared: dict[str, str] = {}
        self._last: weakref.ref[Result] | None = None
        self._reader: weakref.ref[pa.RecordBatchReader] | None = None
        self._told: weakref.ref[BaseException] | None = None
        self._sql = ""
        self._count = itertools.count()
        self._said: list[str] = []
        self._made: list[str] = []
        self._has_macros = False
        self._planner: duckdb.DuckDBPyConnection | None = None
        self._frame: FrameType | None = None
        self._budget = TimeBudget(None)
        self._plans = Plans()
        self._footers = Footers()
        self._closed = False
        self._process = os.getpid()

    @abstractmethod
    def foreign(self, names: Sequence[str]) -> Any:
        """Return the rows of a relation that belongs neither to a lake nor to DuckDB, or None."""

    @abstractmethod
    def call(self, binder: Any, names: Sequence[str], arguments: list[Node]) -> Any:
        """Return the result of a lake function in FROM: rows or the name of a relation. None for any other function."""

    def _stop(self, thread: int) -> None:
        """Interrupt the work of a thread for this session, on whichever connection DuckDB does it."""
        for connection in (self.connection, self._planner):
            if connection is not None:
                with suppress(duckdb.Error):  # closed in the meantime
                    connection.interrupt()
        for attached in list(self.attachments.attached.values()):
            attached.context.engine.interrupt(thread)

    def fresh_name(self, *, macro: bool = False) -> str:
        """Return a name for a temporary object that lives as long as the statement."""
        name = f"{PREFIX}{next(self._count)}"
        self._has_macros = self._has_macros or macro
        self._made.append(name)
        return name

    def has_made(self, name: str) -> bool:
        """Return True for the name of a temporary object that still exists."""
        return name in self._made

    def use(self, catalog: str, schema: str | None = None) -> None:
        """Look up names in this lake or database first."""
        self._settle()
        attached = self.attachments.get(catalog)
        if attached is not None:
            catalog = attached.alias
            if schema is not None:
                if not self.names.has_schema(attached, schema):
                    self.view(attached).find_schema(schema)
                with self.attachments.root.cursor() as cursor:
                    cursor.execute(f"CREATE SCHEMA IF NOT EXISTS {quote(catalog)}.{quote(schema)}")
        target = quote(catalog) if schema is None else f"{quote(catalog)}.{quote(schema)}"
        self.connection.execute(f"USE {target}")
        self.work.forget_views()
        self.look_around()

    def look_around(self) -> None:
        """Update the current catalog and schema from DuckDB."""
        row = first_row(self.connection, "SELECT current_database(), current_schema()")
        assert row is not None
        self.names.catalog, self.names.schema = row

    def view(self, attached: Attached) -> Transaction:
        """Return the lake at the snapshot that this statement reads."""
        return self.work.view(attached)

    def at(self, attached: Attached, unit: str, value: Any) -> Transaction:
        """Return the lake at a snapshot or time."""
        if attached.lake is None:
            raise SqlError(f'"{attached.alias}" stands at one snapshot: AT cannot name another')
        if value is None:
            raise SqlError("the version or time of AT is NULL")
        if unit.upper() == "VERSION":
            try:
                version = int(value)
            except ValueError:
                return self.work.at(attached, ("tag", value), lambda lake: lake.at(tag=str(value)).view())
            except TypeError:
                raise SqlError(f"{value!r} is not a snapshot") from None
            return self.work.at(attached, ("version", version), lambda lake: lake.at(version=version).view())
        if isinstance(value, dt.date) and not isinstance(value, dt.datetime):
            value = dt.datetime(value.year, value.month, value.day)
        return self.work.at(attached, ("time", value), lambda lake: lake.at(timestamp=value).view())

    def plan(self, scan: Scan) -> ScanPlan:
        """Return the scan plan of a scan."""
        return self._plans.plan(scan, clean=not self.work.explicit)

    def keep_footers(self, scans: list[Scan]) -> None:
        """Cache the footers of these files for all statements."""
        if not self.guard.safe:  # a safe session has locked settings
            self._footers.prepare(self.connection, scans)

    def write(self, attached: Attached, work: Callable[[Transaction], T]) -> T:
        """Change a lake, either in the open transaction or as one snapshot that is retried after a conflict."""
        return self.work.write(attached, work)

    def native(self, sql: str, params: Parameters = None) -> Result:
        """Run a statement in DuckDB unchanged."""
        self.guard.native()
        types, reader = run(self.connection, sql, params, batch_rows=self.guard.batch_rows)
        return Result() if reader is None else self._result(types, reader)

    def run(
        self,
        sql: str,
        values: Any = None,
        *,
        odd: bool = False,
        gates: ExitStack | None = None,
        titles: Mapping[int, Title] | None = None,
    ) -> Result:
        """Run a bound query. ``odd`` says that it may return values that Arrow does not carry.

        ``titles`` names columns by position. ``gates`` is closed when the rows have been read, or when nobody can read
        them any more.
        """
        if odd or "variant" in sql.lower() or "hugeint" in sql.lower():
            sql = self._exportable(sql, values)
        types, reader = run(self.connection, sql, values, batch_rows=self.guard.batch_rows)
        return Result() if reader is None else self._result(types, reader, gates, titles)

    def _exportable(self, sql: str, values: Any) -> str:
        try:
            columns = self.connection.execute(f"DESCRIBE {sql}", values).fetchall()
        except duckdb.Error:
            return sql
        names = [name for name, type_, *_ in columns if any(odd in str(type_) for odd in _TEXT_TYPES)]
        if not names or len({fold(name) for name, *_ in columns}) != len(columns):
            return sql
        changed = ", ".join(f"{quote(name)}::VARCHAR AS {quote(name)}" for name in names)
        return f"SELECT * REPLACE ({changed}) FROM ({sql})"

    def _result(
        self,
        types: tuple[str, ...],
        reader: pa.RecordBatchReader,
        gates: ExitStack | None = None,
        titles: Mapping[int, Title] | None = None,
    ) -> Result:
        self._reader = weakref.ref(reader)
        held = ExitStack() if gates is None else gates.pop_all()
        batches = self.guard.limited(self._batches(reader, self._budget, held, self._sql))
        schema = reader.schema
        if titles:
            fields = [
                field.with_name(titles[place].of(field.name)) if place in titles else field
                for place, field in enumerate(schema)
            ]
            schema = pa.schema(fields, metadata=schema.metadata)
            batches = (pa.RecordBatch.from_arrays(batch.columns, schema=schema) for batch in batches)
        return Result(_started(schema, batches, self.guard.batch_rows), types=types)

    def _batches(
        self, reader: pa.RecordBatchReader, budget: TimeBudget, held: ExitStack, sql: str
    ) -> Iterator[pa.RecordBatch]:
        """Yield the batches of a result. DuckDB computes each one only when it is requested."""
        with held:
            while True:
                try:
                    with self.running.working(budget), self._translated():
                        batch = next(reader, None)
                    if batch is None:
                        return
                except QuacklakeError as error:
                    self._tell(error, sql)
                    raise
                yield batch

    def rows(self, sql: str, values: Any = None) -> pa.Table:
        """Return the rows of a bound query as a table."""
        return arrow_table(self.connection, sql, values)

    @contextmanager
    def planning(self) -> Iterator[duckdb.DuckDBPyConnection]:
        """Yield a connection to a database without rows, on which statements are bound but never run."""
        if self._planner is None:
            self._planner = self.attachments.planner.cursor()
            for statement in self._said:
                self._tell_planner(self._planner, statement)
        yield self._planner

    def said(self, statement: str) -> None:
        """Apply a DuckDB setting to the planner too, because it may change the meaning of statements."""
        self._said.append(statement)
        if "preserve_insertion_order" in statement.lower():
            for attached in self.attachments.lakes.values():  # each lake writes its files with an engine of its own
                with attached.context.engine.connection() as connection:
                    self._tell_planner(connection, statement)
        if self._planner is not None:
            self._tell_planner(self._planner, statement)

    @staticmethod
    def _tell_planner(planner: duckdb.DuckDBPyConnection, statement: str) -> None:
        with suppress(duckdb.Error):  # a setting that only the other connection knows
            planner.execute(statement)

    def _tell(self, error: BaseException, sql: str) -> None:
        """Make an error quote the user's text. The error of a nested statement has been changed already."""
        if isinstance(error, QuacklakeError) and (self._told is None or self._told() is not error):
            error.message = in_own_words(error.message, sql)
            error.args = (error.message,)
            self._told = weakref.ref(error)
            if carries_secret(sql):
                error.message = redact_message(error.message, sql)
                error.args = (error.message,)
                error.hint = None if error.hint is None else redact_message(error.hint, sql)
                error.__cause__ = error.__context__ = None  # DuckDB's own error quotes the statement
            self.guard.failed(self, error)

    def _translated(self) -> AbstractContextManager[None]:
        roots = [found.context.store.root for found in self.attachments.attached.values()]
        return translated(roots, safe=self.guard.safe)

    def _settle(self) -> None:
        """Keep the rows of the last result, and drop the temporary objects behind it."""
        last = self._last() if self._last is not None else None
        self._last = None
        if last is not None:
            try:
                last.keep()
            except Exception as error:  # raised again when the remaining rows are read
                last.fail(error)
        reader = self._reader() if self._reader is not None else None
        self._reader = None
        if reader is not None:
            reader.close()  # DuckDB 2.x starts no statement while another result is half read
        self._tidy()

    def _tidy(self) -> None:
        """Drop the temporary objects of earlier statements once there are many."""
        if len(self._made) < _LEFT_BEHIND:
            return
        try:
            for question in (_TEMPORARY, _MACROS) if self._has_macros else (_TEMPORARY,):
                for kind, name in self.connection.execute(question, [PREFIX]).fetchall():
                    self.connection.execute(f"DROP {kind} IF EXISTS temp.main.{quote(name)}")
        except duckdb.Error:
            return  # the transaction has failed; a later statement tries again
        if self._planner is not None:
            self._planner.close()
            self._planner = None
        self._made.clear()
        self._has_macros = False


def _started(schema: pa.Schema, batches: Iterator[pa.RecordBatch], full: int) -> pa.RecordBatchReader:
    """Return a reader that has read the first batch already, so that early errors are raised now.

    A batch that is not full is usually the last one. Then the end is read as well, which frees DuckDB for other work.
    """
    first = list(itertools.islice(batches, 1))
    if first and first[0].num_rows < full:
        first += itertools.islice(batches, 1)
    return pa.RecordBatchReader.from_batches(schema, itertools.chain(first, batches))
