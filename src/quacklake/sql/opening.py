"""Opening sessions."""

from __future__ import annotations

from typing import Any

import duckdb

from quacklake.lake.lake import Lake, LakeAt, LakeTransaction
from quacklake.sql.attached import Attachments
from quacklake.sql.safety import SafeGuard, Safety, Seal, configure
from quacklake.sql.session import Session

__all__ = ["session", "session_of"]

#: What DuckDB's optimizer would do because tables are empty, or because they are its own.
_NOT_PLANNED = (
    "statistics_propagation",
    "empty_result_pullup",
    "late_materialization",
    "row_group_pruner",
    "top_n_window_elimination",
)


def session_of(lake: Lake | LakeAt | LakeTransaction) -> Session:
    """A session in which a lake is the default catalog, under the name ``lake``."""
    config = lake._shared.config
    limit = config.duckdb_memory_limit
    made = session(memory_limit=None if limit is None else f"{limit}B", threads=config.duckdb_threads)
    made.attach(lake, "lake")
    made.use("lake")
    return made


def session(
    *,
    python_frames: bool = True,
    memory_limit: str | None = None,
    threads: int | None = None,
    safety: Safety | None = None,
) -> Session:
    """A SQL session without lakes yet: ``ATTACH 'ducklake:…' AS lake``, or ``session.attach(lake)``.

    With ``python_frames=False`` statements cannot name Python's variables. With ``safety`` the session is for what
    others have written: it sees the lakes that ``session.attach(lake)`` has attached, and nothing else.
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
    if safety is not None:
        configure(safety, config)
    root = duckdb.connect(":memory:", config=config)
    planner = duckdb.connect(":memory:", config={**config, "threads": 1})
    for connection in (root, planner):
        connection.execute("SET GLOBAL TimeZone = 'UTC'")
    planner.execute(f"SET GLOBAL disabled_optimizers = '{','.join(_NOT_PLANNED)}'")
    guard = None if safety is None else SafeGuard(safety, Seal(config["temp_directory"]))
    return Session(Attachments(root, planner), python_frames=python_frames and safety is None, guard=guard)
