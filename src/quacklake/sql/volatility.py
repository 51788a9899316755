"""Functions whose result depends on when and where they are called.

A query is planned on one connection and run on another. So ``now()`` in a condition is computed once, before both. A
query with any other function of this kind is not used to skip files.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from quacklake.format.names import fold
from quacklake.sql import tree
from quacklake.sql.tree import Node

#: Functions with one result throughout a query, but not across connections or queries.
_ONCE = frozenset(
    {
        "current_database",
        "current_date",
        "current_schema",
        "current_schemas",
        "current_setting",
        "get_current_time",
        "get_current_timestamp",
        "getvariable",
        "now",
        "today",
        "transaction_timestamp",
    }
)
_NEVER = frozenset(
    {
        "current_connection_id",
        "current_query",
        "current_query_id",
        "current_transaction_id",
        "currval",
        "error",
        "gen_random_uuid",
        "in_search_path",
        "nextval",
        "random",
        "setseed",
        "sleep_ms",
        "stats",
        "txid_current",
        "uuid",
        "uuidv4",
        "uuidv7",
        "write_log",
    }
)
#: Names without parentheses that are functions unless a column has the name.
_WORDS = [
    [word]
    for word in (
        "current_catalog",
        "current_date",
        "current_role",
        "current_schema",
        "current_time",
        "current_timestamp",
        "current_user",
        "localtime",
        "localtimestamp",
        "session_user",
        "user",
    )
]
_CONDITIONS = ("where_clause", "condition", "having", "qualify")


def settle(parsed: Node, compute: Callable[[Node], Node]) -> None:
    """Replace calls in conditions that are constant throughout the query by the result of ``compute``."""
    for node in tree.nodes(parsed):
        for key in _CONDITIONS:
            if isinstance(node.get(key), dict):
                node[key] = _settled(node[key], compute)


def _settled(node: Any, compute: Callable[[Node], Node]) -> Any:
    if isinstance(node, list):
        return [_settled(item, compute) for item in node]
    if not isinstance(node, dict):
        return node
    if node.get("type") == "FUNCTION" and fold(node["function_name"]) in _ONCE and not _columns(node["children"]):
        return compute(node)
    if node.get("type") in ("SELECT_NODE", "SUBQUERY"):
        return node  # its conditions are visited on their own
    return {key: _settled(value, compute) for key, value in node.items()}


def _columns(children: Any) -> bool:
    return any(node.get("class") not in (None, "CONSTANT") for node in _classes(children))


def _classes(children: Any) -> Iterator[Node]:
    return (node for node in tree.nodes(children) if "class" in node)


def is_steady(parsed: Node) -> bool:
    """Return True when a query has the same filters on every connection and at any time."""
    for node in tree.nodes(parsed):
        if node.get("type") == "FUNCTION" and fold(node["function_name"]) in _ONCE | _NEVER:
            return False
        if node.get("class") == "COLUMN_REF" and [fold(name) for name in node["column_names"]] in _WORDS:
            return False
    return True
