"""Open sessions, and keep those of a lake: one for each thread. DuckDB is imported with the first session."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from quacklake.core import forks
from quacklake.core.sql.session_databases import LAKE, Planners, take
from quacklake.errors import ClosedError

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

    from quacklake.config import Config
    from quacklake.core.operations.handles import Handle, HasHandle
    from quacklake.core.sql.guard import Guard
    from quacklake.core.sql.safety import Safety
    from quacklake.core.sql.session import Session

#: Optimizer rules that would take tables for empty, or for DuckDB's own.
_NOT_PLANNED = (
    "statistics_propagation,empty_result_pullup,late_materialization,row_group_pruner,top_n_window_elimination"
)


class LakeSessions:
    """The sessions in which a lake, a past snapshot or an open transaction is the default catalog.

    The sessions of several threads share one DuckDB. A forked process opens its own sessions.
    """

    def __init__(self, handle: Handle, *, reuse: bool = False) -> None:
        """``reuse`` says that nobody else gets hold of a session, so that the next may have its database."""
        self._handle = handle
        self._reuse = reuse
        self._begin()
        forks.watch(self, LakeSessions._leave_parent)

    def _begin(self) -> None:
        self._lock = threading.Lock()
        self._local: Any = threading.local()
        self._first: Session | None = None

    def _leave_parent(self) -> None:
        """Start without sessions in a forked process, where the threads of the parent do not exist."""
        forks.abandon((self._first, self._local))
        self._begin()

    def current(self) -> Session:
        """Return the session of this thread."""
        if not hasattr(self._local, "session"):
            with self._lock:
                if self._first is None:
                    self._local.session = self._first = session_of(self._handle, reuse=self._reuse)
                else:
                    self._local.session = self._first.cursor()
        found: Session = self._local.session
        return found

    def close(self) -> None:
        """Close the sessions of all threads."""
        first, self._first = self._first, None
        self._local = threading.local()
        if first is not None:
            first.close()
            first.attachments.close()


def session_of(handle: Handle, *, reuse: bool = False) -> Session:
    """Return a session whose default catalog is this lake, named ``lake``. Raise ``ClosedError`` when it is closed.

    With ``reuse`` it may have the database of another one that has closed, and leave it to the next: a caller runs
    statements in it, and nothing else.
    """
    context = handle.context
    if context.catalog.closed:
        raise ClosedError
    # a database needs keys for other files, and an extension for encrypted ones
    plain = reuse and context.store.is_local and not context.catalog.encrypted
    made = _safe(context.config) if handle.restricted else _configure_session(context.config, reuse=plain)
    made.attach(handle, LAKE)
    return _standing_in_lake(made)


def late_session(opened: Callable[[], Handle | HasHandle] | None, config: Config) -> Session:
    """Return a session whose lake, if any, is opened when a statement first uses it. The caller closes the lake."""
    made = _configure_session(config)
    if opened is None:
        return made
    made.attach_late(opened, LAKE)
    return _standing_in_lake(made)


def _standing_in_lake(made: Session) -> Session:
    """Return a new session, which looks up names in its lake first."""
    made.connection.execute(f"USE {LAKE}")
    made.names.catalog = LAKE
    return made


def _configure_session(config: Config, *, reuse: bool = False) -> Session:
    limit = config.duckdb_memory_limit
    return _session(memory_limit=None if limit is None else f"{limit}B", threads=config.duckdb_threads, reuse=reuse)


def _safe(config: Config) -> Session:
    """Return a session of a principal: safe, because a statement could reach files and metadata otherwise."""
    from quacklake.core.sql.safety import Safety

    open_ended = Safety(read_only=False, timeout=None, max_rows=None, max_bytes=None, threads=config.duckdb_threads)
    limit = config.duckdb_memory_limit
    return session(safety=replace(open_ended, max_memory=limit))


def session(
    *,
    python_frames: bool = True,
    memory_limit: str | None = None,
    threads: int | None = None,
    safety: Safety | None = None,
) -> Session:
    """Return a SQL session without lakes: ``ATTACH 'ducklake:…' AS lake`` or ``session.attach(lake)`` adds one.

    With ``python_frames=False``, statements cannot name Python variables. With ``safety``, the session is for
    statements from untrusted users: it sees the lakes that ``session.attach(lake)`` has attached, and nothing else.
    """
    return _session(python_frames=python_frames, memory_limit=memory_limit, threads=threads, safety=safety)


def _session(
    *,
    python_frames: bool = True,
    memory_limit: str | None = None,
    threads: int | None = None,
    safety: Safety | None = None,
    reuse: bool = False,
) -> Session:
    from quacklake.core.duckdb_versions import connect
    from quacklake.core.sql.attached import Attachments
    from quacklake.core.sql.session import Session

    config: dict[str, Any] = {
        "autoinstall_known_extensions": False,
        "autoload_known_extensions": False,
        "python_enable_replacements": False,
    }
    if memory_limit is not None:
        config["memory_limit"] = memory_limit
    if threads is not None:
        config["threads"] = threads
    guard: Guard | None = None
    if safety is not None:
        from quacklake.core.sql.safety import SafeGuard, Seal, configure

        configure(safety, config)
        guard = SafeGuard(safety, Seal(config["temp_directory"]))

    def database(settings: dict[str, Any]) -> DuckDBPyConnection:
        made = connect(":memory:", config={**config, **settings})
        made.execute("SET GLOBAL TimeZone = 'UTC'")
        return made

    def planner() -> DuckDBPyConnection:
        made = database({"threads": 1})
        made.execute(f"SET GLOBAL disabled_optimizers = '{_NOT_PLANNED}'")
        return made

    planners = Planners(planner, config, reuse=safety is None)
    if reuse:
        taken = take(config, partial(database, {}))
        attachments = Attachments(taken.connection.cursor(), planners, taken, spare=LAKE)
    else:
        attachments = Attachments(database({}), planners)
    return Session(attachments, python_frames=python_frames and safety is None, guard=guard)
