"""Helpers for the tests of the NATS sink: streams, sinks and other readers."""

from __future__ import annotations

import json
import secrets
from pathlib import Path
from typing import Any

import pyarrow as pa

from quacklake.connectors import connector
from quacklake.connectors.nats import NatsSink
from quacklake.connectors.nats.connection import NatsConnection

SCHEMA = pa.schema([("id", pa.int64()), ("region", pa.string())])


def new_stream(nats: NatsConnection, **config: Any) -> str:
    name = f"s{secrets.token_hex(6)}"
    make_stream(nats, name, **config)
    return name


def make_stream(nats: NatsConnection, name: str, **config: Any) -> None:
    settings = {"name": name, "subjects": [f"{name}.>"], "storage": "memory", **config}
    nats.jetstream(f"STREAM.CREATE.{name}", settings)


def new_sink(url: str, stream: str, staging: Path, /, **options: Any) -> NatsSink:
    given = {"servers": url, "stream": stream, "subject": f"{stream}.{{region}}", "staging": str(staging)}
    made: NatsSink = connector("nats", "sink")({"type": "nats", "max_in_flight": 7, **given, **options})
    return made


def rows(first: int, end: int) -> pa.RecordBatch:
    numbers = range(first, end)
    return pa.record_batch({"id": list(numbers), "region": [f"r{n % 3}" for n in numbers]}, schema=SCHEMA)


def ids(nats: NatsConnection, stream: str) -> list[int]:
    """Return the ids of all rows in the order of the stream."""
    last = nats.jetstream(f"STREAM.INFO.{stream}")["state"]["last_seq"]
    return [json.loads(body)["id"] for part in nats.read_range(stream, 1, last + 1) for body in part.data.to_pylist()]


def staged(staging: Path) -> list[Path]:
    return sorted(staging.rglob("*.parquet"))
