"""Translate the query of a view that Spark creates into DuckDB's SQL, in which it is stored.

The translation is checked. It is translated back, using only constructs that are known to mean the same, and the result
must be the original query. Spark compares the plans of both.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from pyspark.errors import PySparkException

from quacklake.engines.duckdb.queries import LAKE
from quacklake.errors import NotFoundError, QuacklakeError, SqlError, UnsupportedFeatureError
from quacklake.format.objects import ViewInfo
from quacklake.spark.runtime.session import is_connect, settings
from quacklake.spark.sql.parsing import to_lake
from quacklake.spark.sql.queries import Rewriter
from quacklake.spark.sql.statement import SqlText, Statement
from quacklake.spark.sql.view_queries import unescaped
from quacklake.sql.statements.objects import own_names

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from quacklake.sql.attached import Target

_WHOLE = {"spark.sql.debug.maxToStringFields": "1000000"}
"""Shows every column and value of a plan."""
_NUMBER = re.compile(r"#(\d+)")
_FAILURE = re.compile(r"[\w$]+(\.[\w$]+)+")
"""The class of an error, which appears in place of a plan."""
_HINT = "make it with lake.sql, in the SQL of DuckDB"


def lake_query(statement: Statement, target: Target, query: str) -> str:
    """Return a Spark query in DuckDB's SQL.

    Raises ``SqlError`` for a query that Spark does not understand, ``NotFoundError`` for an unknown name, and
    ``UnsupportedFeatureError`` for a query that is not known to mean the same in DuckDB.
    """
    if is_connect(statement.engine.session) and "#" in query:
        raise UnsupportedFeatureError("through Spark Connect the query of a view cannot have a #", hint=_HINT)
    rewriter = Rewriter(statement, whole=True)
    written = rewriter.text(query)
    plan = statement.run(written, query)
    try:
        text = to_lake(query, "the query of the view")
        kept = own_names(statement.session, target, text)
        view = ViewInfo(-1, "", -1, target.schema, target.name, kept.replace(LAKE, ""))
        first = len(rewriter.read)
        back = rewriter.translated(view, statement.view())
        sql = f"SELECT * FROM {back.sql}"
        meant = SqlText(sql if rewriter.frames else unescaped(sql), rewriter.frames)
        again = statement.run(meant)
    except NotFoundError:
        raise
    except (QuacklakeError, SqlError) as error:
        raise UnsupportedFeatureError(
            f"the query of the view is not known to mean the same in DuckDB: {error.message}", hint=_HINT
        ) from error
    read = [(table.id, tx.base.id) for table, tx in rewriter.read]
    same = _same(plan, again)
    if same is None:  # on Spark Connect
        plans = {_plan_text(statement, text) for text in (written, meant)}
        same = len(plans) == 1 and sorted(read[:first]) == sorted(read[first:])
    if not same:
        raise UnsupportedFeatureError("the query of the view does not mean the same in DuckDB", hint=_HINT)
    return text


def _same(one: DataFrame, two: DataFrame) -> bool | None:
    """Return True when Spark has the same plan for both; None when it shows no plan but the columns are the same."""
    if [(field.name, field.dataType) for field in one.schema] != [(field.name, field.dataType) for field in two.schema]:
        return False
    if is_connect(one.sparkSession):
        return None
    try:
        plans = [frame._jdf.queryExecution().optimizedPlan() for frame in (one, two)]
    except PySparkException as error:  # Spark evaluates small relations while it plans
        raise _unplanned(str(error).splitlines()[0]) from error
    return bool(plans[0].sameResult(plans[1]))


def _unplanned(message: str) -> UnsupportedFeatureError:
    return UnsupportedFeatureError(f"the query of the view fails on the rows that are there: {message}", hint=_HINT)


def _plan_text(statement: Statement, query: SqlText) -> str:
    """Return the plan of a query as Spark shows it, with columns numbered in order. Tables show only columns."""
    with settings(statement.engine.session, _WHOLE):
        shown = str(statement.run(SqlText(f"EXPLAIN EXTENDED {query.sql}", query.frames)).collect()[0][0])
    plan = shown.partition("== Optimized Logical Plan ==")[2].partition("== Physical Plan ==")[0]
    if not plan.strip() or _FAILURE.match(plan.strip()):
        raise _unplanned((plan.strip() or shown.strip()).splitlines()[0])
    numbers: dict[str, int] = {}
    return _NUMBER.sub(lambda found: f"#{numbers.setdefault(found[1], len(numbers))}", plan)
