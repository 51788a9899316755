"""Databases of sessions: where one comes from, and where it goes when its session closes.

Each session runs its statements in a database of its own, as they may change anything there. To make and close one
takes fifteen milliseconds, so a session leaves it to the next one if nothing but plain queries of a lake has run in it:
each on a cursor, which took its temporary views along. What DuckDB remembers of the files that were read is bounded.

A session finds the filters of its queries in a second database, without rows: its planner. That costs ten milliseconds
to make, and is left to the next session in the same way. The lines "connect and first query of a lake" of
``benchmarks/README.md`` measure both.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

    from quacklake.core.engines.duckdb.idle import IdleDatabases
    from quacklake.core.scan import ScanPlan

LAKE = "lake"
"""The name of the empty database that each of them has, for the lake of its session."""
MAX_IDLE = 2
"""Databases that wait for a session, and as many planners; each has threads that wait."""
MAX_FILES, MAX_BYTES = 1_000, 64 << 20
"""The most that the sessions of one database may read: DuckDB keeps footers, and bytes until there is no memory."""


@cache
def idle_databases() -> IdleDatabases[SessionDatabase]:
    """Return the databases of this process that wait for a session."""
    return _make_idle()


@cache
def idle_planners() -> IdleDatabases[DuckDBPyConnection]:
    """Return the planners of this process that wait for a session."""
    return _make_idle()


def _make_idle() -> IdleDatabases[Any]:
    import atexit

    from quacklake.core.engines.duckdb.idle import IdleDatabases

    found: IdleDatabases[Any] = IdleDatabases(MAX_IDLE)
    atexit.register(found.close)
    return found


@dataclass(eq=False)
class SessionDatabase:
    """A database of sessions that come one after the other. Any of them can keep it from the next."""

    connection: DuckDBPyConnection
    settings: Mapping[str, Any]
    is_kept: bool = False
    """True when no other session may get it."""
    _files: int = 0
    _bytes: int = 0
    _process: int = field(default_factory=os.getpid)

    def has_read(self, plans: Iterable[ScanPlan]) -> None:
        """Count the files that a query has read."""
        for plan in plans:
            self._files += plan.files.num_rows
            if self._files <= MAX_FILES:
                self._bytes += sum(filter(None, plan.files.column("file_size_bytes").to_pylist()))
        if self._files > MAX_FILES or self._bytes > MAX_BYTES:
            self.is_kept = True

    def leave(self) -> None:
        """Leave it to the next session, if that may have it and this process has made it, or close it."""
        if self.is_kept or self._process != os.getpid():
            self.close()
        else:
            idle_databases().leave(self.settings, self)

    def close(self) -> None:
        """Close it."""
        self.connection.close()


def take(settings: Mapping[str, Any], make: Callable[[], DuckDBPyConnection]) -> SessionDatabase:
    """Return a database with these settings in which no session has left anything, for the caller alone."""
    found = idle_databases().take(settings)
    if found is None:
        found = SessionDatabase(make(), settings)
        found.connection.execute(f"ATTACH ':memory:' AS {LAKE}")
    return found


@dataclass
class Planners:
    """Makes the planner of one session. ``reuse`` allows one of a session with the same settings that has closed."""

    make: Callable[[], DuckDBPyConnection]
    settings: Mapping[str, Any]
    reuse: bool
    _process: int = field(default_factory=os.getpid)

    def take(self) -> DuckDBPyConnection:
        """Return a planner in which no session has left anything, for the caller alone."""
        found = idle_planners().take(self.settings) if self.reuse else None
        return self.make() if found is None else found

    def give_back(self, planner: DuckDBPyConnection, *, clean: bool) -> None:
        """Keep a planner for the next session if it is ``clean`` and this process has made it, or close it."""
        if clean and self.reuse and self._process == os.getpid():
            idle_planners().leave(self.settings, planner)
        else:
            planner.close()
