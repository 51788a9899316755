"""Features that an older Spark lacks are refused with an error of ours before anything happens."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import quacklake
from quacklake.errors import ConstraintError, UnsupportedFeatureError
from tests.conformance.clients import LakeSite
from tests.conformance.conftest import MakeSite

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from quacklake.spark.lake import SparkLake


@pytest.fixture
def site(make_site: MakeSite) -> LakeSite:
    return make_site("sqlite", 0)


SINCE_4: dict[str, Callable[[SparkLake], Any]] = {
    "delete": lambda spark: spark.delete("t", "id = 1"),
    "update": lambda spark: spark.update("t", {"id": 7}),
    "merge": lambda spark: spark.merge("t", spark.session.range(5), "id"),
    "stream in": lambda spark: spark.write_stream(
        "t", spark.session.readStream.format("rate").load(), name="s", checkpoint="c"
    ),
    "stream out": lambda spark: spark.read_stream("t"),
    "pipeline": lambda spark: spark.pipeline("t", "SELECT id FROM source", "t", name="p"),
    "compaction": lambda spark: spark.optimize("t"),
    "flush": lambda spark: spark.flush_inlined_data("t"),
    "source": lambda spark: quacklake.register_spark(spark.session),
    "DELETE": lambda spark: spark.sql("DELETE FROM t WHERE id = 1"),
    "UPDATE": lambda spark: spark.sql("UPDATE t SET id = 7"),
    "REPLACE WHERE": lambda spark: spark.sql("INSERT INTO t REPLACE WHERE id = 1 SELECT 1"),
    "MERGE": lambda spark: spark.sql("MERGE INTO t USING (SELECT 1 AS id) s ON t.id = s.id WHEN MATCHED THEN DELETE"),
    "CALL": lambda spark: spark.sql("CALL merge_adjacent_files('t')"),
}


@pytest.mark.needs_spark(before="4.0")
@pytest.mark.parametrize("name", SINCE_4)
def test_what_takes_spark_4_is_refused(site: LakeSite, session: SparkSession, name: str) -> None:
    lake = site.lake()
    lake.create_table("t", pa.table({"id": range(20)}))
    before = lake.current_snapshot()
    with pytest.raises(UnsupportedFeatureError, match=r"Spark 3\.5"):
        SINCE_4[name](quacklake.spark(lake, session))
    assert lake.current_snapshot() == before


@pytest.mark.needs_spark(before="4.0")
@pytest.mark.parametrize("encrypted", [False, True])
def test_batches_are_written_in_sql_too(make_site: MakeSite, session: SparkSession, encrypted: bool) -> None:
    lake = make_site("sqlite", 0, encrypted=encrypted).lake()
    spark = quacklake.spark(lake, session)

    def held() -> list[tuple[Any, ...]]:
        found = sorted(tuple(row) for row in spark.table("t").collect())
        assert found == sorted(tuple(row.values()) for row in lake.table("t").to_pylist())
        return found

    spark.sql("CREATE TABLE t (id BIGINT, p INT) PARTITIONED BY (p)")
    spark.sql("INSERT INTO t SELECT id, CAST(id % 2 AS INT) FROM range(4)")
    spark.sql("ALTER TABLE t ADD COLUMN w STRING DEFAULT 'x'")
    assert held() == [(0, 0, "x"), (1, 1, "x"), (2, 0, "x"), (3, 1, "x")]
    new = session.createDataFrame([(7, 1, "y")], "id BIGINT, p INT, w STRING")
    spark.overwrite("t", new, partition_overwrite_mode="dynamic")
    assert held() == [(0, 0, "x"), (2, 0, "x"), (7, 1, "y")]
    spark.sql("INSERT OVERWRITE t SELECT 1L, 5, 'z'")
    spark.overwrite("t", new, where="p = 0")
    assert held() == [(1, 5, "z"), (7, 1, "y")]
    spark.sql("CREATE TABLE u AS SELECT count(*) AS n FROM t VERSION AS OF 2")
    assert lake.table("u").to_pylist() == [{"n": 4}]
    spark.sql("TRUNCATE TABLE t")
    assert held() == []


@pytest.mark.needs_spark(before="4.1")
def test_times_are_read_as_text_and_not_written(site: LakeSite, session: SparkSession) -> None:
    lake = site.lake()
    lake.sql("CREATE TABLE t (id INTEGER, t TIME)")
    lake.sql("INSERT INTO t SELECT i, '12:34:56.5' FROM range(20) r(i)")
    spark = quacklake.spark(lake, session)
    session.conf.set("spark.sql.timeType.enabled", "true")
    try:
        read = spark.table("t")
        assert (read.count(), read.first().t) == (20, "12:34:56.5")
        with pytest.raises(UnsupportedFeatureError, match=r"takes Spark 4\.1"):
            spark.append("t", read)
    finally:
        session.conf.unset("spark.sql.timeType.enabled")
    assert lake.table("t").count() == 20


@pytest.mark.needs_spark("4.0", before="4.1")
def test_rows_with_times_are_deleted_and_not_updated(site: LakeSite, session: SparkSession) -> None:
    lake = site.lake()
    lake.sql("CREATE TABLE t (id INTEGER, t TIME)")
    lake.sql("INSERT INTO t SELECT i, '12:34:56.5' FROM range(20) r(i)")
    spark = quacklake.spark(lake, session)
    with pytest.raises(UnsupportedFeatureError, match=r"takes Spark 4\.1"):
        spark.update("t", {"id": 7}, "id = 8")
    assert spark.delete("t", "id = 8").rows_deleted == 1
    assert sorted(row.id for row in spark.table("t").collect()) == [*range(8), *range(9, 20)]


@pytest.mark.needs_spark("4.0", before="4.1")
def test_json_is_written(site: LakeSite, session: SparkSession) -> None:
    lake = site.lake()
    lake.sql("CREATE TABLE t (j JSON)")
    spark = quacklake.spark(lake, session)
    spark.append("t", session.range(20).selectExpr("to_json(named_struct('id', id)) AS j"))
    assert lake.sql("SELECT sum(CAST(j->>'id' AS INTEGER)) FROM t").fetchone() == (190,)
    with pytest.raises(ConstraintError, match="no json"):
        spark.append("t", session.range(20).selectExpr("'{' AS j"))


@pytest.mark.needs_spark(before="4.0")
def test_variants_are_refused(site: LakeSite, session: SparkSession) -> None:
    lake = site.lake()
    lake.sql("CREATE TABLE v (v VARIANT)")
    with pytest.raises(UnsupportedFeatureError, match=r"takes Spark 4\.0"):
        quacklake.spark(lake, session).table("v")
    with pytest.raises(UnsupportedFeatureError, match=r"takes Spark 4\.0"):
        quacklake.spark(lake, session).append("v", session.range(20).selectExpr("id AS v"))
