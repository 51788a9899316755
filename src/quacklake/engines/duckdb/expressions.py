"""Expressions that compute a value from one row, and reach nothing else.

Filters, defaults and sort keys are such expressions. They come from the metadata, which other clients write, and from
applications that pass on what their users typed. So DuckDB's own tree of a text is held against a list: kinds of nodes
and functions that are not on it are refused, as is whatever a later DuckDB brings.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import duckdb

from quacklake.duckdb_versions import connect
from quacklake.engines.duckdb.functions import FUNCTIONS
from quacklake.engines.duckdb.trees import Node, TooManyParts, nodes, render, serialize
from quacklake.errors import InputError
from quacklake.format.layout import SortKey, SortSpec, readable_keys
from quacklake.format.names import fold

_KINDS = frozenset(
    """
    BETWEEN CASE CAST COLLATE COLUMN_REF COMPARISON CONJUNCTION CONSTANT FUNCTION LAMBDA LAMBDA_REF OPERATOR STAR TYPE
    WINDOW
    """.split()  # noqa: SIM905
)
_REFUSED = {"SUBQUERY": "a subquery", "PARAMETER": "a parameter"}
_BESIDE = ("modifiers", "where_clause", "group_expressions", "group_sets", "having", "sample", "qualify")
#: How an aggregate is told to go through its rows.
_ORDERS = ("ORDER_MODIFIER", "ORDER_DEFAULT", "ASCENDING", "DESCENDING")
_HINT = "lake.sql runs queries"
#: Longer texts are checked anew each time.
_KEPT_LENGTH = 4_096


class _Parser:
    """A database that parses and never runs anything else; made anew in a process that was forked."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process = 0
        self._root: duckdb.DuckDBPyConnection | None = None

    def cursor(self) -> duckdb.DuckDBPyConnection:
        with self._lock:
            if self._root is None or self._process != os.getpid():
                self._root = connect(":memory:", config={"threads": 1, "enable_external_access": False})
                self._process = os.getpid()
            return self._root.cursor()


_PARSER = _Parser()


def parser() -> duckdb.DuckDBPyConnection:
    """Return a connection that can parse and write texts, and reaches no file; the caller closes it."""
    return _PARSER.cursor()


def check_expression(text: str, functions: Collection[str] = ()) -> None:
    """Raise ``InputError`` unless a text is one expression over a row, with known functions or some others."""
    _checked(text, functions)


def plain_expression(text: str, functions: Collection[str] = ()) -> str:
    """Like ``check_expression``; return the expression as DuckDB writes it, without comments, to be put into SQL."""
    return _checked(text, functions, written=True)


def _checked(text: str, functions: Collection[str], *, written: bool = False) -> str:
    names = frozenset(map(fold, functions))
    return (_kept if len(text) <= _KEPT_LENGTH else _parsed)(text, names, written)


def _parsed(text: str, functions: frozenset[str], written: bool) -> str:
    with parser() as connection:
        tree = _tree(connection, text)
        expression = tree["node"]["select_list"][0]
        for node in nodes(expression):
            _check(text, node, functions)
        return render(connection, tree).removeprefix("SELECT ") if written else ""


_kept = lru_cache(maxsize=512)(_parsed)


def _tree(connection: duckdb.DuckDBPyConnection, text: str) -> Node:
    try:
        document = serialize(connection, f"SELECT {text}")
    except (TooManyParts, RecursionError, duckdb.Error) as error:
        raise InputError(f"the expression {text!r} cannot be parsed: {error}") from None
    if document["error"]:
        raise InputError(f"the expression {text!r} cannot be parsed: {document['error_message']}")
    statements: list[Node] = document["statements"]
    node = statements[0]["node"] if len(statements) == 1 else {}
    if (
        node.get("type") != "SELECT_NODE"
        or node["from_table"]["type"] != "EMPTY"
        or node["cte_map"]["map"]
        or len(node["select_list"]) != 1
        or any(node[part] for part in _BESIDE)
        or node["select_list"][0]["alias"]
    ):
        raise InputError(f"{text!r} is not one expression")
    return statements[0]


def _check(text: str, node: Node, functions: frozenset[str]) -> None:
    class_, kind = node.get("class"), node.get("type")
    if class_ is not None and class_ not in _KINDS:
        raise InputError(f"the expression {text!r} has {_REFUSED.get(class_, class_)} in it", hint=_HINT)
    if class_ is None and ("node" in node or "cte_map" in node or "from_table" in node):
        raise InputError(f"the expression {text!r} has a query in it", hint=_HINT)
    if class_ is None and isinstance(kind, str) and not kind.endswith("_TYPE_INFO") and kind not in _ORDERS:
        raise InputError(f"the expression {text!r} has {kind} in it", hint=_HINT)
    if "function_name" in node:
        name = fold(node["function_name"])
        if name not in FUNCTIONS and name not in functions:
            raise InputError(
                f'the expression {text!r} calls the function "{node["function_name"]}", which is not allowed in it',
                hint="functions may work on their arguments only",
            )


_DIRECTIONS = ("ASC", "DESC")
_NULLS = {"NULLS_FIRST": "NULLS FIRST", "NULLS_LAST": "NULLS LAST"}


@dataclass(frozen=True, slots=True)
class OrderMacro:
    """A macro that an order of rows calls, and the statement that makes it."""

    name: str
    statement: str


def order_keys(spec: SortSpec | None, macros: Sequence[OrderMacro]) -> list[str]:
    """Return the keys for an ``ORDER BY``; those in another dialect are passed over.

    Raise ``InputError`` for a key that another client has stored and that is more than an expression over a row.
    """
    names = [macro.name for macro in macros]
    return [] if spec is None else [_key(key, names) for key in readable_keys(spec)]


def _key(key: SortKey, names: Sequence[str]) -> str:
    if key.direction not in _DIRECTIONS or key.null_order not in _NULLS:
        raise InputError(
            f"the table is sorted by {key!s}, which is not a valid sort key", hint="set_sorted_by() sets another order"
        )
    try:
        expression = plain_expression(key.expression, names)
    except InputError as error:
        raise InputError(
            f"the order of the table cannot be used: {error.message}", hint="set_sorted_by() sets another order"
        ) from None
    return f"{expression} {key.direction} {_NULLS[key.null_order]}"


def constant(value: Any) -> duckdb.Expression:
    """Return a value as an expression. NaN stays NaN, also inside of lists and dictionaries: DuckDB would make it NULL.

    Scalars of numpy are taken as what they hold.
    """
    value = _plain(value)
    if not _holds_nan(value):
        return duckdb.ConstantExpression(value)
    if isinstance(value, Mapping):
        return duckdb.FunctionExpression("struct_pack", *(constant(item).alias(key) for key, item in value.items()))
    if isinstance(value, list | tuple):
        return duckdb.FunctionExpression("list_value", *map(constant, value))
    return duckdb.SQLExpression("'nan'::DOUBLE")


def _plain(value: Any) -> Any:
    """Return a scalar of numpy as one of Python."""
    if type(value).__module__ != "numpy" or getattr(value, "ndim", None) != 0 or value.dtype.kind not in "biufSU":
        return value
    return value.item()


def _holds_nan(value: Any) -> bool:
    value = _plain(value)
    if isinstance(value, Mapping):
        return all(isinstance(key, str) for key in value) and any(map(_holds_nan, value.values()))
    if isinstance(value, list | tuple):
        return any(map(_holds_nan, value))
    return isinstance(value, float) and value != value
