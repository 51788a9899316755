"""``query('…')`` and ``query_table('…')`` in FROM: a text takes the place of a table, and is read as if it stood there.

The text becomes a subquery before any name is looked up, so that it reads lakes, and passes every check, as the query
around it does.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import duckdb

from quacklake.core.format.names import fold, quote
from quacklake.core.sql import tree
from quacklake.core.sql.tree import NOWHERE, Node
from quacklake.core.sql.words import Cursor
from quacklake.errors import SqlError

MAX_DEPTH = 20
"""The number of texts that may stand inside of each other."""
_CALLS = [[*path, name] for path in ([], ["main"], ["system", "main"]) for name in ("query", "query_table")]

Evaluate = Callable[[Node], Any]
IsMacro = Callable[[Sequence[str]], bool]


def expand_texts(
    connection: duckdb.DuckDBPyConnection, parsed: Node, is_macro: IsMacro, evaluate: Evaluate, depth: int = 0
) -> None:
    """Replace each call of ``query`` or ``query_table`` with a subquery.

    Raise ``SqlError`` for a text that is not one query or not the name of a table.
    """
    for node in tree.nodes(parsed):
        if node.get("type") != "TABLE_FUNCTION":
            continue
        function, arguments = node["function"], node["function"]["children"]
        names = [function[key] for key in ("catalog", "schema", "function_name") if function.get(key)]
        if [*map(fold, names)] not in _CALLS or any(argument["alias"] for argument in arguments) or is_macro(names):
            continue
        values = [evaluate(argument) for argument in arguments]
        sql = _query_text(values) if fold(names[-1]) == "query" else _union_text(values)
        if sql is None:
            continue  # DuckDB has the words for what is wrong with these arguments
        if depth >= MAX_DEPTH:
            raise SqlError(f"the query names more than {MAX_DEPTH} texts inside of each other")
        subquery = _parse_query(connection, sql)
        expand_texts(connection, subquery, is_macro, evaluate, depth + 1)
        tree.replace(node, _subquery(subquery, node))


def _query_text(arguments: list[Any]) -> str | None:
    if len(arguments) != 1 or not isinstance(arguments[0], str):
        return None
    return arguments[0]


def _union_text(arguments: list[Any]) -> str | None:
    """Return the query of one table, or of the rows of several, by name if the second argument says so."""
    if not arguments or len(arguments) > 2:
        return None
    names = [arguments[0]] if isinstance(arguments[0], str) else arguments[0]
    by_name = arguments[1] if len(arguments) == 2 else False
    if not isinstance(names, list) or not names or not isinstance(by_name, bool):
        return None
    if not all(isinstance(name, str) for name in names):
        return None
    union = " UNION ALL BY NAME " if by_name else " UNION ALL "
    return union.join(f"FROM {_table_name(name)}" for name in names)


def _table_name(text: str) -> str:
    cursor = Cursor(text)
    names = cursor.names()
    if not cursor.done or len(names) > 3:
        raise SqlError(f"Parser Error: {text!r} is not the name of a table", hint="write catalog.schema.name")
    return ".".join(map(quote, names))


def _parse_query(connection: duckdb.DuckDBPyConnection, sql: str) -> Node:
    try:
        parsed = tree.parse(connection, sql)
    except tree.Unserializable:
        raise SqlError("Parser Error: Expected a single SELECT statement", hint="the text must be one query") from None
    for node in tree.nodes(parsed):
        if "query_location" in node:
            node["query_location"] = NOWHERE  # a position in another text
    return parsed


def _subquery(query: Node, like: Node) -> Node:
    return {
        "type": "SUBQUERY",
        "alias": like["alias"],
        "sample": like.get("sample"),
        "query_location": NOWHERE,
        "subquery": {"node": query["node"], "named_param_map": query.get("named_param_map", [])},
        "column_name_alias": like.get("column_name_alias", []),
    }
