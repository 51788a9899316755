"""Measure the rows a second that the NATS sink stages and publishes: ``python -m benchmarks.nats_sink [ROWS]``.

On one machine the server shares the processors with the sink, so the processor time of both is printed, too.
"""

from __future__ import annotations

import datetime as dt
import sys
import tempfile
import time
from pathlib import Path

import pyarrow as pa

from quacklake.connectors.nats import NatsSink
from quacklake.connectors.nats.connection import NatsConnection
from services import NatsServer

_START = dt.datetime(2024, 1, 1, tzinfo=dt.UTC)


def main(count: int, window: int) -> None:
    """Write the same rows in each format and print the figures."""
    rows = pa.record_batch(
        {
            "id": range(count),
            "region": [f"r{n % 7}" for n in range(count)],
            "name": [f"customer number {n}, {'x' * 120}" for n in range(count)],
            "price": [n / 7 for n in range(count)],
            "at": [_START + dt.timedelta(seconds=n) for n in range(count)],
        }
    )
    with NatsServer() as server, tempfile.TemporaryDirectory() as folder, NatsConnection(server.url) as nats:
        for form in ("json", "csv", "arrow"):
            nats.jetstream(f"STREAM.CREATE.{form}", {"name": form, "subjects": [f"{form}.>"]})
            place = {"servers": server.url, "stream": form, "subject": form + ".{region}", "staging": folder}
            sink = NatsSink({**place, "format": form, "max_in_flight": window})
            sink.initialize(rows.schema)
            begun = time.perf_counter()
            sink.write_batch(rows)
            prepared = sink.prepare_commit(0)
            staged = time.perf_counter()
            cpu, served = time.process_time(), _processor_time(server)
            sink.finalize_commit(prepared)
            ended = time.perf_counter()
            cpu, served = time.process_time() - cpu, _processor_time(server) - served
            print(
                f"{form:5}  staged {count / (staged - begun):9,.0f} rows/s  published {count / (ended - staged):9,.0f}"
                f" rows/s  processor time a row: sink {cpu / count * 1e6:.1f} µs, server {served / count * 1e6:.1f} µs"
            )


def _processor_time(server: NatsServer) -> float:
    process = server._process
    if process is None or not Path("/proc/self/stat").exists():
        return 0.0
    fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / 100


if __name__ == "__main__":
    given = [int(text) for text in sys.argv[1:3]]
    main(*given, *[200_000, 1000][len(given) :])
