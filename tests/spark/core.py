"""Tests for every kind of session, in a separate process: ``python -m tests.spark.core URL FOLDER PART…``.

The URL is that of a master or of a Spark Connect server, or ``own``. Every answer of Spark is compared with Quacklake's.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import quacklake
from quacklake import expr
from quacklake.errors import ConstraintError, InputError, StreamMismatchError, UnsupportedFeatureError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from quacklake.spark.streams.sink import WrittenBatch

__all__ = ["OWN", "connect_streams", "make_session", "run_child", "same", "settings_of"]


OWN = "own"
"""In the place of a URL: the session that Quacklake makes by itself."""


def make_session(url: str, **settings: str) -> SparkSession:
    """A session of a master, or of a Connect server."""
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    if url.startswith("sc://"):
        return SparkSession.builder.remote(url).getOrCreate()
    known = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.memory": "512m",
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1",
        "spark.executor.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        "spark.executor.memory": "512m",
        "spark.sql.shuffle.partitions": "2",
        "spark.log.level": "OFF",
    }
    builder = SparkSession.builder.master(url)
    for key, value in {**known, **settings}.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


def settings_of(session: SparkSession) -> dict[str, str]:
    """Return the settings of a session, of any version."""
    return {row.key: row.value for row in session.sql("SET").collect()}


def same(lake: quacklake.Lake, session: SparkSession, table: str = "t", at: int | None = None) -> int:
    """Spark must read what Quacklake reads, of now or of a snapshot; how many rows that are."""
    found = quacklake.spark(lake, session).table(table, at=at)
    own = (lake if at is None else lake.at(version=at)).table(table)
    columns = own.columns
    assert found.columns == columns
    expected = sorted(map(str, own.to_pylist()))
    assert sorted(str(row.asDict()) for row in found.select(*columns).collect()) == expected, f"{table} at {at}"
    return len(expected)


def core(lake: quacklake.Lake, session: SparkSession) -> None:
    """A little of everything, quickly."""
    from pyspark.sql import functions as f

    spark = quacklake.spark(lake, session)
    rows = session.range(0, 60, 1, 2).selectExpr("id", "id % 2 AS shop", "array(id) AS list")
    spark.create_table("t", rows, partition_by=["shop", "bucket(2, id)"])
    lake.table("t").add_column("extra", pa.string(), default="new")
    lake.options.set("data_inlining_row_limit", 5)
    lake.table("t").append([{"id": 100, "shop": 1, "list": [1], "extra": "in the catalog"}])
    lake.options.set("data_inlining_row_limit", 0)
    lake.table("t").delete("id = 7")
    before = lake.current_snapshot()
    spark.overwrite("t", rows.where("id < 10").withColumn("extra", f.lit("again")), where="id < 10")
    source = rows.selectExpr("id + 50 AS id", "shop", "array(0L) AS list", "'merged' AS extra")
    done = spark.merge("t", source, "id").when_matched_update_all().when_not_matched_insert_all().execute()
    assert (done.rows_updated, done.rows_inserted) == (11, 49), done
    assert spark.delete("t", "id % 10 = 1").rows_deleted == 11
    spark.optimize("t", order_by="id")
    assert same(lake, session) == 60 + 49 - 11 + 1
    assert same(lake, session, at=before) == 60
    spark.sql("CREATE VIEW shops AS SELECT shop, count(*) AS n, max(id) AS last FROM t WHERE id > 10 GROUP BY shop")
    rows = [tuple(row) for row in spark.sql("SELECT * FROM shops ORDER BY shop").collect()]
    assert rows == lake.sql("SELECT * FROM shops ORDER BY shop").fetchall()


def planned(lake: quacklake.Lake, session: SparkSession) -> None:
    """A table in an object store is planned without any work of Spark there."""
    table = lake.create_table("planned", pa.table({"id": range(50)}))
    for _ in range(5):
        table.append(pa.table({"id": range(50)}))
    spark = quacklake.spark(lake, session)
    assert spark.table("planned").count() == 300
    before = _file_work(session)
    frame = spark.table("planned")
    assert _file_work(session) == before
    assert frame.count() == 300
    assert _file_work(session)["S3AStorageStatistics"] > before["S3AStorageStatistics"]


def _file_work(session: SparkSession) -> dict[str, int]:
    """Return the statistics of Hadoop's file systems in this process: each the sum of requests, bytes and files."""
    jvm: Any = session._jvm
    found = {}
    systems = jvm.org.apache.hadoop.fs.FileSystem.getGlobalStorageStatistics().iterator()
    while systems.hasNext():
        system = systems.next()
        numbers, total = system.getLongStatistics(), 0
        while numbers.hasNext():
            total += numbers.next().getValue()
        found[system.getName()] = total
    return found


def read(lake: quacklake.Lake, session: SparkSession) -> None:
    """Deletes of files and of the catalog, inlined rows, columns that changed, and snapshots."""
    table = lake.create_table("t", pa.table({"id": range(60), "name": [f"n{i}" for i in range(60)], "n": [1] * 60}))
    table.append(pa.table({"id": range(100, 160), "name": ["x"] * 60, "n": pa.array([2] * 60, pa.int64())}))
    before = lake.current_snapshot()
    table.delete("id % 10 = 3")
    table.rename_column("name", "label")
    table.add_column("extra", pa.string(), default="new")
    table.drop_column("n")
    lake.options.set("data_inlining_row_limit", 10)
    table.append(pa.table({"id": [500, 501], "label": ["a", None], "extra": ["b", "c"]}))
    table.delete("id IN (500, 7)")
    lake.options.set("data_inlining_row_limit", 0)
    assert same(lake, session) == 60 + 60 - 12 + 2 - 2
    assert same(lake, session, at=before) == 120
    frame = quacklake.spark(lake, session).table("t", where="id >= 100")
    assert frame.where("extra = 'new'").count() == 54


def write(lake: quacklake.Lake, session: SparkSession) -> None:
    """Append, overwrite, merge, update and delete, with files and without."""
    from pyspark.sql import functions as f

    spark = quacklake.spark(lake, session)
    rows = session.range(0, 90, 1, 3).selectExpr("id", "id % 3 AS shop", "id / 4 AS amount")
    spark.create_table("sales", rows, partition_by=["shop"])
    spark.append("sales", rows.selectExpr("id + 100 AS id", "shop", "amount").coalesce(1))
    spark.overwrite("sales", rows.where("shop = 0 AND id < 30"), where="shop = 0")
    assert same(lake, session, "sales") == 130
    assert spark.delete("sales", "id % 20 = 1").rows_deleted == 7
    assert spark.update("sales", {"amount": expr("amount + 1000")}, "id BETWEEN 40 AND 50").rows_updated > 0
    source = rows.selectExpr("id + 60 AS id", "shop", "-1D AS amount").where("id % 2 = 0")
    done = (
        spark.merge("sales", source, "id")
        .when_matched_update_all("source.shop <> 2")
        .when_matched_delete()
        .when_not_matched_insert_all(f.expr("source.id < 100"))
        .when_not_matched_by_source_delete("target.id < 5")
        .execute()
    )
    assert done.rows_updated and done.rows_deleted and done.rows_inserted, done
    same(lake, session, "sales")
    lake.options.set("data_inlining_row_limit", 10)
    spark.append("sales", rows.limit(3))
    assert spark.update("sales", {"amount": 0}, "id IN (1, 2)").files_added == 0
    lake.options.set("data_inlining_row_limit", 0)
    same(lake, session, "sales")
    for wrong, error in ((rows.selectExpr("id AS other"), InputError), (rows.selectExpr("1D AS shop"), InputError)):
        with pytest.raises(error):
            spark.append("sales", wrong)
    with pytest.raises(ConstraintError, match="several rows"):
        spark.merge("sales", rows.union(rows), "id").when_matched_update_all().execute()


def in_python(lake: quacklake.Lake, session: SparkSession) -> None:
    """Work for which executors need Python: buckets, and row ids beside lists."""
    spark = quacklake.spark(lake, session)
    rows = session.range(0, 60, 1, 2).selectExpr("id", "array(id, id + 1) AS list")
    spark.create_table("lists", rows, partition_by=["bucket(4, id)"])
    assert spark.update("lists", {"list": expr("[7]")}, "id < 20").rows_updated == 20
    assert same(lake, session, "lists") == 60


def compact(lake: quacklake.Lake, session: SparkSession) -> None:
    """Compactions, after which every snapshot is what it was."""
    spark = quacklake.spark(lake, session)
    counts = {version: same(lake, session, "t", at=version) for version in (2, lake.current_snapshot())}
    spark.flush_inlined_data("t")
    spark.rewrite_data_files("t", 0.05)
    spark.merge_adjacent_files("t")
    spark.optimize("sales", zorder=["id", "amount"])
    same(lake, session, "sales")
    for version, count in counts.items():
        assert same(lake, session, "t", at=version) == count


def pipeline(lake: quacklake.Lake, session: SparkSession) -> None:
    """Send what is new in a table through a query into another one. Streams out need a URL on Connect."""
    spark = quacklake.spark(lake, session)
    table = lake.create_table("new", pa.table({"id": range(20)}))
    lake.create_table("counted", {"n": pa.int64(), "c": pa.int64()})
    if type(session).__module__.startswith("pyspark.sql.connect"):
        with pytest.raises(UnsupportedFeatureError, match="lake_url"):
            spark.read_stream("new")
    query = "SELECT id % 2 AS n, count(*) AS c FROM source WHERE '{}' <> '' GROUP BY 1"
    flow = spark.pipeline("new", query, "counted", name="counts")
    assert [report.rows for report in flow.run()] == [2]
    table.append(pa.table({"id": [1, 3, 5]}))
    assert [report.rows for report in flow.run()] == [1]
    assert same(lake, session, "counted") == 3


def connect_streams(lake: quacklake.Lake, session: SparkSession) -> None:
    """Streams into a table on Connect: each batch once."""
    spark = quacklake.spark(lake, session)
    folder = Path(lake.data_path).parent
    lake.create_table("streamed", {"id": pa.int64(), "n": pa.int64()})

    def run(first: int, checkpoint: str = "checkpoint") -> list[WrittenBatch]:
        new = session.range(first, first + 20, 1, 1).selectExpr("id", "id % 2 AS n")
        new.write.mode("append").parquet(f"{folder}/incoming")
        rows = session.readStream.schema("id BIGINT, n BIGINT").parquet(f"{folder}/incoming")
        options: dict[str, Any] = {"checkpoint": f"{folder}/{checkpoint}", "trigger": "availableNow"}
        handle = spark.write_stream("streamed", rows, name="incoming", **options)
        assert handle.awaitTermination(200)
        return handle.reports

    assert [(report.epoch, report.rows) for report in run(0)] == [(0, 20)]
    for name in ("0", ".0.crc"):  # as if it had been killed just before
        Path(folder, "checkpoint/commits", name).unlink()
    assert [(report.epoch, report.rows, report.skipped) for report in run(20)] == [(0, 0, True), (1, 20, False)]
    with pytest.raises(StreamMismatchError):
        run(40, "another")
    assert same(lake, session, "streamed") == 40
    assert not list(Path(lake.data_path).rglob("staged-*"))


def run(url: str, folder: str, *parts: str) -> None:
    """Do some parts; afterwards the lake is whole, and the session has the settings it had."""
    from tests.spark import cluster_parts, connect_parts

    catalog = os.environ.get("CORE_CATALOG", f"sqlite:///{folder}/lake.db")
    data = os.environ.get("CORE_DATA", f"{folder}/data")
    with quacklake.connect(catalog, data_path=data, duckdb_threads=1) as lake:
        session = quacklake.spark(lake).session if url == OWN else make_session(url)
        before = settings_of(session)
        lake.options.set("data_inlining_row_limit", 0)
        for name in parts:
            began = time.monotonic()
            known = {**vars(cluster_parts), **vars(connect_parts), **globals()}
            known[name](lake, session)
            print(f"{name}: {time.monotonic() - began:.1f} s", flush=True)
        assert lake.verify().ok
        assert settings_of(session) == before
        session.stop()


def run_child(url: str, folder: Path, *parts: str, seconds: int = 280, **environment: str) -> str:
    """Run parts in a separate process, because this one may have a session already. Returns what it printed."""
    folder.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "tests.spark.core", url, str(folder), *parts]
    ended = subprocess.run(
        command, env={**os.environ, **environment}, capture_output=True, text=True, timeout=seconds, check=False
    )
    assert ended.returncode == 0, ended.stderr[-4000:]
    return ended.stdout


if __name__ == "__main__":
    # not as __main__, whose functions would be others than those that a task imports
    from tests.spark import core

    core.run(*sys.argv[1:])
