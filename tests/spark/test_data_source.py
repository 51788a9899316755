"""``format("quacklake")``: plain Spark code and SQL read and write tables, and see what the other ways see."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import quacklake
from quacklake.core.format.schema import Column, TableSchema
from quacklake.errors import InputError, UnsupportedFeatureError
from quacklake.spark.datasource.driver_service import PushedFilter, pushed_sql
from quacklake.spark.datasource.table_sink import READ, READ_STREAM, WRITE, FormatOptions
from tests.conformance.clients import LakeSite, plain_duckdb
from tests.conformance.history import canonical
from tests.seeds import LONG

from .agreement import all_agree, rows_of
from .reading import texts

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from tests.conformance.conftest import MakeSite


pytestmark = pytest.mark.needs_spark("4.0")

PUSHING = "spark.sql.python.filterPushdown.enabled"
TYPES = (
    "id BIGINT, u8 UTINYINT, u64 UBIGINT, d DECIMAL(9,2), b BLOB, day DATE, ts TIMESTAMP, tz TIMESTAMPTZ, tm TIME,"
    " u UUID, j JSON, h HUGEINT, x DOUBLE, l INTEGER[], m MAP(VARCHAR, BIGINT), s STRUCT(a INTEGER, b VARCHAR),"
    " ns TIMESTAMP_NS"
)
VALUES = (
    "(1, 255, 18446744073709551615, 12.34, 'ab'::BLOB, '2024-02-29', '2024-01-02 03:04:05.678',"
    " '2024-01-02 03:04:05+02', '12:34:56.5', 'c0ffee00-0000-4000-8000-000000000001', '{\"k\": 1}', 170141, 1.5,"
    " [1, NULL, 3], MAP {'k': 7}, {'a': 1, 'b': 'x'}, '2024-01-02 03:04:05.123456789')",
    f"(2{', NULL' * 16})",
)


@pytest.fixture
def site(make_site: MakeSite) -> LakeSite:
    return make_site("sqlite", 10)


@pytest.fixture
def pushing(session: SparkSession) -> Iterator[None]:
    session.conf.set(PUSHING, "true")
    yield
    session.conf.unset(PUSHING)


def read(session: SparkSession, table: str = "t", **options: Any) -> DataFrame:
    return session.read.format("quacklake").options(**options).load(table)


def ids(frame: DataFrame) -> list[int]:
    return sorted(row[0] for row in frame.select("id").collect())


# -- reading -----------------------------------------------------------------------------------------------------------


@pytest.mark.daily(0.22)
def test_every_type_comes_as_the_native_way_and_stock_see_it(site: LakeSite, session: SparkSession) -> None:
    stock = site.stock()
    stock.execute(f"CREATE TABLE t ({TYPES})")
    stock.execute(f"INSERT INTO t SELECT t.* FROM range(20), (VALUES {', '.join(VALUES)}) t")
    stock.execute(f"INSERT INTO t VALUES {VALUES[0]}")
    stock.execute("DELETE FROM t WHERE id = 2 AND rowid % 4 = 1; ALTER TABLE t ADD COLUMN late INTEGER DEFAULT 7")
    expected = rows_of(site, "t", 5)
    lake = site.lake()
    native = quacklake.spark(lake, session).table("t")
    found = read(session)
    assert found.dtypes == native.dtypes
    columns = [(column.name, canonical(column.duckdb_type())) for column in lake.table("t").info.schema.columns]
    with plain_duckdb() as scratch:
        assert texts(found, columns, scratch) == texts(native, columns, scratch)
        assert len(expected) == found.count()
        assert {row[1:] for row in expected} == set(texts(found, columns, scratch))
    lake.sql(f"CREATE TABLE copy ({TYPES}, late INTEGER)")
    found.write.format("quacklake").mode("append").save("copy")
    copied = [row[1:] for row in rows_of(site, "copy", 7)]
    assert sorted(copied, key=str) == sorted((row[1:] for row in expected), key=str), "what was read can be written"


@pytest.mark.daily(0.35)
def test_sql_and_time_travel_see_the_snapshot_of_when_they_were_made(site: LakeSite, session: SparkSession) -> None:
    lake = site.lake()
    quacklake.register_spark(session, lake, name="shop")
    lake.create_table("t", pa.table({"id": range(100), "v": ["a"] * 100}))
    session.sql("CREATE OR REPLACE TEMPORARY VIEW seen USING quacklake OPTIONS (lake 'shop', table 'main.t')")
    frame = read(session, lake=site.url, where="id >= 90 AND v = 'a'")
    newest = read(session, followLatest="true")
    lake.table("t").delete("id >= 50")
    try:
        assert newest.count() == 50
        assert session.sql("SELECT count(*), max(id) FROM seen").collect() == [(100, 99)]
        assert ids(frame) == list(range(90, 100))
        assert read(session).count() == 50
        assert read(session, version=1).count() == 100
        assert session.read.format("quacklake").schema("v STRING").load("t").distinct().collect() == [("a",)]
    finally:
        session.catalog.dropTempView("seen")


@pytest.mark.daily(0.22)
@pytest.mark.needs_spark("4.1")
def test_filters_rule_out_files_and_parts_are_groups_of_files(
    site: LakeSite, session: SparkSession, pushing: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = site.lake()
    quacklake.spark(lake, session)
    monkeypatch.setattr("quacklake.spark.read.slices.SLICE_BYTES", 1)
    table = lake.create_table("t", {"id": pa.int64(), "day": pa.date32()})
    for number in range(4):
        table.append(lake_rows(number))
    assert read(session).rdd.getNumPartitions() == 4
    found = read(session).where("id > 110 AND id <= 205")
    assert (found.rdd.getNumPartitions(), found.count()) == (2, 39 + 6)
    found = read(session).where("day = DATE '1970-01-31' AND id IS NOT NULL")
    assert (found.rdd.getNumPartitions(), found.count()) == (1, 50)
    assert read(session, where="id < 0").count() == 0
    session.conf.set(PUSHING, "false")
    found = read(session).where("id > 110 AND id <= 205")
    assert (found.rdd.getNumPartitions(), found.count()) == (4, 39 + 6)
    assert read(session, where="id < 60").rdd.getNumPartitions() == 1


def lake_rows(number: int) -> pa.Table:
    days = pa.array([number * 10] * 50, pa.int32()).cast(pa.date32())
    return pa.table({"id": range(number * 100, number * 100 + 50), "day": days})


def test_pushed_filters_become_sql_only_where_both_mean_the_same() -> None:
    import datetime as dt
    from decimal import Decimal

    names = {"i": "int32", "u": "uint64", "s": "varchar", "d": "date", "t": "timestamp", "z": "timestamptz"}
    names |= {"m": "decimal(9,2)", "f": "float64", "h": "int128", "o": "boolean"}
    schema = TableSchema(tuple(Column(number, name, type_) for number, (name, type_) in enumerate(names.items())))
    said = {
        ("EqualTo", ("i",), 5): '("i" = 5)',
        ("LessThan", ("u",), Decimal(7)): '("u" < 7)',
        ("GreaterThanOrEqual", ("s",), "it's"): "(\"s\" >= 'it''s')",
        ("In", ("d",), (dt.date(2024, 1, 2), None)): "(\"d\" IN (DATE '2024-01-02'))",
        ("GreaterThan", ("t",), dt.datetime(2024, 1, 2)): "(\"t\" > TIMESTAMP '2024-01-02 00:00:00')",
        ("EqualTo", ("z",), dt.datetime(2024, 1, 2, tzinfo=dt.UTC)): "(\"z\" = '2024-01-02 00:00:00+00')",
        ("LessThanOrEqual", ("m",), Decimal("1.50")): '("m" <= 1.50)',
        ("StringStartsWith", ("s",), "a"): "(\"s\" >= 'a' AND starts_with(\"s\", 'a'))",
        ("EqualNullSafe", ("i",), None): '("i" IS NULL)',
        ("EqualTo", ("o",), True): '("o" = true)',
    }
    for (kind, path, value), sql in said.items():
        assert pushed_sql([PushedFilter(kind, path, value)], schema) == sql
    silent: list[tuple[Any, ...]] = [
        ("EqualTo", ("i",), 1.5),
        ("EqualTo", ("h",), 5),
        ("EqualTo", ("f",), 1.0),
        ("EqualTo", ("gone",), 1),
        ("EqualTo", ("s", "x"), "a"),
        ("StringContains", ("s",), "a"),
        ("EqualTo", ("t",), dt.datetime(2024, 1, 2, tzinfo=dt.UTC)),
        ("EqualTo", ("i",), None),
    ]
    assert pushed_sql([PushedFilter(*each) for each in silent], schema) is None


@pytest.mark.daily(0.22)
def test_changes_are_read_as_the_feed_tells_them(site: LakeSite, session: SparkSession) -> None:
    lake = site.lake()
    quacklake.spark(lake, session)
    table = lake.create_table("t", pa.table({"id": range(20), "v": ["a"] * 20}))
    table.update({"v": "b"}, "id < 2")
    table.delete("id = 19")
    frame = read(session, readChangeFeed="true", startingVersion=2)
    found = {(row.id, row.v, row._change_type, row._commit_version) for row in frame.collect()}
    feed = table.changes(2).to_arrow().to_pylist()
    assert found == {(row["id"], row["v"], row["change_type"], row["snapshot_id"]) for row in feed}
    only = read(session, readChangeFeed="true", startingVersion=3, endingVersion=3)
    assert [(row.id, row._change_type) for row in only.collect()] == [(19, "delete")]


# -- options -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "known", "message"),
    [
        ({"tabel": "t"}, READ, '(?s)no option "tabel".*did you mean "table"'),
        ({"table": "t", "startingverison": "3"}, READ_STREAM, "startingVersion"),
        ({"table": "t", "version": "3"}, WRITE, 'no option "version"'),
        ({"table": "t", "path": "u"}, READ, "two tables"),
    ],
)
def test_an_option_that_does_not_exist_is_refused(given: dict[str, str], known: tuple[str, ...], message: str) -> None:
    with pytest.raises(InputError, match=message):
        FormatOptions.parse(given, known)


def test_options_that_say_nothing_or_too_much_are_refused() -> None:
    wrong: list[tuple[dict[str, str], str]] = [
        ({"startingVersion": "3"}, "readChangeFeed"),
        ({"readChangeFeed": "true", "where": "id > 5"}, "without readChangeFeed"),
        ({"readChangeFeed": "yes"}, "readChangeFeed cannot be"),
        ({"followLatest": "true", "version": "3"}, "another one is named"),
    ]
    for given, message in wrong:
        with pytest.raises(InputError, match=message):
            FormatOptions.parse(given, READ).check_changes()
    with pytest.raises(InputError, match="both given"):
        FormatOptions.parse({"version": "1", "timestamp": "now"}, READ).bound("version", "timestamp")
    with pytest.raises(InputError, match="no table"):
        _ = FormatOptions.parse({}, READ).table
    with pytest.raises(InputError, match="number from 1"):
        FormatOptions.parse({"maxFilesPerTrigger": "0"}, READ_STREAM).number("maxFilesPerTrigger")


@pytest.mark.daily(0.22)
def test_errors_of_the_lake_are_told_through_spark(site: LakeSite, session: SparkSession) -> None:
    lake = site.lake()
    quacklake.spark(lake, session)
    lake.create_table("sales", pa.table({"id": range(3)}))
    with pytest.raises(Exception, match='did you mean "table"'):
        session.read.format("quacklake").option("tabel", "sales").load()
    with pytest.raises(Exception, match="sales"):
        read(session, "sale")
    with pytest.raises(Exception, match="is bigint in Spark, not string"):
        session.read.format("quacklake").schema("id STRING").load("sales").collect()


def test_a_spark_without_sources_in_python_is_refused(monkeypatch: pytest.MonkeyPatch, session: SparkSession) -> None:
    monkeypatch.setattr("pyspark.__version__", "3.5.9")
    with pytest.raises(UnsupportedFeatureError, match=r"Spark 3\.5\.9 has no sources in Python") as caught:
        quacklake.register_spark(session)
    assert "Spark 4" in str(caught.value)


# -- what executors see ------------------------------------------------------------------------------------------------


def test_nothing_of_the_catalog_goes_to_executors(
    make_site: MakeSite, session: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pyspark.cloudpickle import dumps
    from pyspark.sql.types import LongType, StructType

    from quacklake.spark.datasource.format import SparkFormat, source_class

    site = make_site("sqlite", 0, encrypted=True)
    lake = site.lake()
    table = lake.create_table("t", pa.table({"id": range(100)}))
    table.append(pa.table({"id": range(100)}))
    quacklake.spark(lake, session)
    monkeypatch.setattr("quacklake.spark.read.slices.SLICE_BYTES", 1)
    schema = StructType().add("id", LongType())
    source = source_class(str(SparkFormat.of(session)._listener.address))({"lake": site.url, "table": "t"})
    assert site.url.encode() in dumps(source), "Spark keeps it for the driver"
    reader = source.reader(schema)
    parts = list(reader.partitions())
    writer = source.writer(schema, False)
    stream = source.streamReader(schema)
    keys = [key.encode() for key in table.plan().files.column("encryption_key").to_pylist()]
    remote = source_class(None, url=site.url)({"table": "t"})
    assert site.url.encode() in dumps(remote), "and so it does with one that no option tells"
    streams = stream, remote.streamReader(schema), remote
    for sent in (source, reader, *streams, writer, *parts):
        assert str(site.catalog_file).encode() not in dumps(sent)
        assert not any(key.decode() in repr(sent) for key in keys)
    assert [sum(key in dumps(part) for key in keys) for part in parts] == [1, 1]
    rows = [batch for part in parts for batch in reader.read(pickle.loads(dumps(part)))]
    assert sum(batch.num_rows for batch in rows) == 200


def test_a_process_without_a_driver_of_ours_reads_by_the_url(site: LakeSite) -> None:
    from pyspark.sql.types import LongType, StructType

    from quacklake.spark.datasource.format import source_class

    site.lake().create_table("t", pa.table({"id": range(30)}))
    source = source_class(None)({"lake": site.url, "path": "t"})
    assert source.schema() == "`id` BIGINT"
    schema = StructType().add("id", LongType())
    reader = source.reader(schema)
    assert sum(batch.num_rows for part in reader.partitions() for batch in reader.read(part)) == 30
    with pytest.raises(RuntimeError, match="unsupported"):
        source.writer(schema, False)


# -- writing -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("encrypted", [False, True] if LONG else [False])
def test_rows_are_written_in_one_snapshot(make_site: MakeSite, session: SparkSession, encrypted: bool) -> None:
    site = make_site("sqlite", 10, encrypted=encrypted)
    lake = site.lake()
    quacklake.spark(lake, session)
    lake.sql("CREATE TABLE t (id BIGINT NOT NULL, v VARCHAR, shop BIGINT, more INTEGER DEFAULT 3)")
    lake.sql("ALTER TABLE t SET PARTITIONED BY (shop)")
    base = lake.current_snapshot()
    rows = session.range(300).selectExpr("id", "concat('v', id) AS v", "id % 2 AS shop")

    def write(frame: DataFrame, mode: str, **options: str) -> None:
        frame.write.format("quacklake").options(**options).mode(mode).save("t")

    write(rows, "append")
    write(rows.limit(3).selectExpr("id + 1000 AS id", "v", "shop"), "append")
    assert lake.current_snapshot() == base + 2
    assert len(all_agree(site, session)) == 303
    lake = site.lake()
    quacklake.spark(lake, session)
    write(rows.where("id < 10 AND shop = 0"), "overwrite", replaceWhere="shop = 0")
    assert lake.table("t").count("shop = 0") == 5
    write(rows.where("id < 50"), "overwrite")
    assert len(all_agree(site, session)) == 50
    assert site.lake().table("t").count("more = 3") == 50


@pytest.mark.daily(0.22)
def test_rows_that_do_not_fit_change_nothing(site: LakeSite, session: SparkSession) -> None:
    lake = site.lake()
    quacklake.spark(lake, session)
    lake.sql("CREATE TABLE t (id SMALLINT NOT NULL)")
    before = lake.current_snapshot()
    wrong = {
        "unknown column": session.range(3).selectExpr("CAST(id AS SMALLINT) AS id", "1 AS extra"),
        "the table has int16": session.range(3).selectExpr("concat('x', id) AS id"),
        "40": session.range(40_000, 40_300),
        "NULL in the NOT NULL": session.range(300).selectExpr("CAST(nullif(id, 299) AS SMALLINT) AS id"),
    }
    for message, frame in wrong.items():
        with pytest.raises(Exception, match=message):
            frame.coalesce(1).write.format("quacklake").mode("append").save("t")
    with pytest.raises(Exception, match="replaceWhere"):
        frame.write.format("quacklake").option("replaceWhere", "id = 1").mode("append").save("t")
    assert lake.current_snapshot() == before
    assert not list(site.data_path.rglob("*.parquet")), "what tasks have written is removed"


# -- streams -----------------------------------------------------------------------------------------------------------


def flow(session: SparkSession, folder: Path, *, name: str = "flow", **options: str) -> None:
    """Stream what is new in ``a`` into ``b``."""
    rows = session.readStream.format("quacklake").options(**options).load("a")
    query = (
        rows.writeStream.format("quacklake")
        .queryName(name)
        .option("checkpointLocation", str(folder))
        .trigger(availableNow=True)
        .start("b")
    )
    query.awaitTermination()


@pytest.mark.daily(0.35)
@pytest.mark.needs_spark("4.1")
def test_a_stream_goes_from_table_to_table_each_row_once(site: LakeSite, session: SparkSession, tmp_path: Path) -> None:
    lake = site.lake()
    quacklake.spark(lake, session)
    a = lake.create_table("a", pa.table({"id": range(50), "v": ["x"] * 50}))
    b = lake.create_table("b", {"id": pa.int64(), "v": pa.string()})
    flow(session, tmp_path / "check")
    a.append(pa.table({"id": range(50, 53), "v": ["y"] * 3}))
    a.update({"v": "z"}, "id < 5")
    flow(session, tmp_path / "check")
    assert sorted(row["id"] for row in b.to_pylist()) == list(range(53))
    assert lake.streams.list().column("epoch").to_pylist() == [1]
    # as if the driver had been killed between our commit and Spark's
    for name in ("1", ".1.crc"):
        (tmp_path / "check" / "commits" / name).unlink()
    flow(session, tmp_path / "check")
    assert b.count() == 53
    with pytest.raises(Exception, match="another query"):
        flow(session, tmp_path / "other")
    assert b.count() == 53
    with pytest.raises(Exception, match="needs a name"):
        session.readStream.format("quacklake").load("a").writeStream.format("quacklake").option(
            "checkpointLocation", str(tmp_path / "nameless")
        ).trigger(availableNow=True).start("b").awaitTermination()
    assert lake.verify().ok
