"""The driver of the demo's streams, in a process of its own, which the demo kills.

``python -m quacklake.cli.demo.driver DIRECTORY EVENTS``
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from quacklake.cli.demo import events
from quacklake.cli.demo.stage import open_lake
from quacklake.spark.lake import SparkLake, spark

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_MASTER = "local[2]"


def main(directory: Path, count: int) -> None:
    """Stream the files of the inbox into the lake, and their totals by minute. End when all are there."""
    session = _session(directory)
    with open_lake(directory) as lake:
        lake_on_spark = spark(lake, session)
        minutes = lake_on_spark.pipeline(
            events.EVENTS,
            lambda fresh: _by_minute(lake_on_spark, fresh),
            events.MINUTES,
            name="minutes",
            mode="upsert",
            on=["minute", "shop"],
        )
        arriving = lake_on_spark.write_stream(
            session.readStream.schema(events.SCHEMA).option("maxFilesPerTrigger", 1).parquet(str(directory / "inbox")),
            events.EVENTS,
            name="events",
            checkpoint=str(directory / "checkpoints/events"),
        )
        while events.files_done(lake, count) < events.BATCHES:
            if not arriving.isActive:
                arriving.awaitTermination()  # raises the error that stopped the stream
            minutes.run()
            time.sleep(0.05)
        arriving.stop()
        minutes.run()
    session.stop()


def _by_minute(lake_on_spark: SparkLake, fresh: DataFrame) -> DataFrame:
    """Return the number of events and the amount of each shop and minute: the old totals plus those of fresh events."""
    from pyspark.sql import functions as f

    grouped = fresh.groupBy(f.window("time", "1 minute").start.alias("minute"), "shop")
    added = grouped.agg(f.count("*").alias("events"), f.sum("amount").alias("amount"))
    both = lake_on_spark.table(events.MINUTES).unionByName(added)
    return both.groupBy("minute", "shop").agg(f.sum("events").alias("events"), f.sum("amount").alias("amount"))


def _session(directory: Path) -> SparkSession:
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    settings: dict[str, str | bool | int | float | None] = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "OFF",
        "spark.driver.memory": "1g",
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.warehouse.dir": str(directory / "warehouse"),
    }
    return SparkSession.builder.master(_MASTER).config(map=settings).getOrCreate()


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
