"""The text of a view's query in the form that is translated for Spark."""

from __future__ import annotations

from collections.abc import Sequence

import duckdb

from quacklake.core.engines.duckdb.trees import Node
from quacklake.core.format.names import fold, quote
from quacklake.core.materialized import rewriting
from quacklake.core.materialized.query import Branch, Reference
from quacklake.core.sql import tree

FEEDS = "ql_feeds"
"""The schema under which a query for Spark names the rows that came."""


def for_spark(connection: duckdb.DuckDBPyConnection, select: Node, branch: Branch) -> Node:
    """Return a SELECT that writes out its groups and USING, without an order: the rows of a table have none."""
    made = _without_using(connection, select, branch.references)
    made["modifiers"] = [each for each in made["modifiers"] if each["type"] == "DISTINCT_MODIFIER"]
    if made["aggregate_handling"] == "FORCE_AGGREGATES":
        items = [item for item, given in zip(made["select_list"], branch.items, strict=True) if given.key]
        made["aggregate_handling"] = "STANDARD_HANDLING"
        made["group_expressions"] = [{**item, "alias": ""} for item in items]
        made["group_sets"] = [list(range(len(items)))] if items else []
    return made


def _without_using(connection: duckdb.DuckDBPyConnection, select: Node, references: Sequence[Reference]) -> Node:
    """Return a copy of a SELECT whose joins say ON; a column of USING is that of the left side, as in these joins."""
    made = tree.copied(select)
    owners: dict[str, str] = {}
    node, place = made["from_table"], len(references) - 1
    while node["type"] == "JOIN":
        parts = []
        for name in node.get("using_columns") or ():
            owner = next(each for each in references[:place] if fold(name) in each.columns)
            owners[fold(name)] = owner.alias
            sides = (f"{quote(each.alias)}.{quote(name)}" for each in (owner, references[place]))
            parts.append(tree.expression_of(connection, " = ".join(sides)))
        if parts:
            node["using_columns"], node["condition"] = [], rewriting.conjoined(connection, parts)
        node, place = node["left"], place - 1
    for each in tree.nodes(made) if owners else ():
        names = each.get("column_names") if each.get("class") == "COLUMN_REF" else None
        if names and fold(names[0]) in owners:
            each["column_names"] = [owners[fold(names[0])], *names]
    return made
