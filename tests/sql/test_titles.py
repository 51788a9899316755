"""The titles of columns, shown and stored, are those that DuckDB gives on plain tables."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import duckdb
import pytest

import quacklake
from quacklake.core.sql.titles import items_of
from tests import seeds
from tests.prove.twins import Twins

_SETUP = (
    "CREATE SCHEMA s1",
    "CREATE TABLE t (x INTEGER, st STRUCT(x INTEGER, y INTEGER), t INTEGER)",
    "INSERT INTO t VALUES (1, {'x': 10, 'y': 20}, 5), (2, {'x': 30, 'y': 4}, 6)",
    "CREATE TABLE s1.t (x INTEGER, id INTEGER)",
    "INSERT INTO s1.t VALUES (100, 7)",
    "CREATE MACRO inc(x) AS x + 1",
    "CREATE MACRO s1.dbl(x) AS x * 2",
    "CREATE MACRO inc_twice(x) AS inc(inc(x))",
    "CREATE MACRO rows_of(n) AS TABLE SELECT inc(x), 9.50, x::DECIMAL(9, 2) FROM t WHERE x < n",
    "CREATE VIEW inner_view AS SELECT inc(x), max(main.t.x) OVER (), 1e0 FROM t",
)
_QUERIES = (
    "SELECT inc(x), inc_twice(x), s1.dbl(x), lake.s1.dbl(inc(x)) + 1 FROM t",
    "SELECT *, inc(x) FROM t",
    "SELECT * FROM (SELECT inc(x), max(main.t.x), count(*) FROM t GROUP BY ALL)",
    "WITH c AS (SELECT inc(x), 1e0, 9.50 FROM t) SELECT * FROM c",
    "SELECT max(s1.t.id), min(s1.t.x) FROM s1.t",
    "SELECT (SELECT count(*) FROM t), (SELECT max(x) FROM t) + 1",
    "SELECT * FROM (SELECT (SELECT count(*) FROM t), 5)",
    "SELECT x IN (SELECT x FROM s1.t), EXISTS (FROM t), NOT EXISTS (SELECT inc(x) FROM t) FROM t",
    "SELECT main.t.x, t.x + main.t.x, lake.main.t.x + 1 FROM t",
    "SELECT main.t.x + 1, s1.t.x + 1 FROM t JOIN s1.t ON true",
    "SELECT inc(x)::DECIMAL(9,2), CAST(inc(x) AS INTEGER), inc(x)::DOUBLE, inc(x)::VARCHAR || 'it''s' FROM t",
    "SELECT 2 UNION ALL BY NAME SELECT inc(x) FROM t",
    "SELECT inc(x), count(*) FROM t GROUP BY ALL ORDER BY inc(x)",
    "SELECT [inc(v) FOR v IN [x]], list_transform([x], lambda v: inc(v)) FROM t",
    "SELECT CASE WHEN inc(x) > 2 THEN 'a' END, inc(x) BETWEEN 1 AND 2, -inc(x), NOT inc(x) = 2 FROM t",
    "FROM t SELECT inc(x) AS y, inc(y)",
    "SELECT DISTINCT ON (inc(x)) inc(x), x FROM t ORDER BY ALL",
    "SELECT inc(x) /* , */ , inc( x ), inc(x) -- FROM\n FROM t",
    "SELECT inc(x) IS DISTINCT FROM 1, extract(year FROM DATE '2020-01-01') + inc(x) FROM t",
    "SELECT count(*) FILTER (inc(x) > 1), sum(inc(x)) FILTER (WHERE x > 0), list(inc(x) ORDER BY x) FROM t",
    "SELECT sum(inc(x)) OVER (PARTITION BY t ORDER BY x ROWS UNBOUNDED PRECEDING) FROM t",
    "SELECT struct_pack(a := inc(x)), {'a': inc(x)}, [inc(x)], unnest([inc(x)]) FROM t",
    'SELECT \'ä€\' || inc(x), "t"."x" + inc("x"), INC(x), T.X FROM t',
    "SELECT st.x, inc(st.x), t.st.y, inc(main.t.st.y), max(st.x) OVER () FROM t",
    "SELECT * FROM inner_view",
    "SELECT * FROM (SELECT * FROM inner_view), rows_of(3)",
    "SELECT 1e400, 1e0, .5, 1_000, 0x1F, INTERVAL 1 DAY, DATE '2020-01-01', inc(1) FROM t",
    "SELECT current_setting('ducklake_max_retry_count')",
    "PIVOT (SELECT inc(x) AS y, t FROM t) ON t USING sum(y)",
    "PIVOT (SELECT inc(x), t FROM t) ON t USING max(inc(t))",
    "PIVOT t ON x USING sum(s1.dbl(t)) GROUP BY st",
)


@pytest.fixture(scope="module")
def twins(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Twins]:
    found = Twins(tmp_path_factory.mktemp("titles"))
    found.prepare(*_SETUP)
    found.plain.execute("CREATE MACRO current_setting(x) AS 10::UBIGINT")
    yield found
    found.close()


@pytest.mark.parametrize("sql", seeds.some(_QUERIES, 12, "titles"))
def test_titles_are_those_of_duckdb(twins: Twins, sql: str) -> None:
    plain = twins.same(sql)
    depends_on_rows = sql.startswith("PIVOT")  # a safe session runs no such statement, and DuckDB stores no such view
    if not depends_on_rows and "current_setting" not in sql:
        assert twins.mine(sql, safe=True) == plain
    for kind in ("TABLE",) if depends_on_rows else ("TABLE", "VIEW"):
        twins.session.sql(f"CREATE {kind} made AS {sql}")
        twins.plain.execute(f"CREATE TABLE made AS {sql}" if kind == "TABLE" else twins.plain_view("made", sql))
        try:
            twins.same("SELECT * FROM made")
            twins.same("SELECT column_name, column_type FROM (DESCRIBE made)")
        finally:
            twins.prepare(f"DROP {kind} made")


def test_names_of_temporary_objects_are_stored_nowhere(tmp_path: Path) -> None:
    with quacklake.connect(f"sqlite:///{tmp_path}/lake.db", data_path=f"{tmp_path}/d") as lake:
        lake.sql("CREATE MACRO inc(x) AS x + 1; CREATE TABLE t AS SELECT 1 AS x")
        lake.create_view("v", "SELECT inc(x), 1e0 FROM t")
        lake.sql("CREATE TABLE u AS SELECT inc(x), (SELECT count(*) FROM t) FROM t")
        number = duckdb.sql("SELECT 1e0").columns[0]  # versions of DuckDB name it differently
        assert lake.sql("FROM v").columns == ["inc(x)", number]
        assert lake.sql("FROM v").columns == ["inc(x)", number]
        assert lake.sql("FROM u").columns == ["inc(x)", "(SELECT count_star() FROM t)"]


@pytest.mark.parametrize(
    ("sql", "items"),
    [
        ("SELECT a, b + 1 FROM t", ["a", "b + 1"]),
        ("SELECT DISTINCT ON (a, b) c, f(d, e) WHERE x", ["c", "f(d, e)"]),
        ("FROM (SELECT a) SELECT (SELECT b, c), [d, e]", ["a", "(SELECT b, c)", "[d, e]", "b", "c"]),
        ("SELECT a IS DISTINCT FROM b, t.from, x AS limit FROM u", ["a IS DISTINCT FROM b", "t.from", "x AS limit"]),
        ("SELECT 'FROM', \"FROM\", -- FROM\n c", ["'FROM'", '"FROM"', "c"]),
        ("SELECT ALL a UNION ALL SELECT b, ORDER BY 1", ["a", "b"]),
    ],
)
def test_the_columns_of_a_text_are_found(sql: str, items: list[str]) -> None:
    assert sorted(sql[start:end] for start, end in items_of(sql)) == sorted(items)


def test_a_title_is_duckdbs_own() -> None:
    text = "CAST(x AS DECIMAL(9,2)) + 1"
    plain = duckdb.sql(f"SELECT {text} FROM (SELECT 1 AS x)").columns[0]
    assert duckdb.SQLExpression(text).get_name() == plain
