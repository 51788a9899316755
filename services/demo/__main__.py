"""``python -m services.demo``: run the whole demo, and end with what every sink has; or stay, with ``--stay``."""

from __future__ import annotations

import argparse
import datetime as dt
import json
import signal
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Sequence
from pathlib import Path

import duckdb
import pyarrow as pa
from rich.console import Console

from quacklake.errors import QuacklakeError
from quacklake.pond import reduces
from quacklake_demo.chaos import SinkCount
from quacklake_demo.samples import fill_docks
from quacklake_demo.stage import Stage, own_settings
from quacklake_demo.streaming import lacking
from quacklake_demo.week import collect_week
from quacklake_ekko.table import TABLE
from services.demo.blocks import VIEW, good_up_to
from services.demo.readers import count, read_delta, read_iceberg, stock_duckdb
from services.demo.world import DRIVER, World

EVENTS = 50_000
_SECONDS = 20.0
"""Seconds in which the simulator publishes its blocks."""
_PATIENCE = 600.0
_STARTS = 4
"""The starts of the driver that nobody asked for, after which something is wrong."""


def main(words: Sequence[str] | None = None) -> int:
    """Run the demo; return 0 when nothing was lost and nothing came twice."""
    parser = argparse.ArgumentParser(prog="make demo", description=__doc__)
    parser.add_argument("--events", type=int, default=EVENTS, help="how many messages flow; 0 shows a lake only")
    parser.add_argument("--stay", action="store_true", help="stay until Ctrl-C, with the dashboard")
    parser.add_argument("--port", type=int, default=0, help="the port of the dashboard; any free one by default")
    given = parser.parse_args(words)
    if given.events <= 0:
        return short()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # what was started ends with us
    stage = Stage(Console())
    with own_settings(), tempfile.TemporaryDirectory(prefix="quacklake-demo-", ignore_cleanup_errors=True) as folder:
        return whole(stage, Path(folder), given.events, stays=given.stay, port=given.port)


def short() -> int:
    """Run the short demo, without streams."""
    from quacklake.cli.app import main as run

    sys.argv = ["quacklake", "demo", "--events", "0"]
    run()
    return 0


def whole(
    stage: Stage,
    folder: Path,
    events: int,
    *,
    stays: bool = False,
    port: int = 0,
    spark: bool = True,
    seconds: float = _SECONDS,
) -> int:
    """Tell the whole story in a folder."""
    begun = time.perf_counter()
    missing = lacking() if spark else "Spark was not asked for"
    stage.step("Start NATS, a catalog for two tenants, a service and a pipeline")
    if missing is not None:
        stage.say(f"Left out: Spark ({missing}). The pipeline runs on DuckDB, in a process of its own.")
    with World(folder, events, spark=missing is None, stays=stays, seconds=seconds, port=port) as world:
        for each in world.left_out:
            stage.say(f"Left out: {each}.")
        stage.address("Dashboard of ekko, the blocks:  ", world.address("ekko"))
        stage.address("Dashboard of noyo, the sensors: ", world.address("noyo"))
        stage.say(f"A simulator publishes {events:,} transactions of blocks to NATS, one in 5,000 of them broken.")
        _docks(stage, world)
        _kill(stage, world, events)
        _sensors(stage, world)
        _wait(world, events)
        found = _judge(stage, world, events)
        _api(stage, world)
        stage.say(f"That took {time.perf_counter() - begun:.0f} seconds.")
        if stays:
            _stay(stage, world)
        return 0 if all(each.doubled == each.lost == 0 for each in found) else 1


def _docks(stage: Stage, world: World) -> None:
    """Make what the dashboard leads to, while the driver starts."""
    stage.step("Put a year of readings of two docks into the pond noyo")
    fill_docks(world.pond, dt.datetime.now(dt.UTC))
    stage.say("A reading a minute, with resolutions of an hour and a day.")


def _sensors(stage: Stage, world: World) -> None:
    stage.step("Collect a week of sensors into the pond noyo")
    done = collect_week(world.pond, world.folder, stage.command)
    reduces.maintain(world.pond)
    series = [each.rows for each in world.pond.fs().glob("**/*.series") if each.rows is not None]
    stage.say(f"{done.rows:,} readings in {len(series)} series, with resolutions of an hour and a day.")


def _kill(stage: Stage, world: World, events: int) -> None:
    stage.step("Kill the driver in the middle")
    until = time.monotonic() + _PATIENCE
    while (before := world.position()) < events // 2:
        if before:
            world.publisher.go_on()
        _check(world, until)
        time.sleep(0.1)
    world.publisher.go_on()
    world.breaker.strike(DRIVER)
    stage.say(f"kill -9: the driver is gone, with {before:,} of {events:,} messages confirmed. Another one goes on.")


def _wait(world: World, events: int) -> None:
    """Wait until all messages that were to come are in every sink."""
    until = time.monotonic() + _PATIENCE
    while not world.publisher.done.is_set() or world.position() < events:
        _check(world, until)
        time.sleep(0.2)


def _check(world: World, until: float) -> None:
    if world.publisher.error is not None:
        raise world.publisher.error
    failed = world.driver.starts - sum(blow.struck for blow in world.breaker.blows()) > _STARTS
    if failed:
        raise QuacklakeError(f"the driver of the pipeline fails: {world.driver.said()}")
    if time.monotonic() > until:
        raise QuacklakeError(
            f"the pipeline did not come to its end within {_PATIENCE:.0f} seconds: {world.driver.said()}"
        )


def _judge(stage: Stage, world: World, events: int) -> list[SinkCount]:
    """Let foreign readers count, and print what they found."""
    stage.step("Let foreign readers count")
    published = good_up_to(world.publisher.published)
    position = world.position()
    rows = [
        ("lake", _lake_reader(stage, world)),
        ("delta", ("deltalake", read_delta(world.folder))),
        ("iceberg", ("pyiceberg", read_iceberg(world.folder))),
    ]
    found = [count(name, sequences, position) for name, (_, sequences) in rows]
    stage.table(
        pa.table(
            {
                "sink": [each.sink for each in found],
                "read by": [reader for _, (reader, _) in rows],
                "published": pa.array([published] * len(found), pa.int64()),
                "committed": pa.array([each.committed for each in found], pa.int64()),
                "doubled": pa.array([each.doubled for each in found], pa.int64()),
                "lost": pa.array([each.lost for each in found], pa.int64()),
            }
        )
    )
    letters = world.ekko.table("blockchain.rejected").count()
    stage.say(f"{letters} messages were no transactions: they are dead letters.")
    stage.say(f"The driver was started {world.driver.starts} times.")
    [view] = world.ekko.materialized_views.verify(VIEW)
    stage.say(f"The materialized view {VIEW} is {'right' if view.ok else 'wrong'}: {view.count:,} rows.")
    return found


def _lake_reader(stage: Stage, world: World) -> tuple[str, pa.ChunkedArray]:
    """Read the lake with stock DuckDB, or through Quacklake where that is not possible."""
    if world.postgres is not None:
        try:
            return "DuckDB, ducklake", _stock(world)
        except (ImportError, AttributeError, duckdb.Error) as error:
            stage.say(f"Left out: DuckDB's ducklake extension ({str(error).splitlines()[0]}).")
    return "Quacklake", world.read_lake()


def _stock(world: World) -> pa.ChunkedArray:
    import quacklake

    assert world.postgres is not None
    database = world.url.rpartition("/")[2]
    role = world.postgres.create_role("reader")
    with quacklake.tenants(world.url) as tenants:
        schema = tenants.expose("ekko", role).schema
    place = f"host=127.0.0.1 port={world.postgres.port} user={role} dbname={database}"
    options = f"METADATA_SCHEMA '{schema}', META_SCHEMA '{schema}', READ_ONLY"
    return stock_duckdb(f"ATTACH 'ducklake:postgres:{place}' AS lake ({options})", TABLE)


def _api(stage: Stage, world: World) -> None:
    stage.step("Ask the service, as Ekko's dashboard does")
    address = f"{world.service_url}/api/transactions/stats"
    request = urllib.request.Request(address, headers={"Authorization": f"Bearer {world.tokens['ekko']}"})
    with urllib.request.urlopen(request, timeout=60) as answer:
        stage.command("curl …/api/transactions/stats")
        stage.say(json.dumps(json.load(answer), indent=2)[:600])


def _stay(stage: Stage, world: World) -> None:
    stage.step("Stay: blocks keep coming, and the page Chaos breaks things. Ctrl-C ends it")
    stage.address("Dashboard:", world.address("ekko"))
    ended = threading.Event()
    for each in (signal.SIGINT, signal.SIGTERM):
        signal.signal(each, lambda *_: ended.set())
    ended.wait()


if __name__ == "__main__":
    sys.exit(main())
