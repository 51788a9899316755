"""Run SQL over named lakes, one transaction at a time. ``Session.statement`` runs every statement."""

from __future__ import annotations

import itertools
import os
import re
import sys
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from functools import partial
from types import FrameType
from typing import TYPE_CHECKING, Any, TypeVar

import duckdb
import pyarrow as pa

from quacklake import telemetry
from quacklake.config import carries_secret, redact_message
from quacklake.core.duckdb_versions import first_row, run
from quacklake.core.engines.duckdb.values import exact_values
from quacklake.core.format.names import check_name, fold, quote
from quacklake.core.sql import statements
from quacklake.core.sql.attached import PREFIX, Attached, Attachments, Names, attached_as
from quacklake.core.sql.binder import Binder, StandIns
from quacklake.core.sql.failures import Shown, in_own_words, translated
from quacklake.core.sql.guard import Guard
from quacklake.core.sql.result import Result, run_query
from quacklake.core.sql.running import Running, TimeBudget
from quacklake.core.sql.scans import Footers
from quacklake.core.sql.session_transaction import ROLLED_BACK, SessionTransaction
from quacklake.core.sql.timetravel import with_at
from quacklake.core.sql.tree import Node
from quacklake.core.sql.words import Cursor, numbered, split, supplied
from quacklake.errors import AlreadyExistsError, NotFoundError, QuacklakeError, SqlError, nearest

if TYPE_CHECKING:
    from quacklake.core.maintenance.lake_maintenance import LakeMaintenance
    from quacklake.core.operations.handles import Handle, HasHandle
    from quacklake.core.transaction import Transaction

T = TypeVar("T")
Parameters = Sequence[Any] | dict[str, Any] | None

_LEFT_BEHIND = 50
_KNOWN = """
    SELECT 1 FROM (SELECT table_name AS n FROM duckdb_tables() UNION ALL SELECT view_name FROM duckdb_views())
    WHERE lower(n) = lower(?)
"""
_UNKNOWN = re.compile(r"Catalog Error: Table with name (\S+) does not exist")


class Session:
    """A connection that runs SQL over any number of lakes, and over DuckDB's own tables, files and Python frames.

    Not safe to share between threads; ``cursor()`` opens another connection to the same lakes.
    """

    def __init__(self, attachments: Attachments, *, python_frames: bool = True, guard: Guard | None = None) -> None:
        self.attachments = attachments
        self.connection = attachments.root.cursor()
        self.python_frames = python_frames
        self.guard = Guard() if guard is None else guard
        self.guard.opened(self.connection)
        self.running = Running(self._stop)
        self.names = Names(attachments, self.view)
        self.work = SessionTransaction(committed=attachments.committed)
        self.prepared: dict[str, str] = {}
        self.keeper: LakeMaintenance | None = None
        """The maintenance that CALL uses, if it is not DuckDB's."""
        self._last: weakref.ref[Result] | None = None
        self._reader: weakref.ref[pa.RecordBatchReader] | None = None
        self._told: weakref.ref[BaseException] | None = None
        self._sql = ""
        self._count = itertools.count()
        self._said: list[str] = []
        self._made: list[str] = []
        self._made_before = 0
        self._copies: list[str] = []
        self._has_macros = False
        self._planner: duckdb.DuckDBPyConnection | None = None
        self._frame: FrameType | None = None
        self._budget = TimeBudget(None)
        self.footers = Footers()
        self._is_plain = False
        self._closed = False
        self._process = os.getpid()

    # -- opening and closing -------------------------------------------------------------------------------------------

    def cursor(self) -> Session:
        """Return another connection to the same lakes, with its own transaction."""
        with self.attachments.lock:
            self.attachments.cursors += 1
        other = Session(self.attachments, python_frames=self.python_frames, guard=self.guard)
        if self.names.catalog != other.names.catalog or self.names.schema != other.names.schema:
            other._stand_as(self)
        return other

    def _stand_as(self, other: Session) -> None:
        """Look up names first where another connection to the same lakes does."""
        place = other.names.catalog, other.names.schema
        try:
            self.connection.execute(f"USE {'.'.join(map(quote, place))}")
        except duckdb.Error:
            self.use(*place)  # its schema is gone
        else:
            self.names.catalog, self.names.schema = place

    def close(self) -> None:
        """Roll back the open transaction. The last connection also closes the lakes that ATTACH has opened."""
        if self._closed:
            return
        self._closed = True
        if self.running.busy or (self._reader is not None and self._reader() is not None):
            self.attachments.keep_database()  # another thread uses it, or its rows may still be read
        self.work.rollback()
        self.connection.close()
        if self._planner is not None:
            self._planner.close()
        with self.attachments.lock:
            self.attachments.cursors -= 1
            if not self.attachments.cursors:
                self.attachments.close()
                self.guard.close()

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # -- lakes and names -----------------------------------------------------------------------------------------------

    def attach(self, lake: Handle | HasHandle, alias: str = "lake") -> None:
        """Attach an open lake, a past snapshot or an open transaction under a name. The caller closes it."""
        self.add(attached_as(alias, lake))

    def attach_late(self, opened: Callable[[], Handle | HasHandle], alias: str = "lake") -> None:
        """Attach a lake that ``opened`` opens when a statement first uses it. The caller closes it."""

        def open_now() -> Attached:
            attached = attached_as(alias, opened())
            self.guard.attaching(attached)
            self._prepare(attached)
            return attached

        self.attachments.add_late(alias, open_now)

    def add(self, attached: Attached, *, if_not_exists: bool = False) -> bool:
        """Attach a lake. Return False when the name is taken and ``if_not_exists`` is true."""
        self.guard.attaching(attached)
        added = self.attachments.add(attached, if_not_exists=if_not_exists)
        if added:
            self._prepare(attached)
        return added

    def _prepare(self, attached: Attached) -> None:
        """Load what DuckDB needs to read the files of a lake."""
        from quacklake.core.engines.duckdb.connections import connect_store, load_httpfs

        connect_store(self.attachments.root, attached.context.store)
        if attached.context.catalog.encrypted:
            load_httpfs(self.attachments.root)  # DuckDB needs httpfs to write encrypted files

    def register(self, name: str, rows: Any) -> None:
        """Give a name to rows: a frame, Arrow data, or anything else that ``Table.append`` takes.

        Statements of all connections to the same lakes can use the name. Raise ``AlreadyExistsError`` when a table has
        it.
        """
        check_name(name, "table")
        from quacklake.core.sql import extensions

        found = extensions.read_rows(rows)
        try:
            for place in self.names.places([name]):
                if self.view(place.attached).get_table(place.schema, place.name) is not None:
                    raise AlreadyExistsError(f"{place.shown} is a table of a lake", hint="choose another name")
        finally:
            self.work.forget_views()  # the next statement reads the current state of the lake
        self.attachments.frames[fold(name)] = found

    def unregister(self, name: str) -> None:
        """Remove a name that ``register`` has added. Raise ``NotFoundError`` if it does not exist."""
        if self.attachments.frames.pop(fold(name), None) is None:
            raise NotFoundError(f'nothing is registered as "{name}"', hint=nearest(name, self.attachments.frames))

    def fresh_name(self, *, macro: bool = False) -> str:
        """Return a name for a temporary object that lives as long as the statement."""
        name = f"{PREFIX}{next(self._count)}"
        self._has_macros = self._has_macros or macro
        self._made.append(name)
        return name

    def copied(self, name: str) -> None:
        """Drop a temporary table of visible rows as soon as the result of the statement has been read."""
        self._copies.append(name)

    def has_made(self, name: str) -> bool:
        """Return True for the name of a temporary object of the running statement.

        Those of earlier ones may show what has been revoked since.
        """
        return name in self._made[self._made_before :]

    def use(self, catalog: str, schema: str | None = None) -> None:
        """Look up names in this lake or database first."""
        self.settle()
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

    # -- running statements --------------------------------------------------------------------------------------------

    def sql(self, text: str, params: Parameters = None) -> Result:
        """Run one or several statements and return the result of the last one.

        ``params`` are values for ``?`` and ``$1`` (a list) or ``$name`` (a dictionary). Raise ``SqlError`` with the
        position in the text, or the error of the operation itself.
        """
        return self._from(text, params)

    def execute(self, text: str, params: Parameters = None) -> Result:
        """Run one or several statements, like ``sql``."""
        return self._from(text, params)

    def _from(self, text: str, params: Parameters = None) -> Result:
        """Run statements for a method that the user calls: Python variables are those of the user's frame."""
        self._frame = sys._getframe(2) if self.python_frames else None
        try:
            if not isinstance(text, str):
                raise SqlError(f"a statement is a text, not {type(text).__name__}")
            self.guard.text(text)
            try:
                parts = split(text)
            except SqlError as error:
                self._tell(error, text)
                raise
            result = Result()
            for number, statement in enumerate(parts, 1):
                result = self.statement(statement, params if number == len(parts) else None)
            return result
        finally:
            self._frame = None

    def commit(self) -> None:
        """Commit the open transaction. Raise ``SqlError`` for one that an error has aborted, and rolls it back."""
        is_aborted = self.work.is_aborted(self.connection)
        self.sql("COMMIT")
        if is_aborted:
            raise SqlError(f"TransactionContext Error: {ROLLED_BACK}", hint="run its statements again")

    @staticmethod
    def is_query(text: str) -> bool:
        """Return whether the text of one statement is a query, which changes nothing.

        >>> Session.is_query("SELECT 1"), Session.is_query("DELETE FROM t"), Session.is_query("'")
        (True, False, False)
        """
        try:
            return statements.is_query(statements.handler(Cursor(text)))
        except QuacklakeError:
            return False

    def interrupt(self) -> bool:
        """Cancel the running statement, or the reading of its rows, from another thread.

        The other thread raises ``CancelledError``, and its session stays usable. A commit that has begun is not
        interrupted. Returns False when nothing runs.
        """
        return self.running.interrupt()

    def _stop(self, thread: int) -> None:
        """Interrupt the work of a thread for this session, on whichever connection DuckDB does it."""
        for connection in filter(None, (self.connection, self._planner)):
            with suppress(duckdb.Error):  # closed in the meantime
                connection.interrupt()
        for attached in list(self.attachments.attached.values()):
            attached.context.engine.interrupt(thread)

    def statement(self, sql: str, params: Parameters = None) -> Result:
        """Run one statement. Every statement of a session passes through here."""
        if self._closed:
            raise SqlError("the session is closed")
        if self._process != os.getpid():
            raise SqlError(
                "the session belongs to the process that has forked this one",
                hint="open another one here; lake.sql() does so itself",
            )
        self.settle()
        self._made_before = len(self._made)
        self._sql = sql
        if not self.running.busy:
            self._budget = TimeBudget(self.guard.seconds)
        try:
            with (
                telemetry.timed("sql", Shown(sql)),
                self.guard.auditing(self, sql),
                self.running.working(self._budget),
                self._translate_errors(),
            ):
                cursor = self.guard.admit(self, Cursor(with_at(numbered(sql))))
                first = cursor.peek()
                self.work.renew()
                self.work.check(ends=first is not None and first.upper in ("ROLLBACK", "ABORT", "COMMIT", "END"))
                handler, self._is_plain = statements.handler(cursor), False
                result = handler(self, cursor, exact_values(supplied(cursor, params)))
                if not (self._is_plain and statements.is_query(handler)):
                    self.attachments.keep_database()
        except BaseException as error:
            self.attachments.keep_database()
            self.work.failed(error, self.connection)
            self._tell(error, sql)
            unknown = _UNKNOWN.match(str(error)) if isinstance(error, SqlError) and error.hint is None else None
            if unknown is not None and isinstance(error, SqlError) and not self.work.aborted:
                error.hint = self.names.similar(unknown[1])
            raise
        finally:
            self.work.forget_views()
        self._last = weakref.ref(result)
        return result

    def query(self, sql: str, params: Parameters = None, stand_ins: StandIns | None = None) -> Result:
        """Run a query over lakes. ``stand_ins`` are temporary relations that replace tables."""
        bound = Binder(self, params, stand_ins or {}).bind(sql, looking=True)
        odd = any(column.travels_as_text for scan in bound.scans for column in scan.table.schema.columns)
        # a query counts as one scan of each catalog, however many of its tables it reads
        engines = {scan.attached.context.catalog.tenant_row: scan.attached.context.engine for scan in bound.scans}
        try:
            with ExitStack() as gates:
                for engine in engines.values():
                    gates.enter_context(engine.gate())
                result = self._run(bound.sql, bound.values, gates, odd)
                self._is_plain = bound.is_plain
                self.attachments.has_read(scan.plan for scan in bound.scans if scan.plan is not None)
                return result
        except (duckdb.BinderException, duckdb.CatalogException) as error:
            from quacklake.core.sql import listing

            raise error if self.guard.safe else listing.own_error(self, sql, params, error) from error

    def parameter_types(self, sql: str) -> dict[str, str]:
        """Return DuckDB's types of the parameters of a statement by their names or numbers, without running it.

        A parameter that may have any type is a VARCHAR. Raise ``SqlError`` for a statement that is wrong or not
        allowed.
        """
        from quacklake.core.sql.parameter_types import parameter_types

        with self._looking_at(sql) as cursor:
            return parameter_types(self, cursor)

    def with_columns(self, sql: str) -> str:
        """Return an INSERT with the names of the columns that it fills by their order; any other statement as it is.

        Raise ``SqlError`` or ``NotFoundError`` for a statement that is wrong or not allowed.
        """
        from quacklake.core.sql.statements import inserting

        with self._looking_at(sql) as cursor:
            return inserting.with_columns(self, cursor, sql)

    @contextmanager
    def _looking_at(self, sql: str) -> Iterator[Cursor]:
        """Admit a statement that does not run."""
        self.settle()
        self.guard.text(sql)
        try:
            with self.running.working(TimeBudget(self.guard.seconds)), self._translate_errors():
                yield self.guard.admit(self, Cursor(with_at(numbered(sql))))
        except BaseException:
            self.attachments.keep_planner()
            raise
        finally:
            self.work.forget_views()

    def native(self, sql: str, params: Parameters = None) -> Result:
        """Run a statement in DuckDB unchanged."""
        self.guard.native()
        return self._run(sql, params)

    def _run(
        self,
        sql: str,
        values: Any,
        gates: ExitStack | None = None,
        odd: bool = False,
    ) -> Result:
        """Run a bound statement. ``gates`` is closed when the rows have been read, or nobody can read them any more."""
        full = self.guard.batch_rows
        ask = run if gates is None else partial(run_query, odd=odd)
        types, reader = ask(self.connection, sql, values, batch_rows=full)
        if reader is None:
            return Result()
        self._reader = weakref.ref(reader)
        held = ExitStack() if gates is None else gates.pop_all()
        batches = self.guard.limited(self._batches(reader, self._budget, held, self._sql))
        # The first batch is read now, so that early errors are raised now. One that is not full is usually the last:
        # then the end is read as well, which frees DuckDB for other work.
        first = list(itertools.islice(batches, 1))
        if first and first[0].num_rows < full:
            first += itertools.islice(batches, 1)
        return Result(pa.RecordBatchReader.from_batches(reader.schema, itertools.chain(first, batches)), types=types)

    def _batches(
        self, reader: pa.RecordBatchReader, budget: TimeBudget, held: ExitStack, sql: str
    ) -> Iterator[pa.RecordBatch]:
        """Yield the batches of a result. DuckDB computes each one only when it is requested."""
        with held:
            while True:
                try:
                    with self.running.working(budget), self._translate_errors():
                        batch = next(reader, None)
                    if batch is None:
                        return
                except BaseException as error:
                    self.attachments.keep_database()
                    self.work.failed(error, self.connection)
                    self._tell(error, sql)
                    raise
                yield batch

    def settle(self) -> None:
        """Keep the rows of the last result, and drop the temporary objects behind it once there are many."""
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
        with suppress(duckdb.Error):  # the transaction has failed; a later statement tries again
            while self._copies:
                self.connection.execute(f"DROP TABLE IF EXISTS temp.main.{quote(self._copies[-1])}")
                self._copies.pop()
        if len(self._made) < _LEFT_BEHIND:
            return
        try:
            _drop_temporary(self.connection, macros=self._has_macros)
        except duckdb.Error:
            return  # the transaction has failed; a later statement tries again
        if self._planner is not None:
            self._planner.close()
            self._planner = None
        self._made.clear()
        self._has_macros = False

    # -- what statements read and change -------------------------------------------------------------------------------

    def view(self, attached: Attached) -> Transaction:
        """Return the lake at the snapshot that this statement reads."""
        return self.work.view(attached)

    def at(self, attached: Attached, unit: str, value: Any) -> Transaction:
        """Return the lake at a snapshot or time."""
        return self.work.at(attached, unit, value)

    def write(self, attached: Attached, work: Callable[[Transaction], T]) -> T:
        """Change a lake, either in the open transaction or as one snapshot that is retried after a conflict."""
        return self.work.write(attached, work)

    def foreign(self, names: Sequence[str]) -> Any:
        """Return the rows of a relation that belongs neither to a lake nor to DuckDB, or None."""
        from quacklake.core.sql import extensions, listing, metadata

        self.guard.foreign(self, names)
        found = metadata.relation(self, names)
        if found is None:
            found = listing.relation(self, names)
        if found is None and len(names) == 1:
            found = self.attachments.frames.get(fold(names[0]))
            if found is None and self._frame is not None and first_row(self.connection, _KNOWN, [names[0]]) is None:
                found = extensions.find_frame(self._frame, names[0])
            if found is None and not self.guard.safe:
                found = extensions.find_source(self, names[0])
        return found

    def call(self, binder: Binder, names: Sequence[str], arguments: list[Node]) -> Any:
        """Return the result of a lake function in FROM: rows or the name of a relation. None for any other function."""
        from quacklake.core.sql import lake_functions, listing

        found = lake_functions.relation(self, binder, names, arguments)
        return listing.function(self, names, arguments) if found is None else found

    def planner(self, *, plain: bool = False) -> duckdb.DuckDBPyConnection:
        """Return a connection to a database without rows: it binds statements, or ``plain`` queries, and runs none."""
        database = self.attachments.plain_planner() if plain and not self._said else self.attachments.planner
        if self._planner is None:
            self._planner = database.cursor()
            for statement in self._said:
                _repeat(self._planner, statement)
        return self._planner

    def said(self, statement: str) -> None:
        """Apply a DuckDB setting to the planner too, because it may change the meaning of statements."""
        self._said.append(statement)
        if "preserve_insertion_order" in statement.lower():
            for attached in self.attachments.lakes.values():  # each lake writes its files with its own engine
                with attached.context.engine.connection() as connection:
                    _repeat(connection, statement)
        if self._planner is not None:
            _repeat(self.planner(), statement)

    # -- errors --------------------------------------------------------------------------------------------------------

    def _translate_errors(self) -> AbstractContextManager[None]:
        roots = [found.context.store.root for found in self.attachments.attached.values()]
        return translated(roots, safe=self.guard.safe)

    def _tell(self, error: BaseException, sql: str) -> None:
        """Make an error quote the user's text. The error of a nested statement has been changed already."""
        if not isinstance(error, QuacklakeError) or (self._told is not None and self._told() is error):
            return
        error.message = in_own_words(error.message, sql)
        if carries_secret(sql):
            error.message = redact_message(error.message, sql)
            error.hint = None if error.hint is None else redact_message(error.hint, sql)
            error.__cause__ = error.__context__ = None  # DuckDB's own error quotes the statement
        error.args = (error.message,)
        self._told = weakref.ref(error)
        self.guard.failed(self, error)


def _repeat(connection: duckdb.DuckDBPyConnection, statement: str) -> None:
    with suppress(duckdb.Error):  # a setting that only the other connection knows
        connection.execute(statement)


_RELATIONS = """
    SELECT 'VIEW', view_name FROM duckdb_views() WHERE temporary AND starts_with(view_name, $1)
    UNION ALL SELECT 'TABLE', table_name FROM duckdb_tables() WHERE temporary AND starts_with(table_name, $1)
"""
#: Macros have a separate query, because listing functions is slow.
_MACROS = """
    SELECT DISTINCT CASE function_type WHEN 'table_macro' THEN 'MACRO TABLE' ELSE 'MACRO' END, function_name
    FROM duckdb_functions() WHERE database_name = 'temp' AND starts_with(function_name, $1)
"""


def _drop_temporary(connection: duckdb.DuckDBPyConnection, *, macros: bool) -> None:
    """Drop what Quacklake has made on a connection, and ``macros`` if it has made any."""
    for question in (_RELATIONS, _MACROS) if macros else (_RELATIONS,):
        for kind, name in connection.execute(question, [PREFIX]).fetchall():
            connection.execute(f"DROP {kind} IF EXISTS temp.main.{quote(name)}")
