"""Queries and expressions that the catalog stores: the SQL of views and macros, as DuckDB understands it."""

from __future__ import annotations

from dataclasses import dataclass

import duckdb

from quacklake.engines.duckdb.trees import Node, TooManyParts, nodes, serialize, stored
from quacklake.errors import InputError

#: What a stored query calls the lake it belongs to; in DuckDB that is the name it is attached by.
LAKE = "{DUCKLAKE_CATALOG}."

#: Functions that yield rows from their arguments alone. Others reach files, the network or the session.
HARMLESS = frozenset({"range", "generate_series", "unnest", "json_each", "json_tree", "repeat", "repeat_row"})


Name = tuple[str | None, str]
"""A schema, or None where none is given, and a name in it."""


@dataclass(frozen=True, slots=True)
class Query:
    """A query in DuckDB's own words, and what it names: tables and views, functions, and functions that yield rows.

    Of the last only those that could reach files, the network or the session.
    """

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
    named = {entry["key"].lower() for node in nodes(tree) for entry in _common_tables(node)}
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
    return _parse_expression(connection, sql)[1].removeprefix("SELECT ")


def select_of(connection: duckdb.DuckDBPyConnection, sql: str) -> Node:
    """Return the tree of a query that selects one expression and does nothing else. Raise ``InputError``."""
    return _parse_expression(connection, sql)[0]


def _parse_expression(connection: duckdb.DuckDBPyConnection, sql: str) -> tuple[Node, str]:
    tree, text = _parse(connection, f"SELECT {sql}".replace(LAKE, ""))
    node = tree["node"]
    plain = node.get("type") == "SELECT_NODE" and node["from_table"]["type"] == "EMPTY"
    if (
        not plain
        or len(node["select_list"]) != 1
        or any(node[part] for part in _BESIDE)
        or node["select_list"][0]["alias"]
    ):
        raise InputError(f"{sql!r} is not an expression")
    return tree, text


_BESIDE = ("modifiers", "where_clause", "group_expressions", "group_sets", "having", "sample", "qualify")


def _parse(connection: duckdb.DuckDBPyConnection, sql: str) -> tuple[Node, str]:
    try:
        document = serialize(connection, sql)
    except TooManyParts as error:
        raise InputError(f"{sql!r} is not a query: {error}") from None
    if document["error"]:
        raise InputError(f"{sql!r} is not a query: {document['error_message']}")
    if len(document["statements"]) != 1:
        raise InputError(f"{sql!r} is not one query")
    tree: Node = document["statements"][0]
    return tree, stored(connection, sql, tree)


def _common_tables(node: Node) -> list[Node]:
    tables = node.get("cte_map")
    return tables["map"] if isinstance(tables, dict) else []
