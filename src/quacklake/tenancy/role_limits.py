"""Limits for roles of PostgreSQL, so that none gets in the way of others: timeouts, and no statistics of their values.

Timeouts are defaults of the role, which it may change for a session. So they hold back accidents, not intent.
"""

from __future__ import annotations

from collections.abc import Iterable

from quacklake.format.names import literal, quote

__all__ = ["timeouts", "without_statistics"]

_TIMEOUTS = {
    "lock_timeout": "1min",
    "statement_timeout": "10min",
    # stock DuckDB keeps a transaction open for as long as its own takes
    "idle_in_transaction_session_timeout": "1h",
}
_PLANNED = ("_id", "_snapshot", "_version", "_index", "_order")
"""The ends of the names of columns by which rows are looked up: their statistics are needed for plans."""


def timeouts(role: str) -> str:
    """Return the statement that gives a role timeouts in this database, where it has none and we may."""
    given = "".join(
        " IF NOT EXISTS (SELECT 1 FROM pg_catalog.pg_db_role_setting s, unnest(s.setconfig) c"
        f" WHERE s.setrole = (SELECT oid FROM pg_catalog.pg_roles WHERE rolname = {literal(role)})"
        f" AND c LIKE {literal(f'{name}=%')}) THEN"
        f" EXECUTE format('ALTER ROLE %I IN DATABASE %I SET {name} = %L', {literal(role)}, current_database(),"
        f" {literal(value)}); END IF;"
        for name, value in _TIMEOUTS.items()
    )
    refused = "EXCEPTION WHEN insufficient_privilege THEN RAISE NOTICE 'the role keeps its timeouts';"
    return f"DO {literal(f'BEGIN{given} {refused} END')}"


def without_statistics(table: str, columns: Iterable[str]) -> list[str]:
    """Return what lets PostgreSQL collect no statistics about the values of a table that all catalogs share.

    A role sees how many rows the planner expects, which would tell how often a value is in the rows of others.
    """
    chosen = [name for name in columns if not name.endswith(_PLANNED)]
    changes = ", ".join(f"ALTER COLUMN {quote(name)} SET STATISTICS 0" for name in chosen)
    return [f"ALTER TABLE {table} {changes}"] if changes else []
