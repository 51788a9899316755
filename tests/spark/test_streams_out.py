"""Tables as streams in Spark, and pipelines from table to table: each row once, in every way of reading."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import quacklake
from quacklake.core import faults
from quacklake.core.faults import Fault, FaultInjected
from quacklake.errors import InputError, StreamFencedError, StreamMismatchError, UnsupportedFeatureError
from tests.conformance.clients import LakeSite
from tests.conformance.conftest import MakeSite
from tests.spark.test_writing import ALL, ONE

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


pytestmark = pytest.mark.needs_spark("4.0")


@pytest.fixture
def site(make_site: MakeSite) -> LakeSite:
    return make_site("sqlite", 5)


def contents(lake: quacklake.Lake, name: str) -> list[tuple[Any, ...]]:
    return sorted(tuple(row.values()) for row in lake.table(name).to_pylist())


class Collected:
    """A query of Spark on a stream, and the batches that it got."""

    def __init__(self, folder: Path) -> None:
        self.checkpoint = str(folder / "checkpoint")
        self.batches: list[list[tuple[Any, ...]]] = []

    def run(self, frame: DataFrame) -> list[tuple[Any, ...]]:
        self.batches.clear()
        writer = frame.writeStream.foreachBatch(self._take).option("checkpointLocation", self.checkpoint)
        writer.trigger(availableNow=True).start().awaitTermination()
        return sorted((row for batch in self.batches for row in batch), key=str)

    def _take(self, frame: DataFrame, _: int) -> None:
        self.batches.append([tuple(row) for row in frame.collect()])


def test_a_query_of_sparks_own_reads_every_type_on_and_on(
    site: LakeSite, session: SparkSession, tmp_path: Path
) -> None:
    stock = site.stock()
    stock.execute(f"CREATE TABLE l.t({ALL}, n VARCHAR[], m MAP(VARCHAR, UUID))")
    more = "['a', NULL], MAP {'k': '00000000-0000-0000-0000-000000000001'::UUID}"
    for numbers in ("range(20)", "range(50, 53)"):  # one in a file, one in the catalog
        stock.execute(f"INSERT INTO l.t SELECT {ONE}, {more} FROM {numbers} r(i)")
    lake = site.lake()
    spark = quacklake.spark(lake, session)
    frame, plain = spark.read_stream("t", changes=True), spark.table("t")
    assert frame.isStreaming
    assert frame.drop("_change_type", "_commit_version", "_commit_timestamp").schema == plain.schema
    found = Collected(tmp_path)
    read = found.run(frame)
    assert sorted(str(row[:-3]) for row in read) == sorted(str(tuple(row)) for row in plain.collect())
    assert {(row[2], row[-3], row[-2]) for row in read} == {
        (number, "insert", 3 if number > 40 else 2) for number in (*range(20), *range(50, 53))
    }
    assert all(row[-1] is not None for row in read)
    table = lake.table("t")
    table.update({"v": "b"}, "i16 < 2")
    table.delete("i16 = 5")
    table.flush_inlined_data()
    table.merge_adjacent_files()
    table.append(table.to_arrow(where="i16 = 51"))
    # a new frame on the old checkpoint goes on where that is
    again = found.run(spark.read_stream("t", changes=True).select("i16", "v", "_change_type"))
    kinds = {"delete": [(5, "v5")], "insert": [(51, "v51")]}
    kinds |= {"update_preimage": [(0, "v0"), (1, "v1")], "update_postimage": [(0, "b"), (1, "b")]}
    assert again == sorted(((*row, kind) for kind, some in kinds.items() for row in some), key=str)


def test_a_pipeline_brings_rows_through_a_query_once(site: LakeSite, session: SparkSession) -> None:
    lake = site.lake()
    orders = lake.create_table("orders", {"id": pa.int64(), "shop": pa.string(), "amount": pa.int64()})
    lake.create_table("totals", {"shop": pa.string(), "total": pa.int64()})
    spark = quacklake.spark(lake, session)
    sql = "WITH s AS (SELECT * FROM source) SELECT shop, sum(amount) AS total FROM s GROUP BY shop"
    orders.append([{"id": number, "shop": f"s{number % 2}", "amount": 1} for number in range(20)])
    flow = spark.pipeline("orders", sql, "totals", name="totals", max_files=1)
    assert [report.rows for report in flow.run()] == [2]
    assert (flow.run(), flow.position) == ([], 3)
    orders.append([{"id": 100, "shop": "s0", "amount": 5}])
    orders.update({"amount": 7}, "id = 1")
    orders.flush_inlined_data()
    orders.merge_adjacent_files()
    points = ("stream.batch.planned", "catalog.commit.before", "catalog.commit.after", "stream.batch.after")
    for number, point in enumerate(points):
        orders.append([{"id": 200 + number, "shop": "s1", "amount": 100}])
        with faults.arm(Fault(pattern=point, at=2 if point.startswith("catalog") else 1)), pytest.raises(FaultInjected):
            flow.run()
    spark.pipeline("orders", sql, "totals", name="totals").run()
    with pytest.raises(StreamFencedError):
        flow._next()
    sums = lake.sql("SELECT shop, sum(total) FROM totals GROUP BY shop ORDER BY shop").fetchall()
    assert sums == [("s0", 10 + 5), ("s1", 10 + 400)]
    lake.table("totals").append([{"shop": "x", "total": 0}])
    assert spark.pipeline("orders", sql, "totals", name="totals").run() == [], "its own table is not its source"
    with pytest.raises(StreamMismatchError):
        spark.pipeline("totals", "SELECT * FROM source", "orders", name="totals").run()
    with pytest.raises(InputError, match="into itself"):
        spark.pipeline("orders", "SELECT * FROM source", "main.orders", name="circle")
    with pytest.raises(InputError, match="mod"):
        spark.pipeline("orders", sql, "totals", name="totals", mod="upsert")


def test_an_update_of_rows_of_the_same_batch_is_no_insert(site: LakeSite, session: SparkSession) -> None:
    lake = site.lake()
    orders = lake.create_table("orders", [{"id": number, "amount": 1} for number in range(20)])
    lake.create_table("copy", {"id": pa.int64(), "amount": pa.int64()})
    copy = quacklake.spark(lake, session).pipeline("orders", "SELECT * FROM source", "copy", name="copy")
    copy.run()
    orders.update({"amount": 7}, "id = 1")
    orders.append([{"id": number, "amount": 2} for number in range(20, 40)])
    orders.update({"amount": 8}, "id IN (1, 2, 25)")
    copy.run()
    assert sorted(contents(lake, "copy")) == [(number, 1 if number < 20 else 2) for number in range(40)]


@pytest.mark.parametrize("here", [True, False], ids=["few rows", "many rows"])
def test_a_pipeline_of_changes_makes_a_copy(
    here: bool, site: LakeSite, session: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not here:
        monkeypatch.setattr("quacklake.spark.streams.pipeline._HERE", 0)
    lake = site.lake()
    table = lake.create_table("t", [{"id": number, "v": "a"} for number in range(30)])
    lake.create_table("copy", {"id": pa.int64(), "v": pa.string()})
    spark = quacklake.spark(lake, session)
    copy = spark.pipeline("t", lambda rows: rows, "copy", name="copy", changes=True, mode="changes", on="id")
    assert [report.rows for report in copy.run()] == [30]
    table.delete("id < 3")
    table.update({"id": quacklake.expr("id + 100")}, "id % 10 = 5")
    table.merge([{"id": 7, "v": "m"}, {"id": 50, "v": "n"}], on="id")
    table.rewrite_data_files(delete_threshold=0)
    copy.start(every=0.01)
    while contents(lake, "copy") != contents(lake, "t"):
        assert copy.is_active or copy.stop() is None
    copy.stop()
    assert not copy.is_active and sum(report.deleted for report in copy.reports) == 6
    lake.expire_snapshots("0 seconds")
    again = spark.pipeline("t", lambda rows: rows, "copy", name="copy", changes=True, mode="changes", on="id")
    assert again.run() == []


def test_streams_need_a_session_of_this_process(site: LakeSite, session: SparkSession) -> None:
    lake = site.lake()
    lake.create_table("t", {"id": pa.int64()})
    spark = quacklake.spark(lake, session)
    remote = type("SparkSession", (), {"__module__": "pyspark.sql.connect.session", "version": session.version})()
    spark.session = remote
    with pytest.raises(UnsupportedFeatureError, match="Connect"):
        spark.read_stream("t")
