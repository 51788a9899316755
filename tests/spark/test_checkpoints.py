"""Streams whose checkpoint is an older copy, another one, or not whole: no row is lost or doubled in silence."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import quacklake
from quacklake.core import faults
from quacklake.core.catalog import own_tables
from quacklake.core.faults import Fault, FaultInjected
from quacklake.core.format.objects import BatchContent, StreamMark, marked
from quacklake.errors import StorageError, StreamBatchDoneError, StreamMismatchError
from quacklake.pipelines import Pipeline
from quacklake.spark.streams.checkpoint import SparkCheckpoint, digest_batch, read_from_folder, read_from_spark
from tests.seeds import LONG, SEED, chance
from tests.spark.simulated import FOLDERS, RESTARTS, Checkpoints

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.needs_spark("4.0")

LIVES = 150 if LONG else 12
REAL_LIVES = 24 if LONG else 3


# -- without Spark -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("position", "epoch", "content", "outcome"),
    [
        ("d3", 3, BatchContent("d3", "d2"), StreamBatchDoneError),
        ("d3", 3, BatchContent("d3", "x"), StreamBatchDoneError),
        ("d3", 3, BatchContent("x3", "d2"), StreamMismatchError),
        ("d3", 2, BatchContent("d2", "d1"), StreamMismatchError),
        ("d3", 0, BatchContent("d0"), StreamMismatchError),
        ("d3", 4, BatchContent("d4", "d3"), None),
        ("d3", 4, BatchContent("d4", "x3"), StreamMismatchError),
        ("d3", 4, BatchContent("d4"), StreamMismatchError),
        ("d3", 5, BatchContent("d5", "d4"), StreamMismatchError),
        # a person wants this batch; once it is there, it is not written again
        ("d3", 2, BatchContent("x2", "d1", accepted=True), None),
        ("d3", 3, BatchContent("x3", "d2", accepted=True), None),
        ("d3", 7, BatchContent("x7", "x6", accepted=True), None),
        ("d3", 3, BatchContent("d3", "d2", accepted=True), StreamBatchDoneError),
        # a mark of an older version says only the number
        (None, 3, BatchContent("d3", "d2"), StreamBatchDoneError),
        (None, 2, BatchContent("d2", "d1"), StreamMismatchError),
        (None, 4, BatchContent("d4", "d3"), None),
        (None, 5, BatchContent("d5", "d4"), StreamMismatchError),
    ],
)
def test_only_the_last_batch_with_the_same_content_is_taken_for_a_replay(
    position: str | None, epoch: int, content: BatchContent, outcome: type[Exception] | None
) -> None:
    known = StreamMark("s", "q", "run", 3, position)
    if outcome is not None:
        with pytest.raises(outcome):
            marked(known, "s", "run", epoch, None, content=content)
        return
    after = marked(known, "s", "run", epoch, None, content=content)
    assert (after.epoch, after.position) == (epoch, content.digest)


def put(folder: Path, below: str, **files: str) -> None:
    (folder / below).mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / below / name.lstrip("_")).write_text(text)


def test_a_batch_is_known_by_its_offsets_and_its_lists_of_files(tmp_path: Path) -> None:
    offsets = 'v1\n{"batchTimestampMs":1}\n{"logOffset":4}\n-'
    put(tmp_path, "offsets", _6='v1\n{"batchTimestampMs":0}\n-\n-', _7=offsets)
    put(tmp_path, "commits", _6="v1\n{}")
    checkpoint = SparkCheckpoint(read_from_folder(tmp_path))
    with pytest.raises(StreamMismatchError, match="batch 7 holds"):
        checkpoint.content(7)
    assert checkpoint.digest(8) is None and checkpoint.query() is None
    put(tmp_path, "sources/0", _4="v1\na")
    first = checkpoint.content(7)
    assert first == BatchContent(digest_batch(offsets.encode(), [b"v1\na"]), checkpoint.digest(6))
    (tmp_path / "sources/0/4").unlink()
    put(tmp_path, "sources/0", **{"4.compact": "v1\nb"})
    assert checkpoint.content(7).digest != first.digest
    assert checkpoint.next_batch(7) == 7
    put(tmp_path, "commits", _7="v1\n{}")
    assert (checkpoint.next_batch(7), checkpoint.next_batch(500)) == (8, 0)


@pytest.mark.crash
@pytest.mark.parametrize("files", [True, False])
@pytest.mark.parametrize("stateful", [True, False])
def test_checkpoints_that_are_put_back_or_lost_in_part_cost_no_row(tmp_path: Path, files: bool, stateful: bool) -> None:
    played = Checkpoints(tmp_path, f"{SEED}", files=files, stateful=stateful)
    try:
        played.play(LIVES)
        assert played.restarts >= LIVES
    finally:
        played.close()


# -- on Spark ----------------------------------------------------------------------------------------------------------


def _number(name: str) -> int:
    return int(name) if name.isdecimal() else -1


class Inbox:
    """Rows that arrive, each in a file, and streams of them into tables of a lake."""

    def __init__(self, folder: Path, session: SparkSession) -> None:
        self.folder = folder
        self.session = session
        self.checkpoint = folder / "checkpoint"
        self.inbox = folder / "inbox"
        self.inbox.mkdir()
        self.lake = quacklake.connect(f"sqlite:///{folder}/lake.db", data_path=folder / "data")
        self.lake.create_table("t", {"id": pa.int64()})
        self.lake.create_table("counts", {"id": pa.int64(), "n": pa.int64()})
        self.count = 0

    def add(self, rows: int = 1) -> None:
        """Let a file with rows arrive."""
        lines = (json.dumps({"id": number}) for number in range(self.count, self.count + rows))
        self.count += rows
        (self.inbox / f"{self.count:04}.json").write_text("\n".join(lines))

    def frame(self) -> DataFrame:
        reader = self.session.readStream.schema("id BIGINT").option("maxFilesPerTrigger", 1)
        return reader.json(str(self.inbox))

    def run(self, **options: Any) -> list[tuple[int, bool]]:
        """Bring everything into the table; return the batches, and whether each was there."""
        spark = quacklake.spark(self.lake, self.session)
        place = str(self.checkpoint)
        stream = spark.write_stream("t", self.frame(), name="in", checkpoint=place, trigger="availableNow", **options)
        stream.awaitTermination()
        return [(report.epoch, report.skipped) for report in stream.reports]

    def run_counts(self) -> list[tuple[int, bool]]:
        """Count the rows by their last digit in a query with state."""
        spark = quacklake.spark(self.lake, self.session)
        stream = spark.write_stream(
            "counts",
            self.frame().selectExpr("id % 10 AS id").groupBy("id").count().withColumnRenamed("count", "n"),
            name="counts",
            checkpoint=str(self.checkpoint),
            mode="upsert",
            on="id",
            output_mode="update",
            trigger="availableNow",
        )
        stream.awaitTermination()
        return [(report.epoch, report.skipped) for report in stream.reports]

    def copy(self, name: str) -> Path:
        shutil.copytree(self.checkpoint, self.folder / name)
        return self.folder / name

    def put_back(self, copy: Path) -> None:
        shutil.rmtree(self.checkpoint)
        shutil.copytree(copy, self.checkpoint)

    def lose(self, below: str, *, whole: bool) -> None:
        """Lose a folder of the checkpoint, or the last files in it."""
        files = [path for path in (self.checkpoint / below).rglob("*") if path.is_file()]
        last = max((path.name.strip(".").partition(".")[0] for path in files), key=_number, default="")
        for path in files:
            if whole or path.name.strip(".").partition(".")[0] == last:
                path.unlink()

    def ids(self) -> list[int]:
        return sorted(row["id"] for row in self.lake.table("t").to_pylist())


@pytest.fixture
def inbox(tmp_path: Path, session: SparkSession) -> Iterator[Inbox]:
    made = Inbox(tmp_path, session)
    yield made
    made.lake.close()


def test_an_older_copy_of_a_checkpoint_is_refused_and_the_right_one_goes_on(inbox: Inbox) -> None:
    inbox.add()
    inbox.run()
    older = inbox.copy("older")
    for _ in range(2):
        inbox.add()
        inbox.run()
    newest = inbox.copy("newest")
    inbox.put_back(older)
    for _ in range(3):
        inbox.add()
    with pytest.raises(StreamMismatchError, match=r"batch 2, the last one.*next batch is 1") as refused:
        inbox.run()
    assert "restart_from=1" in str(refused.value.hint)
    assert inbox.ids() == [0, 1, 2]
    assert {path.name for path in (inbox.checkpoint / "offsets").glob("[0-9]*")} == {"0"}, "Spark did not start"
    inbox.put_back(newest)
    assert inbox.run() == [(3, False), (4, False), (5, False)]
    assert inbox.ids() == list(range(6))
    # whoever wants the older one gets what it has not seen, twice
    inbox.put_back(older)
    assert inbox.run(restart_from=1) == [(number, False) for number in range(1, 6)]
    assert inbox.ids() == sorted([*range(6), *range(1, 6)])
    (inbox.checkpoint / "commits/5").unlink()
    (inbox.checkpoint / "commits/.5.crc").unlink()
    assert inbox.run(restart_from=1) == [(5, True)], "it is meant for that batch alone"


def test_a_mark_of_an_older_version_goes_on_once_without_its_digest(inbox: Inbox) -> None:
    inbox.add()
    inbox.run()
    inbox.add()
    inbox.run()
    older = inbox.copy("older")
    with inbox.lake.handle.context.catalog.commit() as writer:
        mark = own_tables.find_stream(writer, "in")
        assert mark is not None and str(mark.position).startswith("sha256:")
        own_tables.put_stream(writer, StreamMark("in", mark.query, mark.run, mark.epoch), new=False)
    for name in ("1", ".1.crc"):
        (inbox.checkpoint / "commits" / name).unlink()
    assert inbox.run() == [(1, True)]
    assert inbox.lake.streams.list().column("position").to_pylist() == [mark.position]
    inbox.add()
    assert inbox.run() == [(2, False)]
    inbox.put_back(older)
    with pytest.raises(StreamMismatchError, match="batch 2, the last"):
        inbox.run()
    assert inbox.ids() == [0, 1, 2]


def test_a_query_with_state_comes_up_after_any_death_between_the_two_commits(inbox: Inbox) -> None:
    for batch in range(3):
        inbox.add(7)
        with faults.arm(Fault(pattern="stream.batch.after")), pytest.raises(FaultInjected):
            inbox.run_counts()
        assert inbox.run_counts() == [(batch, True)]
    found = {row["id"]: row["n"] for row in inbox.lake.table("counts").to_pylist()}
    assert found == {digit: len(range(digit, 21, 10)) for digit in range(10)}


@pytest.mark.crash
@pytest.mark.daily(0.5)
@pytest.mark.parametrize("stateful", [True, False])
def test_spark_itself_goes_on_from_any_checkpoint_or_it_is_said(inbox: Inbox, stateful: bool) -> None:
    from pyspark.errors import PySparkException

    dice = chance("real checkpoints", SEED, stateful)
    run = inbox.run_counts if stateful else inbox.run
    inbox.add(3)
    run()
    copies = [inbox.copy("copy")]
    outcomes: Counter[str] = Counter()

    def marks() -> list[Any]:
        return inbox.lake.streams.list().select(["epoch", "position"]).to_pylist()

    def check() -> int:
        rows = inbox.lake.table("counts" if stateful else "t").to_pylist()
        count = sum(row["n"] for row in rows) if stateful else len(rows)
        if stateful:
            assert {row["id"]: row["n"] for row in rows} == Counter(number % 10 for number in range(count))
        else:
            assert inbox.ids() == list(range(count))
        return count

    for life in range(REAL_LIVES):
        inbox.add(dice.randint(1, 4))
        whole, before = inbox.copy(f"whole-{life}"), marks()
        damage = dice.choice(("nothing", "put back", *FOLDERS))
        if damage == "put back":
            inbox.put_back(dice.choice(copies))
        elif damage != "nothing":
            inbox.lose(damage, whole=dice.random() < 0.5)
        point = dice.choice(("stream.batch.before", "stream.batch.after", "catalog.commit.*"))
        try:
            with faults.arm(Fault(pattern=point)):
                run()
        except (FaultInjected, StreamMismatchError, StorageError, PySparkException) as error:
            outcomes[f"{damage}: {type(error).__name__}"] += 1
        check()
        if marks() == before:
            inbox.put_back(whole)
        if dice.random() < 0.5:
            copies.append(inbox.copy(f"copy-{life}"))
        for left in reversed(range(RESTARTS)):
            try:
                run()
                break
            except PySparkException:
                assert left, f"a stream that is whole does not come up: {outcomes}"
        assert check() == inbox.count


@pytest.mark.daily(0.5)
def test_parts_of_a_checkpoint_that_are_gone_are_missed_or_not_needed(inbox: Inbox) -> None:
    for _ in range(2):
        inbox.add()
        inbox.run()
    whole = inbox.copy("whole")
    inbox.add()
    for below in ("offsets", "sources"):
        shutil.rmtree(inbox.checkpoint / below)
        for _ in range(2):
            with pytest.raises(StreamMismatchError, match="not whole"):
                inbox.run()
        inbox.put_back(whole)
    shutil.rmtree(inbox.checkpoint / "commits")
    assert inbox.run() == [(1, True), (2, False)]
    assert inbox.ids() == [0, 1, 2]


def test_a_checkpoint_is_read_the_same_by_spark_and_here(inbox: Inbox, monkeypatch: pytest.MonkeyPatch) -> None:
    inbox.add()
    inbox.checkpoint = inbox.folder / "odd [{*}] check"
    inbox.run()
    here = SparkCheckpoint(read_from_folder(inbox.checkpoint))
    monkeypatch.setattr("quacklake.spark.streams.checkpoint._local_folder", lambda _: None)  # as of another store
    there = SparkCheckpoint(read_from_spark(inbox.session, str(inbox.checkpoint)))
    assert there.content(0) == here.content(0)
    assert there.query() == here.query() is not None
    assert (there.next_batch(0), there.digest(1)) == (1, None)


@pytest.mark.needs_spark("4.1")
def test_an_older_copy_is_refused_by_the_format_too(inbox: Inbox) -> None:
    quacklake.spark(inbox.lake, inbox.session)

    def flow(**options: str) -> None:
        writer = inbox.frame().writeStream.format("quacklake").queryName("flow").options(**options)
        writer = writer.option("checkpointLocation", str(inbox.checkpoint)).trigger(availableNow=True)
        writer.start("t").awaitTermination()

    inbox.add()
    flow()
    older = inbox.copy("older")
    inbox.add()
    flow()
    newest = inbox.copy("newest")
    inbox.put_back(older)
    inbox.add()
    with pytest.raises(Exception, match=r"stream\.mismatch.*batch 1, the last"):
        flow()
    assert inbox.ids() == [0, 1]
    inbox.put_back(newest)
    flow()
    assert inbox.ids() == [0, 1, 2]
    inbox.put_back(older)
    flow(restartFrom="1")
    assert inbox.ids() == [0, 1, 1, 2, 2]


@pytest.mark.needs_spark("4.1")
def test_a_pipeline_with_state_refuses_older_progress_and_comes_up_after_a_death(inbox: Inbox) -> None:
    source = {"type": "spark", "format": "json", "path": str(inbox.inbox), "schema": "id BIGINT"}
    query = "SELECT id % 10 AS id, count(*) AS n FROM source GROUP BY id % 10"
    sink = {"type": "lake", "table": "counts", "mode": "upsert", "key": "id"}
    given = {"pipeline": "p", "engine": "spark", "source": source, "query": query, "sinks": [sink]}
    pipeline = Pipeline(inbox.lake, {**given, "output_mode": "update", "lease": "5 minutes"})
    inbox.add(7)
    with faults.arm(Fault(pattern="pipeline.confirm.after")), pytest.raises(FaultInjected):
        pipeline.run(until_caught_up=True)
    inbox.add(7)
    pipeline.run(until_caught_up=True)
    (inbox.checkpoint,) = (path for path in (inbox.folder / "data/_quacklake/pipelines/p").iterdir() if path.is_dir())
    older = inbox.copy("older")
    inbox.add(7)
    pipeline.run(until_caught_up=True)
    newest = inbox.copy("newest")
    expected = {digit: len(range(digit, 21, 10)) for digit in range(10)}
    assert {row["id"]: row["n"] for row in inbox.lake.table("counts").to_pylist()} == expected
    inbox.put_back(older)
    inbox.add(7)
    with pytest.raises(StreamMismatchError, match="behind checkpoint 2 is gone"):
        pipeline.run(until_caught_up=True)
    # another batch of the same number
    shutil.copytree(newest / "offsets", inbox.checkpoint / "offsets", dirs_exist_ok=True)
    shutil.copytree(newest / "sources", inbox.checkpoint / "sources", dirs_exist_ok=True)
    last = inbox.checkpoint / "offsets/2"
    last.write_text(last.read_text().replace('"batchTimestampMs":1', '"batchTimestampMs":2'))
    with pytest.raises(StreamMismatchError, match="another checkpoint 2"):
        pipeline.run(until_caught_up=True)
    inbox.put_back(newest)
    pipeline.run(until_caught_up=True)
    expected = {digit: len(range(digit, 28, 10)) for digit in range(10)}
    assert {row["id"]: row["n"] for row in inbox.lake.table("counts").to_pylist()} == expected
