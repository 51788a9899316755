"""Conditions in Spark are computed for the rows of a table only: those that are deleted may not bear them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import quacklake
from quacklake import expr
from quacklake.spark.read import file_index

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

#: The forms of deleted rows, by the options of the table.
KINDS = {
    "file": {"data_inlining_row_limit": 0},
    "vector": {"data_inlining_row_limit": 0, "write_deletion_vectors": True},
    "catalog": {"data_inlining_row_limit": 10},
}
_FAILS = "CAST(v AS INT) > 5"


def lake_with_deletes(folder: Path, kind: str = "file") -> quacklake.Lake:
    """Two files of which some rows are deleted that no cast bears, in two steps, and a third without deletes."""
    lake = quacklake.connect(f"sqlite:///{folder}/lake.db", data_path=str(folder / "data"), data_inlining_row_limit=0)
    lake.sql("CREATE TABLE t(id INT, v VARCHAR)")
    for name, value in KINDS[kind].items():
        lake.options.set(name, value, table="t")
    rows = "SELECT i, CASE WHEN i % 100 = 7 THEN 'bad' ELSE i::VARCHAR END FROM range({}, {}) r(i)"
    lake.sql(f"INSERT INTO t {rows.format(0, 200)}")
    lake.sql(f"INSERT INTO t {rows.format(200, 307)}")
    lake.sql("INSERT INTO t SELECT i, i::VARCHAR FROM range(400, 500) r(i)")
    lake.table("t").delete("id = 7")
    lake.table("t").delete("id IN (0, 107, 207)")
    return lake


@pytest.fixture(params=["bits", "join", "paths", "paths and join"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """The ways in which deleted rows are left out: of few rows, of many, and where facts come by a join."""
    if "join" in request.param:
        monkeypatch.setattr(file_index, "_MAX_ROWS", 0)
    if "paths" in request.param:
        monkeypatch.setattr(file_index, "_maker", lambda session: None)
    return request.param


@pytest.mark.needs_spark("4.0")
def test_a_condition_that_fails_for_deleted_rows_does_not_fail(way: str, tmp_path: Path, session: SparkSession) -> None:
    spark = quacklake.spark(lake_with_deletes(tmp_path), session)
    assert spark.table("t").where(_FAILS).count() == 398


@pytest.mark.needs_spark("4.0")
def test_nor_does_a_statement_that_changes_rows(tmp_path: Path, session: SparkSession) -> None:
    lake = lake_with_deletes(tmp_path)
    spark = quacklake.spark(lake, session)
    done = spark.merge("t", session.range(300, 302), "CAST(target.v AS INTEGER) = source.id")
    assert done.when_matched_update({"v": expr("'1'")}).execute().rows_updated == 2
    assert spark.update("t", {"v": "2"}, "CAST(v AS INTEGER) = 302").rows_updated == 1
    assert spark.delete("t", "CAST(v AS INTEGER) < 3").rows_deleted == 5
    assert lake.table("t").count() == 398


@pytest.mark.needs_spark("4.0")
@pytest.mark.parametrize("kind", ["vector", "catalog"])
def test_so_it_is_wherever_deletes_are_kept(kind: str, tmp_path: Path, session: SparkSession) -> None:
    lake = lake_with_deletes(tmp_path, kind)
    spark = quacklake.spark(lake, session)
    assert spark.sql(f"SELECT count(*) FROM t WHERE {_FAILS}").first()[0] == 398
    assert sorted(row.id for row in spark.table("t").where("id < 9 OR id IN (107, 207)").collect()) == [
        1,
        2,
        3,
        4,
        5,
        6,
        8,
    ]
    before = lake.current_snapshot() - 1
    assert sorted(row.id for row in spark.table("t", at=before).where("v = 'bad'").collect()) == [107, 207]
    lake.tag("before", before)
    for words in ({"at": "before"}, {"version": before}, {"version": "before"}, {"tag": "before"}):
        assert spark.table("t", **words).where("v = 'bad'").count() == 2  # type: ignore[arg-type]


@pytest.mark.needs_spark("4.0")
def test_conditions_that_cannot_fail_still_reach_the_files_with_deletes(
    tmp_path: Path, session: SparkSession, capsys: pytest.CaptureFixture[str]
) -> None:
    quacklake.spark(lake_with_deletes(tmp_path), session).table("t").where(f"id > 100 AND {_FAILS}").explain()
    scans = [line for line in capsys.readouterr().out.splitlines() if "FileScan parquet" in line]
    assert len(scans) == 2
    assert all("GreaterThan(id,100)" in line.partition("PushedFilters")[2] for line in scans)


def test_lakes_own_queries_do_not_compute_conditions_for_deleted_rows(tmp_path: Path) -> None:
    lake = lake_with_deletes(tmp_path)
    assert lake.sql(f"SELECT count(*) FROM t WHERE {_FAILS}").fetchall() == [(398,)]
    assert lake.table("t").count(_FAILS) == 398
