"""Spark over a lake against Spark over plain Parquet files, and against Delta Lake and Iceberg.

Both sides are the same Spark session with the same rows. Of a scan and an append the peer is plain Parquet: it reads
the very files of the lake's table, and writes them with ``df.write.parquet``; what ours takes longer is planning, the
anti-join with deletes, footers, the commit. Of MERGE, DELETE and compaction the peers are those whose jars can be had.
"""

from __future__ import annotations

import itertools
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import quacklake
from benchmarks.common import Bench, Measure, Place, Result, Skip, Timing, alternate, at_most, slowdown
from quacklake.storage.spark import DELTA, ICEBERG

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

TITLE = "Spark over a lake, over plain Parquet files, over Delta Lake and Iceberg"

_PEER = "spark.read/write.parquet"
_SUMS = "SELECT sum(id), sum(value), max(name), sum(length(name)) FROM {frame}"


def run(bench: Bench, result: Result) -> None:
    """Scan and append on both sides, in turn."""
    count = bench.pick(100_000, 3_000_000, 20_000_000)
    missing: list[str] = []
    with bench.directory() as directory, _session(directory, missing) as session:
        rows = session.range(0, count, 1, 4).selectExpr(
            "id", "CAST(id % 365 AS INT) AS day", "concat('name-', id % 1000) AS name", "id / 1000 AS value"
        )
        scanned, deleted, appended = _measure(bench, session, rows, bench.place(directory, "sqlite", "ours"), directory)
        changed = _changes(bench, session, rows, bench.place(directory, "sqlite", "changed"), directory, missing)
        compacted = _compaction(bench, session, bench.place(directory, "sqlite", "small"), directory, missing)
    result.measures += [
        slowdown("scan", scanned["ours"].median, scanned["peer"].median, "s", at_most(1.05), _PEER),
        slowdown("scan with 1 % deleted", deleted["ours"].median, scanned["peer"].median, "s", None, _PEER),
        slowdown("append", appended["ours"].median, appended["peer"].median, "s", at_most(1.10), _PEER),
        *changed,
        *compacted,
    ]
    result.notes += [f"skipped: {why}" for why in missing]
    result.notes.append(f"{count:,} rows × 4 columns, local[{os.cpu_count()}], medians; ours includes the commit.")


@contextmanager
def _session(directory: Path, missing: list[str]) -> Iterator[SparkSession]:
    """A session with the peers that can be had; of others ``missing`` tells why not."""
    try:
        from pyspark.sql import SparkSession
    except ImportError:
        raise Skip("pyspark is not installed") from None
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)

    def build(settings: dict[str, str]) -> SparkSession:
        builder = (
            SparkSession.builder.master(f"local[{os.cpu_count()}]")
            .config("spark.ui.enabled", "false")
            .config("spark.ui.showConsoleProgress", "false")
            .config("spark.driver.memory", "2g")
            .config("spark.log.level", "OFF")
            .config("spark.local.dir", str(directory))
            .config("spark.sql.warehouse.dir", str(directory / "warehouse"))
        )
        for key, value in settings.items():
            builder = builder.config(key, value)
        return builder.getOrCreate()

    try:
        session = build(_peer_settings(directory))
    except Exception as error:  # the JVM has ended by itself
        missing += [f"{name}: its jar could not be had ({type(error).__name__})" for name in ("Delta Lake", "Iceberg")]
        session = build({})
    try:
        yield session
    finally:
        session.stop()


def _peer_settings(directory: Path) -> dict[str, str]:
    return {
        "spark.jars.packages": f"{DELTA},{ICEBERG}",
        "spark.sql.extensions": (
            "io.delta.sql.DeltaSparkSessionExtension,org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions"
        ),
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.sql.catalog.ice": "org.apache.iceberg.spark.SparkCatalog",
        "spark.sql.catalog.ice.type": "hadoop",
        "spark.sql.catalog.ice.warehouse": str(directory / "iceberg"),
    }


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


# -- changes -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Peer:
    """Another lake format in the same session; ``table`` is its table in SQL."""

    name: str
    table: str
    properties: str


def _peers(directory: Path, missing: list[str], table: str) -> list[_Peer]:
    if missing:
        return []
    delta = _Peer("Delta Lake", f"delta.`{directory}/delta-{table}`", "'delta.enableDeletionVectors' = 'true'")
    modes = ", ".join(f"'write.{word}.mode' = 'merge-on-read'" for word in ("delete", "update", "merge"))
    return [delta, _Peer("Iceberg", f"ice.db.{table}", f"'format-version' = '3', {modes}")]


def _fill(session: SparkSession, peer: _Peer, frame: DataFrame) -> None:
    frame.createOrReplaceTempView("bench_rows")
    provider = "delta" if peer.name == "Delta Lake" else "iceberg"
    session.sql(f"CREATE TABLE {peer.table} USING {provider} TBLPROPERTIES ({peer.properties}) AS FROM bench_rows")


def _changes(
    bench: Bench, session: SparkSession, rows: DataFrame, place: Place, directory: Path, missing: list[str]
) -> list[Measure]:
    """MERGE and DELETE of one row in a hundred, each time of others."""
    rounds, count = bench.pick(1, 3, 5), rows.count()
    peers = _peers(directory, missing, "t")

    def source(turn: int) -> DataFrame:
        found = rows.where(f"id % 100 = {turn + 20}").selectExpr("id", "day", "concat(name, '!') AS name", "value")
        new = rows.where(f"id % 1000 = {turn + 20}").selectExpr(
            f"id + {count * (turn + 1)} AS id", "day", "name", "value"
        )
        return found.union(new)

    with quacklake.connect(place.url, data_path=place.data) as lake:
        spark = quacklake.spark(lake, session)
        spark.create_table("t", rows)
        for peer in peers:
            _fill(session, peer, rows)
        turns = {name: itertools.count() for name in ("ours", *(peer.name for peer in peers))}

        def merge() -> object:
            merging = spark.merge("t", source(next(turns["ours"])), on="id")
            return merging.when_matched_update_all().when_not_matched_insert_all().execute()

        def merge_peer(peer: _Peer) -> Callable[[], object]:
            def work() -> object:
                source(next(turns[peer.name])).createOrReplaceTempView("bench_source")
                return session.sql(
                    f"MERGE INTO {peer.table} t USING bench_source s ON t.id = s.id"
                    " WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
                ).collect()

            return work

        def delete_peer(peer: _Peer) -> Callable[[], object]:
            return lambda: session.sql(
                f"DELETE FROM {peer.table} WHERE id % 100 = {next(turns[peer.name]) + 20}"
            ).collect()

        with bench.step("merging"):
            merged = alternate(rounds, {"ours": merge, **{peer.name: merge_peer(peer) for peer in peers}})
        with bench.step("deleting"):
            works: dict[str, Callable[[], object]] = {
                "ours": lambda: spark.delete("t", f"id % 100 = {next(turns['ours']) + 20}")
            }
            deleted = alternate(rounds, works | {peer.name: delete_peer(peer) for peer in peers})
        left = spark.table("t").count()
        for peer in peers:
            if session.table(peer.table).count() != left:
                raise RuntimeError(f"{peer.name} has other rows")
    return [
        measure
        for what, timings in (("MERGE of 1 %", merged), ("DELETE of 1 %", deleted))
        for measure in _compared(what, timings, peers, missing)
    ]


def _compared(what: str, timings: dict[str, Timing], peers: list[_Peer], missing: list[str]) -> list[Measure]:
    ours = timings["ours"].median
    if missing:
        return [Measure(what, "s", ours)]
    return [slowdown(what, ours, timings[peer.name].median, "s", at_most(1.0), peer.name) for peer in peers]


def _compaction(
    bench: Bench, session: SparkSession, place: Place, directory: Path, missing: list[str]
) -> list[Measure]:
    """Many small files into one: ours and Delta's OPTIMIZE."""
    count = bench.pick(100, 2000, 2000)
    rows = session.range(0, count * 1000, 1, count).selectExpr("id", "id % 365 AS day", "concat('n', id) AS name")
    peers = [peer for peer in _peers(directory, missing, "small") if peer.name == "Delta Lake"]
    with quacklake.connect(place.url, data_path=place.data) as lake:
        lake.set_option("data_inlining_row_limit", 0)
        spark = quacklake.spark(lake, session)
        with bench.step("writing small files"):
            spark.create_table("small", rows)
            for peer in peers:
                session.conf.set("spark.databricks.delta.optimizeWrite.enabled", "false")
                _fill(session, peer, rows)
        with bench.step("compacting"):
            works: dict[str, Callable[[], object]] = {"ours": lambda: spark.merge_adjacent_files("small")}
            works |= {peer.name: lambda peer=peer: session.sql(f"OPTIMIZE {peer.table}").collect() for peer in peers}  # type: ignore[misc]
            timings = _once(works)
    return _compared(f"compaction of {count:,} files", timings, peers, missing)


def _once(works: dict[str, Callable[[], object]]) -> dict[str, Timing]:
    """Each work once: there is nothing left to do the second time."""
    found = {}
    for name, work in works.items():
        begun = time.perf_counter()
        answer = work()
        wall = time.perf_counter() - begun
        found[name] = Timing(wall, 0.0, (wall,), answer)
    return found
