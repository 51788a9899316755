"""Messages of NATS become rows, and the position commits with them."""

from __future__ import annotations

import json

import pytest

from quacklake.connectors.nats.connection import NatsConnection
from quacklake.errors import QuacklakeError
from quacklake.pond import Pond
from quacklake.pond.running import run_once
from services import NatsServer
from tests.pond.collectors.conftest import collector, rows

START = 1_704_067_200


def test_messages_become_rows_and_each_is_taken_once(shared: Pond, nats_server: NatsServer) -> None:
    with NatsConnection(nats_server.url) as nats:
        nats.jetstream("STREAM.CREATE.pond", {"name": "pond", "subjects": ["pond.>"]})
        try:
            source = {
                "servers": nats_server.url,
                "stream": "pond",
                "schema": "time BIGINT, temp DOUBLE",
                "max_messages": 4,
            }
            path = collector(shared, "nats", "nats", {"path": "/nats/temp.series", "source": source})

            def send(first: int, count: int, text: str | None = None) -> None:
                for n in range(first, first + count):
                    body = text or json.dumps({"time": START + n, "temp": n / 2})
                    nats.request("pond.temp", body.encode())

            send(0, 6)
            report = run_once(shared, path)
            assert (report.rows, len(report.imported)) == (6, 2)  # four messages a transaction
            assert run_once(shared, path).imported == ()
            send(6, 3)
            send(0, 1, "no row")
            assert run_once(shared, path).notes == ("left out 1 messages that are not rows",)
            assert rows(shared, "/nats/temp.series").column("temp").to_pylist() == [n / 2 for n in range(9)]
            assert json.loads(shared.fs().get(path).node.attribute("state")["position"])["offsets"]["sequence"] == 10
            # applying the same options again keeps the position
            collector(shared, "nats", "nats", {"path": "/nats/temp.series", "source": source})
            assert run_once(shared, path).rows == 0
        finally:
            nats.jetstream("STREAM.DELETE.pond", {})


def test_a_stream_that_is_missing_is_told(shared: Pond, nats_server: NatsServer) -> None:
    options = {"path": "/nats/x.series", "source": {"servers": nats_server.url, "stream": "none", "schema": "a INT"}}
    with pytest.raises(QuacklakeError, match="none"):
        run_once(shared, collector(shared, "missing", "nats", options))
