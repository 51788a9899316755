"""Views of tables in a connection of the user's own.

DuckDB binds the query of a view when it makes one, which takes longer than planning the table. So a view that is still
there, with the same query, is left alone. DuckDB gives every view a number that no other of its database gets: a view
that the user has replaced, or whose creation was rolled back, is not taken for ours.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable
from typing import TypeAlias

import duckdb

from quacklake.format.names import quote

_VIEWS = """
    SELECT schema_name, view_name, database_oid, view_oid
    FROM duckdb_views() WHERE NOT internal AND database_name = current_database()
"""
_Number: TypeAlias = tuple[int, int]
#: Of each connection, the queries of the views that were made here, by their numbers.
_made: weakref.WeakKeyDictionary[duckdb.DuckDBPyConnection, dict[_Number, str]] = weakref.WeakKeyDictionary()


def register_views(connection: duckdb.DuckDBPyConnection, views: Iterable[tuple[str, str, str]]) -> None:
    """Let a connection have views, each given by its schema, name and query."""
    found, made = _numbers(connection), _made.setdefault(connection, {})
    changed: dict[tuple[str, str], str] = {}
    schemas: set[str] = set()
    for schema, name, query in views:
        number = found.get((schema, name))
        if number is not None and made.get(number) == query:
            continue
        if schema not in schemas:
            connection.execute(f"CREATE SCHEMA IF NOT EXISTS {quote(schema)}")
            schemas.add(schema)
        connection.execute(f"CREATE OR REPLACE VIEW {quote(schema)}.{quote(name)} AS {query}")
        changed[schema, name] = query
    if changed:
        now = _numbers(connection)
        kept = {number: made[number] for number in now.values() if number in made}
        _made[connection] = kept | {now[key]: query for key, query in changed.items() if key in now}


def _numbers(connection: duckdb.DuckDBPyConnection) -> dict[tuple[str, str], _Number]:
    """Return the numbers of the views of a connection's database, by schema and name."""
    rows = connection.execute(_VIEWS).fetchall()
    return {(schema, name): (database, number) for schema, name, database, number in rows}
