"""The connections of a catalog: the pool, transactions, and database errors turned into ours."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import sqlalchemy as sa
from sqlalchemy.engine import Connection, Engine

from quacklake import telemetry
from quacklake.core import faults, forks
from quacklake.core.catalog.databases.connection_errors import cause_of
from quacklake.core.catalog.databases.database import Database, Failure, PreparedSelect, Rows
from quacklake.errors import (
    CatalogError,
    CatalogLockedError,
    CatalogUnavailableError,
    ClosedError,
    CommitUnknown,
    ConfigError,
    QuacklakeError,
    ReadOnlyError,
)

_RESERVED = 4
"""The number of connections of a pool that commits leave alone."""
_LOCKED = "55P03"
"""The SQLSTATE of PostgreSQL for a lock that was not to be had in time."""


class Collision(CatalogUnavailableError):
    """Another writer took the same snapshot id, or the database asked to try again: replay the commit."""

    code = "catalog.collision"


class Connections:
    """A pool of connections to one database, for reads and for commits that wait for their turn."""

    def __init__(self, database: Database, *, shared: bool) -> None:
        self.url = database.url
        self.backend = database
        #: ``sqlite``, ``duckdb``, ``postgres`` or ``mysql``.
        self.database = database.name
        self._engine: Engine = database.create_engine(shared=shared)
        # leave some connections for readers, and for the reads of the head of the queue
        most = database.pool_size + database.max_overflow
        #: False when a commit transaction has the only connection.
        self.reads_beside_commits = isinstance(self._engine.pool, sa.pool.QueuePool) and most > _RESERVED
        self._most_entrants = max(1, most - _RESERVED)
        self._entrants = threading.BoundedSemaphore(self._most_entrants)
        self._driver_error: type[Exception] = getattr(self._engine.dialect.dbapi, "Error", sa.exc.DBAPIError)
        self.closed = False
        #: The label of the tenant for which commits are counted.
        self.label: str | None = None
        forks.watch(self, Connections._renew)

    def _renew(self) -> None:
        """Leave the connections to the parent in a forked child, and open others."""
        forks.abandon(self._engine.pool)
        self._engine.dispose(close=False)
        self._entrants = threading.BoundedSemaphore(self._most_entrants)
        forks.new_lock(self)

    def connect(self) -> sa.Pool:
        """Return the pool of connections, after checking that the database answers."""
        with self.translate_errors("connect"), telemetry.timed("catalog.connect", self.url), self.connected():
            pass
        return self._engine.pool

    def close(self) -> None:
        """Close every pooled connection, and open none any more."""
        self.closed = True
        self.give_back()

    def give_back(self) -> None:
        """Close every pooled connection."""
        self._engine.dispose()
        self.backend.leave_file(self)

    @contextmanager
    def connected(self) -> Iterator[Connection]:
        """Lend a connection of the pool."""
        if self.closed:
            raise ClosedError
        with self._engine.connect() as connection:
            yield connection

    @contextmanager
    def asking(self) -> Iterator[Connection]:
        """Lend a connection for questions that need not see the same state."""
        with self.connected() as connection:
            yield self.backend.begin_question(connection)

    @contextmanager
    def reading(self, *, once: bool = False) -> Iterator[Connection]:
        """Lend a connection in one consistent read transaction, or ``once`` for a single statement, which is one."""
        with self.translate_errors("read"), self.connected() as connection:
            begin = self.backend.begin_question if once else self.backend.begin_read
            prepared = begin(connection)
            with prepared.begin():
                try:
                    yield prepared
                except BaseException as error:
                    self._drop_interrupted(prepared, error)
                    raise

    @contextmanager
    def _committing(
        self, scope: str, undo: Callable[[], None], ahead: PreparedSelect | None
    ) -> Iterator[tuple[Connection, Rows | None]]:
        """Lend a connection in a transaction whose turn in a queue has come; leaving it commits.

        ``undo`` is called when it fails, before the next in the queue can look. The answer to ``ahead`` may come along.
        """
        with self._entrants, self.translate_errors("commit"), self.connected() as connection:
            prepared = self.backend.begin_commit(connection)
            transaction = prepared.begin()
            queued = False
            try:
                answer = self.backend.enter_queue(prepared, scope, ahead)
                queued = True
                yield prepared, answer
                self._finish(transaction, prepared)
            except BaseException as error:
                self._drop_interrupted(prepared, error)
                undo()
                if transaction.is_active:  # not after a commit, even one that failed: then closing rolls back
                    with suppress(sa.exc.SQLAlchemyError):
                        transaction.rollback()
                raise
            finally:
                if queued:
                    self.backend.leave_queue(prepared, scope)

    def _drop_interrupted(self, connection: Connection, error: BaseException) -> None:
        """Drop a connection to a server where Ctrl-C may have come in the middle of a message: it can say no more."""
        interrupted = not isinstance(error, Exception | GeneratorExit)
        if interrupted and self.url.path is None and isinstance(self._engine.pool, sa.pool.QueuePool):
            connection.invalidate()

    def _finish(self, transaction: sa.RootTransaction, connection: Connection) -> None:
        faults.reach("catalog.commit.before")
        try:
            transaction.commit()
        except sa.exc.DBAPIError as error:
            if error.connection_invalidated or self.backend.classify(_driver_error(error)) is Failure.UNAVAILABLE:
                raise CommitUnknown("the connection was lost while the database was committing") from error
            raise
        if not self.backend.committed(connection):
            raise CommitUnknown("the database was changed under its connection while it was committing")
        telemetry.count("catalog.commits", tenant=self.label)
        if self.backend.url.path is not None and (size := self.backend.size(connection, None)) is not None:
            telemetry.gauge("catalog.bytes", size)
        faults.reach("catalog.commit.after")

    @contextmanager
    def translate_errors(self, doing: str) -> Iterator[None]:
        """Turn database errors into ours; a message never holds a password or a statement's parameters."""
        try:
            yield
        except QuacklakeError:
            raise
        # the last is what the driver raises where it is used without SQLAlchemy
        except (sa.exc.SQLAlchemyError, TimeoutError, self._driver_error) as error:
            raise self._error(error, doing) from error
        except OverflowError as error:  # the driver's own, which SQLAlchemy passes on
            raise CatalogError(f"the catalog at {self.url.shown} cannot hold a number: {error}") from error

    def _error(self, error: BaseException, doing: str) -> QuacklakeError:
        shown = self.url.shown
        if isinstance(error, TimeoutError | sa.exc.TimeoutError):
            return CatalogUnavailableError(f"the catalog at {shown} was busy for too long", hint="try again")
        cause = _driver_error(error)
        kind = self.backend.classify(cause)
        if isinstance(error, sa.exc.DBAPIError) and error.connection_invalidated:
            kind = Failure.UNAVAILABLE
        if kind is Failure.COLLISION or (kind is Failure.ABSENT and doing == "commit"):
            # another client may have dropped a table of inlined rows that we knew: look again
            return Collision(f"another writer committed to {shown} at the same time")
        # an error without a statement is one of connecting to a server; a file is opened by the first statement
        connecting = getattr(error, "statement", None) is None
        on_file = self.url.path is not None and kind is not Failure.FORBIDDEN
        reason = cause_of(self.url, cause) if connecting or on_file else None
        if reason is not None:
            kind_of_error = CatalogUnavailableError if reason.passes else CatalogError
            if reason.by_us:
                kind_of_error = CatalogLockedError
            return kind_of_error(f"the catalog at {shown} cannot be used: {reason.message}", hint=reason.hint)
        if kind is Failure.FULL:
            return CatalogError(
                f"the catalog at {shown} has no room left; nothing was changed",
                hint="free some space where the database has its files, then try again",
            )
        if getattr(cause, "sqlstate", None) == _LOCKED:
            return CatalogUnavailableError(
                f"the catalog at {shown} was locked by another session for too long",
                hint="try again; pg_locks and pg_stat_activity show which session it is",
            )
        if kind in (Failure.UNAVAILABLE, Failure.BUSY):
            return CatalogUnavailableError(
                f"the catalog at {shown} cannot be used now ({type(cause).__name__})",
                hint="check that the database runs and can be reached, then try again",
            )
        if kind is Failure.FORBIDDEN:
            return ReadOnlyError(f"no right to {doing} in the catalog at {shown}")
        if isinstance(error, sa.exc.ArgumentError):
            return ConfigError(f"the catalog URL {shown} cannot be used")
        first_line = str(cause).strip().splitlines()[0] if str(cause).strip() else type(cause).__name__
        return CatalogError(f"the catalog at {shown} failed ({doing}): {type(cause).__name__}: {first_line}")


def _driver_error(error: BaseException) -> BaseException:
    original = getattr(error, "orig", None)
    return original if isinstance(original, BaseException) else error
