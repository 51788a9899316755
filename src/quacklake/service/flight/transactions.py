"""Transactions that last over several calls: each has a session in which BEGIN was run."""

from __future__ import annotations

import secrets
import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from quacklake import Session
from quacklake.core.catalog.turns import acting_for
from quacklake.errors import InputError, NotFoundError, NotPermittedError, TenantBusyError
from quacklake.service.flight.callers import Caller
from quacklake.service.flight.queries import CATALOG, Answer, Sessions, Statement, run_one
from quacklake.service.flight.settings import FlightSettings
from quacklake.service.flight.streams import Stream, Watch
from quacklake.service.identity import Role


@dataclass(eq=False)
class OpenTransaction:
    """A transaction of one principal. It begins with its first statement, so that one without costs nothing."""

    principal: str
    """The key of the principal among those of all lakes."""
    lake: str
    session: Session | None = None
    restricted: bool = False
    """True when the session obeys the rules of a principal who is no administrator."""
    used: float = field(default_factory=time.monotonic)
    lock: threading.RLock = field(default_factory=threading.RLock)
    ended: bool = False
    rows: KeptRows | None = None
    """The rows of the last statement."""


class KeptRows:
    """The rows of a statement in a transaction, read one call at a time.

    The next statement needs the connection: it keeps the rows that are left, up to a limit.
    """

    def __init__(self, transaction: OpenTransaction, batches: Iterator[pa.RecordBatch]) -> None:
        self._transaction = transaction
        self._batches = batches
        self._kept: deque[pa.RecordBatch] = deque()
        self._too_many = False

    def __iter__(self) -> KeptRows:
        return self

    def __next__(self) -> pa.RecordBatch:
        with self._transaction.lock:
            self._transaction.used = time.monotonic()
            if self._kept:
                return self._kept.popleft()
            if self._too_many:
                raise InputError(
                    "the next statement of the transaction came before the rows of this one were read",
                    hint="read large results to their end first, or use autocommit",
                )
            return next(self._batches)

    def keep(self, most: int) -> None:
        """Read the rows that are left."""
        for batch in self._batches:
            if most < 0:
                self._too_many = True
                break
            self._kept.append(batch)
            most -= batch.nbytes
        self._batches = iter(())


class Transactions:
    """The open transactions of this server. One that nobody uses for a while is rolled back."""

    def __init__(self, settings: FlightSettings, sessions: Sessions, watch: Watch) -> None:
        self._settings = settings
        self._sessions = sessions
        self._watch = watch
        self._lock = threading.Lock()
        self._open: dict[bytes, OpenTransaction] = {}

    def begin(self, caller: Caller) -> bytes:
        """Return the id of a new transaction. Raise ``TenantBusyError`` when the principal has too many."""
        with self._lock:
            mine = [id_ for id_, tx in self._open.items() if tx.principal == caller.owner]
            if len(mine) >= self._settings.max_transactions:
                idle = next((id_ for id_ in mine if self._open[id_].session is None), None)
                if idle is None:
                    raise TenantBusyError(
                        f"this principal has {len(mine)} open transactions",
                        limit="max_transactions",
                        after=1.0,
                        hint="commit or roll back some",
                    )
                del self._open[idle]
            id_ = secrets.token_bytes(24)
            self._open[id_] = OpenTransaction(caller.owner, caller.lake)
        return id_

    def end(self, caller: Caller, id_: bytes, *, commit: bool) -> None:
        """Commit or roll back. To roll back one that has lapsed changes nothing."""
        with self._lock:
            found = self._open.get(id_)
            if found is None or found.principal != caller.owner:
                if commit:
                    raise _unknown()
                return
            del self._open[id_]
        if commit and _outlives(found, caller):
            self._roll_back(found)
            raise _demoted_error()
        with found.lock:
            found.ended = True
            session, found.session = found.session, None
            if session is None:
                return
            try:
                if found.rows is not None:
                    found.rows.keep(self._settings.size("max_kept"))
                if commit:
                    session.commit()
                else:
                    session.sql("ROLLBACK")
            finally:
                session.close()

    @contextmanager
    def session(self, caller: Caller, context: Any, id_: bytes) -> Iterator[Session]:
        """Lend the session of a transaction, to one call at a time. Raise ``NotFoundError`` for one that has ended."""
        found = self._find(caller, id_)
        with found.lock:
            if found.ended:
                raise _unknown()
            if found.session is None:
                session = self._sessions.lend(caller, read_only=caller.identity.role < Role.WRITER)
                try:
                    session.sql("BEGIN")
                except BaseException:
                    session.close()
                    raise
                found.session, found.restricted = session, caller.identity.lake.handle.restricted
            rows, found.rows = found.rows, None
            try:
                with acting_for(caller.owner), self._watch.watching(context, found.session.interrupt):
                    if rows is not None:
                        rows.keep(self._settings.size("max_kept"))
                    yield found.session
            finally:
                found.used = time.monotonic()

    def _find(self, caller: Caller, id_: bytes) -> OpenTransaction:
        with self._lock:
            found = self._open.get(id_)
        if found is None or found.principal != caller.owner:
            raise _unknown()
        if found.lake != caller.lake:
            raise InputError("the transaction is on another lake")
        if _outlives(found, caller):
            with self._lock:
                self._open.pop(id_, None)
            self._roll_back(found)
            raise _demoted_error()
        return found

    def run(self, caller: Caller, context: Any, id_: bytes, statement: Statement) -> Answer:
        """Run a statement. Its rows are read one call at a time, as the next statement may come before their end."""
        found = self._find(caller, id_)
        with self.session(caller, context, id_) as session:
            result = run_one(session, statement.sql, statement.parameters)
            base = session.view(session.attachments.find(CATALOG)).base.id
            rows = found.rows = KeptRows(found, result.to_batches())
        return Answer(Stream(result.schema, rows, session.interrupt, lambda: None), base, result.rowcount)

    def tidy(self, *, everything: bool = False) -> None:
        """Roll back the transactions that nobody uses."""
        oldest = time.monotonic() - self._settings.transaction_seconds
        with self._lock:
            late = {
                id_: found
                for id_, found in self._open.items()
                if everything or (found.session is not None and found.used < oldest)
            }
        for id_, found in late.items():
            if not found.lock.acquire(timeout=1.0 if everything else 0.0):
                continue  # a statement of it runs
            try:
                with self._lock:
                    self._open.pop(id_, None)
                self._roll_back(found)
            finally:
                found.lock.release()

    def _roll_back(self, found: OpenTransaction) -> None:
        with found.lock:
            found.ended = True
            session, found.session, found.rows = found.session, None, None
            if session is not None:
                session.close()


def _outlives(found: OpenTransaction, caller: Caller) -> bool:
    """Return whether a transaction may do everything, as its principal could when it began, but can no more."""
    return found.session is not None and not found.restricted and caller.identity.lake.handle.restricted


def _demoted_error() -> NotPermittedError:
    return NotPermittedError(
        "the transaction was rolled back: its principal is no longer an administrator", hint="begin another one"
    )


def _unknown() -> NotFoundError:
    return NotFoundError(
        "there is no such transaction", hint="it has ended, or nobody used it for too long: begin another one"
    )
