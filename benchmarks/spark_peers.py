"""A Spark session with Delta Lake and Iceberg beside ours, and their tables."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.common import Measure, Skip, Target, Timing, at_most, slowdown
from quacklake.spark.runtime.settings import DELTA, ICEBERG

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["Peer", "Spark", "compared", "open_spark"]

_DELTA, _ICEBERG = "Delta Lake", "Iceberg"
_MODES = ", ".join(f"'write.{word}.mode' = 'merge-on-read'" for word in ("delete", "update", "merge"))
_PROPERTIES = {_DELTA: "'delta.enableDeletionVectors' = 'true'", _ICEBERG: f"'format-version' = '3', {_MODES}"}


@dataclass(frozen=True, slots=True)
class Peer:
    """A table of another lake format in the same session; ``table`` is its name in SQL."""

    name: str
    table: str

    def create(self, session: SparkSession, frame: DataFrame) -> None:
        """Make the table, with the rows of a frame."""
        frame.createOrReplaceTempView("bench_rows")
        provider = "delta" if self.name == _DELTA else "iceberg"
        properties = _PROPERTIES[self.name]
        session.sql(f"CREATE TABLE {self.table} USING {provider} TBLPROPERTIES ({properties}) AS FROM bench_rows")

    def append(self, frame: DataFrame) -> None:
        """Add the rows of a frame."""
        if self.name == _DELTA:
            frame.write.format("delta").mode("append").save(self.table.split("`")[1])
        else:
            frame.writeTo(self.table).append()


@dataclass(frozen=True, slots=True)
class Spark:
    """The session, where its files are, and why peers are missing from it."""

    session: SparkSession
    directory: Path
    missing: list[str] = field(default_factory=list)

    def peers(self, table: str, *names: str) -> list[Peer]:
        """The available peers, each with the name of a table to create."""
        tables = {_DELTA: f"delta.`{self.directory}/delta-{table}`", _ICEBERG: f"ice.db.{table}"}
        return [] if self.missing else [Peer(name, tables[name]) for name in names or tables]


@contextmanager
def open_spark(directory: Path) -> Iterator[Spark]:
    """A session with the peers whose jars can be had."""
    try:
        from pyspark.sql import SparkSession
    except ImportError:
        raise Skip("pyspark is not installed") from None
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)

    def build(settings: Mapping[str, str]) -> SparkSession:
        builder = (
            SparkSession.builder.master(f"local[{os.cpu_count()}]")
            .config("spark.ui.enabled", "false")
            .config("spark.ui.showConsoleProgress", "false")
            .config("spark.driver.memory", "4g")
            .config("spark.log.level", "OFF")
            .config("spark.local.dir", str(directory))
            .config("spark.sql.warehouse.dir", str(directory / "warehouse"))
        )
        for key, value in settings.items():
            builder = builder.config(key, value)
        return builder.getOrCreate()

    missing: list[str] = []
    try:
        session = build(_settings(directory))
    except Exception as error:  # the JVM has ended by itself
        missing += [f"{name}: its jar could not be had ({type(error).__name__})" for name in (_DELTA, _ICEBERG)]
        session = build({})
    try:
        yield Spark(session, directory, missing)
    finally:
        session.stop()


def _settings(directory: Path) -> dict[str, str]:
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


def compared(
    what: str, timings: Mapping[str, Timing], peers: Sequence[Peer], target: Target | None = None
) -> list[Measure]:
    """Our median beside that of each peer, or alone if there is none."""
    ours, wanted = timings["ours"].median, at_most(1.0) if target is None else target
    if not peers:
        return [Measure(what, "s", ours)]
    return [slowdown(what, ours, timings[peer.name].median, "s", wanted, peer.name) for peer in peers]
