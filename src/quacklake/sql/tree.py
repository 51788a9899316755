"""Query trees in the form in which DuckDB serializes them."""

from __future__ import annotations

import json

import duckdb

from quacklake.engines.duckdb.trees import (
    PLACES,
    Node,
    TooManyParts,
    bare,
    constant_of,
    nodes,
    render,
    serialize,
    stored,
    written,
)
from quacklake.errors import SqlError
from quacklake.sql.words import caret

__all__ = [
    "NOWHERE",
    "PLACES",
    "Node",
    "Unserializable",
    "bare",
    "base_table",
    "cast",
    "constant_of",
    "copied",
    "expression_of",
    "nodes",
    "parse",
    "render",
    "stored",
    "type_node",
    "written",
]


class Unserializable(SqlError):
    """Raised for a statement that DuckDB understands but does not serialize as a tree."""


def copied(tree: Node) -> Node:
    found: Node = json.loads(json.dumps(tree))
    return found


def parse(connection: duckdb.DuckDBPyConnection, sql: str) -> Node:
    """Return the tree of one query. Raises ``SqlError`` with the position, or ``Unserializable``."""
    if "\0" in sql:
        raise SqlError("Parser Error: a statement has no NUL character")
    try:
        document = serialize(connection, sql)
    except TooManyParts as error:
        raise SqlError(str(error), hint="write catalog.schema.name") from None
    if document["error"]:
        if document["error_type"] == "not implemented":
            raise Unserializable(document["error_message"])
        place = document.get("position")
        mark = "" if place is None else f"\n\n{caret(sql, _character(sql, int(place)))}"
        raise SqlError(f"Parser Error: {document['error_message']}{mark}")
    if len(document["statements"]) != 1:
        raise SqlError("this is not one query")
    tree: Node = document["statements"][0]
    return tree


def _character(sql: str, offset: int) -> int:
    """Convert a position that DuckDB counts in bytes to characters."""
    return len(sql.encode()[:offset].decode(errors="ignore"))


def expression_of(connection: duckdb.DuckDBPyConnection, sql: str) -> Node:
    """Return the tree of one expression."""
    found: Node = parse(connection, f"SELECT {sql}")["node"]["select_list"][0]
    return found


_TYPES: dict[str, Node] = {}
_MOST_TYPES = 1000


def type_node(connection: duckdb.DuckDBPyConnection, type_: str) -> Node:
    """Return the type node of a cast. It is cached, because every INSERT needs the types of its table again."""
    found = _TYPES.get(type_)
    if found is None:
        typed = expression_of(connection, f"CAST(NULL AS {type_})")
        found = {key: typed[key] for key in ("cast_type", "type_expr") if key in typed}
        if len(_TYPES) >= _MOST_TYPES:
            _TYPES.clear()
        _TYPES[type_] = found
    return found


def cast(child: Node, type_: Node) -> Node:
    """Return the tree that casts a value to a type."""
    return {
        "class": "CAST",
        "type": "OPERATOR_CAST",
        "alias": "",
        "query_location": NOWHERE,
        "child": child,
        "try_cast": False,
        **type_,
    }


NOWHERE = (1 << 64) - 1
"""The position of nodes that are not in the text."""


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
