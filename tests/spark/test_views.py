"""Views of the lake in Spark: the rows that the lake gives, or an error."""

from __future__ import annotations

import datetime as dt
import math
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest

import quacklake
from quacklake.errors import NotFoundError, UnsupportedFeatureError
from quacklake.spark.sql import queries, tables

from .test_expressions import COLUMNS, ROWS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

    from quacklake.spark.lake import SparkLake

#: Views that Spark computes itself.
TRANSLATED = {
    "counted": "SELECT count(*) AS n, count(i) AS m, count(DISTINCT bo) AS d FROM t",
    "one": "SELECT 1 AS one, 'a{b}' AS text, 2.5 AS number",
    "stars": "SELECT * FROM t",
    "chosen": "SELECT t.k, i + 1 AS more, t AS text FROM t WHERE i < 2147483647 AND t.k <> 3",
    "grouped": "SELECT bo, count(*) AS n, sum(i) AS s, min(t) AS a, max(da) AS z, sum(de) AS e FROM t GROUP BY bo HAVING count(*) > 1",
    "ordinal": "SELECT i % 3 AS r, count(*) FILTER (WHERE b > 2) FROM t GROUP BY 1 ORDER BY r DESC",
    "joined": "SELECT a.k, o.v FROM t a LEFT JOIN s1.t o ON a.k = o.k AND o.v LIKE '%1' ORDER BY a.k",
    "crossed": "SELECT a.k AS x, b.k AS y FROM t a, s1.t b WHERE a.k = b.k",
    "either": "SELECT k FROM t UNION SELECT k FROM s1.t",
    "within": "WITH few AS (SELECT k, v FROM s1.t WHERE k > 1) SELECT q.v, q.k FROM (SELECT * FROM few) q",
    "standing": "SELECT n + 1 AS more FROM counted",
    "titles": "SELECT count(*), max(k), k + 1 FROM t GROUP BY k + 1",
    "named(first)": "SELECT k, v AS w FROM s1.t",
}
#: Views that DuckDB computes.
COMPUTED = {
    "odd": "SELECT position('b' IN t) p, log(100) l, dayofweek(DATE '2024-01-07') d, left(t, -1) le, regexp_replace('aa', 'a', 'b') r,"
    " date_diff('month', DATE '2024-01-31', DATE '2024-02-01') m FROM t",
    "lists": "SELECT list(i) AS l, avg(d) FILTER (WHERE d < 9) AS a, sum(d) FILTER (WHERE d < 9) AS s FROM t",
    "types": "SELECT uu, ti, tz, ts, u, ub, s, m, de, to_days(k) AS span, i::HUGEINT AS h, ns, bo, reverse(t) AS r FROM t",
    "limited": "SELECT k FROM t ORDER BY k LIMIT 2",
    "ranked": "SELECT k, row_number() OVER (ORDER BY k) AS n FROM t",
    "macro": "SELECT twice(k) AS d FROM t",
    "merged": "SELECT * FROM t JOIN s1.t AS o USING (k)",
    "standing_on": "SELECT le FROM odd WHERE le IS NOT NULL",
    "listed": "SELECT * FROM (VALUES (1, 'a'), (2, NULL)) v(a, b)",
}  # fmt: skip


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[quacklake.Lake]:
    home = tmp_path_factory.mktemp("views")
    with quacklake.connect(
        f"sqlite:///{home}/lake.db", data_path=str(home / "data"), data_inlining_row_limit=0
    ) as lake:
        lake.sql(f"CREATE TABLE t({COLUMNS})")
        lake.sql(f"INSERT INTO t VALUES {ROWS}")
        lake.sql("CREATE SCHEMA s1")
        lake.sql("CREATE TABLE s1.t AS SELECT i::INTEGER AS k, 'v' || i AS v FROM range(5) r(i)")
        lake.sql("CREATE MACRO twice(x) AS 2 * x")
        for name, text in (TRANSLATED | COMPUTED).items():
            lake.sql(f"CREATE VIEW {name} AS {text}")
        yield lake


@pytest.fixture(scope="module")
def spark(lake: quacklake.Lake, session: SparkSession) -> SparkLake:
    return quacklake.spark(lake, session)


def plain(value: Any) -> Any:
    """A value in a form that both sides give it."""
    if isinstance(value, float) and math.isnan(value):
        return "NaN"
    if isinstance(value, Decimal) and value.as_tuple().exponent == 0:
        return int(value)
    if isinstance(value, dt.datetime):
        return value.astimezone(dt.UTC).isoformat() if value.tzinfo else value.isoformat()
    if isinstance(value, dict):
        return {str(key): plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [plain(each) for each in value]
    return value


@pytest.mark.parametrize("name", [name.partition("(")[0] for name in (*TRANSLATED, *COMPUTED) if name != "types"])
def test_a_view_gives_in_spark_what_it_gives_in_the_lake(name: str, lake: quacklake.Lake, spark: SparkLake) -> None:
    own, found = lake.sql(f"SELECT * FROM {name}").to_arrow(), spark.sql(f"SELECT * FROM {name}")
    assert found.columns == own.column_names
    skipped = [i for i, type_ in enumerate(own.schema.types) if str(type_).startswith(("timestamp", "map", "time"))]
    rows = [[plain(value) for i, value in enumerate(row.values()) if i not in skipped] for row in own.to_pylist()]
    theirs = [
        [
            plain(value.asDict() if hasattr(value, "asDict") else value)
            for i, value in enumerate(row)
            if i not in skipped
        ]
        for row in found.collect()
    ]
    assert sorted(map(str, theirs)) == sorted(map(str, rows))


def test_only_what_is_known_to_be_the_same_is_translated(
    lake: quacklake.Lake, spark: SparkLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queries, "_MAX_BYTES", -1)
    for name in TRANSLATED:
        assert spark.sql(f"SELECT * FROM {name.partition('(')[0]}").columns
    for name in COMPUTED:
        with pytest.raises(UnsupportedFeatureError, match=f'"main.{name}" cannot be computed by Spark') as caught:
            spark.sql(f"SELECT * FROM {name}")
        assert "lake.sql" in str(caught.value.hint)
    monkeypatch.undo()
    monkeypatch.setattr(queries, "_MAX_ROWS", 3)
    with pytest.raises(UnsupportedFeatureError, match="more than 3 rows"):
        spark.sql("SELECT * FROM ranked")
    assert spark.sql("SELECT * FROM limited").count() == 2


@pytest.mark.parametrize("connect", [False, True], ids=["plans", "texts"])
def test_a_query_that_fails_on_the_rows_that_are_there_is_refused(
    connect: bool, lake: quacklake.Lake, spark: SparkLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark computes a few rows of the catalog while it plans."""
    if connect:
        monkeypatch.setattr(tables, "is_connect", lambda session: True)
    lake.options.set("data_inlining_row_limit", 10)
    lake.sql("CREATE OR REPLACE TABLE inlined AS SELECT 'no truth' AS w")
    with pytest.raises(UnsupportedFeatureError, match="fails on the rows"):
        spark.sql("CREATE VIEW made AS SELECT w FROM inlined WHERE w AND w <> ''")
    lake.sql("DROP TABLE inlined")
    lake.options.set("data_inlining_row_limit", 0)


@pytest.mark.parametrize("call", ["current_database()", "current_setting('TimeZone')", "reverse(current_schema())"])
def test_what_tells_of_a_session_of_sql_is_refused(call: str, lake: quacklake.Lake, spark: SparkLake) -> None:
    lake.sql(f"CREATE OR REPLACE VIEW telling AS SELECT k, {call} AS told FROM t")
    with pytest.raises(UnsupportedFeatureError, match="needs a SQL session"):
        spark.sql("SELECT * FROM telling")
    lake.sql("DROP VIEW telling")


def test_rows_that_duckdb_computes_have_the_types_of_tables(lake: quacklake.Lake, spark: SparkLake) -> None:
    found = spark.sql("SELECT * FROM types")
    table = dict(spark.table("t").dtypes)
    kinds = dict(found.dtypes)
    assert {name: kinds[name] for name in table if name in kinds} == {
        name: table[name] for name in kinds if name in table
    }
    assert (kinds["span"], kinds["h"]) == ("string", "decimal(38,0)")
    same = spark.sql(
        "SELECT count(*) FROM types JOIN t ON types.de = t.de AND types.ts = t.ts AND types.tz = t.tz AND types.ns <=> t.ns AND types.ti <=> t.ti AND types.uu <=> t.uu"
    )
    assert same.first()[0] == 6


def test_through_connect_a_query_with_the_sign_of_numbers_of_columns_is_refused(
    spark: SparkLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tables, "is_connect", lambda session: True)
    with pytest.raises(UnsupportedFeatureError, match="the query of a view cannot have a #"):
        spark.sql("CREATE VIEW made AS SELECT 'a#1' AS t FROM s1.t")


def test_conditions_on_a_view_rule_out_files(lake: quacklake.Lake, spark: SparkLake) -> None:
    lake.sql("CREATE TABLE parts(k INT, v INT)")
    for k in range(3):
        lake.sql(f"INSERT INTO parts VALUES ({k}, {k * 10})")
    lake.sql("CREATE VIEW chosen_parts AS SELECT p.k AS key, v + 1 AS more FROM parts p WHERE p.k >= 1")
    lake.sql("CREATE VIEW fewer AS SELECT * FROM chosen_parts")
    assert len(spark.sql("SELECT * FROM chosen_parts").inputFiles()) == 2
    assert len(spark.sql("SELECT * FROM fewer WHERE key = 1 AND more > 3").inputFiles()) == 1
    assert spark.sql("SELECT key FROM fewer WHERE key = 1 AND more > 3").collect()[0].key == 1
    lake.sql("CREATE VIEW gone AS SELECT * FROM parts")
    lake.sql("DROP TABLE parts")
    with pytest.raises(NotFoundError, match="parts"):
        spark.sql("SELECT * FROM gone")


#: Queries of Spark, and whether a view of them is kept: only where DuckDB is known to give the same.
MADE = {
    "SELECT k, t AS text FROM t WHERE i > 3 AND t LIKE 'a%'": True,
    "SELECT bo, count(*) AS n, max(da) AS d FROM t GROUP BY bo": True,
    "SELECT a.k, b.v FROM t a JOIN s1.t b ON a.k = b.k WHERE b.v = 'v1'": True,
    "SELECT `k` + 1 AS more, i / 2 AS half FROM lake.main.t": True,
    "SELECT 1 AS one": True,
    "SELECT n FROM counted": True,
    "SELECT CAST(d AS INT) AS c FROM t": False,
    "SELECT dayofweek(da) AS d FROM t": False,
    "SELECT sum(i) AS s FROM t": False,
    "SELECT log(d) AS l FROM t": False,
    "SELECT substring(t, -2) AS s FROM t": False,
    "SELECT k FROM t ORDER BY k DESC": True,
    "SELECT date_format(da, 'yyyy') AS y FROM t": False,
    "SELECT explode(l) AS e FROM t": False,
    "SELECT k FROM t LIMIT 3": False,
}


@pytest.mark.parametrize("connect", [False, True], ids=["plans", "texts"])
@pytest.mark.parametrize("text", MADE)
def test_a_view_that_is_made_in_spark_means_the_same_in_duckdb_or_is_refused(
    text: str, connect: bool, lake: quacklake.Lake, spark: SparkLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Through Spark Connect plans are compared as texts, with the same outcome."""
    if connect:
        monkeypatch.setattr(tables, "is_connect", lambda session: True)
    if not MADE[text]:
        with pytest.raises(UnsupportedFeatureError, match="the query of the view") as caught:
            spark.sql(f"CREATE VIEW made AS {text}")
        assert "lake.sql" in str(caught.value.hint)
        assert all(view.name != "made" for view in lake.handle.view().objects.views())
        return
    spark.sql(f"CREATE OR REPLACE VIEW made AS {text}")
    own, theirs = lake.sql("SELECT * FROM made").to_arrow(), spark.sql(text)
    assert own.column_names == theirs.columns
    assert sorted(str(list(row.values())) for row in own.to_pylist()) == sorted(
        str(list(row)) for row in theirs.collect()
    )
    lake.sql("DROP VIEW made")
