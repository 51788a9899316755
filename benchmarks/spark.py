"""Spark over a lake against Spark over plain Parquet files: a scan, a scan with deletes, an append.

Both sides are the same Spark session with the same rows. The peer reads the very files of the lake's table, and writes
them with ``df.write.parquet``; what ours takes longer is planning, the anti-join with deletes, footers, the commit.
"""

from __future__ import annotations

import itertools
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import quacklake
from benchmarks.common import Bench, Place, Result, Skip, Timing, alternate, at_most, slowdown

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

TITLE = "Spark over a lake, and over plain Parquet files"

_PEER = "spark.read/write.parquet"
_SUMS = "SELECT sum(id), sum(value), max(name), sum(length(name)) FROM {frame}"


def run(bench: Bench, result: Result) -> None:
    """Scan and append on both sides, in turn."""
    count = bench.pick(100_000, 3_000_000, 20_000_000)
    with bench.directory() as directory, _session(directory) as session:
        rows = session.range(0, count, 1, 4).selectExpr(
            "id", "CAST(id % 365 AS INT) AS day", "concat('name-', id % 1000) AS name", "id / 1000 AS value"
        )
        scanned, deleted, appended = _measure(bench, session, rows, bench.place(directory, "sqlite", "ours"), directory)
    result.measures += [
        slowdown("scan", scanned["ours"].median, scanned["peer"].median, "s", at_most(1.05), _PEER),
        slowdown("scan with 1 % deleted", deleted["ours"].median, scanned["peer"].median, "s", None, _PEER),
        slowdown("append", appended["ours"].median, appended["peer"].median, "s", at_most(1.10), _PEER),
    ]
    result.notes.append(f"{count:,} rows × 4 columns, local[{os.cpu_count()}], medians; ours includes the commit.")


@contextmanager
def _session(directory: Path) -> Iterator[SparkSession]:
    try:
        from pyspark.sql import SparkSession
    except ImportError:
        raise Skip("pyspark is not installed") from None
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    session = (
        SparkSession.builder.master(f"local[{os.cpu_count()}]")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.memory", "2g")
        .config("spark.log.level", "OFF")
        .config("spark.local.dir", str(directory))
        .getOrCreate()
    )
    try:
        yield session
    finally:
        session.stop()


def _measure(
    bench: Bench, session: SparkSession, rows: DataFrame, place: Place, directory: Path
) -> tuple[dict[str, Timing], dict[str, Timing], dict[str, Timing]]:
    rounds = bench.pick(1, 5, 7)
    numbers = itertools.count()
    with quacklake.connect(place.url, data_path=place.data) as lake:
        lake.set_option("data_inlining_row_limit", 0)
        spark = quacklake.spark(lake, session)
        spark.create_table("t", rows)
        files = [str(Path(lake.data_path, path)) for path in lake.table("t").plan().files.column("path").to_pylist()]

        def add(frame: DataFrame) -> object:
            return session.sql(_SUMS, frame=frame).collect()

        with bench.step("scanning"):
            works = {"ours": lambda: add(spark.table("t")), "peer": lambda: add(session.read.parquet(*files))}
            scanned = alternate(rounds, works)
        if scanned["ours"].answer != scanned["peer"].answer:
            raise RuntimeError("the two sides add up differently")
        with bench.step("scanning with deletes"):
            lake.table("t").delete("id % 100 = 7")
            deleted = alternate(rounds, {"ours": lambda: add(spark.table("t"))})
        spark.create_table("u", rows.schema)
        with bench.step("appending"):
            works = {
                "ours": lambda: spark.append(rows, "u"),
                "peer": lambda: rows.write.parquet(str(directory / f"peer{next(numbers)}")),
            }
            appended = alternate(bench.pick(1, 3, 5), works)
    return scanned, deleted, appended
