"""Run statements of callers in safe sessions, one DuckDB for each principal."""

from __future__ import annotations

import datetime as dt
import threading
from collections import OrderedDict
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from quacklake import Result, Session
from quacklake import session as new_session
from quacklake.core.transaction import Transaction
from quacklake.errors import InputError, QuacklakeError, TenantBusyError
from quacklake.extend.names import fold
from quacklake.extend.sql import split, words_of
from quacklake.service.flight.callers import Caller
from quacklake.service.flight.parameters import fill_with_nulls
from quacklake.service.flight.settings import FlightSettings
from quacklake.service.flight.streams import Held, Slots, Stream, Watch
from quacklake.service.identity import Role

CATALOG = "lake"
"""The name of the lake in statements and in metadata."""

Parameters = Sequence[Any] | Mapping[str, Any] | None
_TRANSACTIONS = frozenset({"BEGIN", "START", "COMMIT", "END", "ROLLBACK", "ABORT"})
_SPARE = 4
"""Connections that wait for the next statement of a principal."""


@dataclass
class _Root:
    """The sessions of a principal: they share a DuckDB, and its memory. ``handle`` is that of the principal's lake."""

    first: Session
    handle: object
    spare: list[Session] = field(default_factory=list)


class Sessions:
    """Lends safe sessions. Those of the principals that were here last stay open."""

    def __init__(self, settings: FlightSettings) -> None:
        self._settings = settings
        self._lock = threading.Lock()
        self._roots: OrderedDict[tuple[str, int, bool], _Root] = OrderedDict()
        self._closed = False

    def lend(self, caller: Caller, *, read_only: bool) -> Session:
        """Return a session on the lake of a caller, for ``give_back`` or ``close``."""
        key = (caller.owner, id(caller.identity.lake.handle), read_only)
        lent = self._from(key)
        if lent is None:
            self._add(key, self._open(caller, read_only))
            lent = self._from(key)
        if lent is None:
            raise InputError("the server has shut down")
        wanted = caller.schema or "main"
        try:
            if fold(lent.names.schema) != fold(wanted):
                lent.use(CATALOG, wanted)
        except BaseException:
            lent.close()
            raise
        return lent

    def _from(self, key: tuple[str, int, bool]) -> Session | None:
        with self._lock:
            root = self._roots.get(key)
            if root is None:
                return None
            self._roots.move_to_end(key)
            return root.spare.pop() if root.spare else root.first.cursor()

    def _add(self, key: tuple[str, int, bool], opened: _Root) -> None:
        """Keep a root, unless another call was faster; the principals that were not here for long make room."""
        with self._lock:
            if self._closed or key in self._roots:
                gone = [opened]
            else:
                self._roots[key] = opened
                most = self._settings.max_principals
                gone = [self._roots.popitem(last=False)[1] for _ in range(len(self._roots) - most)]
        for old in gone:
            _close(old)

    def _open(self, caller: Caller, read_only: bool) -> _Root:
        first = new_session(safety=self._settings.safety(read_only=read_only))
        try:
            first.attach(caller.identity.lake, CATALOG)
            first.use(CATALOG)
        except BaseException:
            first.close()
            raise
        return _Root(first, caller.identity.lake.handle)

    def give_back(self, session: Session) -> None:
        """Take a session back whose result was read to its end."""
        with self._lock:
            for root in self._roots.values():
                if root.first.attachments is session.attachments and not session.work.explicit:
                    if len(root.spare) < _SPARE and not session.prepared and not self._closed:
                        root.spare.append(session)
                        return
                    break
        session.close()

    def close(self) -> None:
        """Close every session that is not lent."""
        with self._lock:
            self._closed = True
            roots = list(self._roots.values())
            self._roots.clear()
        for root in roots:
            _close(root)


def _close(root: _Root) -> None:
    for session in (*root.spare, root.first):
        session.close()


@dataclass(frozen=True)
class Statement:
    """One statement with its values; ``snapshot`` is None for the newest. A transaction has a session of its own."""

    sql: str
    parameters: Parameters = None
    snapshot: int | None = None


@dataclass(frozen=True)
class Answer:
    """The outcome of a statement: its rows, the snapshot they are of, and how many rows it changed, -1 for none."""

    stream: Stream
    snapshot: int
    changed: int


class Queries:
    """Runs statements outside of transactions."""

    def __init__(self, settings: FlightSettings, slots: Slots, held: Held, watch: Watch) -> None:
        self.sessions = Sessions(settings)
        self._slots = slots
        self._held = held
        self._watch = watch

    def slot(self, caller: Caller) -> Callable[[], None]:
        """Take a slot; results that nobody reads make room. Raise ``TenantBusyError``."""
        while True:
            try:
                return self._slots.take(caller.owner)
            except TenantBusyError:
                if not self._held.make_room(caller.owner):
                    raise

    def run(self, caller: Caller, context: Any, statement: Statement, number: str | None = None) -> Answer:
        """Run a statement, which may be cancelled by its number. A statement at a past snapshot only reads."""
        may_write = caller.identity.role >= Role.WRITER and statement.snapshot is None
        with ExitStack() as stack:
            release = self.slot(caller)
            stack.callback(release)
            session = self.sessions.lend(caller, read_only=not may_write)
            stack.callback(session.close)
            with (
                self._held.starting(number, session.interrupt) as is_cancelled,
                self._watch.watching(context, session.interrupt, is_cancelled),
            ):
                view = _view(caller, statement.snapshot)
                result = run_one(session, statement.sql, statement.parameters, view)
            stack.pop_all()
        stream = _stream(result, session, release, self.sessions)
        return Answer(stream, view.base.id, result.rowcount)

    def columns(self, caller: Caller, context: Any, statement: Statement) -> tuple[pa.Schema, int] | None:
        """Return the columns of a query and the snapshot that it reads; None if they cannot be told before it runs."""
        with self.session(caller, context, read_only=True) as session:
            text = single(session, statement.sql)
            view = _view(caller, statement.snapshot)
            try:
                schema = run_one(session, _empty(text), statement.parameters, view).schema
            except QuacklakeError:
                return None
        # of two columns with one name, a query inside of another has a second one with a number
        numbered = (name.rpartition("_") for name in schema.names)
        if any(number.isdigit() and stem in schema.names for stem, _, number in numbered):
            return None
        return schema, view.base.id

    @contextmanager
    def session(self, caller: Caller, context: Any, *, read_only: bool) -> Iterator[Session]:
        """Lend a session for a block; it is closed when the block fails."""
        release = self.slot(caller)
        try:
            session = self.sessions.lend(caller, read_only=read_only)
            try:
                with self._watch.watching(context, session.interrupt):
                    yield session
            except BaseException:
                session.close()
                raise
            self.sessions.give_back(session)
        finally:
            release()

    def schema(
        self, caller: Caller, context: Any, sql: str, types: Mapping[str, str] | None = None
    ) -> pa.Schema | None:
        """Return the columns of a query, whose parameters are NULL of these types; None for another statement."""
        with self.session(caller, context, read_only=True) as session:
            return described(session, sql, types)

    def parameter_types(self, caller: Caller, context: Any, sql: str) -> dict[str, str]:
        """Return DuckDB's types of the parameters of a statement by their names; none if it is wrong or not allowed."""
        if "?" not in sql and "$" not in sql:
            return {}
        with self.session(caller, context, read_only=caller.identity.role < Role.WRITER) as session:
            text = single(session, sql)  # one that is too long is not read
            try:
                return session.parameter_types(text)
            except QuacklakeError:
                return {}

    def with_columns(self, caller: Caller, context: Any, sql: str) -> str:
        """Return an INSERT with the names of the columns that it fills; any other statement as it is."""
        if words_of(sql)[0].upper != "INSERT":
            return sql
        with self.session(caller, context, read_only=caller.identity.role < Role.WRITER) as session:
            try:
                return session.with_columns(single(session, sql))
            except QuacklakeError:
                return sql


def _view(caller: Caller, snapshot: int | None) -> Transaction:
    lake = caller.identity.lake
    return lake.handle.view() if snapshot is None else lake.at(version=snapshot).handle.view()


def _stream(result: Result, session: Session, release: Callable[[], None], sessions: Sessions) -> Stream:
    is_read = False

    def read() -> Generator[pa.RecordBatch, None, None]:
        nonlocal is_read
        yield from result.to_batches()
        is_read = True

    batches = read()

    def close() -> None:
        batches.close()
        try:
            if is_read:
                sessions.give_back(session)
            else:
                session.close()
        finally:
            release()

    return Stream(result.schema, batches, session.interrupt, close)


def run_one(session: Session, sql: str, parameters: Parameters, view: Transaction | None = None) -> Result:
    """Run one statement, at a given state of the lake. Raise ``InputError`` for several statements or none."""
    text = single(session, sql)
    if view is not None:
        session.work.read(session.attachments.find(CATALOG), view)
    given = dict(parameters) if isinstance(parameters, Mapping) else list(parameters or ())
    return session.sql(text, given or None)


def single(session: Session, sql: str) -> str:
    """Return the text of the only statement in a text. Raise ``InputError`` for one about transactions."""
    session.guard.text(sql)
    parts = split(sql)
    if len(parts) != 1:
        raise InputError(f"one statement is expected, not {len(parts)}", hint="send each statement by itself")
    if words_of(parts[0])[0].upper in _TRANSACTIONS:
        raise InputError(
            "a statement does not begin or end a transaction",
            hint="use the actions BeginTransaction and EndTransaction: autocommit, commit and rollback in most clients",
        )
    return parts[0]


_QUERIES = frozenset(("SELECT", "FROM", "WITH", "VALUES", "TABLE", "(", "PIVOT", "UNPIVOT", "SUMMARIZE"))
_LISTINGS = frozenset(("DESC", "DESCRIBE", "SHOW"))


def described(session: Session, sql: str, types: Mapping[str, str] | None = None) -> pa.Schema | None:
    """Return the columns of a query without running it; None for a statement that is none.

    Parameters are NULL, of the types by their names. The text is that of the session's own user, who could run it as
    well.
    """
    text = single(session, sql)
    first = words_of(text)[0].upper
    if first in _LISTINGS:
        return run_one(session, text, None).schema
    if first == "EXPLAIN":
        return run_one(session, "EXPLAIN SELECT 1", None).schema
    if first == "CALL":
        text = f"FROM {text[len(first) :]}"
    elif first not in _QUERIES:
        return None
    text = fill_with_nulls(text, types or {})
    try:
        return run_one(session, _empty(text), None).schema
    except QuacklakeError:
        run_one(session, f"EXPLAIN {text}", None)  # tells what is wrong with the statement itself
        return None


def _empty(query: str) -> str:
    return f"SELECT * FROM (\n{query}\n) LIMIT 0"


def snapshot_of(caller: Caller, version: object, timestamp: object) -> int | None:
    """Return the snapshot that a request names; None for the newest. Raise ``InputError``."""
    if version is None and timestamp is None:
        return None
    if version is not None and timestamp is not None:
        raise InputError("version and timestamp cannot be given together")
    if isinstance(version, bool) or not isinstance(version, int | str | None):
        raise InputError("version is the id or the tag of a snapshot")
    if not isinstance(timestamp, str | dt.datetime | None):
        raise InputError("timestamp is a text such as 2026-01-31T12:00:00Z")
    return caller.identity.lake.at(version=version, timestamp=timestamp).snapshot_id
