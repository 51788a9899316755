"""Measure a query with its common tables, views and macros expanded.

DuckDB binds the expanded query without regard to the timeout. Every level of ``SELECT * FROM c a, c b`` doubles the
columns, so a short text can take minutes and gigabytes.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from quacklake.errors import NotPermittedError, StatementTooLargeError
from quacklake.format.names import fold
from quacklake.sql.safety.limits import Safety
from quacklake.sql.sizes import Size
from quacklake.sql.tree import Node, constant_of

#: Functions whose result is as large as an argument says, with the position of that argument.
_SIZED = {
    "repeat": (1,),
    "lpad": (1,),
    "rpad": (1,),
    "bar": (3,),
    "bitstring": (1,),
    "list_resize": (1,),
    "array_resize": (1,),
    "range": (0, 1),
    "generate_series": (0, 1),
}
#: Functions whose sizes multiply, because they may be nested, even through a common table.
_MULTIPLYING = ("repeat", "range", "generate_series")
_FORMATS = ("format", "printf")
_NUMBER = re.compile(r"[0-9]+")
_VARIABLE_WIDTH = re.compile(r"\{[^{}]*:[^{}]*\{|%[^a-zA-Z]*\*")
_FUNCTION_COLUMNS = 8
"""The most columns that a table function has."""


def check_shape(parsed: Node, safety: Safety) -> None:
    """Raise ``StatementTooLargeError`` for a deeply nested or long query, before anything recurses into it."""
    level: list[Any] = [parsed]
    depth = parts = 0
    most = safety.max_depth
    while level:
        below: list[Any] = []
        for node in level:
            for value in node.values() if isinstance(node, dict) else node:
                if isinstance(value, dict | list):
                    below.append(value)
                    parts += isinstance(value, dict) and "class" in value
        depth += 1
        if depth > 3 * most:  # each part of an expression is a mapping in a list in a mapping
            raise StatementTooLargeError(f"the statement is nested more than {most} levels deep")
        if safety.max_nodes is not None and parts > safety.max_nodes:
            raise StatementTooLargeError(f"the statement has more than {safety.max_nodes} parts")
        level = below


def measure(parsed: Node, made: Mapping[str, Size], safety: Safety) -> Size:
    """Return the size of a query. Raises ``StatementTooLargeError`` or ``NotPermittedError``.

    ``made`` holds the sizes of its scans, views and macros by name.
    """
    found = _Measure(made, safety)
    size = found.query(parsed.get("node", parsed), {})
    found.check(size)
    return Size(size.nodes, size.tables, size.columns, max(1, found.references))


class _Measure:
    def __init__(self, made: Mapping[str, Size], safety: Safety) -> None:
        self._made = made
        self._safety = safety
        self._repeats = 1
        self.references = 0

    def check(self, size: Size) -> None:
        limits = self._safety
        for count, most, what in (
            (size.nodes, limits.max_nodes, "parts"),
            (size.tables, limits.max_tables, "tables"),
            (size.columns, limits.max_columns, "columns"),
        ):
            if most is not None and count > most:
                raise StatementTooLargeError(
                    f"the statement comes to {count} {what} with its common tables, views and macros,"
                    f" {most} are allowed"
                )

    def query(self, node: Node, known: Mapping[str, Size]) -> Size:
        """Return the size of a query node. ``known`` are the common tables that are visible in it."""
        entries = node["cte_map"]["map"] if isinstance(node.get("cte_map"), dict) else []
        nodes = tables = 0
        for entry in entries:
            name, query = fold(entry["key"]), entry["value"]["query"]["node"]
            found = self.query(query, {**known, name: Size(1, 1, 1)})
            known = {**known, name: found}
            nodes, tables = nodes + found.nodes, tables + found.tables
        inner = self._node(node, known)
        total = Size(nodes + inner.nodes, tables + inner.tables, inner.columns)
        self.check(total)
        return total

    def _node(self, node: Node, known: Mapping[str, Size]) -> Size:
        if node.get("type") != "SELECT_NODE":
            parts = [part for key in ("left", "right", "children", "child", "query") for part in _nodes(node.get(key))]
            found = [self.query(part, known) for part in parts]
            sums = [sum(size.nodes for size in found), sum(size.tables for size in found)]
            return Size(sums[0] + 1, sums[1], max((size.columns for size in found), default=1))
        source = self._relation(node["from_table"], known)
        rest = [value for key, value in node.items() if key not in ("from_table", "cte_map", "select_list")]
        nodes, tables = self._parts([node["select_list"], rest], known, source)
        columns = sum(source.columns if _is_star(item) else 1 for item in node["select_list"])
        return Size(nodes + source.nodes, tables + source.tables, max(columns, source.columns))

    def _relation(self, node: Node, known: Mapping[str, Size]) -> Size:
        match node.get("type"):
            case "EMPTY":
                return Size(0, 0, 0)
            case "BASE_TABLE":
                name = fold(node["table_name"])
                return known.get(name) or self._made.get(node["table_name"]) or Size(1, 1, 1)
            case "JOIN":
                left, right = self._relation(node["left"], known), self._relation(node["right"], known)
                nodes, tables = self._parts(node.get("condition"), known, left)
                return Size(
                    left.nodes + right.nodes + nodes,
                    left.tables + right.tables + tables,
                    left.columns + right.columns,
                )
            case "SUBQUERY":
                return self.query(node["subquery"]["node"], known)
            case "TABLE_FUNCTION":
                call = node["function"]
                nodes, tables = self._parts(call["children"], known, Size(0, 0, 1))
                found = self._made.get(call["function_name"], Size(1, 1, _FUNCTION_COLUMNS))
                return Size(found.nodes + found.uses * nodes, found.tables + found.uses * tables, found.columns)
        nodes, tables = self._parts(node, known, Size(0, 0, 1))
        source = node.get("source")
        inner = self._relation(source, known) if isinstance(source, dict) else Size(0, 0, 0)
        return Size(nodes + inner.nodes, tables + inner.tables + 1, inner.columns + nodes)

    def _parts(self, tree: Any, known: Mapping[str, Size], source: Size) -> tuple[int, int]:
        """Return the number of expression parts, and of table references in their subqueries."""
        if isinstance(tree, list):
            found = [self._parts(item, known, source) for item in tree]
            return sum(nodes for nodes, _ in found), sum(tables for _, tables in found)
        if not isinstance(tree, dict):
            return 0, 0
        if tree.get("class") == "CONSTANT":
            return 1, 0
        if isinstance(tree.get("type"), str) and tree["type"] in _QUERIES:
            size = self.query(tree, known)
            return size.nodes, size.tables
        nodes, tables = self._parts(list(tree.values()), known, source)
        if tree.get("class") is None:
            return nodes, tables
        if tree["class"] == "COLUMN_REF":
            self.references += 1
        if tree["class"] == "STAR":
            nodes += source.columns
        if "function_name" in tree:
            self._sized(tree)
            macro = self._made.get(tree["function_name"])
            if macro is not None:
                nodes, tables = macro.nodes + macro.uses * nodes, macro.tables + macro.uses * tables
        if self._safety.max_nodes is not None and nodes > self._safety.max_nodes:
            self.check(Size(nodes, tables, 1))
        return nodes + 1, tables

    def _sized(self, call: Node) -> None:
        """Refuse a call that may create a value larger than the limit, since DuckDB cannot be stopped while it does."""
        most, name = self._safety.max_repeats, fold(call["function_name"])
        if most is None or (name not in _SIZED and name not in _FORMATS):
            return
        arguments = call["children"]
        places = _SIZED.get(name, (0,))
        counts = [_count(arguments[place], name) for place in places if place < len(arguments)]
        if any(count is None for count in counts):
            raise NotPermittedError(
                f'a safe session calls "{name}" with a constant size only', hint=f"least(size, {most}) bounds a size"
            )
        largest = max([1, *(abs(count) for count in counts if count is not None)])
        if name in _MULTIPLYING:
            self._repeats *= largest
        if max(largest, self._repeats) > most:
            raise StatementTooLargeError(f"the statement makes values of more than {most} parts")


_QUERIES = frozenset({"CTE_NODE", "RECURSIVE_CTE_NODE", "SELECT_NODE", "SET_OPERATION_NODE"})


def _nodes(value: Any) -> list[Node]:
    if isinstance(value, list):
        return [item for item in value if isinstance(item, dict)]
    if isinstance(value, dict):
        return [value["node"] if isinstance(value.get("node"), dict) else value]
    return []


def _is_star(node: Node) -> bool:
    return node.get("class") == "STAR"


def _count(node: Node, function: str) -> int | None:
    """Return the size that an argument gives, or None when it depends on the rows."""
    while node.get("class") == "CAST":
        node = node["child"]
    if fold(str(node.get("function_name", ""))) == "least":
        found = [count for child in node["children"] if (count := _count(child, function)) is not None]
        return min(found, default=None)
    constant = constant_of(node)
    if constant is None:
        return None
    if function in _FORMATS:
        text = str(constant.value)
        return None if _VARIABLE_WIDTH.search(text) else max(map(int, _NUMBER.findall(text)), default=1)
    if isinstance(constant.value, int):
        return constant.value
    return 1 if constant.type == "NULL" else None
