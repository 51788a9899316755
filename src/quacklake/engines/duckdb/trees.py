"""DuckDB's own trees of queries, in one form for all its versions.

``json_serialize_sql`` has no stable form: 2.0 names the parts of some nodes differently from 1.5. The tree of 2.0 is
brought into the form of 1.5 as far as others read it, and both versions make text of that. Constants and types stay as
each version has them; ``constant_of`` reads both.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from decimal import Context, Decimal
from typing import Any

import duckdb

from quacklake.duckdb_versions import first_row
from quacklake.errors import InputError
from quacklake.format.names import literal

Node = dict[str, Any]

#: The parts of a name, by what has it.
_PARTS = {
    "table_name": ("catalog_name", "schema_name", "table_name"),
    "function_name": ("catalog", "schema", "function_name"),
    "type_name": ("catalog", "schema", "type_name"),
}


_OTHER_STATEMENT = "not implemented"
"""DuckDB's type of the error for a statement that is no SELECT."""


class TooManyParts(ValueError):
    """A name with more parts than catalog, schema and name."""


def serialize(connection: duckdb.DuckDBPyConnection, sql: str) -> Node:
    """Return DuckDB's document for a text. Raise ``TooManyParts`` for ``a.b.c.d``, of which 1.5 has no tree either."""
    # a literal: for the first parameter of a process DuckDB loads pandas, which takes longer than a short command
    row = first_row(connection, f"SELECT json_serialize_sql(CAST({literal(sql)} AS VARCHAR))")
    assert row is not None
    document: Node = json.loads(row[0])
    for node in nodes(document.get("statements", [])):
        _normalize(node)
    return document


def render(connection: duckdb.DuckDBPyConnection, tree: Mapping[str, Any]) -> str:
    return written(connection, _typed(tree))


def written(connection: duckdb.DuckDBPyConnection, tree: Mapping[str, Any]) -> str:
    """Return the text that DuckDB gives for a tree, in which numbers may be of another type."""
    document = json.dumps({"error": False, "statements": [tree]})
    row = first_row(connection, f"SELECT json_deserialize_sql(CAST({literal(document)} AS JSON))")
    assert row is not None
    return str(row[0])


_TEXT = {"id": "VARCHAR", "type_info": None}


def _typed(node: Any) -> Any:
    """Return a tree with casts for numbers like 1e3 and 5., which DuckDB 1.5 writes as others; 2.x keeps their text."""
    if isinstance(node, list):
        return [_typed(item) for item in node]
    if not isinstance(node, Mapping):
        return node
    text = _exact_text(node.get("value")) if node.get("class") == "CONSTANT" else None
    if text is None:
        return {key: _typed(item) for key, item in node.items()}
    child = {**node, "alias": "", "value": {"type": _TEXT, "is_null": False, "value": text}}
    cast = {"class": "CAST", "type": "OPERATOR_CAST", "child": child, "cast_type": node["value"]["type"]}
    return {**cast, "try_cast": False, "alias": node["alias"], "query_location": node["query_location"]}


def _exact_text(value: Mapping[str, Any] | None) -> str | None:
    """Return the text of a constant that would have another type without a cast, or None."""
    if value is None or value["is_null"]:
        return None
    if value["type"]["id"] == "DOUBLE":
        return repr(value["value"])
    if value["type"]["id"] == "DECIMAL" and isinstance(value["value"], int):
        return str(Decimal(value["value"]).scaleb(-value["type"]["type_info"]["scale"], _DIGITS))
    return None


_DIGITS = Context(prec=40)


def stored(connection: duckdb.DuckDBPyConnection, sql: str, tree: Node) -> str:
    """Return the text of a query that is to be kept: DuckDB's own, or the given one where that means another tree.

    A given text with comments, which would not end where something is written behind it, becomes one with casts.
    """
    try:
        text = written(connection, tree)
    except duckdb.ParserException:  # the text has a number like 1e400, which DuckDB cannot write
        text = ""
    again = serialize(connection, text)
    if not again["error"] and bare(again["statements"]) == bare([tree]):
        return text
    return render(connection, tree) if any(mark in sql for mark in ("--", "/*", ";")) else sql.strip()


#: Keys without meaning: positions in the text, and the order of parameters, which also have names.
PLACES = frozenset({"query_location", "query_location_length", "named_param_map"})


def bare(node: Any) -> Any:
    """Return a tree without what tells nothing of its meaning."""
    if isinstance(node, dict):
        return {key: bare(value) for key, value in node.items() if key not in PLACES}
    return [bare(item) for item in node] if isinstance(node, list) else node


def nodes(tree: Any) -> Iterator[Node]:
    """Yield every node of a tree; what the caller changes in a node is gone through as changed."""
    pending = [tree]
    while pending:
        node = pending.pop()
        if isinstance(node, dict):
            yield node
            pending.extend(node.values())
        elif isinstance(node, list):
            pending.extend(node)


def _normalize(node: Node) -> None:
    if "arguments" in node:
        node["children"] = [
            {**given["expression"], "alias": given["name"]} if given["name"] else given["expression"]
            for given in node.pop("arguments")
        ]
    if isinstance(node.get("query_node"), dict):
        node["query"] = {"node": node.pop("query_node"), "named_param_map": []}
    if "qualified_name" in node:
        _name(node)
    if node.get("function_name") == "if" and not node["schema"] and len(node["children"]) == 3:
        # if(a, b, c) is the CASE that 1.5 takes it for
        when, then, otherwise = node["children"]
        case: Node = {"class": "CASE", "type": "CASE_EXPR", "case_checks": [{"when_expr": when, "then_expr": then}]}
        case |= {"else_expr": otherwise, "alias": node["alias"], "query_location": node["query_location"]}
        node.clear()
        node.update(case)


def _name(node: Node) -> None:
    """Let the plain parts of a name tell it alone: DuckDB would rather believe the path."""
    path = node["qualified_name"]["path"]
    if len(path) > 3:
        raise TooManyParts(f"{'.'.join(path)!r} has too many parts")
    if node.get("type") == "SHOW_REF":
        return  # 2.x writes this name only in this form
    keys = next((parts for name, parts in _PARTS.items() if name in node), None)
    if keys is not None:  # else the target of a change, which has no other name
        del node["qualified_name"]
        node.update(zip(keys, [""] * (3 - len(path)) + list(path), strict=True))


@dataclass(frozen=True, slots=True)
class Constant:
    """A number or text in a query: ``INTEGER``, ``VARCHAR``, ``NULL`` or another type."""

    type: str
    value: Any


_KINDS = {"INTEGER": "INTEGER", "STRING": "VARCHAR", "NULL_LITERAL": "NULL", "BOOLEAN": "BOOLEAN"}
_INTEGERS = range(-(1 << 31), 1 << 31)


def constant_of(node: Mapping[str, Any]) -> Constant | None:
    """Return the constant that a node is, or None. Other types than INTEGER and VARCHAR are as DuckDB gives them."""
    if node.get("class") != "CONSTANT":
        return None
    if "literal" not in node:
        stored = node["value"]
        return Constant("NULL" if stored["is_null"] else stored["type"]["id"], stored.get("value"))
    kind, text = _KINDS.get(node["literal"]["kind"], node["literal"]["kind"]), node["literal"]["text"]
    if kind != "INTEGER":
        return Constant(kind, None if kind == "NULL" else text)
    number = int(text)
    return Constant("INTEGER" if number in _INTEGERS else "BIGINT", number)


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
    return (
        node.get("type") == "SELECT_NODE"
        and node["from_table"]["type"] == "EMPTY"
        and not node["cte_map"]["map"]
        and len(node["select_list"]) == 1
        and not any(node[part] for part in _BESIDE)
        and not node["select_list"][0]["alias"]
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
