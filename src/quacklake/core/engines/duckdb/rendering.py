"""Write trees as SQL: the text that runs is the tree that was checked.

``json_deserialize_sql`` does not quote every name, so a name can become any other SQL. Those names are quoted here
before DuckDB writes them, and the text that it gives is parsed again: where that is another tree, nothing is returned.

For example, ``SELECT "x, y".* FROM t AS "x, y"`` has a star whose relation DuckDB would write as ``x, y.*``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from decimal import Context, Decimal
from typing import Any

import duckdb

from quacklake.core.duckdb_versions import IS_2, first_row
from quacklake.core.engines.duckdb.trees import PLACES, Node, TooManyParts, bare, read_document, serialize
from quacklake.core.format.names import literal, quote
from quacklake.errors import SqlError


def render(connection: duckdb.DuckDBPyConnection, tree: Mapping[str, Any]) -> str:
    """Return the text of a tree, which parses to the same tree. Raise ``SqlError`` for others."""
    try:
        exact = _exact(tree)
        text, parsed = _write(connection, exact, again=True)
        again = read_document(parsed)
        same = (
            not again["error"] and len(again["statements"]) == 1 and _meaning(again["statements"][0]) == _meaning(exact)
        )
    except RecursionError:
        raise SqlError("the query is nested too deeply") from None
    except (TooManyParts, duckdb.ParserException):
        same = False
    if not same:
        raise SqlError(
            "DuckDB writes this query as another one", hint="give what it names plain names, without quotes and spaces"
        )
    return text


def render_own(connection: duckdb.DuckDBPyConnection, tree: Mapping[str, Any]) -> str:
    """Return the text of a tree, not compared, for someone who may run any SQL."""
    return _write(connection, _exact(tree))[0]


def describe(connection: duckdb.DuckDBPyConnection, tree: Mapping[str, Any]) -> str:
    """Return the text of a tree to be shown. It may mean something else, and must not run."""
    return _write(connection, tree)[0]


def stored(connection: duckdb.DuckDBPyConnection, sql: str, tree: Node) -> str:
    """Return the text of a query that is to be kept: DuckDB's own, or the given one where that means another tree.

    A given text with comments, which would not end where something is written behind it, becomes one with casts.
    """
    try:
        text = _write(connection, tree)[0]
    except duckdb.ParserException:  # the text has a number like 1e400, which DuckDB cannot write
        text = ""
    again = serialize(connection, text)
    if not again["error"] and bare(again["statements"]) == bare([tree]):
        return text
    return render(connection, tree) if any(mark in sql for mark in ("--", "/*", ";")) else sql.strip()


def _write(connection: duckdb.DuckDBPyConnection, tree: Mapping[str, Any], *, again: bool = False) -> tuple[str, str]:
    """Return DuckDB's text of a tree, and with ``again`` its document of that text."""
    document = json.dumps({"error": False, "statements": [_quote_names(tree)]})
    # one query for both: DuckDB plans it longer than it writes and parses
    both = ", json_serialize_sql(sql)" if again else ""
    row = first_row(connection, f"SELECT json_deserialize_sql(CAST({literal(document)} AS JSON)) AS sql{both}")
    assert row is not None
    return str(row[0]), str(row[1]) if again else ""


# -- names that DuckDB writes as they are ------------------------------------------------------------------------------

_PLAIN_PARAMETER = re.compile(r"[0-9]+|[a-zA-Z_][a-zA-Z0-9_]*")


def _quote_names(node: Any) -> Any:
    """Return a tree with quotes around the names that DuckDB writes without."""
    if isinstance(node, list):
        return [_quote_names(item) for item in node]
    if not isinstance(node, Mapping):
        return node
    copy = {key: _quote_names(value) if isinstance(value, dict | list) else value for key, value in node.items()}
    if copy.get("class") == "STAR" and copy["relation_name"] and not IS_2:  # 2.x quotes it
        copy["relation_name"] = quote(copy["relation_name"])
    elif copy.get("class") == "PARAMETER" and not _PLAIN_PARAMETER.fullmatch(copy["identifier"]):
        copy["identifier"] = quote(copy["identifier"])
    return copy


# -- constants and fields that DuckDB writes as others -----------------------------------------------------------------

_TEXT = {"id": "VARCHAR", "type_info": None}
_DIGITS = Context(prec=40)
_PLAIN_FUNCTION = re.compile(r"[a-z_]+")


def _exact(node: Any) -> Any:
    """Return a tree of the same meaning that DuckDB writes exactly.

    Numbers like 1e3 and 5., which 1.5 writes as others, get casts; 2.x keeps their text. A field with an apostrophe in
    its name, which DuckDB doubles, and an element of what it writes without parentheses, are taken by functions. 2.x
    writes an operator whose function has a plain name, as LIKE … ESCAPE, as a call of it.
    """
    if isinstance(node, list):
        return [_exact(item) for item in node]
    if not isinstance(node, Mapping):
        return node
    text = _exact_text(node.get("value")) if node.get("class") == "CONSTANT" else None
    if text is None:
        copy = {key: _exact(value) for key, value in node.items()}
        if copy.get("is_operator") and _PLAIN_FUNCTION.fullmatch(copy["function_name"]):
            copy["is_operator"] = False
        is_access = copy.get("class") == "OPERATOR" and copy["type"] in _ACCESS
        return _call(copy) if is_access and not _is_exact_access(copy) else copy
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


#: Accesses to a part of a value, and the functions that they are.
_ACCESS = {"STRUCT_EXTRACT": "struct_extract", "ARRAY_EXTRACT": "array_extract", "ARRAY_SLICE": "array_slice"}
#: What DuckDB writes so that an access to a part may follow.
_ENCLOSED = frozenset({"CAST", "COLUMN_REF", "FUNCTION", "OPERATOR"})


def _is_exact_access(node: Node) -> bool:
    whole, part = node["children"][:2]
    if node["type"] == "STRUCT_EXTRACT":
        return "'" not in json.dumps(part)
    return whole["class"] in _ENCLOSED


def _call(node: Node) -> Node:
    """Return the call of a function that an access to a part of a value is."""
    call: Node = {"class": "FUNCTION", "type": "FUNCTION", "function_name": _ACCESS[node["type"]], "schema": "main"}
    call |= {"catalog": "system", "children": node["children"], "filter": None, "distinct": False}
    call |= {"order_bys": {"type": "ORDER_MODIFIER", "orders": []}, "is_operator": False, "export_state": False}
    return call | {key: node[key] for key in ("alias", "query_location")}


# -- comparison --------------------------------------------------------------------------------------------------------

_VALUES = "valueslist"
_BOOLEAN = {"id": "BOOLEAN", "type_info": None}
_TRUTH = {"t": True, "f": False}


def _meaning(node: Any) -> Any:
    """Return what a tree means: one form, without places and empty parts."""
    if isinstance(node, list):
        return [_meaning(item) for item in node]
    if not isinstance(node, Mapping):
        return node
    if node.get("class") == "CONSTANT":
        return {key: value for key, value in node.items() if key not in PLACES and value != ""}
    parts = ((key, _meaning(value)) for key, value in node.items() if value and key not in PLACES)
    copy = {key: value for key, value in parts if value}
    if copy.get("type") == "OPERATOR_CAST":
        return _truth(copy)
    return _plain_values(copy) if copy.get("type") == "SUBQUERY" and copy.get("alias") == _VALUES else copy


def _truth(cast: Node) -> Node:
    """Return the constant that ``CAST('t' AS BOOLEAN)`` is: what DuckDB reads from ``true``."""
    child, value = cast["child"], cast["child"].get("value")
    if cast.get("cast_type", {}).get("id") != "BOOLEAN" or child["class"] != "CONSTANT" or value is None:
        return cast
    truth = _TRUTH.get(value.get("value")) if value["type"]["id"] == "VARCHAR" else None
    if truth is None or cast.get("try_cast"):
        return cast
    value = {"type": _BOOLEAN, "is_null": False, "value": truth}
    constant = {"class": "CONSTANT", "type": "VALUE_CONSTANT", "value": value}
    return {**constant, "alias": cast["alias"]} if cast.get("alias") else constant


def _plain_values(subquery: Node) -> Node:
    """Return the VALUES that DuckDB writes as ``(SELECT * FROM (VALUES …)) AS valueslist``."""
    query = subquery["subquery"].get("node", {})
    values = query.get("from_table", {})
    plain = (
        subquery.keys() == {"type", "alias", "subquery"}
        and query.keys() == {"type", "select_list", "from_table", "aggregate_handling"}
        and query["select_list"] == [{"class": "STAR", "type": "STAR"}]
        and values.get("type") == "EXPRESSION_LIST"
    )
    return dict(values) if plain else subquery
