"""Windows over time in the SQL of streams: TUMBLE, HOP and SESSION, in the words of Spark."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import sqlglot
from sqlglot import exp

from quacklake.errors import SqlError
from quacklake.spark.runtime.words import hide_calls, show_calls

_SESSION = "SESSION_OF"
_KINDS = {"TUMBLE": 2, "HOP": 3, "SESSION": 2, _SESSION: 2}
#: Functions that sqlglot would write as percentile_approx.
_EXACT = ("PERCENTILE_CONT", "PERCENTILE_DISC")
_EDGES = {"_START": "start", "_END": "end"}


def spark_query(query: str) -> str:
    """Return a query with Spark's windows in place of TUMBLE, HOP and SESSION. Raise ``SqlError``.

    ``TUMBLE(ts, INTERVAL '1' MINUTE)`` groups rows by minutes, ``HOP(ts, slide, size)`` by windows that overlap,
    ``SESSION(ts, gap)`` by pauses. ``TUMBLE_START(…)`` and ``TUMBLE_END(…)`` are the edges of a window.

    >>> spark_query("SELECT TUMBLE_START(ts, INTERVAL '1' MINUTE) AS t FROM source")
    "SELECT WINDOW(ts, '1 MINUTE').start AS t FROM source"
    """
    return rewrite_for_spark(query, lambda tree: tree.transform(_translate_node))


def rewrite_for_spark(query: str, change: Callable[[exp.Query], exp.Expr]) -> str:
    """Return a query in Spark's SQL after a change of its tree.

    Exact percentiles stay exact.

    >>> rewrite_for_spark("SELECT percentile_cont(0.5) WITHIN GROUP (ORDER BY x) FROM t", lambda tree: tree.limit(1))
    'SELECT PERCENTILE_CONT(0.5) WITHIN GROUP (ORDER BY x) FROM t LIMIT 1'
    """
    tree = change(parse_query(hide_calls(query, _EXACT), "spark"))
    return show_calls(tree.sql(dialect="spark"), _EXACT)


def parse_query(query: str, dialect: str) -> exp.Query:
    """Return the tree of a query. Raise ``SqlError`` for anything else."""
    try:
        tree = sqlglot.parse_one(_without_keyword(query, dialect), dialect=dialect)
    except sqlglot.errors.SqlglotError as error:
        raise SqlError(f"the query of the pipeline cannot be parsed: {str(error).splitlines()[0]}") from None
    if not isinstance(tree, exp.Query):
        raise SqlError("the query of a pipeline is a SELECT")
    return tree


def _without_keyword(query: str, dialect: str) -> str:
    """Return a query with another name for the function SESSION, which the parser takes for a keyword."""
    tokens = sqlglot.tokenize(query, read=dialect)
    for token, following in reversed(list(pairwise(tokens))):
        if token.text.upper() == "SESSION" and following.text == "(" and query[token.start] not in "\"`'":
            query = f"{query[: token.start]}{_SESSION}{query[token.end + 1 :]}"
    return query


def _translate_node(node: exp.Expression) -> exp.Expression:
    if not isinstance(node, exp.Anonymous):
        return node
    name = node.name.upper()
    edge = next((edge for ending, edge in _EDGES.items() if name.endswith(ending)), None)
    kind = name.removesuffix("_START").removesuffix("_END")
    if kind not in _KINDS:
        return node
    column, *spans = node.expressions
    if len(spans) + 1 != _KINDS[kind]:
        raise SqlError(f"{name} has {_KINDS[kind]} arguments", hint=f"{kind}(ts, INTERVAL '1' MINUTE)")
    texts = [_span(span, name) for span in spans]
    if kind == "HOP":  # the slide comes first, and last in Spark
        texts.reverse()
    made = exp.Anonymous(
        this="session_window" if kind in ("SESSION", _SESSION) else "window", expressions=[column, *texts]
    )
    return made if edge is None else exp.Dot(this=made, expression=exp.to_identifier(edge))


def _span(node: exp.Expression, name: str) -> exp.Expression:
    if isinstance(node, exp.Literal) and node.is_string:
        return node
    if isinstance(node, exp.Interval) and isinstance(node.this, exp.Literal) and node.unit is not None:
        return exp.Literal.string(f"{node.this.name} {node.unit.name}")
    raise SqlError(f"{name}: {node.sql()} is not an interval", hint="INTERVAL '1' MINUTE")
