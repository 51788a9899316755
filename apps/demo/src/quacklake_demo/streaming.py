"""The part of the demo with Spark: events stream in, totals stream out, and the driver is killed in between.

The driver is a separate process: ``python -m quacklake_demo.streaming DIRECTORY EVENTS``
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from quacklake import Lake
from quacklake.cli.commands.doctor import installed, java
from quacklake.cli.progress import stages
from quacklake.errors import QuacklakeError
from quacklake.extend.duckdbs import connect
from quacklake.extend.reporting import Progress
from quacklake_demo.stage import Stage, open_lake

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from quacklake.spark.lake import SparkLake

EVENTS, MINUTES, SHOPS = "stream.events", "stream.minutes", "stream.shops"
SCHEMA = "id BIGINT, time TIMESTAMP, shop INT, amount BIGINT"
BATCHES = 10
"""The number of files that the generator writes. Spark takes one for each batch."""

_SHOPS = 5
# every file has the same minutes of an hour, so every total grows with every batch
_GENERATED = f"""
    SELECT i AS id, TIMESTAMPTZ '2025-07-01 12:00:00+00' + INTERVAL 1 SECOND * (i * 7919 % 3600) AS time,
        (i % {_SHOPS})::INTEGER AS shop, i * 31 % 1000 AS amount
    FROM range(?, ?) r(i)
"""
_PATIENCE = 600.0


def stream(stage: Stage, directory: Path, count: int) -> None:
    """Stream events through Spark, and kill its driver in the middle."""
    stage.step("Stream through Spark, and kill it")
    missing = lacking()
    if missing is not None:
        stage.say(f"Left out: {missing}.")
        return
    begun = time.perf_counter()
    with open_lake(directory) as lake:
        create_tables(lake)
        amount = generate(directory / "inbox", count)
        stage.say(f"A generator puts {count:,} events into {BATCHES} files. Spark starts in a separate process.")
        stage.call('lake.sql("CREATE MATERIALIZED VIEW stream.shops REFRESH ON COMMIT AS SELECT shop, count(*), …")')
        stage.call('spark.write_stream("stream.events", files, name="events", checkpoint=…)')
        stage.call('spark.pipeline("stream.events", totals_by_minute, "stream.minutes", mode="upsert", …).run()')
        with stages(console=stage.console) as tell:
            _run(directory, lake, count, tell, until=BATCHES // 2)
            (counted, different, _), (by_minute, _) = totals(lake)
            stage.say(
                f"kill -9: the driver and its Java are gone, with {counted:,} events in the lake ({different:,}"
                f" different ones), and {by_minute:,} counted by the minute. Another one goes on from the checkpoints:"
            )
            _run(directory, lake, count, tell)
        _judge(stage, lake, count, amount)
    stage.say(f"That took {time.perf_counter() - begun:.0f} seconds, most of them to start Spark twice.")


def lacking() -> str | None:
    """Return why there is no Spark here; None where there is."""
    if installed("pyspark") is None:
        return "pyspark is not installed; pip install 'quacklake[spark]' brings it"
    found = java()
    return None if found.state == "ok" else f"Java is {found.detail}; {found.fix}"


def _judge(stage: Stage, lake: Lake, count: int, amount: int) -> None:
    found, by_minute = totals(lake)
    counted, different, money = found
    stage.say(
        f"{counted:,} events are in the lake, {different:,} different ones, worth {money:,}; by the minute they are"
        f" {by_minute[0]:,}, worth {by_minute[1]:,}. The generator made {count:,}, worth {amount:,}."
    )
    if (found, by_minute) != ((count, count, amount), (count, amount)):
        raise QuacklakeError("events were lost or came twice", hint="please report it, with what the demo has printed")
    stage.say("None is lost, and none came twice: each batch is committed together with its number.")
    _prove(stage, lake, count)


def _prove(stage: Stage, lake: Lake, count: int) -> None:
    """Bring the view that follows the stream up to date, and compare it with a full computation."""
    stage.call('lake.refresh("stream.shops"); lake.sql("VERIFY MATERIALIZED VIEW stream.shops")')
    lake.refresh(SHOPS)
    (found,) = lake.materialized_views.verify(SHOPS)
    counted = lake.sql(f"SELECT coalesce(sum(events), 0)::BIGINT FROM {SHOPS}").fetchall()[0][0]
    if not found.ok or counted != count:
        raise QuacklakeError("the materialized view is wrong", hint="please report it, with what the demo has printed")
    stage.say(
        f"The materialized view followed every commit of the stream, through the kill too: {found.count} shops with"
        f" {counted:,} events, the same as a full computation."
    )


def _run(directory: Path, lake: Lake, count: int, tell: Progress, until: int | None = None) -> None:
    """Run a driver to its end, or kill it when ``until`` files are in the lake."""
    with (directory / "driver.log").open("w+b") as log:
        driver = subprocess.Popen(
            [sys.executable, "-m", "quacklake_demo.streaming", str(directory), str(count)],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,  # so that Java, which is in its process group, is killed with it
        )
        try:
            ended = _watch(driver, lambda: files_done(lake, count), tell, until)
        finally:
            with suppress(ProcessLookupError):  # the driver has ended, and Java with it
                os.killpg(driver.pid, signal.SIGKILL)
            driver.wait()
        if not ended:
            return
        if driver.returncode != 0:
            log.seek(0)
            said = log.read().decode(errors="replace").strip().splitlines()
            raise QuacklakeError(f"the driver of the streams failed: {said[-1] if said else driver.returncode}")


def _watch(driver: subprocess.Popen[bytes], done: Callable[[], int], tell: Progress, until: int | None) -> bool:
    """Report the progress. Return True when the driver has ended, False when ``until`` is reached."""
    deadline = time.monotonic() + _PATIENCE
    while driver.poll() is None:
        far = done()
        tell("batches of events", far, BATCHES)
        if until is not None and far >= until:
            return False
        if time.monotonic() > deadline:
            raise QuacklakeError(f"Spark did not come to an end within {_PATIENCE:.0f} seconds")
        time.sleep(0.1)
    return True


# -- the events, and their expected totals -----------------------------------------------------------------------------


def create_tables(lake: Lake) -> None:
    """Create the tables that the streams fill."""
    lake.create_schema("stream")
    lake.sql(f"CREATE TABLE {EVENTS} (id BIGINT, time TIMESTAMPTZ, shop INTEGER, amount BIGINT)")
    lake.sql(
        f"CREATE MATERIALIZED VIEW {SHOPS} REFRESH ON COMMIT AS"
        f" SELECT shop, count(*) AS events, sum(amount) AS amount, max(time) AS latest FROM {EVENTS} GROUP BY shop"
    )
    lake.sql(f"CREATE TABLE {MINUTES} (minute TIMESTAMPTZ, shop INTEGER, events BIGINT, amount BIGINT)")


def generate(inbox: Path, count: int) -> int:
    """Write files with ``count`` events, which appear complete, and return the sum of their amounts."""
    inbox.mkdir()
    total = 0
    with connect() as connection:
        for number in range(BATCHES):
            made = connection.sql(_GENERATED, params=[count * number // BATCHES, count * (number + 1) // BATCHES])
            hidden = inbox / f"_{number}.parquet"  # Spark skips such names
            made.write_parquet(str(hidden))
            total += connection.sql(f"SELECT coalesce(sum(amount), 0) FROM '{hidden}'").fetchall()[0][0]
            hidden.rename(inbox / f"{number}.parquet")
    return total


def files_done(lake: Lake, count: int) -> int:
    """Return the number of files in the lake, of those with ``count`` events.

    Files are counted by their events: after a kill, Spark may take the unfinished file and the next one as one batch.
    """
    found = lake.table(EVENTS).count()
    return sum(count * (number + 1) // BATCHES <= found for number in range(BATCHES))


def totals(lake: Lake) -> tuple[tuple[int, int, int], tuple[int, int]]:
    """Return the events, distinct events and amount, then the events and amount of the totals by minute."""
    found = lake.sql(f"SELECT count(*), count(DISTINCT id), coalesce(sum(amount), 0)::BIGINT FROM {EVENTS}").fetchall()
    by_minute = lake.sql(
        f"SELECT coalesce(sum(events), 0)::BIGINT, coalesce(sum(amount), 0)::BIGINT FROM {MINUTES}"
    ).fetchall()
    return found[0], by_minute[0]


# -- the driver --------------------------------------------------------------------------------------------------------


def main(directory: Path, count: int) -> None:
    """Stream the files of the inbox into the lake, and their totals by minute. End when all are there."""
    from quacklake.spark.lake import spark

    session = _session(directory)
    with open_lake(directory) as lake:
        lake_on_spark = spark(lake, session)
        minutes = lake_on_spark.pipeline(
            EVENTS,
            lambda fresh: _by_minute(lake_on_spark, fresh),
            MINUTES,
            name="minutes",
            mode="upsert",
            on=["minute", "shop"],
        )
        arriving = lake_on_spark.write_stream(
            EVENTS,
            session.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).parquet(str(directory / "inbox")),
            name="events",
            checkpoint=str(directory / "checkpoints/events"),
        )
        while files_done(lake, count) < BATCHES:
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
    both = lake_on_spark.table(MINUTES).unionByName(added)
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
    return SparkSession.builder.master("local[2]").config(map=settings).getOrCreate()


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
