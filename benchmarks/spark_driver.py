"""The time of the Spark driver: for each small batch of a stream, and for a plan over very many files."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

import quacklake
from benchmarks.common import Bench, Measure, Place, alternate, at_most, percentile
from benchmarks.planning import fill
from benchmarks.spark_peers import Spark

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery

__all__ = ["NOTES", "batches", "planning"]

_ROWS = 1_000
_PLAN = 1.0
"""The most seconds that a plan may take."""
_LINKS = 10_000
"""A file system gives a file only so many names."""
_MORE = 25
"""The most milliseconds that a batch may take longer than with a sink that does nothing."""

NOTES = (
    "A batch, profiled on a busy machine: the job that fetches its rows takes 1.1 to 1.6 times as long as Spark's write"
    " to nothing. On top of it come 10 ms of Python's processor time, two fifths for the commit, a quarter for the"
    " Parquet file, and about as long again of waiting, for the disk too, which must have the file and the commit.",
    "A plan of all files, which is made anew each time: a fifth is the list of each column of the catalog that SQLite"
    " makes, a sixth the sizes of the files on the disk, less than a tenth the look for links among them.",
)
"""The profile of both, for the notes of a result."""


def batches(bench: Bench, spark: Spark, place: Place) -> list[Measure]:
    """Batches of 1,000 rows into a table, and to Spark's sink that writes nothing: short streams of both, in turn.

    The first of each do not count. Spark's JVM compiles what runs often, so that whoever comes last looks quickest.
    """
    count, rounds = bench.pick(3, 10, 25), bench.pick(1, 2, 5)
    source = spark.directory / "batches"
    with bench.step("writing the batches"):
        rows = spark.session.range(0, count * _ROWS, 1, count).selectExpr("id", "concat('n', id) AS name")
        rows.write.parquet(str(source))
    mine: list[float] = []
    floor: list[float] = []
    with quacklake.connect(place.url, data_path=place.data) as lake:
        ours = quacklake.spark(lake, spark.session)
        ours.create_table("t", rows.schema)
        with bench.step("streaming", 2 * rounds + 2) as done:
            for turn in range(rounds + 1):
                nothing = _stream(spark, source, rows).writeStream.format("noop").trigger(availableNow=True)
                query = nothing.option("checkpointLocation", str(spark.directory / f"noop-{turn}")).start()
                query.awaitTermination()
                done(1)
                handle = ours.write_stream(
                    "t",
                    _stream(spark, source, rows),
                    name=f"turn-{turn}",
                    checkpoint=str(spark.directory / f"ours-{turn}"),
                    trigger="availableNow",
                )
                handle.awaitTermination()
                done(1)
                if turn:
                    floor += _durations(query)
                    mine += _durations(handle.query)
        if lake.table("t").count() != (rounds + 1) * count * _ROWS:
            raise RuntimeError("rows were lost")
    took, least = percentile(mine, 50) * 1e3, percentile(floor, 50) * 1e3
    what = f"a batch of {_ROWS:,} rows, p50"
    return [
        Measure(what, "ms", took, least, "Spark's noop sink", took / least, "the time"),
        Measure(f"{what}, beyond a sink that does nothing", "ms", took - least, target=at_most(_MORE, "ours")),
    ]


def _stream(spark: Spark, source: Path, rows: DataFrame) -> DataFrame:
    return spark.session.readStream.schema(rows.schema).option("maxFilesPerTrigger", 1).parquet(str(source))


def _durations(query: StreamingQuery) -> list[float]:
    """The seconds of each batch but the first, which starts everything."""
    found: list[Any] = list(query.recentProgress)
    return [float(each["durationMs"]["triggerExecution"]) / 1e3 for each in found if each["numInputRows"]][1:]


def _name_files(lake: quacklake.Lake) -> None:
    names = [Path(lake.data_path, path) for path in lake.table("many").plan().files.column("path").to_pylist()]
    names[0].parent.mkdir(parents=True)
    for start in range(0, len(names), _LINKS):
        pq.write_table(pa.table({"id": [0]}), names[start])
        for name in names[start + 1 : start + _LINKS]:
            os.link(names[start], name)


def planning(bench: Bench, spark: Spark, place: Place) -> list[Measure]:
    """The driver's work for a query over very many files, all of them names of one: no plan looks into a file."""
    files = bench.pick(500, 100_000, 100_000)
    with quacklake.connect(place.url, data_path=place.data, plan_cache_bytes=0) as lake:
        fill(bench, place, lake, "SQLite", {"many": files})
        with bench.step("naming the files"):
            _name_files(lake)
        ours = quacklake.spark(lake, spark.session)

        def plan(where: str | None) -> object:
            frame: Any = ours.table("many", where=where).selectExpr("sum(id)")
            return str(frame._jdf.queryExecution().executedPlan())

        first = files // 2 * 1000
        with bench.step("planning", 2) as done:
            few = alternate(bench.pick(1, 5, 5), {"ours": lambda: plan(f"id BETWEEN {first} AND {first + 9_999}")})
            done(1)
            every = alternate(bench.pick(1, 3, 3), {"ours": lambda: plan(None)})
            done(1)
    return [
        Measure(f"plan of {words} of {files:,} files", "s", found["ours"].median, target=at_most(_PLAN, "ours"))
        for words, found in (("10", few), ("all", every))
    ]
