"""A view that is made in Spark, in the SQL of DuckDB, in which it is kept.

A translator's word is not enough: what it makes of the query is translated back, which is only done with what is known
to mean the same, and must be the query that was written. Spark itself tells, by the plans of both.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from quacklake.engines.duckdb.queries import LAKE
from quacklake.engines.spark import is_connect
from quacklake.errors import NotFoundError, QuacklakeError, SqlError, UnsupportedFeatureError
from quacklake.format.objects import ViewInfo
from quacklake.sql.spark.queries import Rewriter
from quacklake.sql.spark.statement import Statement, Text
from quacklake.sql.spark.trees import to_lake
from quacklake.sql.spark.view_queries import unescaped
from quacklake.sql.statements.objects import own_names

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from quacklake.sql.attached import Target

__all__ = ["lake_query"]

_HINT = "make it with lake.sql, in the SQL of DuckDB"


def lake_query(statement: Statement, target: Target, query: str) -> str:
    """Return a query of Spark in the SQL of DuckDB.

    Raises ``SqlError`` for one that Spark does not understand, ``NotFoundError`` for a name that nobody knows, and
    ``UnsupportedFeatureError`` for one that is not known to mean the same in DuckDB.
    """
    rewriter = Rewriter(statement, whole=True)
    written = statement.run(rewriter.text(query), query)
    try:
        text = to_lake(query, "the query of the view")
        kept = own_names(statement.session, target, text)
        view = ViewInfo(-1, "", -1, target.schema, target.name, kept.replace(LAKE, ""))
        back = rewriter.translated(view, statement.view())
        sql = f"SELECT * FROM {back.sql}"
        meant = statement.run(Text(sql if rewriter.frames else unescaped(sql), rewriter.frames))
    except NotFoundError:
        raise
    except (QuacklakeError, SqlError) as error:
        raise UnsupportedFeatureError(
            f"the query of the view is not known to mean the same in DuckDB: {error.message}", hint=_HINT
        ) from error
    if not _same(written, meant):
        raise UnsupportedFeatureError("the query of the view does not mean the same in DuckDB", hint=_HINT)
    return text


def _same(one: DataFrame, two: DataFrame) -> bool:
    """Return whether Spark does the same for both."""
    if [(field.name, field.dataType) for field in one.schema] != [(field.name, field.dataType) for field in two.schema]:
        return False
    if is_connect(one.sparkSession):
        return bool(one.sameSemantics(two))
    plans = [frame._jdf.queryExecution().optimizedPlan() for frame in (one, two)]
    return bool(plans[0].sameResult(plans[1]))
