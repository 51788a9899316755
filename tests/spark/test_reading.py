"""Reading with Spark: the traps of its Parquet reader, settings, and files of every kind."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import pyarrow as pa
import pytest

import quacklake
from quacklake.errors import NotFoundError, PredicateError
from tests.conformance.clients import LakeSite
from tests.conformance.conftest import MakeSite
from tests.layout import folder as below

from .core import settings_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@pytest.fixture
def site(make_site: MakeSite) -> LakeSite:
    return make_site("sqlite", 0)


def rows(frame: DataFrame) -> list[tuple[Any, ...]]:
    return sorted((tuple(row) for row in frame.collect()), key=str)


def test_importing_quacklake_does_not_import_pyspark() -> None:
    code = "import quacklake, sys; sys.exit('pyspark' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_names_that_are_swapped_or_used_again_mean_the_right_columns(site: LakeSite, session: SparkSession) -> None:
    lake = site.lake()
    table = lake.create_table("t", pa.table({"a": range(100), "b": [f"b{i}" for i in range(100)], "c": [1.5] * 100}))
    table.rename_column("a", "x")
    table.rename_column("b", "a")
    table.rename_column("x", "b")
    table.drop_column("c")
    table.add_column("c", pa.string(), default="new")
    table.append(pa.table({"b": [1000], "a": ["later"], "c": pa.nulls(1, pa.string())}))
    frame = quacklake.spark(lake, session).table("t")
    assert rows(frame.where("b >= 99").select("a", "b", "c")) == [("b99", 99, "new"), ("later", 1000, None)]
    assert frame.where("a = 'b7'").count() == 1, "a filter that Spark uses while it reads"
    assert frame.where("c = 'new'").count() == 100


def test_one_field_of_a_renamed_struct_is_read(site: LakeSite, session: SparkSession) -> None:
    lake = site.lake()
    table = lake.create_table("t", pa.table({"s": [{"x": i, "y": f"y{i}"} for i in range(30)]}))
    table.rename_column("s", "t")
    table.rename_column("t.y", "z")
    table.append(pa.table({"t": [{"x": 100, "z": "late"}] * 20}))
    spark = quacklake.spark(lake, session)
    assert rows(spark.table("t").where("t.x in (3, 100)").select("t.z").distinct()) == [("late",), ("y3",)]
    assert rows(spark.table("t", at=1).where("s.x = 3").select("s.y")) == [("y3",)]


def test_a_filter_rules_out_files_and_rows(site: LakeSite, session: SparkSession) -> None:
    lake = site.lake()
    table = lake.create_table("t", pa.table({"id": range(50), "name": [f"n{i}" for i in range(50)]}))
    for first in (100, 200):
        table.append(pa.table({"id": range(first, first + 50), "name": ["x"] * 50}))
    table.delete("id = 110")
    spark = quacklake.spark(lake, session)
    frame = spark.table("t", where="id BETWEEN 105 AND 115 AND name = 'x'")
    assert len([path for path in frame.inputFiles() if "-delete" not in path]) == 1
    assert sorted(row.id for row in frame.collect()) == [*range(105, 110), *range(111, 116)]
    assert spark.table("t", where="id > 1000").count() == 0
    with pytest.raises(PredicateError):
        spark.table("t", where="id >")
    with pytest.raises(NotFoundError):
        spark.table("nothing")


def test_deletes_of_every_kind_are_applied_at_every_snapshot(site: LakeSite, session: SparkSession) -> None:
    lake = site.lake()
    table = lake.create_table("t", pa.table({"id": range(400)}))
    for first in (400, 800):
        table.append(pa.table({"id": range(first, first + 400)}))
    lake.options.set("write_deletion_vectors", True)
    table.delete("id % 10 = 1")  # vectors
    lake.options.set("write_deletion_vectors", False)
    table.delete("id % 10 = 2 AND id < 800")  # dated positions in two files, plain ones in none
    lake.options.set("data_inlining_row_limit", 10)
    table.delete("id IN (5, 405, 805)")  # in the catalog
    table.append(pa.table({"id": [5000]}))
    spark = quacklake.spark(lake, session)
    for version in range(lake.current_snapshot() - 3, lake.current_snapshot() + 1):
        expected = lake.at(version=version).table("t").to_arrow().column("id").to_pylist()
        assert sorted(row.id for row in spark.table("t", at=version).collect()) == sorted(expected), version


def test_files_from_elsewhere_are_read_by_their_names_and_folders(site: LakeSite, session: SparkSession) -> None:
    folder = below(site.folder / "data") / "else where"
    for year, name in ((2023, "a b"), (2024, "c%ü")):
        place = folder / f"year={year}" / f"who={name.replace('%', '%25')}"
        place.mkdir(parents=True)
        duckdb.sql(
            f"COPY (SELECT i::INTEGER AS id, {{'x': i, 'y': [i]}} AS s, i::SMALLINT AS small FROM range(30) r(i))"
            f" TO '{place}/part [0].parquet'"
        )
    lake = site.lake()
    table = lake.create_table(
        "t",
        pa.schema(
            [
                ("id", pa.int64()),
                ("s", pa.struct([("x", pa.int64()), ("y", pa.list_(pa.int64()))])),
                ("small", pa.int32()),
                ("year", pa.int32()),
                ("who", pa.string()),
            ]
        ),
    )
    table.add_files([str(path).replace("[", "[[]") for path in folder.rglob("*.parquet")])
    table.rename_column("s.x", "z")
    table.delete("id = 3 AND year = 2024")
    found = quacklake.spark(lake, session).table("t").where("id IN (3, 4)").select("id", "s.z", "s.y", "year", "who")
    assert rows(found) == [(3, 3, [3], 2023, "a b"), (4, 4, [4], 2023, "a b"), (4, 4, [4], 2024, "c%ü")]


@pytest.mark.needs_spark("4.1")
def test_settings_of_the_session_stay_and_do_not_matter(site: LakeSite, session: SparkSession) -> None:
    lake = site.lake()
    stock = site.stock()
    stock.execute("CREATE TABLE t(id INTEGER, t TIME, ts TIMESTAMP, s STRUCT(a INTEGER, b VARCHAR))")
    stock.execute("INSERT INTO t SELECT i, '12:34:56', '1500-01-01 00:00:00', {'a': i, 'b': 'b'} FROM range(20) r(i)")
    stock.execute("ALTER TABLE t ADD COLUMN n INTEGER DEFAULT 3")
    lake = site.lake()
    before = settings_of(session)
    spark = quacklake.spark(lake, session)
    frame = spark.table("t")
    spark.append("t", frame)
    assert settings_of(session) == before
    others = {
        "spark.sql.caseSensitive": "true",
        "spark.sql.ansi.enabled": "false",
        "spark.sql.session.timeZone": "Asia/Tokyo",
        "spark.sql.parquet.fieldId.read.enabled": "true",
        "spark.sql.optimizer.nestedSchemaPruning.enabled": "false",
        "spark.sql.timeType.enabled": "true",
        "spark.sql.files.ignoreMissingFiles": "true",
    }
    expected = [("3", "12:34:56", "1500-01-01 00:00:00", "b", 3)]
    select = ["CAST(id AS STRING)", "CAST(t AS STRING)", "CAST(ts AS STRING)", "s.b", "n"]
    try:
        for key, value in others.items():
            session.conf.set(key, value)
        assert rows(frame.where("id = 3").selectExpr(*select)) == expected
        again = spark.table("t")
        assert again.schema["t"].dataType.simpleString() == "time(6)"
        assert rows(again.where("id = 3").selectExpr(*select)) == expected * 2
        Path(lake.data_path, lake.table("t").plan().files.column("path")[0].as_py()).unlink()
        with pytest.raises(Exception, match=r"(?i)not.exist|file_not_exist"):
            again.count()
    finally:
        for key in others:
            session.conf.unset(key)
        for key, value in before.items():
            if key in others:
                session.conf.set(key, value)


def test_the_lines_for_spark_defaults_hold_no_secret(site: LakeSite, session: SparkSession) -> None:
    text = quacklake.spark(site.lake(), session).spark_defaults()
    assert "spark.sql.timeType.enabled true\n" in text
    assert "secret" not in text
