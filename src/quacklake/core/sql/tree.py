"""Query trees in the form in which DuckDB serializes them."""

from __future__ import annotations

import json

import duckdb

from quacklake.core.engines.duckdb.rendering import describe as describe
from quacklake.core.engines.duckdb.rendering import render as render
from quacklake.core.engines.duckdb.rendering import render_own as render_own
from quacklake.core.engines.duckdb.rendering import stored as stored
from quacklake.core.engines.duckdb.stored_texts import is_from_clause, is_one_expression, is_select_list
from quacklake.core.engines.duckdb.trees import PLACES as PLACES
from quacklake.core.engines.duckdb.trees import Node as Node
from quacklake.core.engines.duckdb.trees import TooManyParts, serialize
from quacklake.core.engines.duckdb.trees import bare as bare
from quacklake.core.engines.duckdb.trees import constant_of as constant_of
from quacklake.core.engines.duckdb.trees import nodes as nodes
from quacklake.core.sql.words import caret
from quacklake.errors import SqlError

NOWHERE = (1 << 64) - 1
"""The position of nodes that are not in the text."""


class Unserializable(SqlError):
    """Raised for a statement that DuckDB understands but does not serialize as a tree."""


def copied(tree: Node) -> Node:
    found: Node = json.loads(json.dumps(tree))
    return found


def parse(connection: duckdb.DuckDBPyConnection, sql: str) -> Node:
    """Return the tree of one query. Raise ``SqlError`` with the position, or ``Unserializable``."""
    if "\0" in sql:
        raise SqlError("Parser Error: a statement has no NUL character")
    try:
        document = serialize(connection, sql)
    except TooManyParts as error:
        raise SqlError(str(error), hint="write catalog.schema.name") from None
    if document["error"]:
        if document["error_type"] == "not implemented":
            raise Unserializable(document["error_message"])
        place, mark = document.get("position"), ""
        if place is not None:  # DuckDB counts bytes
            mark = f"\n\n{caret(sql, len(sql.encode()[: int(place)].decode(errors='ignore')))}"
        raise SqlError(f"Parser Error: {document['error_message']}{mark}")
    if len(document["statements"]) != 1:
        raise SqlError("this is not one query")
    tree: Node = document["statements"][0]
    return tree


def expression_of(connection: duckdb.DuckDBPyConnection, sql: str) -> Node:
    """Return the tree of one expression. Raise ``SqlError`` for a text that is more than that."""
    node = parse(connection, f"SELECT {sql}")["node"]
    if not is_one_expression(node):
        raise SqlError(f"Parser Error: {sql!r} is not one expression")
    expression: Node = node["select_list"][0]
    return expression


def enclosed(connection: duckdb.DuckDBPyConnection, sql: str) -> str:
    """Return one expression in parentheses. Raise ``SqlError`` for another text."""
    expression_of(connection, sql)
    return f"({sql}\n)"


def check_relations(connection: duckdb.DuckDBPyConnection, sql: str) -> None:
    """Raise ``SqlError`` unless a text is a list of relations, as FROM has it."""
    if not is_from_clause(parse(connection, f"SELECT 1 FROM {sql}")["node"]):
        raise SqlError(f"Parser Error: {sql!r} is more than the tables to read")


def select_list_of(connection: duckdb.DuckDBPyConnection, sql: str) -> list[Node]:
    """Return the trees of a list of expressions. Raise ``SqlError`` for other texts."""
    node = parse(connection, f"SELECT {sql}")["node"]
    if not is_select_list(node):
        raise SqlError(f"Parser Error: {sql!r} is more than a list of expressions")
    expressions: list[Node] = node["select_list"]
    return expressions


def query_of(connection: duckdb.DuckDBPyConnection, expression: Node) -> Node:
    """Return the tree of a query that selects one expression."""
    query = parse(connection, "SELECT 1")
    query["node"]["select_list"] = [expression]
    return query


def replace(node: Node, other: Node) -> None:
    """Put another tree in the place of a node."""
    node.clear()
    node.update(other)


_TYPES: dict[str, Node] = {}
_MAX_TYPES = 1000


def type_node(connection: duckdb.DuckDBPyConnection, type_: str) -> Node:
    """Return the type node of a cast. It is cached, because every INSERT needs the types of its table again."""
    found = _TYPES.get(type_)
    if found is None:
        typed = expression_of(connection, f"CAST(NULL AS {type_})")
        found = {key: typed[key] for key in ("cast_type", "type_expr") if key in typed}
        if len(_TYPES) >= _MAX_TYPES:
            _TYPES.clear()
        _TYPES[type_] = found
    return found


def cast(child: Node, type_: Node) -> Node:
    """Return the tree that casts a value to a type."""
    fixed = {"class": "CAST", "type": "OPERATOR_CAST", "alias": "", "query_location": NOWHERE, "try_cast": False}
    return {**fixed, "child": child, **type_}


def base_table(name: str, alias: str, like: Node) -> Node:
    """Return a reference to one of Quacklake's own relations, to replace the reference ``like``."""
    return {
        "type": "BASE_TABLE",
        "alias": alias,
        "sample": like.get("sample"),
        "query_location": NOWHERE,
        "schema_name": "main",
        "table_name": name,
        "column_name_alias": like.get("column_name_alias", []),
        "catalog_name": "temp",
        "at_clause": None,
    }
