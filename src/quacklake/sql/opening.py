"""Open sessions."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from quacklake.duckdb_versions import connect
from quacklake.errors import ClosedError
from quacklake.sql.attached import Attachments
from quacklake.sql.guard import Guard
from quacklake.sql.session import Session

if TYPE_CHECKING:
    from quacklake.config import Config
    from quacklake.operations.handles import Handle, HasHandle
    from quacklake.sql.safety import Safety

#: Optimizer rules that would take tables for empty, or for DuckDB's own.
_NOT_PLANNED = (
    "statistics_propagation",
    "empty_result_pullup",
    "late_materialization",
    "row_group_pruner",
    "top_n_window_elimination",
)


def session_of(handle: Handle) -> Session:
    """Return a session whose default catalog is this lake, named ``lake``. Raises ``ClosedError`` when it is closed."""
    if handle.context.catalog.closed:
        raise ClosedError
    made = _configured(handle.context.config)
    made.attach(handle, "lake")
    made.use("lake")
    return made


def late_session(opened: Callable[[], HasHandle] | None, config: Config) -> Session:
    """Return a session whose lake, if any, is opened when a statement first uses it. The caller closes the lake."""
    made = _configured(config)
    if opened is None:
        return made
    made.attach_late(opened, "lake")
    made.connection.execute("USE lake")
    made.look_around()
    return made


def _configured(config: Config) -> Session:
    limit = config.duckdb_memory_limit
    return session(memory_limit=None if limit is None else f"{limit}B", threads=config.duckdb_threads)


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
    config: dict[str, Any] = {
        "autoinstall_known_extensions": False,
        "autoload_known_extensions": False,
        "python_enable_replacements": False,
    }
    if memory_limit is not None:
        config["memory_limit"] = memory_limit
    if threads is not None:
        config["threads"] = threads
    guard = None if safety is None else _guard(safety, config)
    root = connect(":memory:", config=config)
    planner = connect(":memory:", config={**config, "threads": 1})
    for connection in (root, planner):
        connection.execute("SET GLOBAL TimeZone = 'UTC'")
    planner.execute(f"SET GLOBAL disabled_optimizers = '{','.join(_NOT_PLANNED)}'")
    return Session(Attachments(root, planner), python_frames=python_frames and safety is None, guard=guard)


def _guard(safety: Safety, config: dict[str, Any]) -> Guard:
    """Return the guard of a safe session, and add its limits to ``config``, with which the databases are opened."""
    from quacklake.sql.safety import SafeGuard, Seal, configure

    configure(safety, config)
    return SafeGuard(safety, Seal(config["temp_directory"]))
