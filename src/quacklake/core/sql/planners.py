"""Second databases of sessions: where one comes from, and where it goes when its session closes.

A session finds the filters of its queries in a database without rows. It costs ten milliseconds to make, so a session
leaves it to the next one, if it has explained nothing but plain queries there: each on a cursor, which took its
temporary tables along. A database in which anything else has run is closed.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any

from quacklake.core.format.names import fold
from quacklake.core.sql import tree

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

    from quacklake.core.engines.duckdb.idle import IdleDatabases
    from quacklake.core.sql.tree import Node

MOST_IDLE = 2
"""Planners that wait for a session."""


@cache
def idle_planners() -> IdleDatabases[DuckDBPyConnection]:
    """Return the planners of this process that wait for a session."""
    import atexit

    from quacklake.core.engines.duckdb.idle import IdleDatabases

    found: IdleDatabases[DuckDBPyConnection] = IdleDatabases(MOST_IDLE)
    atexit.register(found.close)
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


def is_plain(parsed: Node, scans: Collection[str]) -> bool:
    """Return True for a query of scans and common tables alone, which leaves nothing in the database that explains it.

    That database would open a file, or what a function reads.
    """
    common: set[str] = set()
    named: set[str] = set()
    for node in tree.nodes(parsed):
        kind = node.get("type")
        if kind in ("TABLE_FUNCTION", "SHOW_REF", "PIVOT"):
            return False
        if isinstance(node.get("cte_map"), dict):
            common.update(fold(entry["key"]) for entry in node["cte_map"]["map"])
        if kind == "BASE_TABLE":
            named.add(fold(node["table_name"]))
    # the name of a file is no identifier
    return named <= {name for name in common if name.isidentifier()} | {fold(name) for name in scans}
