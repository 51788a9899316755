"""DuckDB's own trees of queries, in one form for all its versions.

``json_serialize_sql`` has no stable form: 2.0 names the parts of some nodes differently from 1.5. The tree of 2.0 is
brought into the form of 1.5 as far as others read it, and both versions make text of that. Constants and types stay as
each version has them; ``constant_of`` reads both.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import duckdb

from quacklake.core.duckdb_versions import first_row
from quacklake.core.format.names import literal

Node = dict[str, Any]

#: The parts of a name, by what has it.
_PARTS = {
    "table_name": ("catalog_name", "schema_name", "table_name"),
    "function_name": ("catalog", "schema", "function_name"),
    "type_name": ("catalog", "schema", "type_name"),
}


class TooManyParts(ValueError):
    """A name with more parts than catalog, schema and name."""


def serialize(connection: duckdb.DuckDBPyConnection, sql: str) -> Node:
    """Return DuckDB's document for a text. Raise ``TooManyParts`` for ``a.b.c.d``, of which 1.5 has no tree either."""
    # a literal: for the first parameter of a process DuckDB loads pandas, which takes longer than a short command
    row = first_row(connection, f"SELECT json_serialize_sql(CAST({literal(sql)} AS VARCHAR))")
    assert row is not None
    return read_document(row[0])


def read_document(text: str) -> Node:
    """Return what ``json_serialize_sql`` gave. Raise ``TooManyParts`` as ``serialize`` does."""
    document: Node = json.loads(text)
    for node in nodes(document.get("statements", [])):
        _normalize(node)
    return document


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
