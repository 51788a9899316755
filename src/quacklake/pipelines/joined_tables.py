"""Lake tables that a streaming query joins: Spark reads them again in every batch, though the query is planned once."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from sqlglot import exp

from quacklake.extend.names import DEFAULT_SCHEMA, quote
from quacklake.lake import Lake
from quacklake.pipelines.definition import SOURCE_NAME
from quacklake.pipelines.windows import rewrite_for_spark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PUSHDOWN = "spark.sql.python.filterPushdown.enabled"
"""The setting with which Spark plans a table in every batch; without it, the plan of the first batch stays."""


def follow_joined(lake: Lake, session: SparkSession, query: str, prefix: str) -> tuple[str, Collection[str]]:
    """Return a query in Spark's SQL with views in place of lake tables, and the views.

    They are temporary and show the newest rows.
    ``prefix`` keeps the views of several pipelines apart. Views of the lake, and names with a time of their own, stay.
    """
    from quacklake.spark.datasource.source_classes import FORMAT
    from quacklake.spark.lake import register_spark

    defined = {SOURCE_NAME}
    known = lake.handle.view()
    views: dict[tuple[str, str], str] = {}

    def replace_tables(tree: exp.Query) -> exp.Query:
        defined.update(each.alias_or_name.casefold() for each in tree.find_all(exp.CTE))
        for table in list(tree.find_all(exp.Table)):
            schema, name = table.db or DEFAULT_SCHEMA, table.name
            if table.catalog or not name or (not table.db and name.casefold() in defined):
                continue
            if any(table.args.get(given) for given in ("version", "when")) or known.get_table(schema, name) is None:
                continue
            key = schema.casefold(), name.casefold()
            if key not in views:
                register_spark(session, lake, name=prefix)
                views[key] = f"{prefix}_{len(views)}"
                options = {"lake": prefix, "table": f"{quote(schema)}.{quote(name)}", "followLatest": "true"}
                session.read.format(FORMAT).options(**options).load().createOrReplaceTempView(views[key])
            table.replace(exp.alias_(exp.to_table(views[key]), table.alias or name, table=True, quoted=True))
        return tree

    changed = rewrite_for_spark(query, replace_tables)
    return (changed if views else query), views.values()
