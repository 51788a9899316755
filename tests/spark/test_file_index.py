"""Files that Spark reads without looking for them first: the same rows as by their paths, and never fewer."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import sqlalchemy as sa

import quacklake
from quacklake.errors import UnsupportedFeatureError
from tests.conformance.clients import LakeSite
from tests.conformance.conftest import MakeSite

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

REMOTE: Any = SimpleNamespace(is_local=False)
"""A store in the cloud: the reader takes the sizes of files from the catalog."""


@pytest.fixture
def site(make_site: MakeSite) -> LakeSite:
    return make_site("sqlite", 0)


@pytest.fixture(autouse=True)
def own_makers(session: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    from quacklake.spark.read import file_index

    assert file_index._maker(session) is not None
    monkeypatch.setattr(file_index, "_makers", file_index._makers.copy())


def without_index(session: SparkSession) -> None:
    from quacklake.spark.read import file_index

    file_index._makers[session._jvm] = None


def location(frame: DataFrame) -> str:
    plan: str = frame._jdf.queryExecution().toString()
    return "QuacklakeFiles" if "QuacklakeFiles(" in plan else "InMemoryFileIndex"


def rows(frame: DataFrame) -> list[tuple[Any, ...]]:
    return sorted((tuple(row) for row in frame.collect()), key=str)


def test_rows_are_those_that_spark_finds_by_the_paths(make_site: MakeSite, session: SparkSession) -> None:
    site = make_site("sqlite", 0)
    lake = site.lake()
    elsewhere = site.folder / "data" / "else %20 where é" / "k=1" / "[a]{b}*?"
    elsewhere.mkdir(parents=True)
    names = ["part #1 é.parquet", "%41.parquet", "a=b&c+d.parquet", "plain.parquet", 'it\'s "so".parquet']
    nested = pa.struct([("x", pa.int64()), ("y", pa.list_(pa.string()))])
    schema = pa.schema([("id", pa.int64()), ("s", nested), ("name", pa.string())])
    for number, name in enumerate(names):
        ids = range(number * 100, number * 100 + 100)
        values = [{"id": i, "s": {"x": i, "y": [f"y{i}"]}, "name": f"n{i}"} for i in ids]
        pq.write_table(pa.Table.from_pylist(values, schema), elsewhere / name, row_group_size=10)
    table = lake.create_table("t", schema)
    table.add_files([str(elsewhere / name).translate({ord(c): f"[{c}]" for c in "[*?"}) for name in names])
    for first in (1000, 1100, 1200):
        values = [{"id": i, "s": {"x": i, "y": []}, "name": None} for i in range(first, first + 100)]
        table.append(pa.Table.from_pylist(values, schema))
    assert table.merge_adjacent_files().files_after == 1
    table.delete("id % 50 = 7")
    table.rename_column("s.x", "z")
    spark = quacklake.spark(lake, session)
    versions = (4, lake.current_snapshot())  # one within the merged file

    def seen() -> tuple[list[Any], str]:
        frame = spark.table("t")
        filtered = frame.where("id BETWEEN 150 AND 1120 AND s.z % 2 = 0").select("name", "s.y")
        everything = [rows(spark.table("t", at=version)) for version in versions]
        return [rows(filtered), everything, sorted(frame.inputFiles()), frame.schema], location(frame)

    session.conf.set("spark.sql.files.maxPartitionBytes", "4096")  # several parts of each file
    try:
        indexed, how = seen()
        assert how == "QuacklakeFiles"
        without_index(session)
        listed, how = seen()
        assert how == "InMemoryFileIndex"
    finally:
        session.conf.unset("spark.sql.files.maxPartitionBytes")
    assert indexed == listed
    assert [len(found) for found in indexed[1]] == [700, lake.table("t").count()]


def test_a_file_with_a_hidden_name_is_read_or_refused(site: LakeSite, session: SparkSession) -> None:
    lake = site.lake()
    table = lake.create_table("t", pa.schema([("id", pa.int64())]))
    Path(lake.data_path).mkdir(parents=True)
    for name in (".a.parquet", "_b.parquet", "_k=1.parquet"):
        pq.write_table(pa.table({"id": range(30)}), Path(lake.data_path, name))
        table.add_files([str(Path(lake.data_path, name))])
    spark = quacklake.spark(lake, session)
    assert spark.table("t").count() == 90
    without_index(session)
    with pytest.raises(UnsupportedFeatureError, match="passes over"):
        spark.table("t")
    assert spark.table("t", at=1).count() == 0


def test_a_wrong_size_in_the_catalog_hides_no_rows(site: LakeSite, session: SparkSession) -> None:
    from quacklake.spark.read.file_index import read_files

    lake = site.lake()
    lake.create_table("t", pa.table({"id": range(500)}))
    for size in (40, 0, 1 << 30):
        site.close()
        with sa.create_engine(site.url).begin() as connection:
            connection.execute(sa.text(f"UPDATE ducklake_data_file SET file_size_bytes = {size}, footer_size = NULL"))
        lake = site.lake()
        frame = quacklake.spark(lake, session).table("t")
        assert location(frame) == "QuacklakeFiles"
        assert frame.count() == 500
        files = lake.table("t").plan().files
        urls = [str(Path(lake.data_path, path)) for path in files.column("path").to_pylist()]
        unsure = read_files(session, REMOTE, files, urls, "id BIGINT").rows
        assert location(unsure) == "InMemoryFileIndex"
        assert unsure.count() == 500


def test_nothing_is_looked_for_in_a_store_before_rows_are_read(site: LakeSite, session: SparkSession) -> None:
    from quacklake.spark.read.file_index import read_files

    lake = site.lake()
    table = lake.create_table("t", pa.table({"id": range(500)}))
    table.append(pa.table({"id": range(500)}))
    files = lake.table("t").plan().files
    urls = [str(Path(lake.data_path, path)) for path in files.column("path").to_pylist()]
    assert read_files(session, REMOTE, files, urls, "id BIGINT").rows.count() == 1000
    Path(urls[1]).unlink()
    frame = read_files(session, REMOTE, files, urls, "id BIGINT").rows
    assert location(frame) == "QuacklakeFiles"
    with pytest.raises(Exception, match=r"(?i)not.exist"):
        frame.count()
    with pytest.raises(Exception, match=r"PATH_NOT_FOUND"):
        quacklake.spark(lake, session).table("t")  # a disk is asked at once


def test_equal_tables_are_one_to_the_cache_of_spark(site: LakeSite, session: SparkSession) -> None:
    lake = site.lake()
    lake.create_table("t", pa.table({"id": range(50)}))
    spark = quacklake.spark(lake, session)
    kept = spark.table("t").cache()
    try:
        assert kept.count() == 50
        assert "InMemoryTableScan" in spark.table("t")._jdf.queryExecution().executedPlan().toString()
    finally:
        kept.unpersist()


@pytest.mark.parametrize("broken", ["class Nothing {", "package quacklake; public class QuacklakeFiles {}"])
def test_another_spark_reads_by_the_paths(
    site: LakeSite, session: SparkSession, monkeypatch: pytest.MonkeyPatch, broken: str
) -> None:
    from quacklake.spark.read import file_index

    lake = site.lake()
    lake.create_table("t", pa.table({"id": range(50)}))
    java = SimpleNamespace(read_text=lambda encoding: broken)
    monkeypatch.setattr(file_index, "files", lambda package: SimpleNamespace(joinpath=lambda name: java))
    file_index._makers.clear()
    frame = quacklake.spark(lake, session).table("t")
    assert location(frame) == "InMemoryFileIndex"
    assert frame.count() == 50
    assert file_index._makers[session._jvm] is None


@pytest.mark.parametrize("indexed", [True, False])
def test_facts_of_files_are_columns_of_their_rows(site: LakeSite, session: SparkSession, indexed: bool) -> None:
    from quacklake.spark.read.file_index import read_files

    lake = site.lake()
    table = lake.create_table("t", pa.table({"id": range(10)}))
    for first in (10, 20, 30):
        table.append(pa.table({"id": range(first, first + 10)}))
    files = lake.table("t").plan().files
    files = pa.concat_tables([files, files.slice(0, 1)])  # a file may be part of a table twice
    urls = [str(Path(lake.data_path, path)) for path in files.column("path").to_pylist()]
    facts = {
        "number": pa.array([0, 1, None, -(1 << 63), (1 << 63) - 1], pa.int64()),
        "text": pa.array(["", None, "a\tb\nc", "=+%20 é ' \\", "last"], pa.string()),
    }
    if not indexed:
        without_index(session)
    store: Any = SimpleNamespace(is_local=True)
    frame = read_files(session, store, files, urls, "id BIGINT", facts, "place").rows.select("id", *facts, "place")
    assert location(frame) == ("QuacklakeFiles" if indexed else "InMemoryFileIndex")
    facts_of = list(zip(*(values.to_pylist() for values in facts.values()), strict=True))
    expected = [(10 * (i % 4) + place, *facts_of[i], place) for i in range(5) for place in range(10)]
    assert rows(frame) == sorted(expected, key=str)

    def kept(where: str) -> list[int]:
        return sorted(row.id for row in frame.where(where).select("id").collect())

    # about facts alone, which Spark leaves to the index
    assert kept("number = 1 OR text = 'last'") == [*range(20)]
    assert kept("number IS NULL") == [*range(20, 30)]
    assert kept("text IS NULL AND number IN (0, 1)") == [*range(10, 20)]
    assert kept("length(text) = 5 AND id < 25") == [*range(20, 25)]
    assert kept("number < -5 AND id % 2 = 0") == [*range(30, 40, 2)]
    assert kept("number > 5 AND number < 5") == []
    wanted = session.createDataFrame([(0, "x"), (1, "y")], "number BIGINT, n STRING")
    assert frame.join(wanted, "number").count() == 20
    assert frame.join(wanted.where("n = 'y'").hint("broadcast"), "number", "left_anti").count() == 40


def test_a_column_that_is_called_like_a_fact_is_refused_not_mistaken(site: LakeSite, session: SparkSession) -> None:
    lake = site.lake()
    lake.create_table("t", pa.table({"id": range(10), "_QL_fact_row_id_start": ["mine"] * 10}))
    spark = quacklake.spark(lake, session)
    assert {row[1] for row in spark.table("t").collect()} == {"mine"}
    with pytest.raises(UnsupportedFeatureError, match="_QL_fact_row_id_start"):
        spark.delete("t", "id = 3")
    assert lake.table("t").count() == 10


def test_a_setting_of_the_session_switches_the_index_off(site: LakeSite, session: SparkSession) -> None:
    lake = site.lake()
    lake.create_table("t", pa.table({"id": [1, 2, 3]}))
    spark = quacklake.spark(lake, session)
    assert location(spark.table("t")) == "QuacklakeFiles"
    session.conf.set("spark.quacklake.fileIndex", "false")
    try:
        frame = spark.table("t")
        assert location(frame) == "InMemoryFileIndex"
        assert rows(frame) == [(1,), (2,), (3,)]
    finally:
        session.conf.unset("spark.quacklake.fileIndex")
