"""The part of the demo with Spark: events stream in, totals stream out, and the driver is killed in between."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from quacklake.cli.checkup.installation import installed
from quacklake.cli.checkup.spark import java
from quacklake.cli.demo import events
from quacklake.cli.demo.stage import Stage, open_lake
from quacklake.cli.progress import stages
from quacklake.errors import QuacklakeError
from quacklake.lake.lake import Lake
from quacklake.progress import Progress

_PATIENCE = 600.0


def stream(stage: Stage, directory: Path, count: int) -> None:
    """Stream events through Spark, and kill its driver in the middle."""
    stage.step("Stream through Spark, and kill it")
    lacking = _lacking()
    if lacking is not None:
        stage.say(f"Left out: {lacking}.")
        return
    begun = time.perf_counter()
    with open_lake(directory) as lake:
        events.create_tables(lake)
        amount = events.generate(directory / "inbox", count)
        stage.say(
            f"A generator puts {count:,} events into {events.BATCHES} files. Spark starts in a process of its own."
        )
        stage.call('spark.write_stream(files, "stream.events", name="events", checkpoint=…)')
        stage.call('spark.pipeline("stream.events", totals_by_minute, "stream.minutes", mode="upsert", …).run()')
        with stages(console=stage.console) as tell:
            _run(directory, lake, count, tell, until=events.BATCHES // 2)
            (counted, different, _), (by_minute, _) = events.totals(lake)
            stage.say(
                f"kill -9: the driver and its Java are gone, with {counted:,} events in the lake ({different:,}"
                f" different ones), and {by_minute:,} counted by the minute. Another one goes on from the checkpoints:"
            )
            _run(directory, lake, count, tell)
        _judge(stage, lake, count, amount)
    stage.say(f"That took {time.perf_counter() - begun:.0f} seconds, most of them to start Spark twice.")


def _lacking() -> str | None:
    if installed("pyspark") is None:
        return "pyspark is not installed; pip install 'quacklake[spark]' brings it"
    found = java()
    return None if found.state == "ok" else f"Java is {found.detail}; {found.fix}"


def _judge(stage: Stage, lake: Lake, count: int, amount: int) -> None:
    found, by_minute = events.totals(lake)
    counted, different, money = found
    stage.say(
        f"{counted:,} events are in the lake, {different:,} different ones, worth {money:,}; by the minute they are"
        f" {by_minute[0]:,}, worth {by_minute[1]:,}. The generator made {count:,}, worth {amount:,}."
    )
    if (found, by_minute) != ((count, count, amount), (count, amount)):
        raise QuacklakeError("events were lost or came twice", hint="please report it, with what the demo has printed")
    stage.say("None is lost, and none came twice: each batch is committed together with its number.")


def _run(directory: Path, lake: Lake, count: int, tell: Progress, until: int | None = None) -> None:
    """Run a driver to its end, or kill it when ``until`` files are in the lake."""
    with (directory / "driver.log").open("w+b") as log:
        driver = subprocess.Popen(
            [sys.executable, "-m", "quacklake.cli.demo.driver", str(directory), str(count)],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,  # so that Java, which is in its process group, is killed with it
        )
        try:
            ended = _watch(driver, lambda: events.files_done(lake, count), tell, until)
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
        tell("batches of events", far, events.BATCHES)
        if until is not None and far >= until:
            return False
        if time.monotonic() > deadline:
            raise QuacklakeError(f"Spark did not come to an end within {_PATIENCE:.0f} seconds")
        time.sleep(0.1)
    return True
