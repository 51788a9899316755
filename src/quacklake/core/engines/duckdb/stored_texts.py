"""Queries and expressions that the metadata may hold, each of one lake."""

from __future__ import annotations

from dataclasses import dataclass

import duckdb

from quacklake.core.engines.duckdb.rendering import stored
from quacklake.core.engines.duckdb.trees import Node, TooManyParts, nodes, serialize
from quacklake.errors import InputError

_OTHER_STATEMENT = "not implemented"
"""DuckDB's type of the error for a statement that is no SELECT."""

#: The name of its own lake in a stored query; DuckDB replaces it with the name that the lake is attached by.
LAKE = "{DUCKLAKE_CATALOG}."

#: Functions that yield rows from their arguments alone. Others reach files, the network or the session.
HARMLESS = frozenset({"range", "generate_series", "unnest", "json_each", "json_tree", "repeat", "repeat_row"})

Name = tuple[str | None, str]
"""A schema, or None where none is given, and a name in it."""


@dataclass(frozen=True, slots=True)
class Query:
    """A query as DuckDB writes it, and what it names; of table functions only those that are not ``HARMLESS``."""

    sql: str
    relations: tuple[Name, ...]
    functions: tuple[Name, ...]
    table_functions: tuple[Name, ...]


def parse_query(connection: duckdb.DuckDBPyConnection, sql: str) -> Query:
    """Return a query that may be stored, or one that was. Raise ``InputError`` when it is not one query of one lake."""
    tree, text = _parse(connection, sql.replace(LAKE, ""))
    relations: dict[Name, None] = {}
    functions: dict[Name, None] = {}
    table_functions: dict[Name, None] = {}
    common = (node["cte_map"]["map"] for node in nodes(tree) if isinstance(node.get("cte_map"), dict))
    named = {entry["key"].lower() for entries in common for entry in entries}
    for node in nodes(tree):
        kind = node.get("type")
        if kind == "BASE_TABLE":
            if node.get("catalog_name"):
                raise InputError(
                    f'the query names a table of another database, "{node["catalog_name"]}"',
                    hint="name the tables of the lake as table or schema.table",
                )
            schema, name = node.get("schema_name") or None, node["table_name"]
            if schema is not None or name.lower() not in named:
                relations[(schema, name)] = None
        elif kind == "TABLE_FUNCTION":
            called = node["function"]
            if called["function_name"].lower() not in HARMLESS:
                table_functions[(called["schema"] or None, called["function_name"])] = None
        elif kind == "FUNCTION":
            functions[(node["schema"] or None, node["function_name"])] = None
    return Query(text, tuple(relations), tuple(functions), tuple(table_functions))


def parse_expression(connection: duckdb.DuckDBPyConnection, sql: str) -> str:
    """Return an expression in DuckDB's own words. Raise ``InputError`` when it is none."""
    return stored(connection, _query_of(sql), select_of(connection, sql)).removeprefix("SELECT ")


def select_of(connection: duckdb.DuckDBPyConnection, sql: str) -> Node:
    """Return the tree of a query that selects one expression and does nothing else. Raise ``InputError``."""
    tree = _tree(connection, _query_of(sql))
    if not is_one_expression(tree["node"]):
        raise InputError(f"{sql!r} is not an expression")
    return tree


def _query_of(expression: str) -> str:
    return f"SELECT {expression}".replace(LAKE, "")


_BESIDE = ("modifiers", "where_clause", "group_expressions", "group_sets", "having", "sample", "qualify")


def is_one_expression(node: Node) -> bool:
    """Return whether a query selects one expression without a name, and does nothing else."""
    return is_select_list(node) and len(node["select_list"]) == 1 and not node["select_list"][0]["alias"]


def is_select_list(node: Node) -> bool:
    """Return whether a query selects expressions without a table, and does nothing else."""
    return _only_selects(node) and bool(node["from_table"]["type"] == "EMPTY")


def is_from_clause(node: Node) -> bool:
    """Return whether ``SELECT 1 FROM …`` names relations, and does nothing else."""
    return _only_selects(node) and len(node["select_list"]) == 1 and node["select_list"][0].get("class") == "CONSTANT"


def _only_selects(node: Node) -> bool:
    return (
        node.get("type") == "SELECT_NODE"
        and not node["cte_map"]["map"]
        and not any(node[part] for part in _BESIDE)
        and bool(node["aggregate_handling"] == "STANDARD_HANDLING")
    )


def _parse(connection: duckdb.DuckDBPyConnection, sql: str) -> tuple[Node, str]:
    tree = _tree(connection, sql)
    return tree, stored(connection, sql, tree)


def _tree(connection: duckdb.DuckDBPyConnection, sql: str) -> Node:
    try:
        document = serialize(connection, sql)
    except TooManyParts as error:
        raise InputError(f"{sql!r} is not a query: {error}") from None
    if document["error"]:
        is_other = document.get("error_type") == _OTHER_STATEMENT
        reason = "it is another kind of statement" if is_other else document["error_message"]
        raise InputError(f"{sql!r} is not a query: {reason}")
    if len(document["statements"]) != 1:
        raise InputError(f"{sql!r} is not one query")
    tree: Node = document["statements"][0]
    return tree
