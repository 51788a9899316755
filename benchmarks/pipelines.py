"""Pipelines from NATS into a lake: the rate, how far they fall behind, their memory, and what they cost when idle.

The peers of the rate are clients that read the same messages and do nothing with them: the Python client of NATS, and
our own. What is missing to 1 beside our own is the price of decoding, checkpoints and files.
"""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import os
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any
from urllib.parse import urlparse

import numpy as np

import quacklake
from benchmarks.common import Bench, Detail, Measure, Result, Skip, at_least, at_most
from benchmarks.spark_peers import open_spark
from quacklake.connectors.nats.connection import NatsConnection
from quacklake.lake import Lake
from quacklake.pipelines import Pipeline
from services import NatsServer

TITLE = "pipelines from NATS into a lake"

_EVERY = 1.0
_SCHEMA = "id BIGINT, region VARCHAR, price DOUBLE, name VARCHAR"
_BLOCK = 1000


def run(bench: Bench, result: Result) -> None:
    """Measure the rate, the lag at half of it, the memory, and a pipeline with nothing to do."""
    messages, many, seconds, idle = bench.pick(
        (20_000, 50_000, 2.0, 2.0), (300_000, 1_000_000, 10.0, 30.0), (2_000_000, 10_000_000, 30.0, 30.0)
    )
    with bench.directory() as directory, NatsServer(directory / "nats") as server:
        with bench.step(f"publishing {messages:,} messages"):
            _publish(server, "orders", messages)
        rate = _rates(bench, result, directory, server, messages)
        _lag(bench, result, directory, server, rate / 2, seconds)
        _idle(bench, result, directory, server, idle)
        with bench.step(f"publishing {many:,} messages"):
            _publish(server, "many", many)
        _memory(bench, result, directory, server, many)
        _on_spark(bench, result, directory, server, messages)
    result.notes.append(f"{messages:,} messages of 160 bytes; the server of NATS runs on the same machine.")


# -- the rate ----------------------------------------------------------------------------------------------------------


def _rates(bench: Bench, result: Result, directory: Path, server: NatsServer, count: int) -> float:
    """Read all messages by each client and by a pipeline, in turn, and return the rate of the pipeline."""
    times: dict[str, list[float]] = {"client": [], "ours": [], "nats-py": []}
    with bench.step("from NATS", 3) as done:
        for number in range(3):
            times["client"].append(_timed(lambda: _drain(server, count)))
            times["ours"].append(_timed(lambda number=number: _pass_on(directory / f"rate{number}", server, count)))
            if number == 0 or times["nats-py"]:
                times["nats-py"] += _drain_with_nats_py(server, count)
            done(1)
    ours, client = count / median(times["ours"]), count / median(times["client"])
    what = "NATS → lake, messages a second"
    if times["nats-py"]:
        peer = count / median(times["nats-py"])
        result.measures.append(
            Measure(what, "/s", ours, peer, "nats-py, no lake", ours / peer, "the rate", at_least(0.8))
        )
    else:
        result.notes.append("Without nats-py, which is not installed.")
    result.measures.append(
        Measure(what, "/s", ours, client, "our client, no lake", ours / client, "the rate", at_least(0.8))
    )
    return ours


def _timed(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def _drain(server: NatsServer, count: int) -> None:
    with NatsConnection(server.url) as nats:
        assert sum(map(len, nats.read_range("orders", 1, count + 1, batch=50_000))) == count


def _drain_with_nats_py(server: NatsServer, count: int) -> list[float]:
    """Return the seconds that the Python client of NATS takes, without any when it is not installed."""
    try:
        import nats
        from nats.js.api import AckPolicy, ConsumerConfig, DeliverPolicy
    except ImportError:
        return []

    async def drain() -> None:
        connection = await nats.connect(server.url)
        config = ConsumerConfig(ack_policy=AckPolicy.NONE, deliver_policy=DeliverPolicy.ALL)
        consumer = await connection.jetstream().pull_subscribe("orders.>", stream="orders", config=config)
        left = count
        while left:
            left -= len(await consumer.fetch(min(10_000, left)))
        await connection.close()

    return [_timed(lambda: asyncio.run(drain()))]


def _pass_on(folder: Path, server: NatsServer, count: int, **more: Any) -> None:
    with _lake(folder) as lake:
        report = Pipeline(lake, _definition(server, "orders", **more)).run(until_caught_up=True)
        assert report.rows == lake.table("orders").count() == count


@contextmanager
def _lake(folder: Path) -> Iterator[Lake]:
    with quacklake.connect(f"sqlite:///{folder}.db", data_path=str(folder)) as lake:
        yield lake


def _definition(server: NatsServer, stream: str, *, start: str = "earliest", **more: Any) -> dict[str, Any]:
    source = {"type": "nats", "servers": server.url, "stream": stream, "schema": _SCHEMA, "start": start}
    return {"pipeline": "p", "source": source, "sinks": [{"type": "lake", "table": "orders"}], **more}


def _on_spark(bench: Bench, result: Result, directory: Path, server: NatsServer, count: int) -> None:
    try:
        with open_spark(directory / "spark") as _, bench.step("on Spark", 3) as done:
            seconds = []
            for number in range(3):  # the first does not count
                folder = directory / f"spark{number}"
                seconds.append(_timed(lambda folder=folder: _pass_on(folder, server, count, engine="spark")))
                done(1)
    except Skip as error:
        result.notes.append(f"Not on Spark: {error}.")
        return
    result.measures.append(Measure("NATS → lake on Spark, messages a second", "/s", count / median(seconds[1:])))


# -- lag, and a pipeline with nothing to do ----------------------------------------------------------------------------


def _lag(bench: Bench, result: Result, directory: Path, server: NatsServer, rate: float, seconds: float) -> None:
    """Publish at a rate while a pipeline runs, and look how old messages were when they were committed."""
    commits: list[tuple[int, float]] = []
    count = int(rate * seconds) // _BLOCK * _BLOCK + _BLOCK
    _create(server, "live")
    with bench.step(f"{count:,} messages at {rate:,.0f} a second"), _lake(directory / "live") as lake:
        pipeline = Pipeline(lake, _definition(server, "live", every=f"{_EVERY}s"))
        pipeline.start(
            on_batch=lambda batch: commits.append((json.loads(batch.position)["offsets"]["sequence"], time.time()))
        )
        time.sleep(2 * _EVERY)
        publisher = multiprocessing.get_context("spawn").Process(target=_send, args=(server.url, "live", count, rate))
        publisher.start()
        until = time.monotonic() + 10 * seconds + 60
        while (not commits or commits[-1][0] < count) and time.monotonic() < until:
            time.sleep(0.1)
        publisher.join()
        pipeline.stop()
        stored = lake.table("orders").to_arrow(columns=["_sequence", "_time"])
    assert stored.num_rows == count
    ends, moments = np.array([end for end, _ in commits]), np.array([moment for _, moment in commits])
    committed = moments[np.searchsorted(ends, stored.column("_sequence").to_numpy())]
    lags = committed - stored.column("_time").cast("int64").to_numpy() / 1e6
    what = "lag at half that rate, p99, in triggers"
    result.measures.append(Measure(what, "", float(np.percentile(lags, 99)) / _EVERY, target=at_most(2, "ours")))


def _idle(bench: Bench, result: Result, directory: Path, server: NatsServer, seconds: float) -> None:
    """Let a pipeline run that has nothing to do, and count what it asks the server."""
    sent: list[float] = []
    original = NatsConnection._send

    def counted(connection: NatsConnection, data: bytes | memoryview) -> None:
        sent.append(time.monotonic())
        original(connection, data)

    with bench.step(f"idle for {seconds:g} s"), _lake(directory / "idle") as lake:
        pipeline = Pipeline(lake, _definition(server, "orders", start="latest", every=f"{_EVERY}s"))
        pipeline.start()
        time.sleep(1.0)
        NatsConnection._send = counted  # type: ignore[method-assign]
        try:
            began, used = time.perf_counter(), time.process_time()
            time.sleep(seconds)
            elapsed, used = time.perf_counter() - began, time.process_time() - used
        finally:
            NatsConnection._send = original  # type: ignore[method-assign]
        pipeline.stop()
    share = Measure("idle pipeline, share of a core", "%", used / elapsed * 100, target=at_most(2, "ours"))
    asked = Measure(
        "idle pipeline, requests a poll interval", "", len(sent) / (elapsed / _EVERY), target=at_most(1.05, "ours")
    )
    result.measures += [share, asked]


# -- memory ------------------------------------------------------------------------------------------------------------


def _memory(bench: Bench, result: Result, directory: Path, server: NatsServer, count: int) -> None:
    """Run a pipeline in a separate process, and measure its memory after a tenth, half and all of the messages."""
    context = multiprocessing.get_context("spawn")
    receiver, sender = context.Pipe(duplex=False)
    definition = _definition(server, "many", batch_rows=max(1000, count // 50))
    child = context.Process(target=_child, args=(directory / "many", definition, sender))
    with bench.step(f"memory over {count:,} messages"):
        child.start()
        sender.close()
        seen: list[tuple[int, int]] = receiver.recv()
        child.join()
    assert seen[-1][0] == count
    points = [next(size for rows, size in seen if rows >= count * share) / 1e6 for share in (0.1, 0.5, 1.0)]
    result.details.append(
        Detail(
            "resident memory",
            ("messages", "MB"),
            [(f"{share} %", size) for share, size in zip((10, 50, 100), points, strict=True)],
        )
    )
    what = f"memory after {count:,} messages / after a tenth"
    result.measures.append(Measure(what, "", points[2] / points[0], target=at_most(1.1, "ours")))


def _child(folder: Path, definition: dict[str, Any], sender: Any) -> None:
    seen: list[tuple[int, int]] = []

    def look(batch: Any) -> None:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        seen.append((batch.rows + (seen[-1][0] if seen else 0), pages * os.sysconf("SC_PAGE_SIZE")))

    with _lake(folder) as lake:
        Pipeline(lake, definition).run(until_caught_up=True, on_batch=look)
    sender.send(seen)


# -- messages ----------------------------------------------------------------------------------------------------------


def _create(server: NatsServer, stream: str) -> None:
    with NatsConnection(server.url) as nats:
        nats.jetstream(f"STREAM.CREATE.{stream}", {"name": stream, "subjects": [f"{stream}.>"]})


def _publish(server: NatsServer, stream: str, count: int) -> None:
    """Make a stream with messages, and return when the server has stored all of them."""
    _create(server, stream)
    _send(server.url, stream, count)
    with NatsConnection(server.url) as nats:
        while nats.jetstream(f"STREAM.INFO.{stream}")["state"]["last_seq"] < count:
            time.sleep(0.1)


def _send(url: str, stream: str, count: int, rate: float = 0.0) -> None:
    """Send messages without waiting for acknowledgements, at most ``rate`` a second if that is given."""
    place = urlparse(url)
    with socket.create_connection((place.hostname, place.port)) as connection:
        connection.sendall(b'CONNECT {"verbose": false}\r\n')
        began = time.perf_counter()
        for first in range(0, count, _BLOCK):
            connection.sendall(b"".join(_message(stream, n) for n in range(first, min(first + _BLOCK, count))))
            if rate:
                time.sleep(max(0.0, began + (first + _BLOCK) / rate - time.perf_counter()))
        connection.sendall(b"PING\r\n")
        received = b""
        while b"PONG" not in received:
            received = received[-8:] + connection.recv(1 << 16)


def _message(stream: str, number: int) -> bytes:
    row = {"id": number, "region": f"r{number % 7}", "price": number / 7, "name": f"customer {number} {'x' * 80}"}
    body = json.dumps(row).encode()
    return b"PUB %s.%d %d\r\n%s\r\n" % (stream.encode(), number % 4, len(body), body)
