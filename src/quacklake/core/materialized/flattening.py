"""Write a query without common tables, and without subqueries in FROM that only choose rows and columns.

What is left reads tables alone, which is the form that views are followed in. All functions work on DuckDB's tree.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import duckdb

from quacklake.core.engines.duckdb.trees import Node, nodes
from quacklake.core.format.names import fold
from quacklake.core.materialized import rewriting
from quacklake.core.materialized.query import Columns, volatile
from quacklake.core.sql import tree

_STAR_PARTS = ("columns", "expr", "exclude_list", "replace_list", "rename_list", "qualified_exclude_list")


class _NotFlat(Exception):
    """Raised for a query that keeps its subqueries."""


def flattened(
    connection: duckdb.DuckDBPyConnection,
    query: Node,
    columns: Columns,
    aggregates: frozenset[str],
    names: Sequence[str],
) -> Node | None:
    """Return the query over tables alone, with these names of its output columns; None when that cannot be done."""
    if volatile(query) is not None:
        return None  # a common table with random() has one value wherever it is read
    try:
        made = tree.copied(query)
        node = _Flattening(connection, columns, aggregates).node(_inline_common_tables(made["node"], {}))
    except _NotFlat:
        return None
    made["node"] = node
    while node["type"] != "SELECT_NODE":
        node = (node.get("children") or [node["left"]])[0]
    if len(node["select_list"]) != len(names):
        return None
    for item, name in zip(node["select_list"], names, strict=True):
        item["alias"] = name
    return made


def subquery(node: Node, alias: str, names: Sequence[str], like: Node) -> Node:
    """Return a query as a relation in FROM, to replace the reference ``like``."""
    return {
        "type": "SUBQUERY",
        "alias": alias,
        "sample": like.get("sample"),
        "query_location": like["query_location"],
        "subquery": {"node": node, "named_param_map": []},
        "column_name_alias": list(names),
    }


def _inline_common_tables(node: Any, common: Mapping[str, tuple[Node, Sequence[str]]]) -> Any:
    """Return a tree with the queries of common tables where these are named."""
    if isinstance(node, list):
        return [_inline_common_tables(item, common) for item in node]
    if not isinstance(node, dict):
        return node
    if node.get("type") == "BASE_TABLE":
        entry = None if node.get("schema_name") else common.get(fold(node["table_name"]))
        if entry is None:
            return node
        if node.get("at_clause") or node.get("sample") or (entry[1] and node.get("column_name_alias")):
            raise _NotFlat
        names = node.get("column_name_alias") or entry[1]
        return subquery(tree.copied(entry[0]), node.get("alias") or node["table_name"], names, node)
    made = dict(node)
    if isinstance(node.get("cte_map"), dict):
        for entry in node["cte_map"]["map"]:
            query = entry["value"]["query"]["node"]
            if query["type"] == "RECURSIVE_CTE_NODE":
                raise _NotFlat
            common = {
                **common,
                fold(entry["key"]): (_inline_common_tables(query, common), entry["value"].get("aliases") or ()),
            }
        made["cte_map"] = {"map": []}
    return {key: value if key == "cte_map" else _inline_common_tables(value, common) for key, value in made.items()}


@dataclass
class _Relation:
    """A relation in FROM: its output columns in order, by folded name; those of a subquery have expressions."""

    alias: str
    names: list[str]
    values: dict[str, Node] = field(default_factory=dict)
    hidden: frozenset[str] = frozenset()
    """Columns of the tables behind a subquery, which the query around it cannot name."""


@dataclass
class _Flattening:
    connection: duckdb.DuckDBPyConnection
    columns: Columns
    aggregates: frozenset[str]

    def node(self, node: Node) -> Node:
        """Return a query, or a part of UNION ALL, without subqueries in FROM."""
        if node["type"] == "SELECT_NODE":
            return self._select(node)
        if node["type"] != "SET_OPERATION_NODE":
            raise _NotFlat
        if node.get("children"):
            return {**node, "children": [self.node(child) for child in node["children"]]}
        return {**node, "left": self.node(node["left"]), "right": self.node(node["right"])}

    def _select(self, select: Node) -> Node:
        if not any(found.get("type") == "SUBQUERY" for found in nodes(select["from_table"])):
            return select
        if any(found.get("class") == "SUBQUERY" for found in nodes({**select, "from_table": None})):
            raise _NotFlat
        leaves: list[_Relation] = []
        wheres: list[Node] = []
        source = self._source(select["from_table"], leaves, wheres, nullable=False)
        if len({fold(leaf.alias) for leaf in leaves}) != len(leaves):
            raise _NotFlat
        made = {**select, "from_table": _conditions(source, leaves)}
        made["select_list"] = [_name_item(item, leaves) for item in _starless(select["select_list"], leaves)]
        for key in ("where_clause", "group_expressions", "having", "qualify", "modifiers"):
            made[key] = _replace_columns(select[key], leaves)
        made["group_expressions"] = [_remove_alias(each, made["select_list"]) for each in made["group_expressions"]]
        parts = [*rewriting.conjuncts(made["where_clause"]), *wheres]
        made["where_clause"] = rewriting.conjoined(self.connection, parts)
        return made

    def _source(self, node: Node, leaves: list[_Relation], wheres: list[Node], *, nullable: bool) -> Node:
        """Return FROM with tables for subqueries; collect the relations and the conditions of the subqueries."""
        if node["type"] == "BASE_TABLE":
            key = (fold(node["schema_name"]), fold(node["table_name"]))
            if node.get("column_name_alias") or node.get("at_clause") or key not in self.columns:
                raise _NotFlat
            leaves.append(_Relation(node.get("alias") or node["table_name"], list(self.columns[key])))
            return node
        if node["type"] == "JOIN":
            left = node["join_type"] == "LEFT"
            if not left and node["join_type"] != "INNER":
                raise _NotFlat
            if node.get("using_columns") or node.get("ref_type") not in ("REGULAR", "CROSS"):
                raise _NotFlat
            first = self._source(node["left"], leaves, wheres, nullable=nullable)
            second = self._source(node["right"], leaves, wheres, nullable=nullable or left)
            if second["type"] == "JOIN":
                raise _NotFlat
            return {**node, "left": first, "right": second}
        if node["type"] != "SUBQUERY" or nullable or node.get("sample"):
            raise _NotFlat
        return self._open_subquery(node, leaves, wheres)

    def _open_subquery(self, node: Node, leaves: list[_Relation], wheres: list[Node]) -> Node:
        inner = self.node(node["subquery"]["node"])
        if inner["type"] != "SELECT_NODE" or not self._only_chooses(inner):
            raise _NotFlat
        inside: list[_Relation] = []
        source = self._source(inner["from_table"], inside, [], nullable=False)
        alias = node.get("alias") or "unnamed_subquery"  # as DuckDB calls it
        renamed = {fold(leaf.alias): alias if len(inside) == 1 else f"{alias}_{leaf.alias}" for leaf in inside}
        parts: list[Any] = _rename_aliases([source, inner["select_list"], inner["where_clause"]], inside, renamed)
        items, where = parts[1:]
        given = list(node.get("column_name_alias") or ())
        names = [given[at] if at < len(given) else _title(item) for at, item in enumerate(inner["select_list"])]
        values = {fold(name): item for name, item in zip(names, items, strict=True) if name}
        if len(values) != len(names):
            raise _NotFlat  # two columns of one name, or one without a name
        hidden = frozenset(fold(name) for leaf in inside for name in leaf.names)
        leaves.append(_Relation(alias, names, values, hidden))
        wheres += rewriting.conjuncts(where)
        opened: Node = parts[0]
        return opened

    def _only_chooses(self, select: Node) -> bool:
        """Return whether each row of a subquery is made from one row of its relations, and keeps no order."""
        if select["modifiers"] or select["group_expressions"] or select.get("having") or select.get("qualify"):
            return False
        if select.get("sample") or select["aggregate_handling"] != "STANDARD_HANDLING":
            return False
        return not any(
            found.get("class") in ("WINDOW", "SUBQUERY", "STAR", "LAMBDA")
            or fold(str(found.get("function_name", ""))) in self.aggregates | {"unnest", "unlist"}
            for found in nodes([select["select_list"], select["where_clause"]])
        )


def _title(item: Node) -> str:
    if item.get("alias"):
        return str(item["alias"])
    return str(item["column_names"][-1]) if item.get("class") == "COLUMN_REF" else ""


def _starless(items: Sequence[Node], leaves: Sequence[_Relation]) -> list[Node]:
    """Return the items of SELECT with the columns that a star stands for."""
    found: list[Node] = []
    for item in items:
        if item.get("class") != "STAR":
            found.append(item)
            continue
        if any(item.get(part) for part in _STAR_PARTS):
            raise _NotFlat
        wanted = fold(item.get("relation_name") or "")
        for leaf in leaves:
            if not wanted or fold(leaf.alias) == wanted:
                found += [_column([leaf.alias, name], item) for name in leaf.names]
    return found


def _column(names: Sequence[str], like: Node) -> Node:
    place = like["query_location"]
    return {
        "class": "COLUMN_REF",
        "type": "COLUMN_REF",
        "alias": "",
        "query_location": place,
        "column_names": list(names),
    }


def _name_item(item: Node, leaves: Sequence[_Relation]) -> Node:
    made: Node = _replace_columns(item, leaves)
    return {**made, "alias": _title(item)}


def _remove_alias(group: Node, items: Sequence[Node]) -> Node:
    """Return a grouping expression that names no item: a table may get a column of that name."""
    names: list[str] = group["column_names"] if group.get("class") == "COLUMN_REF" else []
    for item in items if len(names) == 1 else ():
        if fold(item["alias"]) == fold(names[0]):
            return {**tree.copied(item), "alias": ""}
    return group


def _conditions(node: Node, leaves: Sequence[_Relation]) -> Node:
    """Return FROM with the conditions of its joins over the tables that are there now."""
    if node["type"] != "JOIN":
        return node
    return {
        **node,
        "left": _conditions(node["left"], leaves),
        "right": _conditions(node["right"], leaves),
        "condition": _replace_columns(node.get("condition"), leaves),
    }


def _replace_columns(node: Any, leaves: Sequence[_Relation]) -> Any:
    """Return an expression with the values of subqueries where it names their columns."""
    if isinstance(node, list):
        return [_replace_columns(item, leaves) for item in node]
    if not isinstance(node, dict):
        return node
    if node.get("class") == "LAMBDA":
        raise _NotFlat
    if node.get("class") != "COLUMN_REF":
        return {key: _replace_columns(value, leaves) for key, value in node.items()}
    given = list(node["column_names"])
    named = [leaf for leaf in leaves if len(given) > 1 and fold(leaf.alias) == fold(given[0])]
    holders = [leaf for leaf in leaves if fold(given[0]) in map(fold, leaf.names)]
    if named and holders:
        raise _NotFlat
    if not named and not holders:  # the name of another item
        if any(fold(given[0]) in leaf.hidden for leaf in leaves):
            raise _NotFlat
        return node
    if len(named or holders) > 1:
        raise _NotFlat
    leaf, path = (named[0], given[1:]) if named else (holders[0], given)
    if not leaf.values:
        return {**node, "column_names": [leaf.alias, *path]}
    if fold(path[0]) not in leaf.values:
        raise _NotFlat
    value = tree.copied(leaf.values[fold(path[0])])
    if len(path) > 1:
        if value.get("class") != "COLUMN_REF":
            raise _NotFlat
        value["column_names"] = [*value["column_names"], *path[1:]]
    return {**value, "alias": node.get("alias", "")}


def _rename_aliases(parts: Any, leaves: Sequence[_Relation], names: Mapping[str, str]) -> Any:
    """Return parts of a subquery whose tables have other aliases, which all columns say."""
    if isinstance(parts, list):
        return [_rename_aliases(item, leaves, names) for item in parts]
    if not isinstance(parts, dict):
        return parts
    if parts.get("type") == "BASE_TABLE":
        return {**parts, "alias": names[fold(parts.get("alias") or parts["table_name"])]}
    if parts.get("class") != "COLUMN_REF":
        return {key: _rename_aliases(value, leaves, names) for key, value in parts.items()}
    given = list(parts["column_names"])
    holders = [leaf for leaf in leaves if fold(given[0]) in map(fold, leaf.names)]
    if len(given) > 1 and fold(given[0]) in names:
        if holders:
            raise _NotFlat
        return {**parts, "column_names": [names[fold(given[0])], *given[1:]]}
    if len(holders) != 1:
        raise _NotFlat
    return {**parts, "column_names": [names[fold(holders[0].alias)], *given]}
