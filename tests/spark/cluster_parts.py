"""Tests that need a cluster: executors that die, and the secrets that they must not see."""

from __future__ import annotations

import os
import pickle
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

import pyarrow as pa

import quacklake
from quacklake.errors import NotFoundError
from tests.spark.core import same

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["killed_merge", "killed_pipeline", "killed_write", "secrets"]


def _ancestors(frame: DataFrame) -> list[tuple[int, str, bytes]]:
    """Return the processes above each task: ids, commands and environments, from Python up to the worker."""

    def look(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for _ in batches:
            pid = os.getpid()
            while pid > 1:
                place = Path(f"/proc/{pid}")
                told = (place / "cmdline").read_bytes(), (place / "environ").read_bytes()
                yield pa.record_batch({"pid": [pid], "told": pa.array([pickle.dumps(told)], pa.binary())})
                pid = int((place / "stat").read_text().rpartition(")")[2].split()[1])
                if b"deploy.worker.Worker" in told[0]:
                    break

    rows = frame.mapInArrow(look, "pid BIGINT, told BINARY").collect()
    found = ((row["pid"], *pickle.loads(row["told"])) for row in rows)
    return [(pid, command.decode(), environment) for pid, command, environment in found]


def _executors(session: SparkSession) -> list[int]:
    above = _ancestors(session.range(0, 2, 1, 2))
    return sorted({pid for pid, command, _ in above if "CoarseGrainedExecutorBackend" in command})


def secrets(lake: quacklake.Lake, session: SparkSession) -> None:
    """Assert that no closure, data, setting or environment of executors reveals where the catalog is."""
    from pyspark.serializers import CloudPickleSerializer

    hidden = os.environ["CORE_SECRET"].encode()
    sent: list[bytes] = []
    dumps, create = CloudPickleSerializer.dumps, type(session).createDataFrame

    def dumped(self: Any, thing: Any) -> bytes:
        sent.append(dumps(self, thing))
        return sent[-1]

    def carried(self: SparkSession, data: Any, *others: Any, **named: Any) -> DataFrame:
        if isinstance(data, pa.Table):
            sent.append(pickle.dumps(data))
        return create(self, data, *others, **named)

    with patch.object(CloudPickleSerializer, "dumps", dumped), patch.object(type(session), "createDataFrame", carried):
        spark = quacklake.spark(lake, session)
        rows = session.range(0, 40, 1, 2).selectExpr("id", "array(id) AS list")
        spark.create_table("hidden", rows, partition_by=["bucket(2, id)"])
        spark.update("hidden", {"list": quacklake.expr("[7]")}, "id < 20")
        spark.delete("hidden", "id % 5 = 1")
        lake.create_table("seen", {"id": pa.int64(), "list": pa.list_(pa.int64())})
        changes: dict[str, Any] = {"changes": True, "mode": "changes", "on": "id"}
        with patch("quacklake.spark.streams.pipeline._HERE", -1):  # on the executors, however little it is
            spark.pipeline("hidden", lambda new: new, "seen", name="hidden to seen", **changes).run()
        assert same(lake, session, "seen") == lake.table("hidden").count()
        above = _ancestors(session.range(0, 2, 1, 2))
    assert len(sent) > 4
    assert hidden in os.environ["CORE_CATALOG"].encode()
    assert not [data for data in sent if hidden in data]
    assert len({pid for pid, command, _ in above if "CoarseGrainedExecutorBackend" in command}) == 2
    assert not [command for _, command, environment in above if hidden in command.encode() + environment]
    assert not [pair for pair in session.sparkContext.getConf().getAll() if hidden.decode() in pair[1]]


def _kill_one(session: SparkSession, when: Callable[[], bool], work: Callable[[], object]) -> None:
    """Kill an executor as soon as ``when`` is true, while ``work`` runs."""
    victim = _executors(session)[0]
    killed = []

    def kill() -> None:
        deadline = time.monotonic() + 60
        while not when() and time.monotonic() < deadline:
            time.sleep(0.01)
        os.kill(victim, signal.SIGKILL)
        killed.append(time.monotonic())

    thread = threading.Thread(target=kill)
    thread.start()
    work()
    ended = time.monotonic()
    thread.join()
    assert killed[0] < ended, "it was killed too late to matter"
    assert victim not in _executors(session)


def _in_flight(lake: quacklake.Lake, folder: str) -> bool:
    """Return whether tasks of Spark have files open below a folder: a file is made before its first row comes."""
    return any(Path(lake.data_path).glob(f"{folder}/_temporary/0/**/*.parquet"))


def _only_orphans(lake: quacklake.Lake, table: str, rows: int) -> None:
    """Assert that ``delete_orphaned_files`` removes what failed tasks have left, and nothing else."""
    assert lake.table(table).count() == rows
    lake.delete_orphaned_files(cleanup_all=True)
    folder = Path(lake.data_path, "main", table)
    known: set[str] = set()
    for version in range(1, lake.current_snapshot() + 1):
        with suppress(NotFoundError):
            files = lake.at(version=version).table(table).plan().files
            for name in ("path", "delete_path"):
                known |= set(files.column(name).drop_null().to_pylist())
    assert {str(path.relative_to(lake.data_path)) for path in folder.rglob("*") if path.is_file()} == known
    assert lake.verify().ok


def killed_write(lake: quacklake.Lake, session: SparkSession) -> None:
    """An executor dies while it writes: the rows are all there, once."""

    def slowly(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:  # in here: executors have no `tests`
        for batch in batches:
            for start in range(0, batch.num_rows, 50):
                time.sleep(0.1)
                yield batch.slice(start, 50)

    spark = quacklake.spark(lake, session)
    spark.create_table("written", session.range(0).selectExpr("id", "id AS n"))
    rows = session.range(0, 2000, 1, 4).selectExpr("id", "id % 7 AS n").mapInArrow(slowly, "id BIGINT, n BIGINT")
    _kill_one(session, lambda: _in_flight(lake, "main/written/*"), lambda: spark.append("written", rows))
    assert same(lake, session, "written") == 2000
    assert len(set(lake.table("written").to_arrow().column("id").to_pylist())) == 2000
    _only_orphans(lake, "written", 2000)


def killed_merge(lake: quacklake.Lake, session: SparkSession) -> None:
    """An executor dies while changes are computed: each row is changed once."""
    from pyspark.sql import functions as f

    spark = quacklake.spark(lake, session)
    spark.create_table("merged", session.range(0, 1000, 1, 4).selectExpr("id", "0L AS n"))
    source = session.range(500, 1500, 1, 4).selectExpr("id", "1L AS n")

    @f.udf("bigint")
    def slowly(value: int) -> int:
        time.sleep(0.004)
        return value + 1

    merge = (
        spark.merge("merged", source, "id")
        .when_matched_update({"n": slowly(f.col("source.n"))})
        .when_not_matched_insert_all()
    )
    results: list[Any] = []

    def computing() -> bool:  # the first folder is that of the source, the second that of the changes
        staged = len(list(Path(lake.data_path).glob("main/merged/staged-*")))
        return staged >= 2 and _in_flight(lake, "main/merged/staged-*")

    _kill_one(session, computing, lambda: results.append(merge.execute()))
    assert (results[0].rows_updated, results[0].rows_inserted) == (500, 500)
    assert same(lake, session, "merged") == 1500
    assert sum(lake.table("merged").to_arrow().column("n").to_pylist()) == 500 * 2 + 500
    _only_orphans(lake, "merged", 1500)


def killed_pipeline(lake: quacklake.Lake, session: SparkSession) -> None:
    """An executor dies while a pipeline passes a batch on: each row is in both sinks, once."""
    from deltalake import DeltaTable

    from quacklake.pipelines import Pipeline

    lake.create_table("orders", {"id": pa.int64()}).append(pa.table({"id": range(2000)}))
    place = f"{lake.data_path.rstrip('/')}-delta"
    given = {
        "pipeline": "p",
        "engine": "spark",
        "source": {"type": "lake", "table": "orders"},
        "query": "SELECT id, id * 2 AS v FROM source",
        "sinks": [{"type": "lake", "table": "copied"}, {"type": "delta", "location": place}],
    }

    def begun() -> bool:
        return any(Path(lake.data_path).glob("_quacklake/pipelines/*/*/offsets/0"))

    _kill_one(session, begun, lambda: Pipeline(lake, given).run(until_caught_up=True))
    wanted = [{"id": n, "v": n * 2} for n in range(2000)]
    assert lake.table("copied").to_arrow().sort_by("id").to_pylist() == wanted
    assert DeltaTable(place).to_pyarrow_table().sort_by("id").to_pylist() == wanted
    _only_orphans(lake, "copied", 2000)
