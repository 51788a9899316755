"""Databases in memory that closed engines leave to the next ones: to make another takes ten milliseconds.

Only such that nobody can have changed: their engines lent cursors, which took their temporary objects along, and read
plain files of this machine. A database needs keys for others, and an extension for encrypted ones.
"""

from __future__ import annotations

import atexit
import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

import duckdb

from quacklake.core import forks
from quacklake.core.duckdb_versions import connect
from quacklake.core.engines.duckdb.connections import connect_store

if TYPE_CHECKING:
    from quacklake.core.storage import Store

_MAX_COUNT = 2
"""Databases that are kept; each has threads that wait."""


class Closable(Protocol):
    """A database, by whatever holds it."""

    def close(self) -> None: ...


D = TypeVar("D", bound=Closable)


class IdleDatabases(Generic[D]):
    """Databases that wait for somebody with the same settings. Safe to share between threads."""

    def __init__(self, most: int = _MAX_COUNT) -> None:
        self._most = most
        self._idle: list[tuple[dict[str, Any], D]] = []
        self._lock = threading.Lock()
        forks.watch(self, IdleDatabases._renew)

    def _renew(self) -> None:
        """Leave the databases in a forked child, as their threads are the parent's."""
        forks.abandon(self._idle)
        self._idle = []
        forks.new_lock(self)

    def take(self, config: Mapping[str, Any]) -> D | None:
        """Return a database with these settings for the caller alone, or None."""
        with self._lock:
            for place, (known, database) in enumerate(self._idle):
                if known == config:
                    del self._idle[place]
                    return database
        return None

    def leave(self, config: Mapping[str, Any], database: D) -> None:
        """Keep a database that is needed no more, and close the oldest beyond the limit."""
        with self._lock:
            self._idle.append((dict(config), database))
            closing = self._idle[: -self._most] if self._most else self._idle[:]
            self._idle = self._idle[len(closing) :]
        for _, old in closing:
            old.close()

    def close(self) -> None:
        """Close all of them."""
        with self._lock:
            closing, self._idle = self._idle, []
        for _, database in closing:
            database.close()


idle: IdleDatabases[duckdb.DuckDBPyConnection] = IdleDatabases()
"""The idle databases of this process."""
atexit.register(idle.close)


def open_database(
    known: IdleDatabases[duckdb.DuckDBPyConnection] | None, store: Store, config: Mapping[str, Any]
) -> duckdb.DuckDBPyConnection:
    """Return a database in memory with these settings that reads the files of a store, for the caller alone."""
    connection = None if known is None else known.take(config)
    if connection is None:
        connection = connect(":memory:", config=config)
        connect_store(connection, store)
    return connection


def leave_database(
    known: IdleDatabases[duckdb.DuckDBPyConnection] | None,
    config: Mapping[str, Any],
    connection: duckdb.DuckDBPyConnection,
) -> None:
    """Keep a database, of which nothing but cursors was lent, among the ``known`` ones, or close it."""
    if known is None:
        connection.close()
    else:
        known.leave(config, connection)
