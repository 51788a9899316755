"""Run SQL over named lakes, one transaction at a time. ``Session.statement`` runs every statement."""

from __future__ import annotations

import os
import re
import sys
import weakref
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from types import TracebackType
from typing import TYPE_CHECKING, Any

import duckdb

from quacklake import telemetry
from quacklake.config import redact_statement
from quacklake.duckdb_versions import first_row
from quacklake.errors import AlreadyExistsError, NotFoundError, SqlError, nearest
from quacklake.format.names import check_name, fold
from quacklake.sql import dispatch
from quacklake.sql.attached import Attached, attached_as
from quacklake.sql.binder import Binder, StandIns
from quacklake.sql.frames import find_frame, registrable
from quacklake.sql.parameters import numbered, supplied
from quacklake.sql.result import Result
from quacklake.sql.running import TimeBudget
from quacklake.sql.session_connection import Parameters, SessionConnection
from quacklake.sql.timetravel import with_at
from quacklake.sql.tree import Node
from quacklake.sql.words import Cursor, split

if TYPE_CHECKING:
    from quacklake.operations.handles import Handle, HasHandle

_UNKNOWN = re.compile(r"Catalog Error: Table with name (\S+) does not exist")


class Session(SessionConnection):
    """A connection that runs SQL over any number of lakes, and over DuckDB's own tables, files and Python frames.

    Not safe to share between threads; ``cursor()`` opens another connection to the same lakes.
    """

    def cursor(self) -> Session:
        """Return another connection to the same lakes, with its own transaction."""
        with self.attachments.lock:
            self.attachments.cursors += 1
        other = Session(self.attachments, python_frames=self.python_frames, guard=self.guard)
        if self.names.catalog != other.names.catalog or self.names.schema != other.names.schema:
            other.use(self.names.catalog, self.names.schema)
        return other

    def close(self) -> None:
        """Roll back the open transaction. The last connection also closes the lakes that ATTACH has opened."""
        if self._closed:
            return
        self._closed = True
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

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def attach(self, lake: Handle | HasHandle, alias: str = "lake") -> None:
        """Attach an open lake, a past snapshot or an open transaction under a name. The caller closes it."""
        self.add(attached_as(alias, lake))

    def register(self, name: str, rows: Any) -> None:
        """Give a name to rows: a frame, Arrow data, or anything else that ``Table.append`` takes.

        Statements of all connections to the same lakes can use the name. Raises ``AlreadyExistsError`` when a table has
        it.
        """
        check_name(name, "table")
        found = registrable(rows)
        try:
            for place in self.names.places([name]):
                if self.view(place.attached).get_table(place.schema, place.name) is not None:
                    raise AlreadyExistsError(f"{place.shown} is a table of a lake", hint="choose another name")
        finally:
            self.work.forget_views()  # the next statement reads the current state of the lake
        self.attachments.frames[fold(name)] = found

    def unregister(self, name: str) -> None:
        """Remove a name that ``register`` has added. Raises ``NotFoundError`` when there is no such name."""
        if self.attachments.frames.pop(fold(name), None) is None:
            raise NotFoundError(f'nothing is registered as "{name}"', hint=nearest(name, self.attachments.frames))

    def attach_late(self, opened: Callable[[], HasHandle], alias: str = "lake") -> None:
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
        from quacklake.engines.duckdb.connections import connect_store, load_httpfs

        connect_store(self.attachments.root, attached.context.store)
        if attached.context.catalog.encrypted:
            load_httpfs(self.attachments.root)  # DuckDB needs httpfs to write encrypted files

    def sql(self, text: str, params: Parameters = None) -> Result:
        """Run one or several statements and return the result of the last one.

        ``params`` are values for ``?`` and ``$1`` (a list) or ``$name`` (a dictionary). Raises ``SqlError`` with the
        position in the text, or the error of the operation itself.
        """
        self._frame = sys._getframe(1) if self.python_frames else None
        try:
            return self._run(text, params)
        finally:
            self._frame = None

    def execute(self, text: str, params: Parameters = None) -> Result:
        """Run one or several statements, like ``sql``."""
        self._frame = sys._getframe(1) if self.python_frames else None
        try:
            return self._run(text, params)
        finally:
            self._frame = None

    def _from(self, text: str, params: Parameters = None) -> Result:
        """Run statements for a method that the user calls: Python variables are those of the user's frame."""
        self._frame = sys._getframe(2) if self.python_frames else None
        try:
            return self._run(text, params)
        finally:
            self._frame = None

    def interrupt(self) -> bool:
        """Cancel the running statement, or the reading of its rows, from another thread.

        The other thread raises ``CancelledError``, and its session stays usable. A commit that has begun is not
        interrupted. Returns False when nothing runs.
        """
        return self.running.interrupt()

    def _run(self, text: str, params: Parameters) -> Result:
        if not isinstance(text, str):
            raise SqlError(f"a statement is a text, not {type(text).__name__}")
        self.guard.text(text)
        try:
            statements = split(text)
        except SqlError as error:
            self._tell(error, text)
            raise
        result = Result()
        for number, statement in enumerate(statements, 1):
            result = self.statement(statement, params if number == len(statements) else None)
        return result

    def statement(self, sql: str, params: Parameters = None) -> Result:
        """Run one statement. Every statement of a session passes through here."""
        if self._closed:
            raise SqlError("the session is closed")
        if self._process != os.getpid():
            raise SqlError(
                "the session belongs to the process that has forked this one",
                hint="open another one here; lake.sql() does so itself",
            )
        self._settle()
        self._sql = sql
        if not self.running.busy:
            self._budget = TimeBudget(self.guard.seconds)
        try:
            with telemetry.timed("sql", _Shown(sql)), self.running.working(self._budget), self._translated():
                cursor = self.guard.admit(self, Cursor(with_at(numbered(sql))))
                self.work.check(ends=dispatch.ends_transaction(cursor))
                result = dispatch.handler(cursor)(self, cursor, supplied(cursor, params))
        except BaseException as error:
            self.work.failed(error)
            self._tell(error, sql)
            if isinstance(error, SqlError) and error.hint is None:
                error.hint = self._near_names(str(error))
            raise
        finally:
            self.work.forget_views()
        self._last = weakref.ref(result)
        return result

    def _near_names(self, text: str) -> str | None:
        """Return the names in the current lake that are similar to the one that DuckDB does not know."""
        unknown = _UNKNOWN.match(text)
        used = self.names.default
        if unknown is None or used is None or self.work.aborted:
            return None
        view = self.view(used)
        known = [table.name for table in view.tables()] + [found.name for found in view.objects.views()]
        return nearest(unknown[1], known)

    def foreign(self, names: Sequence[str]) -> Any:
        """Return the rows of a relation that belongs neither to a lake nor to DuckDB, or None."""
        from quacklake.sql import listing, metadata

        self.guard.foreign(self, names)
        found = metadata.relation(self, names)
        if found is None:
            found = listing.relation(self, names)
        if found is None and len(names) == 1:
            found = self.attachments.frames.get(fold(names[0]))
        if found is None and len(names) == 1 and self._frame is not None and not self._knows(names[0]):
            found = find_frame(self._frame, names[0])
        return found

    def _knows(self, name: str) -> bool:
        question = (
            "SELECT 1 FROM (SELECT table_name AS n FROM duckdb_tables() UNION ALL SELECT view_name FROM duckdb_views())"
            " WHERE lower(n) = lower(?)"
        )
        return first_row(self.connection, question, [name]) is not None

    def call(self, binder: Binder, names: Sequence[str], arguments: list[Node]) -> Any:
        """Return the result of a lake function in FROM: rows or the name of a relation. None for any other function."""
        from quacklake.sql import lake_functions, listing

        found = lake_functions.relation(self, binder, names, arguments)
        return listing.function(self, names, arguments) if found is None else found

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
                return self.run(bound.sql, bound.values, odd=odd, gates=gates, titles=bound.titles)
        except (duckdb.BinderException, duckdb.CatalogException) as error:
            raise self._in_own_words(sql, params, error) from error

    def _in_own_words(self, sql: str, params: Parameters, error: duckdb.Error) -> duckdb.Error:
        """Return the error that the user's own text causes over empty tables, if it is of the same type."""
        from quacklake.sql import listing

        if self.guard.safe:
            return error
        try:
            with listing.listing(self) as copies:
                copies.execute(sql, params)
        except duckdb.Error as found:
            return found if type(found) is type(error) else error
        return error


class _Shown:
    """A statement for the log. It is redacted only when it is logged, which is rare."""

    def __init__(self, sql: str) -> None:
        self._sql = sql

    def __str__(self) -> str:
        return redact_statement(self._sql)
