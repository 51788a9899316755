"""Streams into tables: every batch once, whatever fails; one query at a time; errors that say what is wrong."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import quacklake
from quacklake import faults, telemetry
from quacklake.errors import (
    ConstraintError,
    InputError,
    NotFoundError,
    SchemaMismatchError,
    StreamFencedError,
    StreamMismatchError,
)
from quacklake.faults import Fault, FaultInjected
from tests.conformance.clients import LakeSite
from tests.conformance.conftest import MakeSite
from tests.seeds import chance, some
from tests.spark.streaming import MODES, POINTS, Stage, run_child

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from quacklake.lake.spark_sink import SparkSink

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


def sink_of(lake: quacklake.Lake, session: SparkSession, **options: Any) -> SparkSink:
    """Where batches go, without a query of Spark: its count of batches is the test's."""
    sink = quacklake.spark(lake, session)._sink("t", "in", evolve=False, restart=False, **options)
    sink.run = lake.claim_stream("in", "a query").run
    return sink


@pytest.mark.parametrize("mode", MODES)
def test_a_batch_that_fails_anywhere_is_there_once_after_its_replay(
    mode: str, tmp_path: Path, session: SparkSession
) -> None:
    points = some(POINTS, 3, "stream faults", mode, always=("catalog.commit.after",))
    stage = Stage(tmp_path / "stage", mode)
    stage.make(len(points) + 1, chance("stream batches", mode))
    on = None if mode == "append" else "id"
    schema = "id BIGINT, v STRING, n BIGINT, _change_type STRING, _commit_version BIGINT"
    with stage.open() as lake:
        for epoch, path in enumerate(sorted((stage.folder / "source").glob("*.json"))):
            lines = [json.loads(line) for line in path.read_text().splitlines()]
            names = [name for name in ("id", "v", "n", "_change_type", "_commit_version") if name in lines[0]]
            given = ", ".join(part for part in schema.split(", ") if part.split()[0] in names)
            batch = session.createDataFrame([tuple(line[name] for name in names) for line in lines], given)
            if epoch < len(points):
                sink = sink_of(lake, session, mode=mode, on=on)
                with faults.arm(Fault(pattern=points[epoch])):
                    try:
                        sink.write(batch, epoch)
                    except FaultInjected:
                        pass
                    else:  # few rows need no file
                        assert points[epoch].startswith("engine.")
            sink = sink_of(lake, session, mode=mode, on=on)
            sink.write(batch, epoch)
            assert sink.write(batch, epoch).skipped
            for earlier in range(epoch):
                assert sink.write(batch, earlier).skipped
    stage.check()


@pytest.mark.parametrize(
    ("mode", "point"),
    some([(mode, point) for mode in MODES for point in POINTS], 1, "stream kills"),
)
def test_a_driver_that_is_killed_goes_on_where_it_was(
    mode: str, point: str, tmp_path: Path, session: SparkSession
) -> None:
    stage = Stage(tmp_path / "stage", mode)
    stage.make(4, chance("stream kill", mode, point))
    # the catalog commits twice before the first batch: our own tables, and the claim
    killed = run_child(stage.folder, mode, f"{4 if point.startswith('catalog.commit') else 2}:kill:{point}")
    assert killed == -9 or point.startswith("engine.")
    stage.run(session)
    stage.check()


def test_a_query_commits_its_count_with_its_rows(site: LakeSite, files: Files, session: SparkSession) -> None:
    lake = site.lake()
    lake.create_table("t", COLUMNS)
    spark = quacklake.spark(lake, session)
    files.put("a", rows(0, 20))
    files.put("b", rows(100, 2))
    telemetry.reset()
    stream = spark.write_stream(files.frame(), "t", name="in", checkpoint=files.checkpoint, trigger="availableNow")
    assert stream.awaitTermination() and not stream.isActive and stream.exception() is None
    assert sorted((report.rows, report.files) for report in stream.reports) == [(2, 0), (20, 1)]
    counters = telemetry.snapshot().counters
    assert (counters["stream.batches"], counters["stream.rows"], counters["stream.files"]) == (2, 22, 1)
    assert telemetry.snapshot().timings["stream.batch"].count == 2
    assert site.stock().execute("SELECT count(*), sum(id) FROM l.t").fetchone() == (22, sum(range(20)) + 201)
    found = lake.streams().to_pylist()
    assert [(mark["stream"], mark["epoch"], mark["query"]) for mark in found] == [("in", 1, str(stream.query.id))]

    files.put("c", rows(200, 20))
    with faults.arm(Fault(pattern="stream.batch.after")):  # after the commit, before Spark's own log
        stream = spark.write_stream(files.frame(), "t", name="in", checkpoint=files.checkpoint, trigger="availableNow")
        with pytest.raises(FaultInjected):
            stream.awaitTermination()
    assert isinstance(stream.exception(), FaultInjected)
    stream = spark.write_stream(files.frame(), "t", name="in", checkpoint=files.checkpoint, trigger="availableNow")
    stream.awaitTermination()
    assert [report.skipped for report in stream.reports] == [True]
    assert lake.table("t").count() == 42

    other = f"{files.checkpoint}-other"
    with pytest.raises(StreamMismatchError, match="another query"):
        spark.write_stream(files.frame(), "t", name="in", checkpoint=other, trigger="availableNow")
    assert lake.table("t").count() == 42
    anew = spark.write_stream(
        files.frame(), "t", name="in", checkpoint=other, trigger="availableNow", restart=True, evolve=True
    )
    anew.awaitTermination()
    assert lake.table("t").count() == 84, "it was told to start anew"

    files.put("d", rows(300, 1))
    stream = spark.write_stream(files.frame(), "t", name="new", checkpoint=other, trigger="availableNow")
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
    older = spark.write_stream(files.frame(), "t", name="in", checkpoint=files.checkpoint)
    older.processAllAvailable()
    newer = spark.write_stream(
        files.frame(), "t", name="in", checkpoint=f"{files.checkpoint}-2", trigger="10 milliseconds", restart=True
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
        spark.write_stream(files.frame(), "t", name="in", checkpoint=files.checkpoint)
    newer.stop()
    older.stop()


def test_a_table_that_is_altered_or_compacted_beside_its_streams(site: LakeSite, session: SparkSession) -> None:
    lake = site.lake()
    lake.create_table("t", COLUMNS)
    spark = quacklake.spark(lake, session)
    frame = session.range(20).selectExpr("id", "'x' AS v")
    one = sink_of(lake, session, mode="append", on=None)
    other = spark._sink("t", "other", "append", None, evolve=True, restart=False)
    other.run = lake.claim_stream("other", "another query").run
    for epoch in range(2):
        one.write(frame, epoch)
        other.write(frame.selectExpr("id + 1000 AS id", "v"), epoch)
        lake.table("t").merge_adjacent_files()
    assert (lake.table("t").count(), lake.streams().num_rows) == (80, 2)
    wider = frame.selectExpr("id", "v", "id / 2 AS half")
    with pytest.raises(SchemaMismatchError, match="half"):
        one.write(wider, 2)
    assert other.write(wider, 2).rows == 20
    lake.table("t").drop_column("v")
    with pytest.raises(SchemaMismatchError, match='"v"'):
        one.write(frame, 2)
    assert one.write(frame.select("id").withColumnRenamed("id", "ID").selectExpr("ID", "0.5D AS half"), 2).rows == 20
    assert site.stock().execute("SELECT count(*), count(half) FROM l.t").fetchone() == (120, 40)
    assert lake.verify().ok


def test_changes_are_made_by_their_last_of_each_key(site: LakeSite, session: SparkSession) -> None:
    lake = site.lake()
    lake.create_table("t", [{"id": number, "v": "old"} for number in range(4)])
    sink = sink_of(lake, session, mode="changes", on="id")
    schema = "id BIGINT, v STRING, _change_type STRING, _commit_version BIGINT, _commit_timestamp TIMESTAMP"

    def batch(*changes: tuple[Any, ...]) -> DataFrame:
        return session.createDataFrame([(*change, None) for change in changes], schema)

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
    for wrong, error in (
        (batch((5, "a", "insert", 1), (5, "b", "insert", 1)), ConstraintError),
        (batch((None, "a", "insert", 1)), ConstraintError),
        (batch((5, "a", "upsert", 1)), InputError),
        (session.range(1), SchemaMismatchError),
    ):
        with pytest.raises(error):
            sink.write(wrong, 1)
    assert lake.table("t").count() == 3


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
        ({"checkpoint": ""}, "checkpoint="),
    ):
        with pytest.raises(InputError) as caught:
            spark.write_stream(files.frame(), "t", **{**given, **options})
        assert meant in str(caught.value), options
    with pytest.raises(quacklake.QuacklakeError, match="idd"):
        spark.write_stream(files.frame(), "t", mode="upsert", on="idd", **given)
    with pytest.raises(InputError, match="not a stream"):
        spark.write_stream(session.range(1), "t", **given)
    for options, meant in (
        ({"maxFilesPerTrigger": 1}, '"max_files"'),
        ({"startingVersion": 1}, '"starting"'),
        ({"max_files": 0}, "from 1"),
    ):
        with pytest.raises(InputError) as caught:
            spark.read_stream("t", **options)
        assert meant in str(caught.value), options
    assert lake.streams().num_rows == 0
