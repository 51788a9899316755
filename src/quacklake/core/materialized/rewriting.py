"""Changes to the tree of a view's query: other tables in FROM, further conditions, and only the keys of its rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import duckdb

from quacklake.core.engines.duckdb.trees import Node
from quacklake.core.format.names import fold, quote
from quacklake.core.materialized.query import Branch, selects
from quacklake.core.sql import tree


def expand_stars(query: Node, columns: Mapping[tuple[str, str], Sequence[str]]) -> None:
    """Write out the columns of ``*`` and ``t.*`` in every SELECT whose tables are known and joined without USING.

    A view keeps the columns that its tables had when it was created.
    """
    for node in tree.nodes(query):
        if node.get("type") != "SELECT_NODE":
            continue
        tables = list(_tables(node["from_table"]))
        if not tables or any(table is None for table in tables):
            continue
        items: list[Node] = []
        for item in node["select_list"]:
            items += _expand_star(item, [table for table in tables if table is not None], columns)
        node["select_list"] = items


def _tables(node: Node) -> Sequence[Node | None]:
    if node["type"] == "BASE_TABLE":
        return [node]
    if node["type"] == "JOIN" and not node.get("using_columns") and node.get("ref_type") in ("REGULAR", "CROSS"):
        return [*_tables(node["left"]), *_tables(node["right"])]
    return [None]


def _expand_star(item: Node, tables: Sequence[Node], columns: Mapping[tuple[str, str], Sequence[str]]) -> list[Node]:
    simple = item.get("class") == "STAR" and not item.get("columns") and not item.get("expr")
    if not simple or item.get("qualified_exclude_list") or item.get("rename_list"):
        return [item]
    wanted = fold(item.get("relation_name") or "")
    excluded = {fold(name) for name in item.get("exclude_list") or ()}
    replaced = {fold(entry["key"]): entry["value"] for entry in item.get("replace_list") or ()}
    found: list[Node] = []
    for table in tables:
        alias = table.get("alias") or table["table_name"]
        key = (fold(table["schema_name"]), fold(table["table_name"]))
        if key not in columns or table.get("column_name_alias"):
            return [item]
        if wanted and fold(alias) != wanted:
            continue
        for name in columns[key]:
            if fold(name) in excluded:
                continue
            if fold(name) in replaced:
                found.append({**replaced[fold(name)], "alias": name})
                continue
            column = {
                "class": "COLUMN_REF",
                "type": "COLUMN_REF",
                "alias": "",
                "query_location": item["query_location"],
            }
            found.append({**column, "column_names": [name] if len(tables) == 1 else [alias, name]})
    return found or [item]  # DuckDB says that there is no such table


def with_tables(query: Node, replaced: Callable[[Node], Node | None]) -> Node:
    """Return a copy of a query in which tables are replaced by others, under the same alias."""
    changed = tree.copied(query)
    for node in tree.nodes(changed):
        if node.get("type") == "BASE_TABLE":
            other = replaced(node)
            if other is not None:
                tree.replace(node, other)
    return changed


def at_version(connection: duckdb.DuckDBPyConnection, query: Node, version: int) -> Node:
    """Return a copy of a query that reads its tables at a snapshot."""
    at = relation(connection, f"t AT (VERSION => {version:d})")["at_clause"]
    return with_tables(query, lambda node: {**node, "at_clause": at} if node.get("schema_name") else None)


def with_references(select: Node, others: Mapping[int, Node]) -> Node:
    """Return a copy of a SELECT whose references in FROM, by their places, are replaced."""
    changed = tree.copied(select)
    for place, node in enumerate(_leaves(changed["from_table"])):
        if place in others:
            tree.replace(node, {**others[place], "alias": node.get("alias") or node["table_name"]})
    return changed


def _leaves(node: Node) -> list[Node]:
    return [node] if node["type"] != "JOIN" else [*_leaves(node["left"]), *_leaves(node["right"])]


def temporary(connection: duckdb.DuckDBPyConnection, name: str) -> Node:
    """Return a reference to a temporary relation."""
    return relation(connection, f"temp.main.{quote(name)}")


def relation(connection: duckdb.DuckDBPyConnection, sql: str) -> Node:
    """Return the tree of what FROM has."""
    found: Node = tree.parse(connection, f"SELECT 1 FROM {sql}")["node"]["from_table"]
    return found


def conjoined(connection: duckdb.DuckDBPyConnection, parts: Sequence[Node]) -> Node | None:
    """Return the conjunction of conditions."""
    if len(parts) <= 1:
        return parts[0] if parts else None
    both = tree.expression_of(connection, "a AND b")
    return {**both, "children": list(parts)}


def conjuncts(where: Node | None) -> list[Node]:
    """Return the conditions that AND joins."""
    if where is None:
        return []
    if where.get("type") == "CONJUNCTION_AND":
        return [part for child in where["children"] for part in conjuncts(child)]
    return [where]


def restricted(connection: duckdb.DuckDBPyConnection, select: Node, conditions: Sequence[Node]) -> Node:
    """Return a copy of a SELECT with further conditions."""
    changed = tree.copied(select)
    changed["where_clause"] = conjoined(connection, [*conjuncts(changed.get("where_clause")), *conditions])
    return changed


def within(connection: duckdb.DuckDBPyConnection, values: Sequence[Node], table: str, names: Sequence[str]) -> Node:
    """Return the condition that some values are a row of a temporary table; NULL counts as a value."""
    packed = packing(names)
    node = tree.expression_of(connection, f"{packed} IN (SELECT {packed} FROM temp.main.{quote(table)})")
    call: Node = node["child"]
    call["children"] = [
        {**tree.copied(value), "alias": old["alias"]} for value, old in zip(values, call["children"], strict=True)
    ]
    return node


def packing(values: Sequence[str]) -> str:
    """Return the text of one value made of several: equal when all are equal, NULLs included."""
    return f"struct_pack({', '.join(f'p{n} := {value}' for n, value in enumerate(values))})"


def keys_of(
    connection: duckdb.DuckDBPyConnection,
    select: Node,
    branch: Branch,
    keys: Sequence[Node],
    changed: int,
    others: Mapping[int, Node],
    reads: Callable[[Node], frozenset[int]],
) -> Node:
    """Return the query of the keys, which are expressions, that the changes of one reference touch.

    Tables that an outer join may make NULL are left out, except the changed one, which must match: they decide about no
    key, and without them the keys are no fewer. So are the conditions over all of these, which may hold for NULL.
    """
    made = tree.copied(select)
    core = {place for place, reference in enumerate(branch.references) if reference.core}
    for place, node in enumerate(_leaves(made["from_table"])):
        if place in others:
            tree.replace(node, {**others[place], "alias": node.get("alias") or node["table_name"]})
    made["from_table"] = _prune_joins(made["from_table"], len(branch.references) - 1, core | {changed})
    parts = [part for part in conjuncts(made.get("where_clause")) if reads(part) <= core]
    made["where_clause"] = conjoined(connection, parts)
    made["select_list"] = [{**tree.copied(key), "alias": f"k{at}"} for at, key in enumerate(keys)]
    made["group_expressions"], made["group_sets"], made["modifiers"] = [], [], []
    made["having"] = made["qualify"] = None
    made["aggregate_handling"] = "STANDARD_HANDLING"
    return made


def _prune_joins(node: Node, last: int, kept: set[int]) -> Node:
    if node["type"] != "JOIN":
        return node
    left = _prune_joins(node["left"], last - 1, kept)
    return {**node, "left": left, "join_type": "INNER"} if last in kept else left


def text_of(connection: duckdb.DuckDBPyConnection, expression: Node) -> str:
    """Return the text of an expression."""
    query = tree.query_of(connection, {**expression, "alias": ""})
    return tree.render(connection, query).removeprefix("SELECT ")


def query_text(connection: duckdb.DuckDBPyConnection, select: Node) -> str:
    """Return the text of one SELECT."""
    whole = tree.parse(connection, "SELECT 1")
    whole["node"] = select
    return tree.render(connection, whole)


def branches_of(query: Node) -> list[Node]:
    """Return the SELECTs of a query, which UNION ALL joins."""
    return list(selects(query["node"]))
