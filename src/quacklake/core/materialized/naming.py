"""Settle what the names in a query mean, so that columns that its tables get later change nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from quacklake.core.engines.duckdb.trees import Node
from quacklake.core.format.names import fold
from quacklake.core.materialized.query import Columns, NotIncremental, selects
from quacklake.core.sql import tree

_OPAQUE = ("LAMBDA", "SUBQUERY")
"""Expressions with names of their own."""


def settled(query: Node, columns: Columns, names: Sequence[str]) -> Node:
    """Return a query whose columns are named with their tables, and whose aliases are written out.

    ``names`` are the names of its output columns. A SELECT from anything but tables stays as it is.
    """
    made = tree.copied(query)
    try:
        branches = list(selects(made["node"]))
    except NotIncremental:
        return query
    for number, select in enumerate(branches):
        relations = _relations(select["from_table"], columns)
        if relations is not None:
            _Settling(relations, _using(select["from_table"])).settle(select, names if number == 0 else ())
    return made


def _relations(node: Node, columns: Columns) -> dict[str, tuple[str, frozenset[str]]] | None:
    """Return the alias and the columns of each table in FROM, by folded alias; None for anything else in FROM."""
    if node["type"] == "JOIN":
        left, right = (_relations(node[side], columns) for side in ("left", "right"))
        if left is None or right is None or not left.keys().isdisjoint(right):
            return None
        return left | right
    if node["type"] != "BASE_TABLE" or node.get("column_name_alias"):
        return None
    known = columns.get((fold(node["schema_name"]), fold(node["table_name"])))
    alias = node.get("alias") or node["table_name"]
    return None if known is None else {fold(alias): (alias, frozenset(map(fold, known)))}


def _using(node: Node) -> frozenset[str]:
    if node["type"] != "JOIN":
        return frozenset()
    return _using(node["left"]) | _using(node["right"]) | {fold(name) for name in node.get("using_columns") or ()}


class _Settling:
    """Settles the names of one SELECT."""

    def __init__(self, relations: Mapping[str, tuple[str, frozenset[str]]], using: frozenset[str]) -> None:
        self.relations = relations
        self.using = using

    def settle(self, select: Node, names: Sequence[str]) -> None:
        aliased: dict[str, Node] = {}
        items = []
        for place, item in enumerate(select["select_list"]):
            made = self.of(item, aliased)
            if item.get("class") != "COLUMN_REF" and not item.get("alias") and place < len(names):
                made = {**made, "alias": names[place]}  # its name was its text
            elif item.get("class") == "COLUMN_REF" and not item.get("alias"):
                made = {**made, "alias": item["column_names"][-1]}
            items.append(made)
            if item.get("alias"):
                aliased.setdefault(fold(item["alias"]), {**made, "alias": ""})
        select["select_list"] = items
        for key in ("where_clause", "group_expressions"):
            select[key] = self.of(select[key], aliased)
        # in HAVING an alias comes before a column: it means the same whatever columns there are
        select["having"] = self.of(select["having"], {}, kept=frozenset(aliased))
        self._conditions(select["from_table"])

    def _conditions(self, node: Node) -> None:
        if node["type"] == "JOIN":
            self._conditions(node["left"])
            self._conditions(node["right"])
            if node.get("condition"):
                node["condition"] = self.of(node["condition"], {})

    def of(self, node: Any, aliased: Mapping[str, Node], kept: frozenset[str] = frozenset()) -> Any:
        """Return an expression, or several; a name is that of a column before it is that of an item."""
        if isinstance(node, list):
            return [self.of(each, aliased, kept) for each in node]
        if not isinstance(node, dict) or node.get("class") in _OPAQUE:
            return node
        if node.get("class") != "COLUMN_REF":
            return {key: self.of(value, aliased, kept) for key, value in node.items()}
        names = node["column_names"]
        first = fold(names[0])
        if first in self.relations or first in self.using or (len(names) == 1 and first in kept):
            return node
        holders = [alias for alias, known in self.relations.values() if first in known]
        if len(holders) == 1:
            return {**node, "column_names": [holders[0], *names]}
        if not holders and len(names) == 1 and first in aliased:
            return {**tree.copied(aliased[first]), "alias": node.get("alias", "")}
        return node
