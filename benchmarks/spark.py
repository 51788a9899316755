"""Spark over a lake against Spark over plain Parquet files, and against Delta Lake and Iceberg.

All sides are the same Spark session with the same rows. Of a scan and an append the first peer is plain Parquet: it
reads the very files of the lake's table, and writes them with ``df.write.parquet``; what ours takes longer is planning,
the anti-join with deletes, footers, the commit. The others are those whose jars can be had. Small batches of a stream
are compared with a sink that does nothing, and a plan over very many files is made without any of them.
"""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import quacklake
from benchmarks.common import Bench, Measure, Place, Result, Timing, alternate, at_most, slowdown
from benchmarks.spark_driver import NOTES, batches, planning
from benchmarks.spark_peers import Peer, Spark, compared, open_spark

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

TITLE = "Spark over a lake, over plain Parquet files, over Delta Lake and Iceberg"

_PEER = "spark.read/write.parquet"
_SUMS = "SELECT sum(id), sum(value), max(name), sum(length(name)) FROM {frame}"

_REASONS = (
    "DELETE: our tasks read whole files with DuckDB and write their delete files, in one job without a shuffle. Iceberg"
    " is set to merge-on-read and writes deletion vectors.",
    "An append is Spark's own Parquet writer on all sides. Beyond it, ours has a job that looks whether the rows are"
    " few enough for the catalog, and the driver reads footers and commits, in about 50 ms of processor time.",
)

Works = dict[str, Callable[[], object]]


def run(bench: Bench, result: Result) -> None:
    """Scan, append, change and compact on all sides, in turn."""
    scanned, written = bench.pick((100_000, 100_000), (3_000_000, 3_000_000), (20_000_000, 10_000_000))
    with bench.directory() as directory, open_spark(directory) as spark:
        result.measures += _scan(bench, spark, _rows(spark, scanned), bench.place(directory, "sqlite", "scanned"))
        rows = _rows(spark, written)
        result.measures += _append(bench, spark, rows, bench.place(directory, "sqlite", "appended"))
        result.measures += _change(bench, spark, rows, bench.place(directory, "sqlite", "changed"))
        result.measures += _compact(bench, spark, bench.place(directory, "sqlite", "small"))
        result.measures += batches(bench, spark, bench.place(directory, "sqlite", "streamed"))
        result.measures += planning(bench, spark, bench.place(directory, "sqlite", "planned"))
        result.notes += [f"skipped: {why}" for why in spark.missing]
    result.notes += NOTES
    result.notes.append(
        f"Scans of {scanned:,} rows × 4 columns, the rest with {written:,}; local[{os.cpu_count()}], medians; ours"
        " includes the commit."
    )
    result.notes += _REASONS


def _rows(spark: Spark, count: int) -> DataFrame:
    return spark.session.range(0, count, 1, 4).selectExpr(
        "id", "CAST(id % 365 AS INT) AS day", "concat('name-', id % 1000) AS name", "id / 1000 AS value"
    )


# -- scans -------------------------------------------------------------------------------------------------------------


def _scan(bench: Bench, spark: Spark, rows: DataFrame, place: Place) -> list[Measure]:
    """Whole tables, and then without one row in a hundred, which Delta keeps in deletion vectors."""
    rounds, session = bench.pick(1, 5, 7), spark.session
    peers = spark.peers("scanned", "Delta Lake")

    def add(frame: DataFrame) -> object:
        return session.sql(_SUMS, frame=frame).collect()

    with quacklake.connect(place.url, data_path=place.data, data_inlining_row_limit=0) as lake:
        ours = quacklake.spark(lake, session)
        ours.create_table("t", rows)
        for peer in peers:
            peer.create(session, rows)
        files = [str(Path(lake.data_path, path)) for path in lake.table("t").plan().files.column("path").to_pylist()]
        works: Works = {"ours": lambda: add(ours.table("t")), "peer": lambda: add(session.read.parquet(*files))}
        works |= {peer.name: lambda peer=peer: add(session.table(peer.table)) for peer in peers}  # type: ignore[misc]
        with bench.step("scanning"):
            whole = alternate(rounds, works)
        _check_same(whole)
        with bench.step("deleting"):
            ours.delete("t", "id % 100 = 7")
            for peer in peers:
                session.sql(f"DELETE FROM {peer.table} WHERE id % 100 = 7").collect()
        with bench.step("scanning with deletes"):
            left = alternate(rounds, {name: work for name, work in works.items() if name != "peer"})
        _check_same(left)
    return [
        slowdown("scan", whole["ours"].median, whole["peer"].median, "s", at_most(1.05), _PEER),
        *(compared("scan", whole, peers) if peers else ()),
        *compared("scan with 1 % deleted", left, peers),
    ]


def _check_same(timings: Mapping[str, Timing]) -> None:
    if len({str(timing.answer) for timing in timings.values()}) != 1:
        raise RuntimeError("the sides add up differently")


# -- appends -----------------------------------------------------------------------------------------------------------


def _append(bench: Bench, spark: Spark, rows: DataFrame, place: Place) -> list[Measure]:
    numbers, peers = itertools.count(), spark.peers("appended")
    with quacklake.connect(place.url, data_path=place.data) as lake:
        ours = quacklake.spark(lake, spark.session)
        ours.create_table("t", rows.schema)
        for peer in peers:
            peer.create(spark.session, rows.limit(0))
        works: Works = {
            "ours": lambda: ours.append("t", rows),
            "peer": lambda: rows.write.parquet(str(spark.directory / f"peer{next(numbers)}")),
        }
        works |= {peer.name: lambda peer=peer: peer.append(rows) for peer in peers}  # type: ignore[misc]
        with bench.step("appending"):
            found = alternate(bench.pick(1, 3, 5), works)
    first = slowdown("append", found["ours"].median, found["peer"].median, "s", at_most(1.10), _PEER)
    return [first, *(compared("append", found, peers, at_most(0.95)) if peers else ())]


# -- changes -----------------------------------------------------------------------------------------------------------


def _change(bench: Bench, spark: Spark, rows: DataFrame, place: Place) -> list[Measure]:
    """MERGE and DELETE of one row in a hundred, each time of others."""
    rounds, count, session = bench.pick(1, 3, 5), rows.count(), spark.session
    peers = spark.peers("changed")
    turns = {name: itertools.count() for name in ("ours", *(peer.name for peer in peers))}

    def source(turn: int) -> DataFrame:
        found = rows.where(f"id % 100 = {turn + 20}").selectExpr("id", "day", "concat(name, '!') AS name", "value")
        new = rows.where(f"id % 1000 = {turn + 20}").selectExpr(
            f"id + {count * (turn + 1)} AS id", "day", "name", "value"
        )
        return found.union(new)

    def merge_peer(peer: Peer) -> object:
        source(next(turns[peer.name])).createOrReplaceTempView("bench_source")
        return session.sql(
            f"MERGE INTO {peer.table} t USING bench_source s ON t.id = s.id"
            " WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
        ).collect()

    def delete_peer(peer: Peer) -> object:
        return session.sql(f"DELETE FROM {peer.table} WHERE id % 100 = {next(turns[peer.name]) + 20}").collect()

    with quacklake.connect(place.url, data_path=place.data) as lake:
        ours = quacklake.spark(lake, session)
        ours.create_table("t", rows)
        for peer in peers:
            peer.create(session, rows)

        def merge() -> object:
            merging = ours.merge("t", source(next(turns["ours"])), on="id")
            return merging.when_matched_update_all().when_not_matched_insert_all().execute()

        works: Works = {"ours": merge}
        works |= {peer.name: lambda peer=peer: merge_peer(peer) for peer in peers}  # type: ignore[misc]
        with bench.step("merging"):
            merged = alternate(rounds, works)
        works = {"ours": lambda: ours.delete("t", f"id % 100 = {next(turns['ours']) + 20}")}
        works |= {peer.name: lambda peer=peer: delete_peer(peer) for peer in peers}  # type: ignore[misc]
        with bench.step("deleting"):
            deleted = alternate(rounds, works)
        left = ours.table("t").count()
        for peer in peers:
            if session.table(peer.table).count() != left:
                raise RuntimeError(f"{peer.name} has other rows")
    return [*compared("MERGE of 1 %", merged, peers), *compared("DELETE of 1 %", deleted, peers)]


# -- compaction --------------------------------------------------------------------------------------------------------


def _compact(bench: Bench, spark: Spark, place: Place) -> list[Measure]:
    """Many small files into one: ours and Delta's OPTIMIZE."""
    count, session = bench.pick(100, 2000, 2000), spark.session
    rows = session.range(0, count * 1000, 1, count).selectExpr("id", "id % 365 AS day", "concat('n', id) AS name")
    peers = spark.peers("small", "Delta Lake")
    with quacklake.connect(place.url, data_path=place.data, data_inlining_row_limit=0) as lake:
        ours = quacklake.spark(lake, session)
        with bench.step("writing small files"):
            ours.create_table("small", rows)
            for peer in peers:
                session.conf.set("spark.databricks.delta.optimizeWrite.enabled", "false")
                peer.create(session, rows)
        works: Works = {"ours": lambda: ours.maintenance.merge_adjacent_files(table="small")}
        works |= {peer.name: lambda peer=peer: session.sql(f"OPTIMIZE {peer.table}").collect() for peer in peers}  # type: ignore[misc]
        with bench.step("compacting"):
            found = {name: _once(work) for name, work in works.items()}
        left = {lake.table("small").count(), *(session.table(peer.table).count() for peer in peers)}
        if left != {count * 1000}:
            raise RuntimeError("rows were lost")
    return compared(f"compaction of {count:,} files", found, peers)


def _once(work: Callable[[], object]) -> Timing:
    """There is nothing left to do the second time."""
    begun = time.perf_counter()
    answer = work()
    wall = time.perf_counter() - begun
    return Timing(wall, 0.0, (wall,), answer)
