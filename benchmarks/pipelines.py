"""Pipelines: from NATS into a lake, and into Delta and Iceberg tables.

The peer of the pipeline from NATS is our own client that reads the same messages and does nothing with them: what is
missing to 1 is the price of decoding, checkpoints and files. The peers of the sinks are the libraries of the formats,
which write the same rows in one call, without a second phase.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import pyarrow as pa

import quacklake
from benchmarks.common import Bench, Measure, Result, at_least, at_most, percentile
from quacklake.connectors import Sink, connector
from quacklake.connectors.nats.connection import NatsConnection
from quacklake.pipelines import Pipeline
from services import NatsServer

TITLE = "pipelines from NATS into a lake, and sinks of other formats"

_STREAM = "orders"


def run(bench: Bench, result: Result) -> None:
    """Measure the way in, then each sink."""
    messages, rows = bench.pick((20_000, 50_000), (300_000, 1_000_000), (2_000_000, 5_000_000))
    with bench.directory() as directory, NatsServer(directory / "nats") as server:
        with NatsConnection(server.url) as nats:
            nats.jetstream(f"STREAM.CREATE.{_STREAM}", {"name": _STREAM, "subjects": [f"{_STREAM}.>"]})
            with bench.step(f"publishing {messages} messages", 1) as done:
                _publish(nats, messages)
                done(1)
        _from_nats(bench, result, directory, server, messages)
    batch = _rows(rows)
    for kind in ("delta", "iceberg"):
        with bench.directory() as directory:
            _sink(bench, result, directory, kind, batch)
    result.notes.append(f"{messages:,} messages of 160 bytes; {rows:,} rows of four columns into the sinks.")


def _publish(nats: NatsConnection, count: int) -> None:
    for first in range(0, count, 10_000):
        numbers = range(first, min(first + 10_000, count))
        bodies = [
            json.dumps({"id": n, "region": f"r{n % 7}", "price": n / 7, "name": f"customer {n} {'x' * 80}"}).encode()
            for n in numbers
        ]
        nats.publish([(f"{_STREAM}.{n % 4}", body, None) for n, body in zip(numbers, bodies, strict=True)])


def _from_nats(bench: Bench, result: Result, directory: Path, server: NatsServer, count: int) -> None:
    def drain() -> float:
        began = time.perf_counter()
        with NatsConnection(server.url) as nats:
            found = sum(len(part.sequences) for part in nats.read_range(_STREAM, 1, count + 1))
        assert found == count
        return time.perf_counter() - began

    def pipeline(number: int) -> tuple[float, list[float]]:
        url = f"sqlite:///{directory}/{number}.db"
        with quacklake.connect(url, data_path=str(directory / str(number))) as lake:
            given = {
                "pipeline": "p",
                "source": {
                    "type": "nats",
                    "servers": server.url,
                    "stream": _STREAM,
                    "schema": "id BIGINT, region VARCHAR, price DOUBLE, name VARCHAR",
                },
                "sinks": [{"type": "lake", "table": "orders"}],
            }
            times: list[float] = []
            began = time.perf_counter()
            report = Pipeline(lake, given).run(
                until_caught_up=True, on_batch=lambda batch: times.append(batch.milliseconds)
            )
            seconds = time.perf_counter() - began
            assert report.rows == lake.table("orders").count() == count
        return seconds, times

    raw, ours, batches = [], [], []
    with bench.step("from NATS", 3) as done:
        for number in range(3):
            raw.append(drain())
            seconds, times = pipeline(number)
            ours.append(seconds)
            batches += times
            done(1)
    result.measures.append(
        Measure(
            "NATS → lake, messages a second",
            "msg/s",
            count / median(ours),
            count / median(raw),
            "reading alone",
            median(raw) / median(ours),
            "the rate",
            at_least(0.8),
        )
    )
    result.measures.append(Measure("a batch of that, p99", "ms", percentile(batches, 99)))


def _rows(count: int) -> pa.Table:
    return pa.table(
        {
            "id": pa.array(range(count), pa.int64()),
            "region": pa.array([f"r{n % 7}" for n in range(count)]),
            "price": pa.array([n / 7 for n in range(count)]),
            "name": pa.array([f"customer {n % 1000}" for n in range(count)]),
        }
    )


def _sink(bench: Bench, result: Result, directory: Path, kind: str, rows: pa.Table) -> None:
    """Write rows in several commits by the sink and by the library, in turn, each into a table of its own."""
    commits = 5
    ours, theirs = _new_sink(kind, directory / "ours"), _library(kind, directory / "theirs", rows.schema)
    ours.initialize(rows.schema)
    times: dict[str, list[float]] = {name: [] for name in ("ours", "theirs", "buffer", "prepare", "finalize")}
    with bench.step(f"{kind} sink", commits) as done:
        for number in range(commits):
            began = time.perf_counter()
            theirs(rows)
            times["theirs"].append(time.perf_counter() - began)
            began = time.perf_counter()
            for batch in rows.to_batches(max_chunksize=100_000):
                ours.write_batch(batch)
            wrote = time.perf_counter()
            prepared = ours.prepare_commit(number)
            ready = time.perf_counter()
            ours.finalize_commit(prepared)
            ended = time.perf_counter()
            times["ours"].append(ended - began)
            times["prepare"].append(ready - wrote)
            times["finalize"].append(ended - ready)
            done(1)
    library = {"delta": "deltalake", "iceberg": "pyiceberg"}[kind]
    mine, peer = rows.num_rows / median(times["ours"]), rows.num_rows / median(times["theirs"])
    result.measures.append(
        Measure(f"{kind} sink, rows a second", "rows/s", mine, peer, library, mine / peer, "the rate", at_least(0.9))
    )
    result.measures.append(
        Measure(
            f"{kind} finalize, p50", "ms", median(times["finalize"]) * 1000, target=at_most(100, "ours"), peer_name=""
        )
    )
    small = rows.slice(0, 1000).to_batches()[0]
    for _ in range(1000):
        began = time.perf_counter()
        ours.write_batch(small)
        times["buffer"].append(time.perf_counter() - began)
    result.measures.append(
        Measure(f"{kind} write_batch that only keeps, p50", "µs", median(times["buffer"]) * 1e6, peer_name="")
    )
    ours.abort()
    ours.close()


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
