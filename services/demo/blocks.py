"""The transactions of the demo: a simulator of blocks that publishes them, and the pipeline that takes them."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from quacklake.connectors.nats.connection import NatsConnection
from quacklake.errors import QuacklakeError
from quacklake.lake import Lake
from quacklake.pipelines.definitions import Definitions
from quacklake_ekko.simulator import Simulation
from quacklake_ekko.table import TABLE
from quacklake_ekko.transactions import create_table

__all__ = ["PIPELINE", "STREAM", "VIEW", "Publisher", "good_up_to", "prepare"]

STREAM, PIPELINE, LETTERS = "blocks", "blocks", "blockchain.rejected"
VIEW = "blockchain.minutes"
BAD_EVERY = 5_000
"""One message in so many is no transaction."""
_ATTEMPTS = 200
_MESSAGE = (
    'network VARCHAR, subnet VARCHAR, vm_type VARCHAR, hash VARCHAR, "from" VARCHAR, "to" VARCHAR, "value" VARCHAR,'
    ' gas VARCHAR, "gasPrice" VARCHAR, nonce VARCHAR, input VARCHAR, status VARCHAR, "blockHash" VARCHAR,'
    ' "blockNumber" VARCHAR, "timestamp" VARCHAR, "transactionIndex" VARCHAR'
)
_LARGE = "lpad(substr({0}, 3), 32, '0')"
_ON_SPARK = {
    "number": "CAST(conv(substr({0}, 3), 16, 10) AS BIGINT)",
    "large": (
        f"CAST(CAST(conv(substr({_LARGE}, 1, 16), 16, 10) AS DECIMAL(18,0))"
        " * CAST(18446744073709551616 AS DECIMAL(20,0))"
        f" + CAST(conv(substr({_LARGE}, 17, 16), 16, 10) AS DECIMAL(20,0)) AS STRING)"
    ),
    "time": "timestamp_seconds(CAST(conv(substr({0}, 3), 16, 10) AS BIGINT))",
    "bytes": "CASE WHEN {0} = '0x' THEN NULL ELSE unhex(substr({0}, 3)) END",
    "text": "STRING",
    "quote": "`",
}
_LOCALLY = {
    "number": "CAST({0} AS BIGINT)",
    "large": (
        f"CAST(CAST(CAST('0x' || substr({_LARGE}, 1, 16) AS UBIGINT) AS HUGEINT) * 18446744073709551616"
        f" + CAST('0x' || substr({_LARGE}, 17, 16) AS UBIGINT) AS VARCHAR)"
    ),
    "time": "to_timestamp(CAST({0} AS BIGINT))",
    "bytes": "CASE WHEN {0} = '0x' THEN NULL ELSE unhex(substr({0}, 3)) END",
    "text": "VARCHAR",
    "quote": '"',
}


def _query(forms: dict[str, str]) -> str:
    """Return the query that turns a message into a row, in the SQL of an engine."""

    def name(column: str) -> str:
        return f"{forms['quote']}{column}{forms['quote']}"

    def part(form: str, column: str) -> str:
        return forms[form].format(name(column))

    time = part("time", "timestamp")
    columns = {
        "network": "network",
        "subnet": "subnet",
        "vm_type": "vm_type",
        "block_time": time,
        **{each: f"CAST({each}({time}) AS INT)" for each in ("year", "month", "day", "hour")},
        "block_hash": name("blockHash"),
        "block_number": part("number", "blockNumber"),
        "tx_hash": name("hash"),
        "tx_index": f"CAST({part('number', 'transactionIndex')} AS INT)",
        "from_address": name("from"),
        "to_address": name("to"),
        "value": part("large", "value"),
        **{
            column: f"CAST({part('number', given)} AS {forms['text']})"
            for column, given in (("gas_price", "gasPrice"), ("gas_limit", "gas"), ("nonce", "nonce"))
        },
        "input_data": part("bytes", "input"),
        "success": "status = '0x1'",
        "ingested_at": "_time",
    }
    listed = ",\n  ".join(f"{expression} AS {name(column)}" for column, expression in columns.items())
    return f"SELECT\n  {listed},\n  _sequence\nFROM source"


def prepare(lake: Lake, server: str, folder: Path, *, spark: bool) -> None:
    """Make the table, a view that follows it, and the pipeline from the stream into the lake, Delta and Iceberg."""
    create_table(lake)
    lake.sql(f"ALTER TABLE {TABLE} ADD COLUMN _sequence BIGINT")
    lake.sql(
        f"CREATE MATERIALIZED VIEW {VIEW} REFRESH ON COMMIT AS SELECT date_trunc('minute', block_time) AS minute,"
        f" network, count(*) AS transactions, count(*) FILTER (success) AS succeeded FROM {TABLE} GROUP BY ALL"
    )
    Definitions(lake).apply(
        {
            "pipeline": PIPELINE,
            "engine": "spark" if spark else "local",
            "source": {"type": "nats", "servers": server, "stream": STREAM, "schema": _MESSAGE},
            "query": _query(_ON_SPARK if spark else _LOCALLY),
            "sinks": [
                {"name": "lake", "type": "lake", "table": TABLE},
                {"name": "delta", "type": "delta", "location": str(folder / "delta")},
                {
                    "name": "iceberg",
                    "type": "iceberg",
                    "catalog_type": "sql",
                    "catalog_uri": f"sqlite:///{folder}/iceberg.db",
                    "warehouse": f"file://{folder}/warehouse",
                    "namespace": "ekko",
                    "table_name": "transactions",
                },
            ],
            "dead_letters": LETTERS,
            "every": "1 second",
            "lease": "3 seconds",
            "restart": {"attempts": 60, "backoff": "200 ms", "longest": "2 seconds"},
        }
    )


def good_up_to(sequence: int) -> int:
    """Return how many of the messages up to a sequence are transactions."""
    return sequence - sequence // BAD_EVERY


class Publisher:
    """Publishes blocks in a thread: a quarter of ``count`` messages, after ``go_on`` the rest in so many seconds.

    One that ``stays`` then publishes a few a second until it is stopped.
    """

    def __init__(self, server: str, count: int, *, seconds: float, stays: bool) -> None:
        self._server = server
        self._count = count
        self._pause = seconds * _CHUNK / max(count, 1)
        self._stays = stays
        self._ended = threading.Event()
        self._going = threading.Event()
        self.published = 0
        """The messages that the server has stored, good and bad."""
        self.done = threading.Event()
        self.error: BaseException | None = None
        self._thread = threading.Thread(target=self._work, name="demo-blocks", daemon=True)

    def start(self) -> None:
        """Create the stream and begin to publish."""
        with NatsConnection(self._server) as connection:
            subjects = ["transactions.>"]
            connection.jetstream(f"STREAM.CREATE.{STREAM}", {"name": STREAM, "subjects": subjects, "storage": "file"})
        self._thread.start()

    def go_on(self) -> None:
        """Let the rest follow the first quarter."""
        self._going.set()

    def stop(self) -> None:
        """End, and wait for the end."""
        self._ended.set()
        self._going.set()
        self._thread.join()

    def _work(self) -> None:
        try:
            with NatsConnection(self._server, attempts=_ATTEMPTS) as connection:
                messages = _messages()
                while self.published < self._count and not self._ended.is_set():
                    self._send(connection, messages, min(_CHUNK, self._count - self.published))
                    if self.published >= self._count // 4:
                        self._going.wait()
                        self._ended.wait(self._pause)
                self.done.set()
                while self._stays and not self._ended.wait(0.5):
                    self._send(connection, messages, _SLOWLY)
        except BaseException as error:
            self.error = error
        finally:
            self.done.set()

    def _send(self, connection: NatsConnection, messages: Iterator[tuple[str, bytes]], count: int) -> None:
        # an id lets the server drop a message that is sent again because its answer was lost
        some = [
            (subject, body, {"Nats-Msg-Id": f"block-{self.published + number}"})
            for number, (subject, body) in enumerate(itertools.islice(messages, count))
        ]
        until = time.monotonic() + _PATIENCE
        while not self._ended.is_set():
            try:
                connection.publish(some)
                break
            except QuacklakeError:
                if time.monotonic() >= until:
                    raise
                self._ended.wait(0.5)
        self.published += len(some)


_CHUNK = 1_000
_SLOWLY = 10
_PATIENCE = 90.0
"""Seconds for which a server may be away: less than those for which it knows a message that comes again."""


def _messages() -> Iterator[tuple[str, bytes]]:
    """Yield subjects and bodies without end: transactions of two networks, and now and then something that is none."""
    number = 0
    for turn in itertools.count(1):
        start = 1_700_000_000 + turn * 4_000
        networks = (
            Simulation(seed=10 * turn, transactions=50, start=start),
            Simulation(seed=10 * turn + 5, network="Ethereum", transactions=30, start=start),
        )
        streams = [[(each.subject, body) for body in each.messages(50)] for each in networks]
        for subject, body in itertools.chain.from_iterable(streams):
            number += 1
            if number % BAD_EVERY == 0:
                yield subject, b"not a transaction"
                number += 1
            yield subject, body


def options(folder: Path, name: str) -> dict[str, Any]:
    """Return how the library of a format finds the table of a sink."""
    if name == "delta":
        return {"table_uri": str(folder / "delta")}
    return {"type": "sql", "uri": f"sqlite:///{folder}/iceberg.db", "warehouse": f"file://{folder}/warehouse"}
