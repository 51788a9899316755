"""Encrypted lakes on Spark: everything is read and written with keys that only the tasks that need them see."""

from __future__ import annotations

import base64
import io
import pickle
import sqlite3
from contextlib import closing, redirect_stdout
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

import quacklake
from quacklake import expr
from quacklake.errors import ConstraintError, UnsupportedFeatureError
from quacklake.spark.changes import staged_changes
from quacklake.spark.read import scan
from quacklake.spark.write.tasks import Staging
from tests.conformance.clients import LakeSite
from tests.duckdbs import needs_extensions
from tests.seeds import LONG

from .agreement import all_agree

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from tests.conformance.conftest import MakeSite


ROWS = pa.table({"id": range(500), "name": [f"name {number}" for number in range(500)], "n": [1.5] * 500})


@pytest.fixture(autouse=True)
def _httpfs() -> None:
    """Encrypted files are written with an extension of DuckDB."""
    needs_extensions()


def keys_of(site: LakeSite) -> list[str]:
    """The keys of all files, as the catalog has them."""
    site.lake()  # which closes the other SQLite library of this process
    with closing(sqlite3.connect(site.catalog_file)) as connection:
        rows = [
            *connection.execute("SELECT encryption_key FROM ducklake_data_file"),
            *connection.execute("SELECT encryption_key FROM ducklake_delete_file"),
        ]
    assert all(key for (key,) in rows), "every file has a key"
    return [key for (key,) in rows]


def fill(site: LakeSite) -> None:
    """A table whose files ours and stock have written, with deletes of both."""
    table = site.lake().create_table("t", ROWS)
    table.delete("id BETWEEN 10 AND 40")
    stock = site.stock()
    stock.execute("INSERT INTO t SELECT i + 1000, 'stock', i FROM range(300) r(i)")
    stock.execute("DELETE FROM t WHERE id % 50 = 0")


@pytest.mark.daily(0.35)
def test_rows_of_ours_and_of_stock_are_read_at_every_snapshot(make_site: MakeSite, session: SparkSession) -> None:
    site = make_site("sqlite", 0, encrypted=True)
    fill(site)
    rows = all_agree(site, session, range(1, 5))
    assert len(rows) == 500 - 31 + 300 - 16
    spark = quacklake.spark(site.lake(), session)
    assert spark.table("t", where="id >= 1000 AND id < 1010").count() == 9
    assert spark.table("t", at=1).count() == 500


def test_no_key_is_in_what_spark_shows_and_each_task_has_its_own_only(
    make_site: MakeSite, session: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = make_site("sqlite", 0, encrypted=True)
    fill(site)
    keys = keys_of(site)
    monkeypatch.setattr("quacklake.spark.read.slices.SLICE_BYTES", 1)
    made: list[bytes] = []
    to_frame = scan.to_frame

    def kept(session: SparkSession, table: pa.Table) -> DataFrame:
        made.extend(table.column("part").to_pylist())
        return to_frame(session, table)

    monkeypatch.setattr(scan, "to_frame", kept)
    frame = quacklake.spark(site.lake(), session).table("t").where("id > 5").selectExpr("id + 1")
    shown = io.StringIO()
    with redirect_stdout(shown):
        for mode in ("simple", "extended", "codegen", "cost", "formatted"):
            frame.explain(mode=mode)
    text = shown.getvalue() + repr(frame) + "".join(repr(pickle.loads(part)) for part in made)
    raw = [base64.b64decode(key).hex() for key in keys]
    assert "MapInArrow" in text
    assert not any(key in text or number in text.lower() for key, number in zip(keys, raw, strict=True))
    assert len(made) == 2, "a slice for each data file"
    data = site.lake().table("t").plan().files.column("encryption_key").to_pylist()
    assert [[key for key in data if key.encode() in part] for part in made] == [[key] for key in data]


@pytest.mark.daily(0.22)
@pytest.mark.needs_spark("4.0")
def test_rows_are_written_and_changed_as_in_any_lake(make_site: MakeSite, session: SparkSession) -> None:
    site = make_site("sqlite", 0, encrypted=True)
    spark = quacklake.spark(site.lake(), session)
    frame = session.range(400).selectExpr("id", "concat('v', id) AS v", "id % 3 AS shop", "array(id, 1L) AS l")
    spark.create_table("t", frame.coalesce(1), partition_by="shop")
    spark.append("t", frame.selectExpr("id + 1000 AS id", "v", "shop", "l").coalesce(1))
    before = all_agree(site, session)
    assert len(before) == 800

    spark = quacklake.spark(site.lake(), session)
    assert spark.delete("t", "id < 30").rows_deleted == 30
    assert spark.delete("t", "id < 60").rows_deleted == 30, "a delete file that there was is read with its key"
    assert spark.update("t", {"v": expr("v || '!'")}, "id >= 1350").rows_updated == 50
    changes = session.createDataFrame([(100, "m"), (101, "m"), (5000, "new")], "id BIGINT, v STRING")
    done = spark.merge("t", changes, on="id").when_matched_update_all().when_not_matched_insert_all().execute()
    assert (done.rows_updated, done.rows_inserted) == (2, 1)
    rows = {row[1]: row for row in all_agree(site, session)}
    assert len(rows) == 800 - 60 + 1
    assert (rows["100"][2], rows["5000"][2], rows["1350"][2]) == ("m", "new", "v350!")
    ids = {row[1]: row[0] for row in before}
    assert all(rows[id_][0] == ids[id_] for id_ in rows if id_ != "5000"), "row ids stay"

    if LONG:
        spark = quacklake.spark(site.lake(), session)
        spark.rewrite_data_files("t", 0.01)
        spark.merge_adjacent_files("t")
        assert {row[1]: row for row in all_agree(site, session)} == rows
    assert keys_of(site)
    for file in site.data_path.rglob("*.parquet"):
        assert file.read_bytes()[-4:] == b"PARE", "nothing of the lake is in the clear"


@pytest.mark.daily(0.22)
@pytest.mark.needs_spark("4.0")
def test_staged_rows_of_an_encrypted_lake_are_in_no_file(
    make_site: MakeSite, session: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = make_site("sqlite", 0, encrypted=True)
    spark = quacklake.spark(site.lake(), session)
    site.lake().create_table("t", ROWS)
    seen: list[bool] = []
    put = Staging.put

    def watched(self: Staging, *args: object) -> object:
        found = put(self, *args)  # type: ignore[arg-type]
        seen.append(bool(list(site.data_path.rglob("staged-*"))))
        return found

    monkeypatch.setattr(Staging, "put", watched)
    monkeypatch.setattr(staged_changes, "_MAX_ROWS", 0)  # more cannot be found at once
    assert spark.delete("t", "id < 100").rows_deleted == 100
    assert seen == [False]


@pytest.mark.daily(0.22)
@pytest.mark.needs_spark("4.0")
def test_what_does_not_fit_an_encrypted_table_is_a_typed_error(make_site: MakeSite, session: SparkSession) -> None:
    site = make_site("sqlite", 0, encrypted=True)
    lake = site.lake()
    spark = quacklake.spark(lake, session)
    lake.sql("CREATE TABLE s (n TINYINT NOT NULL)")
    with pytest.raises(ConstraintError):
        spark.append("s", session.range(1000).selectExpr("CAST(id AS SMALLINT) AS n"))
    with pytest.raises(ConstraintError, match="NULL"):
        spark.append("s", session.range(10).selectExpr("IF(id = 5, NULL, CAST(id AS TINYINT)) AS n"))
    lake.sql("CREATE TABLE v (v VARIANT)")
    with pytest.raises(UnsupportedFeatureError, match="variant"):
        spark.append("v", session.range(3).selectExpr("parse_json('1') AS v"))
    lake.sql("CREATE TABLE times (t TIME)")
    lake.sql("INSERT INTO times VALUES ('10:00:00')")
    with pytest.raises(UnsupportedFeatureError, match="TIME"):
        spark.update("times", {"t": None}, "t IS NULL")
    assert spark.delete("times", "t IS NULL").rows_deleted == 0  # which needs no copy of them
    assert spark.table("times").collect()[0].t == "10:00:00"
    assert (lake.table("s").count(), lake.table("v").count()) == (0, 0)
