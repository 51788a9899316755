"""The expressions of row filters and masks: what they may contain, and their SQL for one principal and table."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import lru_cache

import duckdb

from quacklake.core.engines.duckdb.expressions import parser, plain_expression
from quacklake.core.engines.duckdb.rendering import render
from quacklake.core.engines.duckdb.trees import Node, constant_of, nodes, serialize
from quacklake.core.format.names import fold, literal, quote
from quacklake.core.format.schema import Column, TableSchema
from quacklake.errors import InputError, nearest

PRINCIPAL, ROLE = "current_principal", "has_role"
_OWN = (PRINCIPAL, ROLE)
#: Functions that look at more than their arguments, and would not always give one result.
_REFUSED_PREFIXES = ("current_", "get_current_", "has_", "inet_", "pg_", "uuid")
_REFUSED = frozenset(
    """
    age ago error gen_random_uuid in_search_path now random session_user today transaction_timestamp user version
    """.split()  # noqa: SIM905
)
_CLASSES = {"LAMBDA": "a lambda", "STAR": "*", "WINDOW": "a window function"}
_MAX_TEXT = 10_000


def check_policy(text: str, schema: TableSchema, type_: str) -> tuple[str, dict[str, int]]:
    """Return an expression as DuckDB writes it, and the columns that it names with their ids.

    It is deterministic, and reads nothing but a row of the table and its principal. Raise ``InputError``.
    """
    if len(text) > _MAX_TEXT:
        raise InputError(f"an expression of a policy has at most {_MAX_TEXT:,} characters")
    plain = plain_expression(text, _OWN)
    columns: dict[str, int] = {}
    with parser() as connection:
        for node in nodes(_tree(connection, plain)):
            _check(node, text)
            if node.get("class") == "COLUMN_REF":
                name = node["column_names"][0]
                column = schema.get(name)
                if column is None:
                    raise InputError(f'there is no column "{name}"', hint=nearest(name, schema.names))
                columns[name] = column.id
        sql = bound(plain, {name: name for name in columns}, "somebody", frozenset())
        fields = ", ".join(f"NULL::{column.duckdb_type()} AS {quote(column.name)}" for column in schema.columns)
        try:
            # in WHERE, where DuckDB refuses aggregates; TRY refuses functions whose results vary
            connection.sql(f"SELECT 1 FROM (SELECT {fields}) WHERE {tried(sql, type_)} IS NULL")
            given = str(connection.sql(f"SELECT {sql} FROM (SELECT {fields})").types[0])
        except duckdb.Error as error:
            raise InputError(f"the expression {text!r} cannot be used: {str(error).splitlines()[0]}") from None
    if type_ == "BOOLEAN" and given not in (type_, '"NULL"'):
        raise InputError(f"the expression {text!r} is no condition, but of the type {given}")
    return plain, columns


def _check(node: Node, text: str) -> None:
    if node.get("class") in _CLASSES:
        raise InputError(f"the expression {text!r} has {_CLASSES[node['class']]} in it")
    name = fold(str(node.get("function_name", "")))
    if name == ROLE and (len(node["children"]) != 1 or _text_of(node["children"][0]) is None):
        raise InputError("has_role takes the name of a role as a text: has_role('analyst')")
    if name == PRINCIPAL and node["children"]:
        raise InputError("current_principal() takes no arguments")
    if name not in _OWN and (name.startswith(_REFUSED_PREFIXES) or name in _REFUSED):
        raise InputError(
            f'the expression {text!r} calls "{name}", whose result does not depend on the row alone',
            hint="current_principal() is the name of the principal, has_role('r') tells whether it has a role",
        )


def _text_of(node: Node) -> str | None:
    found = constant_of(node)
    return str(found.value) if found is not None and found.type == "VARCHAR" else None


def _tree(connection: duckdb.DuckDBPyConnection, text: str) -> Node:
    statements: list[Node] = serialize(connection, f"SELECT {text}")["statements"]
    return statements[0]


def tried(sql: str, type_: str) -> str:
    """Return an expression that is NULL where it cannot be computed: an error would tell values of hidden rows."""
    return f"TRY(CAST(({sql}) AS {type_}))"


def bound(expression: str, names: Mapping[str, str], principal: str, roles: frozenset[str]) -> str:
    """Return an expression for a principal, with other names of columns.

    Raise ``InputError`` for one that is no expression of a policy.
    """
    return _bind_names(expression, tuple(sorted(names.items())), principal, roles)


@lru_cache(maxsize=1024)
def _bind_names(expression: str, names: tuple[tuple[str, str], ...], principal: str, roles: frozenset[str]) -> str:
    known = dict(names)
    plain = plain_expression(expression, _OWN)  # it comes from the metadata
    with parser() as connection:
        tree = _tree(connection, plain)
        for node in list(nodes(tree)):
            _check(node, expression)
            if node.get("class") == "COLUMN_REF":
                column = node["column_names"][0]
                if column not in known:
                    raise InputError(f'the expression {expression!r} names "{column}", which is not among its columns')
                node["column_names"][0] = known[column]
            name = fold(str(node.get("function_name", "")))
            if name in _OWN:
                value = literal(principal)
                if name == ROLE:
                    value = "true" if (_text_of(node["children"][0]) or "").lower() in roles else "false"
                constant = _tree(connection, f"({value})")["node"]["select_list"][0]
                alias = node.get("alias", "")
                node.clear()
                node.update(constant, alias=alias)
        return render(connection, tree).removeprefix("SELECT ")


def columns_of(stored: str, schema: TableSchema, *, by_id: bool) -> dict[str, Column] | None:
    """Return the columns that a stored expression names, in a table as it is; None if one is missing."""
    found: dict[str, Column] = {}
    try:
        named = dict(json.loads(stored))
    except (TypeError, ValueError):
        return None
    for name, id_ in named.items():
        column = next((c for c in schema.columns if c.id == id_), None) if by_id else schema.get(name)
        if column is None:
            return None
        found[name] = column
    return found
