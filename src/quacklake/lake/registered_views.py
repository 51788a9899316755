"""Views of tables in a connection of the user's own.

DuckDB binds the query of a view when it makes one, which takes longer than planning the table, and the rows of the
catalog have to be copied before that. So a view that is still there, with the same plan or the same query, is left
alone; the copies of one that is replaced are dropped. DuckDB gives every view a number that no other of its database
gets: a view that the user has replaced, or whose creation was rolled back, is not taken for ours.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable
from typing import TypeAlias

import duckdb

from quacklake.core.format.names import quote
from quacklake.core.scan.plan import ScanPlan

_VIEWS = """
    SELECT schema_name, view_name, database_oid, view_oid
    FROM duckdb_views() WHERE NOT internal AND database_name = current_database()
"""
_TABLES = "SELECT table_name FROM duckdb_tables() WHERE temporary AND database_name = 'temp'"
_Number: TypeAlias = tuple[int, int]
_Made: TypeAlias = tuple[ScanPlan, str, frozenset[str]]
#: Of each connection, the plans, queries and temporary tables of the views that were made here, by their numbers.
_made: weakref.WeakKeyDictionary[duckdb.DuckDBPyConnection, dict[_Number, _Made]] = weakref.WeakKeyDictionary()


def register_views(
    connection: duckdb.DuckDBPyConnection, plans: Iterable[ScanPlan], bind: Callable[[ScanPlan], str]
) -> None:
    """Let a connection have a view of each planned table; ``bind`` prepares a plan there and returns its query."""
    found, made = _numbers(connection), _made.setdefault(connection, {})
    changed: dict[tuple[str, str], _Made] = {}
    schemas: set[str] = set()
    tables: frozenset[str] | None = None
    for plan in plans:
        schema, name = plan.schema_name, plan.table_name
        number = found.get((schema, name))
        known = None if number is None else made.get(number)
        if known is not None and known[0] is plan:
            continue  # a plan that is remembered is the same object
        tables = _temporary(connection) if tables is None else tables
        query, before = bind(plan), tables
        tables = _temporary(connection)
        if number is not None and known is not None and known[1] == query:
            made[number] = plan, *known[1:]
            continue
        if schema not in schemas:
            connection.execute(f"CREATE SCHEMA IF NOT EXISTS {quote(schema)}")
            schemas.add(schema)
        connection.execute(f"CREATE OR REPLACE VIEW {quote(schema)}.{quote(name)} AS {query}")
        changed[schema, name] = plan, query, tables - before
        for old in () if known is None else known[2]:
            connection.execute(f"DROP TABLE IF EXISTS temp.main.{quote(old)}")
    if changed:
        now = _numbers(connection)
        kept = {number: made[number] for number in now.values() if number in made}
        _made[connection] = kept | {now[key]: each for key, each in changed.items() if key in now}


def _numbers(connection: duckdb.DuckDBPyConnection) -> dict[tuple[str, str], _Number]:
    """Return the numbers of the views of a connection's database, by schema and name."""
    rows = connection.execute(_VIEWS).fetchall()
    return {(schema, name): (database, number) for schema, name, database, number in rows}


def _temporary(connection: duckdb.DuckDBPyConnection) -> frozenset[str]:
    return frozenset(name for (name,) in connection.execute(_TABLES).fetchall())
