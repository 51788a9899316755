"""Write the query of a view so that it has one answer, where DuckDB may give any of several.

Of the spellings that a collation joins, a group shows the least. Rows that are equal in an ORDER BY are ordered further
by whatever else the SELECT reads of them, so that only rows that are the same can change places. What is written is one
of the answers of the query, and the same one whenever and from whichever rows it is computed.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import duckdb

from quacklake.core.engines.duckdb.expressions import parser
from quacklake.core.engines.duckdb.trees import Node, bare, constant_of
from quacklake.core.format.names import fold
from quacklake.core.materialized.collations import EXACT, collation_of, spelling
from quacklake.core.materialized.ordering import open_orders
from quacklake.core.materialized.query import NotIncremental, selects
from quacklake.core.sql import tree


@lru_cache(maxsize=1)
def aggregates() -> frozenset[str]:
    """Return the names of DuckDB's aggregates."""
    with parser() as connection:
        rows = connection.execute(
            "SELECT DISTINCT function_name FROM duckdb_functions() WHERE function_type = 'aggregate'"
        ).fetchall()
    return frozenset(str(row[0]) for row in rows)


def determined(connection: duckdb.DuckDBPyConnection, query: Node, aggregates: frozenset[str]) -> Node:
    """Return a query that has one answer, as far as it can be written so."""
    made = tree.copied(query)
    try:
        branches = list(selects(made["node"]))
    except NotIncremental:
        return query
    for select in branches:
        _show_least_spellings(connection, select, aggregates)
        _order_further(connection, select, aggregates)
    return made


def _show_least_spellings(connection: duckdb.DuckDBPyConnection, select: Node, aggregates: frozenset[str]) -> None:
    items: list[Node] = select["select_list"]
    if all(collation_of(item) == EXACT for item in items):
        return
    if not select["group_expressions"] and select["aggregate_handling"] != "FORCE_AGGREGATES":
        if not any(modifier["type"] == "DISTINCT_MODIFIER" for modifier in select["modifiers"]):
            select["select_list"] = [spelling(item) for item in items]  # each row shows its own
            return
        if not _is_plain_distinct(select, aggregates):
            return
        select["modifiers"] = []
        select["group_expressions"] = [{**tree.copied(item), "alias": ""} for item in items]
        select["group_sets"] = [list(range(len(items)))]
    groups = [_written_out(group, items) for group in select["group_expressions"]]
    known = [bare(group) for group in groups]
    made = []
    for item in items:
        if collation_of(item) != EXACT and bare({**item, "alias": ""}) in known:
            least = tree.expression_of(connection, "min(x)")
            item = {**least, "children": [{**spelling(item), "alias": ""}], "alias": item.get("alias", "")}
        made.append(item)
    select["select_list"], select["group_expressions"] = made, groups


def _is_plain_distinct(select: Node, aggregates: frozenset[str]) -> bool:
    """Return whether nothing but DISTINCT groups the rows of a SELECT."""
    names = aggregates | {"unnest", "unlist"}
    return (
        all(modifier["type"] in ("DISTINCT_MODIFIER", "ORDER_MODIFIER") for modifier in select["modifiers"])
        and not any(modifier.get("distinct_on_targets") for modifier in select["modifiers"])
        and not select.get("having")
        and not select.get("qualify")
        and not any(
            node.get("class") in ("WINDOW", "STAR") or fold(str(node.get("function_name", ""))) in names
            for node in tree.nodes(select["select_list"])
        )
    )


def _written_out(group: Node, items: Sequence[Node]) -> Node:
    """Return a grouping expression; for the number of an item with a collation, that item."""
    constant = constant_of(group)
    if constant is not None and isinstance(constant.value, int) and 0 < constant.value <= len(items):
        item = items[constant.value - 1]
        if collation_of(item) != EXACT:
            return {**tree.copied(item), "alias": ""}
    return group


def _order_further(connection: duckdb.DuckDBPyConnection, select: Node, aggregates: frozenset[str]) -> None:
    for found in list(open_orders(select, aggregates)):
        like = tree.expression_of(connection, "lag(x) OVER (ORDER BY x ASC NULLS LAST)")["orders"][0]
        known = [bare(order["expression"]) for order in found.first]
        found.orders.extend(tree.copied(order) for order in found.first)
        found.orders.extend(
            {**like, "expression": tree.copied(part)} for part in found.lacking if bare(part) not in known
        )
