"""Sinks of other formats: rows a second, and the time of each step of a commit.

The peers are the libraries of the formats, which write the same rows in one call, without a second phase, and on Spark
the formats' own ``df.write``, for the way in which a pipeline on Spark writes.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from benchmarks.common import Bench, Measure, Result, Skip, at_least, at_most
from benchmarks.spark_peers import Spark, open_spark
from quacklake.connectors import Sink, connector
from quacklake.connectors.staging import StagedSink
from quacklake.pipelines.spark_files import write_files

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

TITLE = "commits of the Delta and Iceberg sinks"

_LIBRARIES = {"delta": "deltalake", "iceberg": "pyiceberg"}
_MEGABYTE = 1_000_000


def run(bench: Bench, result: Result) -> None:
    """Measure each sink in this process, then on Spark."""
    rows, spark_rows = bench.pick((50_000, 50_000), (1_000_000, 2_000_000), (5_000_000, 10_000_000))
    table = _rows(rows)
    for kind in _LIBRARIES:
        with bench.directory() as directory:
            _rates(bench, result, directory, kind, table)
            _steps(bench, result, directory, kind, table)
    with bench.directory() as directory:
        try:
            with open_spark(directory) as spark:
                _on_spark(bench, result, spark, spark_rows)
        except Skip as error:
            result.notes.append(f"Nothing on Spark: {error}.")
    result.notes.append(f"{rows:,} rows of four columns a commit, {spark_rows:,} on Spark; medians.")


def _rows(count: int) -> pa.Table:
    return pa.table(
        {
            "id": pa.array(range(count), pa.int64()),
            "region": pa.array([f"r{n % 7}" for n in range(count)], pa.string()),
            "price": pa.array([n / 7 for n in range(count)], pa.float64()),
            "name": pa.array([f"customer {n % 1000}" for n in range(count)], pa.string()),
        }
    )


def _rates(bench: Bench, result: Result, directory: Path, kind: str, rows: pa.Table) -> None:
    """Write rows in several commits with the sink and with the library in turn, each into its own table."""
    rounds = 7
    ours, theirs = _new_sink(kind, directory / "ours"), _library(kind, directory / "theirs", rows.schema)
    ours.initialize(rows.schema)
    times: dict[str, list[float]] = {"ours": [], "theirs": []}
    with bench.step(f"{kind} sink", rounds) as done:
        for number in range(rounds):
            began = time.perf_counter()
            theirs(rows)
            between = time.perf_counter()
            for batch in rows.to_batches(max_chunksize=100_000):
                ours.write_batch(batch)
            ours.finalize_commit(ours.prepare_commit(number))
            times["theirs"].append(between - began)
            times["ours"].append(time.perf_counter() - between)
            done(1)
    ours.close()
    mine, peer = (rows.num_rows / median(times[side][1:]) for side in ("ours", "theirs"))
    what = f"{kind} sink, rows a second"
    result.measures.append(
        Measure(what, "rows/s", mine, peer, _LIBRARIES[kind], mine / peer, "the rate", at_least(0.9))
    )


def _steps(bench: Bench, result: Result, directory: Path, kind: str, rows: pa.Table) -> None:
    """Measure the steps of small commits: keeping a batch, a flush of 1 MB, preparing and finalizing."""
    rounds = bench.pick(5, 20, 50)
    sink = _new_sink(kind, directory / "steps")
    sink.initialize(rows.schema)
    assert isinstance(sink, StagedSink)
    megabyte = rows.slice(0, max(1, rows.num_rows * _MEGABYTE // rows.nbytes)).combine_chunks().to_batches()[0]
    times: dict[str, list[float]] = {name: [] for name in ("flush", "prepare", "finalize", "keep")}
    with bench.step(f"{kind} commits of 1 MB", rounds) as done:
        for number in range(rounds):
            sink.write_batch(megabyte)
            began = time.perf_counter()
            sink.stage.flush()
            flushed = time.perf_counter()
            prepared = sink.prepare_commit(number)
            ready = time.perf_counter()
            sink.finalize_commit(prepared)
            ended = time.perf_counter()
            times["flush"].append(flushed - began)
            times["prepare"].append(ready - flushed)
            times["finalize"].append(ended - ready)
            done(1)
    small = rows.slice(0, 1000).to_batches()[0]
    for _ in range(2000):
        began = time.perf_counter()
        sink.write_batch(small)
        times["keep"].append(time.perf_counter() - began)
    sink.abort()
    sink.close()

    def add(what: str, unit: str, name: str, factor: float, most: float) -> None:
        result.measures.append(
            Measure(f"{kind} {what}", unit, median(times[name]) * factor, target=at_most(most, "ours"))
        )

    add("write_batch that only keeps, p50", "µs", "keep", 1e6, 1)
    add("flush of 1 MB, p50", "ms", "flush", 1e3, 100)
    add("prepare with the files written, p50", "ms", "prepare", 1e3, 10)
    add("finalize, p50", "ms", "finalize", 1e3, 100)


def _on_spark(bench: Bench, result: Result, spark: Spark, count: int) -> None:
    """Let executors write the files of a sink, and beside it Spark the same rows by the format's own writer."""
    frame = spark.session.range(count).selectExpr(
        "id", "concat('r', id % 7) AS region", "id / 7 AS price", "concat('customer ', id % 1000) AS name"
    )
    frame = frame.persist()
    frame.count()
    for kind, peer in zip(_LIBRARIES, spark.peers("sinks"), strict=False):
        sink = _new_sink(kind, spark.directory / f"{kind}-ours")
        sink.initialize(_rows(0).schema)
        peer.create(spark.session, frame.limit(0))
        times: dict[str, list[float]] = {"ours": [], "theirs": []}
        rounds = bench.pick(1, 5, 7)
        with bench.step(f"{kind} sink on Spark", rounds + 1) as done:
            for number in range(rounds + 1):
                began = time.perf_counter()
                peer.append(frame)
                between = time.perf_counter()
                _commit(sink, frame, number)
                times["theirs"].append(between - began)
                times["ours"].append(time.perf_counter() - between)
                done(1)
        sink.close()
        mine, theirs = (count / median(times[side][1:]) for side in ("ours", "theirs"))
        what, name = f"{kind} sink on Spark, rows a second", f"df.write of {peer.name}"
        result.measures.append(Measure(what, "rows/s", mine, theirs, name, mine / theirs, "the rate", at_least(0.9)))
    result.notes.extend(f"On Spark without {missing}." for missing in spark.missing)


def _commit(sink: Sink, frame: DataFrame, number: int) -> None:
    assert isinstance(sink, StagedSink)
    sink.stage.files.extend(write_files(frame, sink.stage))
    sink.finalize_commit(sink.prepare_commit(number))


def _new_sink(kind: str, folder: Path) -> Sink:
    options: dict[str, Any] = {"location": str(folder), "uniform_iceberg": False, "compression": "snappy"}
    if kind == "iceberg":
        options = _iceberg(folder) | {"table_name": "t", "compression": "snappy"}
    made: Sink = connector(kind, "sink")(options)
    return made


def _iceberg(folder: Path) -> dict[str, Any]:
    folder.mkdir(parents=True, exist_ok=True)
    uri, warehouse = f"sqlite:///{folder}/catalog.db", f"file://{folder}/warehouse"
    return {"catalog_type": "sql", "catalog_uri": uri, "warehouse": warehouse, "namespace": "n"}


def _library(kind: str, folder: Path, schema: pa.Schema) -> Callable[[pa.Table], None]:
    if kind == "delta":
        from deltalake import write_deltalake

        return lambda rows: write_deltalake(str(folder), rows, mode="append")
    from pyiceberg.catalog import load_catalog

    place = _iceberg(folder)
    catalog = load_catalog("bench", type="sql", uri=place["catalog_uri"], warehouse=place["warehouse"])
    catalog.create_namespace("n")
    properties = {"write.parquet.compression-codec": "snappy"}
    table = catalog.create_table(("n", "t"), schema, properties=properties)
    return lambda rows: table.append(rows)
