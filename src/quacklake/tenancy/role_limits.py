"""Limits for PostgreSQL roles, so that they do not disturb each other: timeouts, and no statistics about values.

Timeouts are defaults of the role, which a session may change. They prevent accidents, not abuse.
"""

from __future__ import annotations

from collections.abc import Iterable

from quacklake.format.names import literal, quote

_TIMEOUTS = {
    "lock_timeout": "1min",
    "statement_timeout": "10min",
    # Stock DuckDB keeps its transaction open for as long as the user's.
    "idle_in_transaction_session_timeout": "1h",
}
_PLANNED = ("_id", "_snapshot", "_version", "_index", "_order")
"""The endings of column names used to look up rows; plans need their statistics."""


def timeouts(role: str) -> str:
    """Return the statement that gives a role timeouts in this database, if it has none and we have the right."""
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
    """Return statements that stop PostgreSQL from collecting statistics about values of a table shared by catalogs.

    A role sees the planner's row estimates, which would reveal how often a value occurs in rows of others.
    """
    chosen = [name for name in columns if not name.endswith(_PLANNED)]
    changes = ", ".join(f"ALTER COLUMN {quote(name)} SET STATISTICS 0" for name in chosen)
    return [f"ALTER TABLE {table} {changes}"] if changes else []
