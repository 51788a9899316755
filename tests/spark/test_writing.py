"""DataFrames in tables: the files Spark writes are as good as those of DuckDB, for every client."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import quacklake
from quacklake.errors import CommitConflict, ConstraintError, SchemaMismatchError, UnsupportedFeatureError
from tests.conformance.clients import LakeSite
from tests.conformance.conftest import MakeSite

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def site(make_site: MakeSite) -> LakeSite:
    return make_site("sqlite", 10)


def files_of(lake: quacklake.Lake, name: str = "t") -> list[Path]:
    return [Path(lake.data_path, path) for path in lake.table(name).plan().files.column("path").to_pylist()]


def everything(site: LakeSite) -> set[str]:
    """The files below the data path, hidden ones too."""
    return {f"{folder}/{name}" for folder, _, names in os.walk(site.data_path) for name in names}


ALL = (
    "b BOOLEAN, i8 TINYINT, i16 SMALLINT, i32 INTEGER, i64 BIGINT, u8 UTINYINT, u16 USMALLINT, u32 UINTEGER, u64 UBIGINT,"
    " h HUGEINT, f FLOAT, d DOUBLE, de DECIMAL(12,3), t TIME, da DATE, ts TIMESTAMP, tss TIMESTAMP_S, tsm TIMESTAMP_MS,"
    " tz TIMESTAMPTZ, v VARCHAR, bl BLOB, j JSON, u UUID, s STRUCT(x INTEGER, y STRUCT(z DOUBLE))"
)
ONE = (
    "i % 2 = 0, i % 100, i, i * 1000, i * 5000000000, i % 250, i * 100, i * 1000000, i::UBIGINT * 5000000000, i, i / 4, i / 8,"
    " i / 16, TIME '00:00:00' + to_seconds(i), DATE '1969-12-01' + i::INTEGER, TIMESTAMP '1969-12-31' + to_seconds(i * 3601),"
    " TIMESTAMP '1969-12-31' + to_seconds(i), TIMESTAMP '1969-12-31' + to_milliseconds(i), TIMESTAMPTZ '2024-01-01 00:00:00+00' + to_hours(i),"
    " 'v' || i, ('b' || i)::BLOB, '{\"i\": ' || i || '}', ('00000000-0000-0000-0000-' || lpad(i::VARCHAR, 12, '0'))::UUID,"
    " {'x': i, 'y': {'z': i / 3}}"
)


#: The same without what an older Spark cannot write.
FEWER = ALL.replace(" t TIME,", "").replace(" j JSON,", "")
FEWER_VALUES = ONE.replace(" TIME '00:00:00' + to_seconds(i),", "").replace(" '{\"i\": ' || i || '}',", "")


@pytest.mark.parametrize(
    ("columns", "values"),
    [
        pytest.param(ALL, ONE, id="all", marks=pytest.mark.needs_spark("4.1")),
        pytest.param(FEWER, FEWER_VALUES, id="fewer", marks=pytest.mark.needs_spark(before="4.1")),
    ],
)
def test_what_spark_appends_is_what_duckdb_would_have_written(
    make_site: MakeSite, session: SparkSession, columns: str, values: str
) -> None:
    site = make_site("sqlite", 0)
    stock = site.stock()
    for name in ("source", "ours", "sparks"):
        stock.execute(f"CREATE TABLE l.{name}({columns})")
    nulls = ", ".join("NULL" for _ in columns.split(" STRUCT")[0].split(", ")[:-1])
    stock.execute(f"INSERT INTO l.source SELECT {values} FROM range(60) r(i) UNION ALL SELECT {nulls}, NULL")
    lake = site.lake()
    spark = quacklake.spark(lake, session)
    lake.table("ours").append(lake.table("source").to_arrow())
    spark.append("sparks", spark.table("source").coalesce(1))
    text = "SELECT CAST(COLUMNS(*) AS VARCHAR) FROM {} ORDER BY ALL"
    assert site.stock().execute(text.format("l.sparks")).fetchall() == stock_rows(site, text.format("l.source"))
    tables = ("ours", "sparks")
    found = [
        site.metadata(
            "SELECT c.column_name, s.value_count, s.null_count, s.min_value, s.max_value, s.contains_nan"
            " FROM {m}.ducklake_file_column_stats s JOIN {m}.ducklake_column c USING (table_id, column_id)"
            " JOIN {m}.ducklake_table t USING (table_id) WHERE t.table_name = ? ORDER BY c.column_id",
            [name],
        )
        for name in tables
    ]
    assert found[1] == found[0]
    lake = site.lake()
    assert all(lake.table("ours").count(where=f"i32 = {n}") == 1 for n in (0, 59000))
    read = quacklake.spark(lake, session).table("sparks")
    assert sorted(map(str, read.collect())) == sorted(
        map(str, quacklake.spark(lake, session).table("source").collect())
    )


def stock_rows(site: LakeSite, query: str) -> list[tuple[Any, ...]]:
    return site.stock().execute(query).fetchall()


def test_computed_columns_keep_their_field_ids(site: LakeSite, session: SparkSession) -> None:
    lake = site.lake()
    spark = quacklake.spark(lake, session)
    frame = session.range(100).selectExpr("id % 5 AS k", "id").groupBy("k").agg({"id": "sum"})
    frame = frame.selectExpr("k", "`sum(id)` AS total", "named_struct('a', k + 1, 'b', concat('x', k)) AS s")
    spark.create_table("t", frame.union(frame).union(frame))
    schemas = [pq.read_schema(path) for path in files_of(lake)]
    ids = {
        (field.name, field.metadata[b"PARQUET:field_id"])
        for schema in schemas
        for field in (*schema, *schema.field("s").type)
    }
    assert ids == {("k", b"1"), ("total", b"2"), ("s", b"3"), ("a", b"4"), ("b", b"5")}
    lake.table("t").rename_column("s.a", "c")
    assert stock_rows(site, "SELECT DISTINCT s.c, total FROM l.t WHERE k = 2") == [(3, sum(range(2, 100, 5)))]


def test_lists_and_maps_are_whole_for_every_client_after_changes_too(site: LakeSite, session: SparkSession) -> None:
    lake = site.lake()
    spark = quacklake.spark(lake, session)
    frame = session.range(20).selectExpr(
        "id",
        "array(id, NULL) AS l",
        "map('a', named_struct('x', id, 'y', 'y')) AS m",
        "array(named_struct('p', id)) AS s",
    )
    spark.create_table("t", frame)
    spark.append("t", frame.selectExpr("id + 100 AS id", "l", "m", "s"))
    assert len(lake.table("t").plan().mappings) == 1, "files that look alike share a mapping"
    lake.table("t").rename_column("s.element.p", "q")
    lake.table("t").add_column("s.element.r", pa.int32())
    expected = [(3, [3, None], {"a": {"x": 3, "y": "y"}}, [{"q": 3, "r": None}])]
    assert stock_rows(site, "FROM l.t WHERE id = 3") == expected
    found = quacklake.spark(site.lake(), session).table("t").where("id = 3").collect()
    assert [row.asDict(recursive=True) for row in found] == [dict(zip(("id", "l", "m", "s"), expected[0], strict=True))]
    assert [tuple(row.values())[1] for row in site.lake().table("t").to_pylist(where="id = 3")] == [[3, None]]


def test_partitions_and_order_are_those_of_the_table(site: LakeSite, session: SparkSession) -> None:
    lake = site.lake()
    spark = quacklake.spark(lake, session)
    frame = session.range(300).selectExpr(
        "id",
        "CASE id % 4 WHEN 0 THEN NULL WHEN 1 THEN '' WHEN 2 THEN '__HIVE_DEFAULT_PARTITION__' ELSE 'a b/c=%ü' END AS k",
        "timestampadd(HOUR, id, CAST('2024-01-31 22:00:00+00' AS TIMESTAMP)) AS ts",
    )
    spark.create_table("t", frame, partition_by=["k", "month(ts)"], sort_by="id DESC")
    query = "SELECT k, month(ts AT TIME ZONE 'UTC'), count(*), sum(id) FROM {} GROUP BY ALL ORDER BY ALL"
    lake.create_table("same", lake.table("t").to_arrow(), partition_by=["k", "month(ts)"])
    values = (
        "SELECT partition_key_index, partition_value, count(*) FROM {m}.ducklake_file_partition_value"
        " JOIN {m}.ducklake_table USING (table_id) WHERE table_name = ? GROUP BY ALL ORDER BY ALL"
    )
    assert site.metadata(values, ["t"]) == site.metadata(values, ["same"])
    assert stock_rows(site, query.format("l.t")) == stock_rows(site, query.format("l.same"))
    lake = site.lake()
    assert len(lake.table("t").plan("k = ''").files) == 2, "January and February"
    for path in files_of(lake):
        ids = pq.read_table(path, columns=["id"], partitioning=None).column("id").to_pylist()
        assert ids == sorted(ids, reverse=True)
    folders = {path.parent.relative_to(site.data_path) for path in files_of(lake)}
    assert folders == {
        path.parent.relative_to(site.data_path).parent.parent.parent / "t" / Path(*path.parts[-3:-1])
        for path in files_of(lake, "same")
    }
    assert everything(site) == {str(path) for name in ("t", "same") for path in files_of(lake, name)}, (
        "nothing else is left"
    )


def test_executors_compute_buckets_as_duckdb_does_and_read_footers(
    site: LakeSite, session: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("quacklake.spark.read.scan._HERE", 0)
    lake = site.lake()
    spark = quacklake.spark(lake, session)
    frame = session.range(200).selectExpr("id", "concat('n', id) AS name")
    spark.create_table("t", frame, partition_by=["bucket(3, name)"])
    for name in ("n0", "n17", "n199"):
        assert lake.table("t").count(where=f"name = '{name}'") == 1
    assert stock_rows(site, "SELECT count(*) FROM l.t WHERE name = 'n42'") == [(1,)]


def test_few_rows_are_inlined_and_none_change_nothing(site: LakeSite, session: SparkSession) -> None:
    lake = site.lake()
    spark = quacklake.spark(lake, session)
    lake.create_table("t", pa.schema([("id", pa.int32()), ("n", pa.timestamp("us"))]))
    frame = session.range(100).selectExpr("CAST(id AS INT) AS id", "TIMESTAMP_NTZ '2024-01-01 12:00:00' AS n")
    spark.append("t", frame.limit(10))
    assert lake.table("t").plan().files.num_rows == 0
    assert lake.table("t").count() == 10
    before = lake.current_snapshot()
    spark.append("t", frame.where("id < 0"))
    assert lake.current_snapshot() == before
    spark.append("t", frame.limit(11))
    assert lake.table("t").count() == 21
    assert {str(row[0]) for row in stock_rows(site, "SELECT DISTINCT n FROM l.t")} == {"2024-01-01 12:00:00"}


def test_nan_is_told_for_the_files_that_have_it(make_site: MakeSite, session: SparkSession) -> None:
    site = make_site("sqlite", 0)
    lake = site.lake()
    frame = session.range(0, 100, 1, 2).selectExpr(
        "id", "IF(id = 70, double('nan'), id) AS d", "named_struct('f', float(id)) AS s"
    )
    quacklake.spark(lake, session).create_table("t", frame)
    found = site.metadata(
        "SELECT column_id, contains_nan, min_value, max_value FROM {m}.ducklake_file_column_stats"
        " WHERE column_id IN (2, 4) ORDER BY data_file_id, column_id"
    )
    assert sorted(found) == [
        (2, False, "0.0", "49.0"),
        (2, True, "50.0", "99.0"),
        (4, False, "0.0", "49.0"),
        (4, False, "50.0", "99.0"),
    ]


def test_overwriting_takes_rows_of_the_table_itself(site: LakeSite, session: SparkSession) -> None:
    lake = site.lake()
    spark = quacklake.spark(lake, session)
    spark.create_table("t", session.range(100))
    before = lake.current_snapshot()
    spark.overwrite("t", spark.table("t").selectExpr("id * 2 AS id").where("id >= 100"))
    assert lake.current_snapshot() == before + 1
    assert sorted(row.id for row in spark.table("t").collect()) == list(range(100, 200, 2))
    spark.overwrite("t", session.range(1000, 1020), where="id < 150")
    expected = [*range(150, 200, 2), *range(1000, 1020)]
    assert [row[0] for row in stock_rows(site, "SELECT id FROM l.t ORDER BY id")] == expected


def test_rows_that_do_not_fit_change_nothing(site: LakeSite, session: SparkSession) -> None:
    from pyspark.sql.types import IntegerType, StringType, StructField, StructType

    lake = site.lake()
    spark = quacklake.spark(lake, session)
    schema = StructType([StructField("id", IntegerType(), False), StructField("name", StringType())])
    spark.create_table("t", schema)
    lake.create_table("u", pa.schema([("u", pa.uint8())]))
    before, snapshot = everything(site), lake.current_snapshot()
    with pytest.raises(SchemaMismatchError, match='unknown column "nam"'):
        spark.append("t", session.range(20).selectExpr("CAST(id AS INT) AS id", "'x' AS nam"))
    with pytest.raises(SchemaMismatchError, match='"id" is varchar'):
        spark.append("t", session.range(20).selectExpr("CAST(id AS STRING) AS id", "'x' AS name"))
    with pytest.raises(ConstraintError, match='NULL in the NOT NULL column "id"'):
        spark.append("t", session.range(20).selectExpr("IF(id = 7, NULL, CAST(id AS INT)) AS id", "'x' AS name"))
    with pytest.raises(ConstraintError, match='does not fit the column "id"'):
        spark.append("t", session.range(20).selectExpr("id * 5000000000 AS id", "'x' AS name"))
    with pytest.raises(ConstraintError, match='does not fit the column "u"'):
        spark.append("u", session.range(20).selectExpr("-id AS u"))
    lake.create_table("f", pa.schema([("f", pa.float32())]))
    with pytest.raises(ConstraintError, match='does not fit the column "f"'):
        spark.append("f", session.range(20).selectExpr("id * 1e300D AS f"))
    lake.create_table("g", pa.schema([pa.field("g", pa.binary(), metadata={"ARROW:extension:name": "geoarrow.wkb"})]))
    with pytest.raises(UnsupportedFeatureError, match="geometry"):
        spark.append("g", session.range(20).selectExpr("CAST('x' AS BINARY) AS g"))
    assert everything(site) == before
    assert lake.current_snapshot() == snapshot + 2


def test_a_lost_race_uses_the_files_again(
    site: LakeSite, session: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake, other = site.lake(), site.another_lake()
    spark = quacklake.spark(lake, session)
    spark.create_table("t", session.range(20))
    writes = []
    write = spark._engine.writer.write

    def slow(*arguments: Any) -> Any:
        written = write(*arguments)
        writes.append(len(written))
        other.table("t").append(pa.table({"id": [len(writes)]}))
        if len(writes) == 1:
            other.table("t").add_column("n", pa.int32(), default=5)
        return written

    monkeypatch.setattr(spark._engine.writer, "write", slow)
    spark.overwrite("t", session.range(100, 120), where="id = 50")
    assert len(writes) == 2, "the first files have other columns than the table by then"
    monkeypatch.undo()
    assert lake.table("t").count() == 20 + 2 + 20
    assert everything(site) == {str(path) for path in files_of(lake)}
    other.close()


def test_a_conflict_that_stays_leaves_no_files(
    site: LakeSite, session: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = site.lake()
    spark = quacklake.spark(lake, session)
    spark.create_table("t", session.range(20))
    before = everything(site)

    def refuse(*_: Any, **__: Any) -> Any:
        raise CommitConflict("somebody was faster")

    monkeypatch.setattr(lake.handle, "seal", refuse)
    with pytest.raises(CommitConflict):
        spark.append("t", session.range(50))
    assert everything(site) == before
