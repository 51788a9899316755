"""A stream of files into a table, in a process that can be killed: ``python -m tests.spark.streaming FOLDER MODE``.

The folder has a lake, a source of JSON files, one for each batch, and the checkpoint. What the table must hold in the end
follows from the files alone. With a number and a seed as further arguments many drivers die in one process.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

import quacklake

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["MODES", "POINTS", "Stage", "child_session", "run_child"]

MODES = ("append", "upsert", "changes")
#: Points where a batch can be lost: before its files, between files and commit, around the commit, before Spark's log.
POINTS = (
    "stream.batch.before",
    "engine.write.before",
    "engine.write.after",
    "catalog.update_stream.after",
    "catalog.commit.before",
    "catalog.commit.after",
    "stream.batch.after",
)
_SCHEMA = "id BIGINT, v STRING, n BIGINT"
_FEED = ", _change_type STRING, _commit_version BIGINT"


class Stage:
    """A folder with a lake, and files that stream into its table."""

    def __init__(self, folder: Path, mode: str) -> None:
        self.folder = folder
        self.mode = mode
        self.url = f"sqlite:///{folder}/lake.db"
        self.batches = 0
        self._alive: set[int] = set()

    def make(self, batches: int, dice: random.Random, rows: int = 30) -> None:
        """Make the lake and the source; of keys that come again the later counts."""
        (self.folder / "source").mkdir(parents=True)
        with self.open() as lake:
            lake.create_table("t", {"id": pa.int64(), "v": pa.string(), "n": pa.int64()})
            lake.options.set("data_inlining_row_limit", 5)
        for _ in range(batches):
            self.add(dice, rows)

    def add(self, dice: random.Random, rows: int = 30) -> None:
        """Add a batch to the source."""
        lines = self._batch(self.batches, dice, dice.choice((3, rows)), self._alive)
        place = self._place(self.batches)
        place.write_text("\n".join(map(json.dumps, lines)) + "\n")
        os.utime(place, (1_000_000 + self.batches, 1_000_000 + self.batches))
        self.batches += 1

    def _place(self, number: int) -> Path:
        return self.folder / "source" / f"{number:03}.json"

    def batch(self, session: SparkSession, number: int) -> DataFrame:
        """A batch as it is in the source, without a job of Spark."""
        lines = [json.loads(line) for line in self._place(number).read_text().splitlines()]
        rows = ", ".join(f"({', '.join(map(_literal, line.values()))})" for line in lines)
        return session.sql(f"SELECT * FROM VALUES {rows} AS t({', '.join(lines[0])})")

    def _batch(self, number: int, dice: random.Random, rows: int, alive: set[int]) -> list[dict[str, Any]]:
        if self.mode == "append":
            return [{"id": number * 1000 + one, "v": f"b{number}", "n": one} for one in range(rows)]
        keys = dice.sample(range(100), rows)
        if self.mode == "upsert":
            return [{"id": key, "v": f"b{number}", "n": dice.randrange(100)} for key in keys]
        lines = []
        for key in keys:
            gone = key in alive and dice.random() < 0.4
            kind = "delete" if gone else "update_postimage" if key in alive else "insert"
            (alive.discard if gone else alive.add)(key)
            row = {"id": key, "v": f"b{number}", "n": dice.randrange(100)}
            lines.append({**row, "_change_type": kind, "_commit_version": number})
        return lines

    def open(self, **settings: Any) -> quacklake.Lake:
        return quacklake.connect(self.url, data_path=self.folder / "data", duckdb_threads=1, **settings)

    def source(self, session: SparkSession) -> DataFrame:
        schema = _SCHEMA + (_FEED if self.mode == "changes" else "")
        reader = session.readStream.schema(schema).option("maxFilesPerTrigger", 1)
        return reader.json(str(self.folder / "source"))

    def run(self, session: SparkSession) -> None:
        """Bring everything into the table."""
        logged = [path for path in (self.folder / "checkpoint" / "offsets").glob("*") if path.name.isdecimal()]
        if not logged:  # Spark refuses a checkpoint that was killed before its first log was written
            shutil.rmtree(self.folder / "checkpoint", ignore_errors=True)
        with self.open() as lake:
            spark = quacklake.spark(lake, session)
            spark.write_stream(
                "t",
                self.source(session),
                name="in",
                checkpoint=str(self.folder / "checkpoint"),
                mode=self.mode,
                on=None if self.mode == "append" else "id",
                trigger="availableNow",
            ).awaitTermination()

    def expected(self) -> list[tuple[Any, ...]]:
        """The rows that the files lead to."""
        rows: dict[int, tuple[Any, ...]] = {}
        for path in sorted((self.folder / "source").glob("*.json")):
            for line in map(json.loads, path.read_text().splitlines()):
                if line.get("_change_type") == "delete":
                    rows.pop(line["id"])
                else:
                    rows[line["id"]] = (line["id"], line["v"], line["n"])
        return sorted(rows.values())

    def check(self) -> None:
        """The table must hold what the files lead to, each row once, and the lake must be whole."""
        with self.open() as lake:
            found = sorted(tuple(row.values()) for row in lake.table("t").to_pylist())
            assert found == self.expected(), f"{self.mode}: {len(found)} rows, not {len(self.expected())}"
            batches = len(list((self.folder / "source").glob("*.json")))
            assert lake.streams.list().column("epoch").to_pylist() == [batches - 1]
            assert lake.verify().ok


def _literal(value: object) -> str:
    return f"{value:d}L" if isinstance(value, int) else f"'{value}'"


def run_child(folder: Path, *arguments: str, fault: str | None = None, timeout: float = 300) -> int:
    """Run a stage in a separate process, which a fault may kill; return its exit code."""
    environment = {name: value for name, value in os.environ.items() if name != "QUACKLAKE_FAULT"}
    if fault is not None:
        environment["QUACKLAKE_FAULT"] = fault
    command = [sys.executable, "-m", "tests.spark.streaming", str(folder), *arguments]
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=timeout, check=False)
    assert ended.returncode in (0, -9), ended.stderr[-3000:]
    return ended.returncode


def child_session(folder: str) -> SparkSession:
    """A small session for a process that does not live long."""
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    made: SparkSession = (
        SparkSession.builder.master("local[1]")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.memory", "512m")
        .config("spark.driver.extraJavaOptions", "-XX:TieredStopAtLevel=1")
        .config("spark.sql.shuffle.partitions", "1")
        .config("spark.sql.warehouse.dir", f"{folder}/warehouse")
        .config("spark.log.level", "OFF")
        .getOrCreate()
    )
    return made


def main(folder: str, mode: str, kills: str = "", seed: str = "") -> None:
    session = child_session(folder)
    if not kills:
        Stage(Path(folder), mode).run(session)
        return
    from tests.spark.deaths import Deaths

    Deaths(session, Path(folder), mode, seed).play(int(kills))


if __name__ == "__main__":
    main(*sys.argv[1:])
