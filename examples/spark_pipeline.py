"""NATS → windows → lake, Delta and Iceberg; killed and restarted, and nothing is lost or counted twice.

python examples/spark_pipeline.py

It starts a NATS server of its own, publishes orders, and runs the pipeline of spark_minutes.yaml in another process,
which it kills in the middle. The counts at the end come from the libraries of the formats, not from Quacklake.
"""

from __future__ import annotations

import datetime as dt
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import quacklake
from quacklake.connectors.nats.connection import NatsConnection

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
START = dt.datetime(2024, 1, 1, tzinfo=dt.UTC)


def publish(nats: NatsConnection, first: int, end: int) -> None:
    """Publish orders, one for every second, and now and then something that is none."""
    messages = []
    for number in range(first, end):
        order = {
            "id": number,
            "region": "north" if number % 2 else "south",
            "price": 1.0,
            "ordered": (START + dt.timedelta(seconds=number)).isoformat(),
        }
        body = b"not an order" if number % 1000 == 999 else json.dumps(order).encode()
        messages.append((f"orders.{number % 4}", body, None))
    nats.publish(messages)


def pipeline(environment: dict[str, str], *options: str) -> subprocess.Popen[bytes]:
    """Start the pipeline in a separate process."""
    words = [sys.executable, "-m", "quacklake.cli", "pipeline", "run", str(HERE / "spark_minutes.yaml"), *options]
    log = (Path(environment["EXAMPLE"]) / "log").open("ab")
    with log:
        return subprocess.Popen(words, env=os.environ | environment, stdout=log, stderr=log)


def counts(directory: Path) -> dict[str, int]:
    """Return how many orders each format has, as its own library reads it."""
    from deltalake import DeltaTable
    from pyiceberg.catalog import load_catalog

    with quacklake.connect(f"sqlite:///{directory}/lake.db") as lake:
        (lake_orders,) = lake.sql("SELECT sum(orders)::BIGINT FROM minutes").fetchall()[0]
    delta = DeltaTable(str(directory / "delta")).to_pyarrow_table()
    catalog = load_catalog("quacklake", type="sql", uri=f"sqlite:///{directory}/iceberg.db")
    iceberg = catalog.load_table(("shop", "minutes")).scan().to_arrow()
    return {
        "lake": int(lake_orders or 0),
        "delta": sum(delta.column("orders").to_pylist()),
        "iceberg": sum(iceberg.column("orders").to_pylist()),
    }


def main(directory: Path) -> None:
    from services import NatsServer

    url = f"sqlite:///{directory}/lake.db"
    quacklake.connect(url, data_path=str(directory / "data")).close()
    with NatsServer(directory / "nats") as server, NatsConnection(server.url) as nats:
        nats.jetstream("STREAM.CREATE.orders", {"name": "orders", "subjects": ["orders.>"]})
        environment = {"NATS_URL": server.url, "EXAMPLE": str(directory), "QUACKLAKE_URL": url}
        publish(nats, 0, 6_000)

        running = pipeline(environment)
        until = time.monotonic() + 300
        while not (directory / "delta").exists() and running.poll() is None and time.monotonic() < until:
            time.sleep(0.2)
        publish(nats, 6_000, 9_000)
        running.send_signal(signal.SIGKILL)
        running.wait()
        print("killed the pipeline while it wrote")

        publish(nats, 9_000, 12_000)
        publish(nats, 12_100, 12_101)  # the watermark passes the minutes before
        if pipeline(environment, "--until-caught-up").wait():
            raise SystemExit((directory / "log").read_text())
        print("ran it again to the end")

    whole = 12_000 - 12  # one in a thousand is no order
    for name, found in counts(directory).items():
        print(f"{name}: {found:,} of {whole:,} orders")
    with quacklake.connect(url) as lake:
        print(f"dead letters: {lake.table('rejected').count()}")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        main(Path(folder))
