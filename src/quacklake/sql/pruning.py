"""Find the filters of a statement on each table, to skip files that cannot match.

DuckDB plans the statement over tables without rows, and reports the filters that it would push into their scans:
through joins, subqueries, common tables and views. A filter that cannot be parsed back matches anything.

The statement is planned on one connection and runs on another. So ``now()`` in a condition is computed once, before
both. A query with any other function whose result depends on when and where it is called is not used to skip files.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import duckdb

from quacklake.duckdb_versions import first_row
from quacklake.errors import QuacklakeError
from quacklake.format.names import fold
from quacklake.format.predicate import ANYTHING, Predicate, every, some
from quacklake.format.schema import TableSchema
from quacklake.sql import tree
from quacklake.sql.tree import Node

_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
#: Functions with one result throughout a query, but not across connections or queries.
_ONCE = frozenset(
    """
    current_database current_date current_schema current_schemas current_setting get_current_time get_current_timestamp
    getvariable now today transaction_timestamp
    """.split()  # noqa: SIM905
)
_NEVER = frozenset(
    """
    current_connection_id current_query current_query_id current_transaction_id currval error gen_random_uuid
    in_search_path nextval random setseed sleep_ms stats txid_current uuid uuidv4 uuidv7 write_log
    """.split()  # noqa: SIM905
)
#: Names without parentheses that are functions unless a column has the name.
_WORDS = frozenset(
    """
    current_catalog current_date current_role current_schema current_time current_timestamp current_user localtime
    localtimestamp session_user user
    """.split()  # noqa: SIM905
)
_CONDITIONS = ("where_clause", "condition", "having", "qualify")


def scan_filters(connection: duckdb.DuckDBPyConnection, sql: str, values: Any) -> dict[str, list[list[str]]]:
    """Return the filters of each scan, by the name of its table. A table may be scanned several times."""
    row = first_row(connection, f"EXPLAIN (FORMAT JSON) {sql}", values)
    found: dict[str, list[list[str]]] = {}
    pending = [] if row is None else list(json.loads(row[1]))
    while pending:
        node = pending.pop()
        pending.extend(node.get("children", ()))
        facts = node.get("extra_info", {})
        table = facts.get("Table")
        if isinstance(table, str):
            given = facts.get("Filters", [])
            filters = [given] if isinstance(given, str) else list(given)
            found.setdefault(table.rsplit(".", 1)[-1].strip('"'), []).append(filters)
    return found


def filters_of(scans: list[list[str]] | None, schema: TableSchema) -> Predicate:
    """Return one predicate that covers all scans of a table."""
    if not scans or not all(_PLAIN.fullmatch(column.name) for column in schema.columns):
        return ANYTHING  # DuckDB does not quote names in its report
    return some(every(_predicate(text, schema) for text in scan) for scan in scans)


@lru_cache(maxsize=1024)
def _predicate(text: str, schema: TableSchema) -> Predicate:
    from quacklake.scan import to_predicate

    try:
        return to_predicate(text.removeprefix("optional: "), schema)
    except QuacklakeError:
        return ANYTHING


def has_filters(parsed: Node) -> bool:
    """Return True when a query has a condition that might rule out files."""
    return any(node.get("type") == "JOIN" or any(node.get(key) for key in _CONDITIONS) for node in tree.nodes(parsed))


def settle(parsed: Node, compute: Callable[[Node], Node]) -> None:
    """Replace calls in conditions that are constant throughout the query by the result of ``compute``."""
    for node in tree.nodes(parsed):
        for key in _CONDITIONS:
            if isinstance(node.get(key), dict):
                node[key] = _settled(node[key], compute)


def _settled(node: Any, compute: Callable[[Node], Node]) -> Any:
    if isinstance(node, list):
        return [_settled(item, compute) for item in node]
    if not isinstance(node, dict) or node.get("type") in ("SELECT_NODE", "SUBQUERY"):
        return node  # the conditions of a subquery are visited on their own
    if node.get("type") == "FUNCTION" and fold(node["function_name"]) in _ONCE:
        inside = (found["class"] for found in tree.nodes(node["children"]) if "class" in found)
        if all(class_ in (None, "CONSTANT") for class_ in inside):
            return compute(node)
    return {key: _settled(value, compute) for key, value in node.items()}


def is_steady(parsed: Node) -> bool:
    """Return True when a query has the same filters on every connection and at any time."""
    for node in tree.nodes(parsed):
        if node.get("type") == "FUNCTION" and fold(node["function_name"]) in _ONCE | _NEVER:
            return False
        names = node["column_names"] if node.get("class") == "COLUMN_REF" else []
        if len(names) == 1 and fold(names[0]) in _WORDS:
            return False
    return True
