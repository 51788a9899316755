"""Lake tables that a streaming query joins: Spark reads them again in every batch, though the query is planned once."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlglot import exp

from quacklake.format.names import quote
from quacklake.lake import Lake
from quacklake.operations.reference import DEFAULT_SCHEMA
from quacklake.pipelines.definition import SOURCE_NAME
from quacklake.pipelines.windows import parse_query

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PUSHDOWN = "spark.sql.python.filterPushdown.enabled"
"""The setting with which Spark plans a table in every batch; without it, the plan of the first batch stays."""


def follow_joined(lake: Lake, session: SparkSession, query: str, prefix: str) -> str:
    """Return a query in Spark's SQL in which temporary views that show the newest rows stand for lake tables.

    ``prefix`` keeps the views of several pipelines apart. Views of the lake, and names with a time of their own, stay.
    """
    from quacklake.spark.datasource.source_classes import FORMAT
    from quacklake.spark.lake import register_spark

    tree = parse_query(query, "spark")
    defined = {SOURCE_NAME, *(each.alias_or_name.casefold() for each in tree.find_all(exp.CTE))}
    known = lake.handle.view()
    views: dict[tuple[str, str], str] = {}
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
    return tree.sql(dialect="spark") if views else query
