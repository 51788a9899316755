"""Materialized views that Spark computes: the same ways, the same rows, one commit."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import quacklake
from quacklake import Lake
from quacklake.core.faults import Fault, FaultInjected, arm
from quacklake.errors import UnsupportedFeatureError
from tests.prove.views import view_history
from tests.seeds import LONG, SEED

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_VIEWS = {
    "hourly": "SELECT k, date_trunc('hour', ts) AS h, count(*) AS n, sum(x) AS total, max(x) AS top FROM a GROUP BY ALL",
    "plain": "SELECT id, x * 2 AS y FROM a WHERE x > 1 UNION ALL SELECT id, w * 2 FROM b WHERE w > 9",
    "means": "SELECT k, time_bucket(INTERVAL '7 hours', ts) AS b, avg(x) AS m, avg(x) FILTER (x > 4) AS f FROM a"
    " GROUP BY ALL",
    "zoned": "SELECT time_bucket(INTERVAL '5 hours', seen) AS b, count(*) AS n FROM c GROUP BY ALL",
    "fractions": "SELECT k, sum(x / 8) AS s, avg(x / 8) AS m FROM a GROUP BY k",
    "used": "SELECT k, id, name, avg(DISTINCT w) AS m, count(*) AS n FROM a JOIN b USING (id) WHERE id > 2 GROUP BY ALL",
    "reduced": "SELECT time_bucket(INTERVAL '6 hours', ts) AS b, max(x / 8) FILTER (NOT isnan(CAST(x / 8 AS DOUBLE))) AS m,"
    " count(x) FILTER (NOT isnan(CAST(x AS DOUBLE))) AS n FROM a GROUP BY 1",
    "joined": "SELECT b.name, min(a.d) AS low FROM a JOIN b ON a.id = b.id GROUP BY b.name HAVING count(*) > 1",
}


@pytest.fixture
def lake(session: SparkSession, tmp_path: Path) -> Iterator[Lake]:
    with quacklake.connect(f"sqlite:///{tmp_path}/lake.db", data_path=tmp_path / "data", view_spark_bytes=0) as made:
        made.sql("CREATE TABLE a (id INTEGER, k VARCHAR, ts TIMESTAMP, x INTEGER, d DECIMAL(10, 2))")
        made.sql("CREATE TABLE b (id INTEGER, name VARCHAR, w INTEGER)")
        made.sql(
            "CREATE TABLE c AS SELECT TIMESTAMPTZ '1969-12-30 23:00:00+02' + to_minutes(i * 37) AS seen FROM range(300) r(i)"
        )
        made.sql(_rows(0, 200))
        made.sql("INSERT INTO b SELECT i, chr(97 + (i % 3)::INT), i FROM range(20) r(i)")
        yield made


def _rows(first: int, count: int) -> str:
    return (
        "INSERT INTO a SELECT i % 25, CASE WHEN i % 7 < 6 THEN 'k' || (i % 7) END,"
        f" TIMESTAMP '2024-01-01' + to_minutes(i * 3), CASE WHEN i % 11 > 0 THEN i % 10 END, i / 4 FROM range({first},"
        f" {first + count}) r(i)"
    )


def _check(lake: Lake) -> None:
    for found in lake.materialized_views.verify():
        assert found.ok, (found, found.rows.to_pylist()[:5])


def test_spark_takes_the_same_ways_as_duckdb_with_the_same_rows(lake: Lake, tmp_path: Path) -> None:
    for name, query in _VIEWS.items():
        for engine in ("spark", "duckdb"):
            made = lake.materialized_views.create(f"{name}_{engine}", query, engine=engine)
            assert made is not None and made.engine == engine
    _check(lake)
    seen = set()
    for change in (
        _rows(1000, 60),
        "UPDATE b SET name = 'z' WHERE id < 4; DELETE FROM a WHERE x = 3 AND k = 'k1'",
    ):
        lake.sql(change)
        for name in _VIEWS:
            ours, theirs = (lake.refresh(f"{name}_{engine}") for engine in ("spark", "duckdb"))
            assert (ours.way, ours.keys, ours.deleted, ours.inserted) == (
                theirs.way,
                theirs.keys,
                theirs.deleted,
                theirs.inserted,
            )
            seen.add((ours.way, ours.engine))
            rows = [
                lake.sql(f"SELECT * FROM {name}_{engine} ORDER BY ALL").fetchall() for engine in ("spark", "duckdb")
            ]
            assert rows[0] == rows[1]
    _check(lake)
    assert {("merge", "spark"), ("groups", "spark"), ("append", "spark"), ("rows", "duckdb")} <= seen
    assert lake.refresh("hourly_spark", full=True).engine == "spark"
    _check(lake)
    assert not list(tmp_path.rglob("staged-*"))


def test_auto_takes_spark_for_large_refreshes_and_duckdb_for_what_spark_cannot(lake: Lake) -> None:
    made = lake.materialized_views.create("large", _VIEWS["hourly"])
    assert made is not None and made.engine == "spark"
    lake.sql(_rows(500, 30))
    assert lake.materialized_views.explain("large").engine == "spark"
    assert lake.refresh("large").engine == "spark"
    middle = "SELECT k, median(x) AS m FROM a GROUP BY k"
    made = lake.materialized_views.create("middle", middle)
    assert made is not None and made.engine == "duckdb"
    with pytest.raises(UnsupportedFeatureError, match=r"median") as caught:
        lake.create_materialized_view("refused", middle, engine="spark")
    assert "duckdb" in str(caught.value.hint)
    collated = "SELECT k COLLATE NOCASE AS k, count(*) AS n FROM a GROUP BY 1"
    with pytest.raises(UnsupportedFeatureError):
        lake.create_materialized_view("refused", collated, engine="spark")
    assert "main.refused" not in lake.materialized_views.names()
    _check(lake)


def test_a_view_of_a_column_that_spark_cannot_carry_is_computed_by_duckdb(lake: Lake) -> None:
    lake.create_materialized_view("sums", "SELECT k, sum(x) AS total FROM a GROUP BY k")  # HUGEINT
    over = "SELECT k, total FROM sums"
    made = lake.materialized_views.create("over", over)
    assert made is not None and made.engine == "duckdb"
    with pytest.raises(UnsupportedFeatureError, match="total"):
        lake.create_materialized_view("refused", over, engine="spark")
    lake.sql(_rows(500, 30))
    assert lake.refresh("over").engine == "duckdb"
    _check(lake)


def test_a_view_over_infinite_times_is_computed_by_duckdb(lake: Lake) -> None:
    lake.sql("CREATE TABLE times (ts TIMESTAMP, x INTEGER)")
    lake.sql("INSERT INTO times VALUES (TIMESTAMP '2024-01-01 10:30:00', 1)")
    query = "SELECT date_trunc('hour', ts) AS hour, max(x) AS most FROM times GROUP BY date_trunc('hour', ts)"
    lake.create_materialized_view("hours", query)
    lake.sql("INSERT INTO times VALUES (TIMESTAMP 'infinity', 9), (TIMESTAMP '-infinity', 8)")
    assert lake.refresh("hours").engine == "duckdb"
    with pytest.raises(UnsupportedFeatureError, match="infinite"):
        lake.create_materialized_view("refused", query, engine="spark")
    made = lake.materialized_views.create("counts", "SELECT x, count(*) AS n FROM times GROUP BY x", engine="spark")
    assert made is not None and made.engine == "spark"
    _check(lake)


def test_auto_takes_duckdb_for_small_refreshes(lake: Lake, tmp_path: Path) -> None:
    with quacklake.connect(f"sqlite:///{tmp_path}/lake.db") as other:
        made = other.materialized_views.create("small", _VIEWS["hourly"])
        assert made is not None and made.engine == "duckdb"


def test_a_refresh_on_spark_that_fails_changes_nothing_and_leaves_no_rows_behind(lake: Lake, tmp_path: Path) -> None:
    lake.create_materialized_view("v", _VIEWS["joined"], engine="spark")
    before = lake.sql("FROM v ORDER BY ALL").fetchall()
    lake.sql(_rows(700, 30))
    with pytest.raises(FaultInjected), arm(Fault(pattern="materialized.refresh.before")):
        lake.refresh("v")
    assert lake.sql("FROM v ORDER BY ALL").fetchall() == before
    assert not list(tmp_path.rglob("staged-*"))
    assert lake.refresh("v").inserted > 0
    _check(lake)


@pytest.mark.daily(0.35)
@pytest.mark.parametrize("number", range(2))
def test_a_view_equals_the_answer_of_its_query_when_spark_refreshes_it_too(
    session: SparkSession, tmp_path: Path, number: int
) -> None:
    url, options = f"sqlite:///{tmp_path}/lake.db", {"catalog": "acme", "create": True} if number else {}
    tally = view_history(url, tmp_path, f"{SEED}.spark.{number}", 12 if LONG else 5, options=options, spark=True)
    assert tally.comparisons > 0
