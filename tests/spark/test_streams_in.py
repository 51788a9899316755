"""Streams into tables: every batch once, no matter what fails; one query at a time; errors that say what is wrong."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import quacklake
from quacklake import telemetry
from quacklake.core import faults
from quacklake.core.faults import Fault, FaultInjected
from quacklake.errors import (
    ConstraintError,
    InputError,
    NotFoundError,
    SchemaMismatchError,
    StreamFencedError,
    StreamMismatchError,
)
from tests.conformance.clients import LakeSite
from tests.conformance.conftest import MakeSite

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from quacklake.spark.streams.sink import SparkSink

pytestmark = pytest.mark.needs_spark("4.0")

COLUMNS = {"id": pa.int64(), "v": pa.string()}


@pytest.fixture
def site(make_site: MakeSite) -> LakeSite:
    return make_site("sqlite", 5)


class Files:
    """A source of files, which a streaming DataFrame reads one by one."""

    def __init__(self, folder: Path, session: SparkSession) -> None:
        self.folder = folder / "source"
        self.folder.mkdir()
        self.checkpoint = str(folder / "checkpoint")
        self.session = session

    def put(self, name: str, rows: list[dict[str, Any]]) -> None:
        (self.folder / f"{name}.json").write_text("\n".join(map(json.dumps, rows)))

    def frame(self, schema: str = "id BIGINT, v STRING") -> DataFrame:
        return self.session.readStream.schema(schema).option("maxFilesPerTrigger", 1).json(str(self.folder))


@pytest.fixture
def files(tmp_path: Path, session: SparkSession) -> Files:
    return Files(tmp_path, session)


def rows(first: int, count: int, text: str = "x") -> list[dict[str, Any]]:
    return [{"id": first + number, "v": text} for number in range(count)]


def values(session: SparkSession, given: list[tuple[Any, ...]], schema: str) -> DataFrame:
    """Rows of numbers and texts, without a job of Spark."""
    shown = ", ".join(f"({', '.join('NULL' if one is None else repr(one) for one in row)})" for row in given)
    names = [field.split()[0] for field in schema.split(", ")]
    casts = (
        f"CAST({name} AS {field.split()[1]}) AS {name}" for name, field in zip(names, schema.split(", "), strict=True)
    )
    return session.sql(f"SELECT {', '.join(casts)} FROM VALUES {shown} AS t({', '.join(names)})")


def sink_of(lake: quacklake.Lake, session: SparkSession, **options: Any) -> SparkSink:
    """Return a sink for batches without a query of Spark, so that the test counts the batches."""
    sink = quacklake.spark(lake, session)._sink("t", "in", evolve=False, restart=False, **options)
    sink.run = lake.streams.claim("in", "a query").run
    return sink


def test_a_query_commits_its_count_with_its_rows(site: LakeSite, files: Files, session: SparkSession) -> None:
    lake = site.lake()
    lake.create_table("t", COLUMNS)
    spark = quacklake.spark(lake, session)
    files.put("a", rows(0, 20))
    files.put("b", rows(100, 2))
    telemetry.reset()
    stream = spark.write_stream("t", files.frame(), name="in", checkpoint=files.checkpoint, trigger="availableNow")
    assert stream.awaitTermination() and not stream.isActive and stream.exception() is None
    assert sorted((report.rows, report.files) for report in stream.reports) == [(2, 0), (20, 1)]
    counters = telemetry.snapshot().counters
    assert (counters["stream.batches"], counters["stream.rows"], counters["stream.files"]) == (2, 22, 1)
    assert telemetry.snapshot().timings["stream.batch"].count == 2
    assert site.stock().execute("SELECT count(*), sum(id) FROM l.t").fetchone() == (22, sum(range(20)) + 201)
    lake = site.lake()
    spark = quacklake.spark(lake, session)
    found = lake.streams.list().to_pylist()
    assert [(mark["stream"], mark["epoch"], mark["query"]) for mark in found] == [("in", 1, str(stream.query.id))]

    files.put("c", rows(200, 20))
    with faults.arm(Fault(pattern="stream.batch.after")):  # after the commit, before Spark's own log
        stream = spark.write_stream("t", files.frame(), name="in", checkpoint=files.checkpoint, trigger="availableNow")
        with pytest.raises(FaultInjected):
            stream.awaitTermination()
    assert isinstance(stream.exception(), FaultInjected)
    stream = spark.write_stream("t", files.frame(), name="in", checkpoint=files.checkpoint, trigger="availableNow")
    stream.awaitTermination()
    assert [report.skipped for report in stream.reports] == [True]
    assert lake.table("t").count() == 42

    other = f"{files.checkpoint}-other"
    with pytest.raises(StreamMismatchError, match="another query"):
        spark.write_stream("t", files.frame(), name="in", checkpoint=other, trigger="availableNow")
    assert lake.table("t").count() == 42
    anew = spark.write_stream(
        "t", files.frame(), name="in", checkpoint=other, trigger="availableNow", restart=True, evolve=True
    )
    anew.awaitTermination()
    assert lake.table("t").count() == 84, "it was told to start anew"

    files.put("d", rows(300, 1))
    stream = spark.write_stream("t", files.frame(), name="new", checkpoint=other, trigger="availableNow")
    with pytest.raises(StreamMismatchError, match="batches 0 to 2"):
        stream.awaitTermination()
    assert lake.table("t").count() == 84


def test_the_older_of_two_queries_is_fenced_and_a_dropped_table_ends_the_newer(
    site: LakeSite, files: Files, session: SparkSession
) -> None:
    lake = site.lake()
    lake.create_table("t", COLUMNS)
    spark = quacklake.spark(lake, session)
    files.put("a", rows(0, 2))
    older = spark.write_stream("t", files.frame(), name="in", checkpoint=files.checkpoint)
    older.processAllAvailable()
    newer = spark.write_stream(
        "t", files.frame(), name="in", checkpoint=f"{files.checkpoint}-2", trigger="10 milliseconds", restart=True
    )
    newer.processAllAvailable()
    assert lake.table("t").count() == 4
    files.put("b", rows(10, 2))
    with pytest.raises(StreamFencedError, match="taken over"):
        older.awaitTermination()
    newer.processAllAvailable()
    assert lake.table("t").count() == 6
    lake.drop_table("t")
    files.put("c", rows(20, 2))
    with pytest.raises(NotFoundError, match="there is no table"):
        newer.awaitTermination()
    with pytest.raises(NotFoundError):
        spark.write_stream("t", files.frame(), name="in", checkpoint=files.checkpoint)
    newer.stop()
    older.stop()


def test_a_table_that_is_altered_or_compacted_beside_its_streams(site: LakeSite, session: SparkSession) -> None:
    lake = site.lake()
    lake.create_table("t", COLUMNS)
    spark = quacklake.spark(lake, session)
    frame = session.range(20).selectExpr("id", "'x' AS v")
    one = sink_of(lake, session, mode="append", on=None)
    other = spark._sink("t", "other", "append", None, evolve=True, restart=False)
    other.run = lake.streams.claim("other", "another query").run
    for epoch in range(2):
        one.write(frame, epoch)
        other.write(frame.selectExpr("id + 1000 AS id", "v"), epoch)
        lake.table("t").merge_adjacent_files()
    assert (lake.table("t").count(), lake.streams.list().num_rows) == (80, 2)
    wider = frame.selectExpr("id", "v", "id / 2 AS half")
    with pytest.raises(SchemaMismatchError, match="half"):
        one.write(wider, 2)
    assert other.write(wider, 2).rows == 20
    lake.table("t").drop_column("v")
    with pytest.raises(SchemaMismatchError, match='"v"'):
        one.write(frame, 2)
    assert one.write(frame.select("id").withColumnRenamed("id", "ID").selectExpr("ID", "0.5D AS half"), 2).rows == 20
    assert lake.verify().ok
    assert site.stock().execute("SELECT count(*), count(half) FROM l.t").fetchone() == (120, 40)


#: The number of rows of a batch that the driver may merge: none, so that the executors do, or all of them.
MERGED_BY = pytest.mark.parametrize("driver_rows", [0, 1000], ids=["executors", "driver"])


@MERGED_BY
def test_changes_are_made_by_their_last_of_each_key(
    driver_rows: int, site: LakeSite, session: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("QUACKLAKE_STREAM_DRIVER_ROWS", str(driver_rows))
    lake = site.lake()
    lake.create_table("t", [{"id": number, "v": "old"} for number in range(4)])
    sink = sink_of(lake, session, mode="changes", on="id")
    schema = "id BIGINT, v STRING, _change_type STRING, _commit_version BIGINT, _commit_timestamp TIMESTAMP"

    def batch(*changes: tuple[Any, ...]) -> DataFrame:
        return values(session, [(*change, None) for change in changes], schema)

    report = sink.write(
        batch(
            (0, "old", "delete", 7),
            (1, "old", "update_preimage", 7),
            (10, "moved", "update_postimage", 7),
            (2, "a", "update_postimage", 7),
            (2, "b", "update_postimage", 8),
            (3, "old", "delete", 7),
            (3, "again", "insert", 7),
            (4, "gone", "insert", 7),
            (4, "gone", "delete", 9),
        ),
        0,
    )
    assert (report.rows, report.deleted) == (3, 2)
    assert {row["id"]: row["v"] for row in lake.table("t").to_pylist()} == {10: "moved", 2: "b", 3: "again"}
    for wrong, error, text in (
        (batch((5, "a", "insert", 1), (5, "b", "insert", 1)), ConstraintError, r"duplicate keys \(id\): 5"),
        (batch((None, "a", "insert", 1)), ConstraintError, 'NULL in the key "id"'),
        (batch((5, "a", "upsert", 1), (5, "a", "insert", 2)), InputError, "change type 'upsert'"),
        (session.range(1), SchemaMismatchError, "lack the column '_change_type'"),
    ):
        with pytest.raises(error, match=text):
            sink.write(wrong, 1)
    assert lake.table("t").count() == 3


@MERGED_BY
def test_of_a_key_that_comes_again_the_last_in_the_order_counts(
    driver_rows: int, site: LakeSite, session: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("QUACKLAKE_STREAM_DRIVER_ROWS", str(driver_rows))
    lake = site.lake()
    lake.create_table("t", [{"id": number, "v": "old"} for number in range(20)])
    schema = "id BIGINT, v STRING"
    given = [(3, "b"), (3, "c"), (3, None), (50, "x"), (50, "y"), (None, "n"), (None, "m")]
    batch = values(session, given, schema)
    plain = sink_of(lake, session, mode="upsert", on="ID")
    with pytest.raises(ConstraintError, match=r"duplicate keys \(id\): 3, 50"):
        plain.write(batch, 0)
    sink = sink_of(lake, session, mode="upsert", on="id", order_by="v")
    report = sink.write(batch, 0)
    assert (report.rows, report.deleted) == (4, 0)
    found = lake.table("t").to_pylist(where="id IS NULL OR id IN (3, 50)")
    assert sorted((row["id"] or 0, row["v"]) for row in found) == [(0, "m"), (0, "n"), (3, "c"), (50, "y")]
    with pytest.raises(ConstraintError, match="duplicate keys"):
        sink.write(values(session, [(3, "b"), (3, "b")], schema), 1)
    lack = sink_of(lake, session, mode="upsert", on="id", order_by="w")
    with pytest.raises(SchemaMismatchError, match="lack the column 'w'"):
        lack.write(batch, 1)
    wider = sink_of(lake, session, mode="upsert", on="id")
    wider.evolve = True
    assert wider.write(session.range(40, 60).selectExpr("id", "2.5D AS half"), 1).rows == 20
    assert lake.verify().ok
    query = "SELECT count(*), count(half), count(v), count(DISTINCT rowid) FROM l.t"
    assert site.stock().execute(query).fetchone() == (42, 20, 23, 42)


def test_wrong_options_are_told_with_what_was_probably_meant(
    site: LakeSite, files: Files, session: SparkSession
) -> None:
    lake = site.lake()
    lake.create_table("t", COLUMNS)
    spark = quacklake.spark(lake, session)
    given: dict[str, Any] = {"name": "in", "checkpoint": files.checkpoint}
    for options, meant in (
        ({"mode": "upsrt"}, '"upsert"'),
        ({"trigger": "availablenow"}, '"availableNow"'),
        ({"trigger": "every now and then"}, '"10 seconds"'),
        ({"checkpointLocation": "x"}, '"checkpoint"'),
        ({"mode": "upsert"}, 'on="id"'),
        ({"on": "id"}, 'mode="upsert"'),
        ({"order_by": "v"}, 'mode="upsert"'),
        ({"outputMode": "update"}, '"output_mode"'),
        ({"output_mode": "update"}, 'mode="upsert"'),
        ({"output_mode": "updates"}, '"update"'),
        ({"checkpoint": ""}, "checkpoint="),
    ):
        with pytest.raises(InputError) as caught:
            spark.write_stream("t", files.frame(), **{**given, **options})
        assert meant in str(caught.value), options
    with pytest.raises(quacklake.QuacklakeError, match="idd"):
        spark.write_stream("t", files.frame(), mode="upsert", on="idd", **given)
    with pytest.raises(InputError, match="not a stream"):
        spark.write_stream("t", session.range(1), **given)
    for options, meant in (
        ({"maxFilesPerTrigger": 1}, '"max_files"'),
        ({"startingVersion": 1}, '"starting"'),
        ({"max_files": 0}, "from 1"),
    ):
        with pytest.raises(InputError) as caught:
            spark.read_stream("t", **options)
        assert meant in str(caught.value), options
    assert lake.streams.list().num_rows == 0
