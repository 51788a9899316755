"""Streams survive the death of their driver at any point, a bad store, and the work of others."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import quacklake
from quacklake import telemetry
from quacklake.core import faults
from quacklake.core.faults import Fault, FaultInjected
from quacklake.errors import QuacklakeError, SchemaMismatchError
from tests.prove.stores import bad_local
from tests.seeds import LONG, SEED, chance
from tests.spark.deaths import Deaths, sink_of
from tests.spark.streaming import MODES, POINTS, Stage, run_child

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: Fifty in all. The points of a batch come first, each of them once.
pytestmark = pytest.mark.needs_spark("4.0")

KILLS = {"append": 12, "upsert": 19, "changes": 19}


@pytest.mark.crash
@pytest.mark.parametrize("mode", MODES)
def test_drivers_that_die_anywhere_leave_every_batch_once(mode: str, tmp_path: Path, session: SparkSession) -> None:
    deaths = Deaths(session, tmp_path / "stage", mode, f"{SEED}")
    deaths.play(10 * KILLS[mode] if LONG else KILLS[mode])
    assert set(POINTS) <= set(deaths.points), "a driver died at each point"


@pytest.mark.crash
@pytest.mark.daily(0.0)  # each starts a JVM of its own; the demo has such a kill every day
@pytest.mark.parametrize(
    ("mode", "point"),
    [("append", "catalog.commit.after"), ("upsert", "engine.write.after"), ("changes", "stream.batch.after")],
)
def test_a_process_that_is_killed_goes_on_where_it_was(
    mode: str, point: str, tmp_path: Path, session: SparkSession
) -> None:
    stage = Stage(tmp_path / "stage", mode)
    stage.make(4, chance("stream kill", mode, point))
    # the catalog commits twice before the first batch: our own tables, and the claim
    killed = run_child(stage.folder, mode, fault=f"{4 if point.startswith('catalog.commit') else 2}:kill:{point}")
    assert killed == -9 or point.startswith("engine.")
    stage.run(session)
    stage.check()


@pytest.mark.crash
@pytest.mark.parametrize("mode", MODES)
def test_a_store_that_fails_now_and_then_loses_nothing(mode: str, tmp_path: Path, session: SparkSession) -> None:
    stream = Deaths(session, tmp_path / "stage", mode, f"bad {SEED}")
    for _ in range(7):
        stream.stage.add(stream.dice)
    failed, before = 0, telemetry.snapshot().counters.get("storage.retries", 0)
    for how in ("fails", "loses"):
        # what the driver has takes few calls
        with (
            bad_local(how, 20 if mode == "append" else 5),
            stream.stage.open(stream_driver_rows=0 if mode == "append" else 1000) as lake,
        ):
            sink = sink_of(quacklake.spark(lake, session), mode)
            for _ in range(4):
                try:
                    stream.next_batch(sink)
                except QuacklakeError:  # as when Spark starts the query again
                    failed += 1
    retries = telemetry.snapshot().counters.get("storage.retries", 0) - before
    assert failed < 8 and failed + retries > 0
    stream.finish()


def _compact(lake: quacklake.Lake) -> None:
    lake.table("t").merge_adjacent_files()


def _flush(lake: quacklake.Lake) -> None:
    lake.table("t").flush_inlined_data()


def _alter(lake: quacklake.Lake) -> None:
    lake.sql("ALTER TABLE t ADD COLUMN more INTEGER")


def _stream(lake: quacklake.Lake) -> None:
    mine = lake.streams.claim("another", "another query")
    with lake.transaction() as tx:
        tx.table("t").append([{"id": 5000, "v": "other", "n": 1}])
        tx.mark("another", 0, mine.run)


@pytest.mark.parametrize(
    ("mode", "driver_rows", "other"),
    [
        *((mode, 1000, other) for mode in MODES for other in (_compact, _alter, _stream)),
        ("upsert", 1000, _flush),
        ("upsert", 0, _compact),
        pytest.param("changes", 0, _alter, marks=pytest.mark.daily(0.0)),
    ],
)
def test_what_others_do_between_the_files_of_a_batch_and_its_commit(
    mode: str, driver_rows: int, other: Callable[[quacklake.Lake], None], tmp_path: Path, session: SparkSession
) -> None:
    stage = Stage(tmp_path / "stage", mode)
    stage.make(2, chance("stream beside", mode))
    with stage.open() as lake:
        sink_of(quacklake.spark(lake, session), mode).write(stage.batch(session, 0), 0)
    with stage.open(stream_driver_rows=driver_rows) as lake, stage.open() as beside:
        sink = sink_of(quacklake.spark(lake, session), mode)
        lake.options.set("data_inlining_row_limit", 0)
        refused = pytest.raises(SchemaMismatchError, match="more") if (mode, other) == ("append", _alter) else None
        with faults._hooked(_once("engine.write.after", lambda: other(beside))), refused or nullcontext():
            assert not sink.write(stage.batch(session, 1), 1).skipped
        if refused is not None:  # as the guide says: it goes on when it is started so
            sink.evolve = True
            assert not sink.write(stage.batch(session, 1), 1).skipped
        if other is _alter:
            lake.table("t").drop_column("more")
        if other is _stream:
            assert lake.streams.list().num_rows == 2
            lake.table("t").delete("id = 5000")
            lake.streams.forget("another")
    stage.check()


def test_a_column_that_is_renamed_between_the_files_of_a_batch_and_its_commit(
    tmp_path: Path, session: SparkSession
) -> None:
    stage = Stage(tmp_path / "stage", "append")
    stage.make(1, chance("stream beside a rename"))
    with stage.open() as lake, stage.open() as beside:
        lake.options.set("data_inlining_row_limit", 0)
        sink = sink_of(quacklake.spark(lake, session), "append")
        rename = _once("engine.write.after", lambda: beside.table("t").rename_column("v", "w"))
        with faults._hooked(rename), pytest.raises(SchemaMismatchError, match='"v"'):
            sink.write(stage.batch(session, 0), 0)
        lake.table("t").rename_column("w", "v")
        assert not sink.write(stage.batch(session, 0), 0).skipped
    stage.check()


def _once(point: str, action: Callable[[], None]) -> Callable[[str], None]:
    """Do something when a point is reached for the first time."""
    done: list[str] = []

    def hook(name: str) -> None:
        if name == point and not done:
            done.append(name)
            action()

    return hook


def test_files_that_are_part_of_the_lake_stay_when_something_breaks_right_after_the_commit(
    tmp_path: Path, session: SparkSession
) -> None:
    with quacklake.connect(f"sqlite:///{tmp_path}/lake.db", data_path=tmp_path / "data") as lake:
        spark = quacklake.spark(lake, session)
        rows = session.range(50)
        spark.create_table("t", rows.schema)
        with faults.arm(Fault(pattern="catalog.commit.after")), pytest.raises(FaultInjected):
            spark.append("t", rows)
        assert lake.table("t").count() == len(lake.table("t").to_pylist()) == 50
