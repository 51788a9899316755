"""Analyze queries: which columns are keys, what merges, and why a query cannot be followed."""

from __future__ import annotations

import duckdb
import pytest

from quacklake.core.engines.duckdb.trees import serialize
from quacklake.core.materialized.determinism import aggregates
from quacklake.core.materialized.query import Analysis, analyze, base_tables, bucket, selects

COLUMNS = {("main", "t"): ["id", "k", "g", "ts", "x"], ("main", "d"): ["id", "name"], ("main", "e"): ["id", "v"]}


def analyzed(query: str) -> Analysis:
    with duckdb.connect() as connection:
        tree = serialize(connection, query)["statements"][0]
    for node in base_tables(tree):
        node["schema_name"] = "main"
    return analyze(tree, COLUMNS, aggregates())


@pytest.mark.parametrize(
    ("query", "way", "keys"),
    [
        ("SELECT id, x FROM t WHERE x > 1", "rows", (0, 1)),
        ("SELECT k, x FROM t UNION ALL SELECT name, id FROM d", "rows", (0, 1)),
        ("SELECT k, sum(x) FROM t GROUP BY k", "groups", (0,)),
        ("SELECT sum(x), k FROM t GROUP BY ALL", "groups", (1,)),
        ("SELECT k AS a, date_trunc('hour', ts) AS h, count(*) FROM t GROUP BY a, h", "groups", (0, 1)),
        ("SELECT k, g, count(*) FROM t GROUP BY 1, 2", "groups", (0, 1)),
        ("SELECT g, median(x) FROM t GROUP BY k, g", "groups", (0,)),
        ("SELECT DISTINCT k, x FROM t", "groups", (0, 1)),
        ("SELECT count(*) FROM t", "groups", ()),
        ("SELECT t.k, d.name, count(*) FROM t JOIN d ON t.id = d.id GROUP BY ALL", "groups", (0, 1)),
        ("SELECT t.k, d.name, count(*) FROM t LEFT JOIN d ON t.id = d.id GROUP BY ALL", "groups", (0,)),
        ("SELECT t.k, name FROM t LEFT JOIN d USING (id)", "groups", (0,)),
        ("SELECT k, x, rank() OVER (PARTITION BY k ORDER BY x) FROM t", "groups", (0,)),
        ("SELECT k, sum(x) FROM t GROUP BY k UNION ALL SELECT name, 1 FROM d", "groups", (0,)),
        ("SELECT k, list(x ORDER BY x) FROM t GROUP BY k", "groups", (0,)),
        ("SELECT id, x FROM t ORDER BY x", "rows", (0, 1)),
    ],
)
def test_keys_are_the_output_columns_that_tell_groups_apart(query: str, way: str, keys: tuple[int, ...]) -> None:
    found = analyzed(query)
    assert (found.reason, found.way, found.keys) == (None, way, keys)


@pytest.mark.parametrize(
    ("query", "merges"),
    [
        ("SELECT k, sum(x), count(*), min(x), max(x) FROM t GROUP BY k", True),
        ("SELECT k, sum(x) AS s, count(x) AS n, avg(x) FROM t GROUP BY k", True),
        ("SELECT k, count(*) FILTER (x > 1) FROM t GROUP BY k", True),
        ("SELECT count(*) FROM t", True),
        ("SELECT d.name, count(*) FROM t LEFT JOIN d ON t.id = d.id GROUP BY ALL", True),
        ("SELECT k, avg(x) FROM t GROUP BY k", False),
        ("SELECT k, count(DISTINCT x) FROM t GROUP BY k", False),
        ("SELECT k, sum(x) + 1 FROM t GROUP BY k", False),
        ("SELECT k, sum(x) FROM t GROUP BY k HAVING sum(x) > 1", False),
        ("SELECT k, sum(x) FROM t GROUP BY k, g", False),
    ],
)
def test_aggregates_merge_when_the_output_has_all_they_need(query: str, merges: bool) -> None:
    assert analyzed(query).branches[0].mergeable is merges


@pytest.mark.parametrize(
    ("query", "reason"),
    [
        ("SELECT uuid() FROM t", "uuid"),
        ("SELECT current_date FROM t", "current_date"),
        ("SELECT id FROM t TABLESAMPLE 3", "sample"),
        ("SELECT id FROM t LIMIT 1", "LIMIT"),
        ("SELECT DISTINCT ON (k) id FROM t", "DISTINCT ON"),
        ("SELECT k, first(x) FROM t GROUP BY k", "order"),
        ("SELECT id FROM t INTERSECT SELECT id FROM d", "UNION ALL"),
        ("SELECT id FROM (SELECT id FROM t)", "subqueries"),
        ("SELECT x FROM t QUALIFY row_number() OVER () = 1", "QUALIFY"),
        ("SELECT t.k, e.v FROM t LEFT JOIN d ON t.id = d.id JOIN e ON e.id = d.id", "outer join"),
        ("SELECT d.name, median(t.x) FROM t LEFT JOIN d ON t.id = d.id GROUP BY d.name", "no output column"),
        ("SELECT k, grouping(k), count(*) FROM t GROUP BY CUBE (k)", "CUBE"),
        ("SELECT id FROM t AT (VERSION => 3)", "AT"),
        ("SELECT id, row_number() OVER (ORDER BY id) FROM t", "no output column"),
    ],
)
def test_what_cannot_be_followed_has_a_reason(query: str, reason: str) -> None:
    found = analyzed(query)
    assert found.way == "full" and reason in str(found.reason)


@pytest.mark.parametrize(
    ("expression", "width"),
    [
        ("date_trunc('hour', ts)", "INTERVAL 1 HOUR"),
        ("CAST(ts AS DATE)", "INTERVAL 1 DAY"),
        ("time_bucket(INTERVAL '15 minutes', ts)", "INTERVAL '15 minutes'"),
        ("time_bucket(INTERVAL 2 DAYS, ts)", "to_days(2)"),
        ("date_trunc('hour', ts + INTERVAL 1 DAY)", None),
        ("date_trunc('century', ts)", None),
        ("year(ts)", None),
    ],
)
def test_a_bucket_is_a_range_of_times(expression: str, width: str | None) -> None:
    with duckdb.connect() as connection:
        (select,) = selects(serialize(connection, f"SELECT {expression} FROM t")["statements"][0]["node"])
    found = bucket(select["select_list"][0])
    assert (None if found is None else found[1]) == width
