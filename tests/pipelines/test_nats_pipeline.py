"""From NATS into a lake and beside it: every message is a row or a dead letter, once."""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import quacklake
from quacklake.connectors.nats.connection import NatsConnection
from quacklake.connectors.nats.stream import NatsStream, StreamRange
from quacklake.core.faults import Fault, FaultInjected, arm, record
from quacklake.errors import ConfigError, NotFoundError, SnapshotExpiredError, StreamMismatchError
from quacklake.pipelines import Pipeline
from services import NatsServer
from tests import seeds
from tests.pipelines.tables import connect, end_lease, rows, sink


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[quacklake.Lake]:
    with connect(tmp_path) as opened:
        yield opened


@pytest.fixture
def nats(nats_server: NatsServer) -> Iterator[NatsConnection]:
    with NatsConnection(nats_server.url) as connection:
        yield connection


@pytest.fixture
def stream(nats: NatsConnection) -> str:
    name = f"s{secrets.token_hex(6)}"
    make(nats, name)
    return name


def make(nats: NatsConnection, name: str) -> None:
    nats.jetstream(f"STREAM.CREATE.{name}", {"name": name, "subjects": [f"{name}.>"], "storage": "memory"})


def fill(nats: NatsConnection, stream: str, first: int, end: int) -> None:
    nats.publish([(f"{stream}.{n % 2}", b'{"id": %d, "v": %d}' % (n, n * 2), None) for n in range(first, end)])


def definition(server: NatsServer, stream: str, path: Path, **options: Any) -> dict[str, Any]:
    return {
        "pipeline": "orders",
        "source": {
            "type": "nats",
            "servers": server.url,
            "stream": stream,
            "schema": "id BIGINT, v BIGINT",
            "max_messages": 100,
            **options.pop("source", {}),
        },
        "query": "SELECT id, v FROM source",
        "sinks": [sink("lake", path), sink("delta", path)],
        "dead_letters": "letters",
        "every": "10 ms",
        "lease": "5 minutes",
        **options,
    }


def expected(*ranges: tuple[int, int]) -> dict[tuple[int, int], int]:
    return {(n, n * 2): 1 for first, end in ranges for n in range(first, end)}


def test_messages_become_rows_once_and_bad_ones_dead_letters(
    lake: quacklake.Lake, nats: NatsConnection, nats_server: NatsServer, stream: str, tmp_path: Path
) -> None:
    fill(nats, stream, 0, 250)
    nats.publish([(f"{stream}.x", b"no row", None)])
    given = definition(nats_server, stream, tmp_path)
    report = Pipeline(lake, given).run(until_caught_up=True)
    assert (report.rows, report.rejected) == (250, 1)
    fill(nats, stream, 250, 300)
    pipeline = Pipeline(lake, given)
    assert pipeline.behind() == 50
    assert pipeline.run(until_caught_up=True).rows == 50
    assert pipeline.behind() == 0
    assert rows("lake", tmp_path, lake) == rows("delta", tmp_path, lake) == expected((0, 300))
    assert lake.sql("SELECT _sequence, _data FROM letters").fetchall() == [(251, b"no row")]


def test_rows_that_are_here_do_not_wait_for_more(
    lake: quacklake.Lake,
    nats: NatsConnection,
    nats_server: NatsServer,
    stream: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fill(nats, stream, 0, 250)
    look, looks = NatsStream.look, []

    def counted(self: NatsStream, connection: NatsConnection) -> StreamRange:
        looks.append(self.name)
        return look(self, connection)

    monkeypatch.setattr(NatsStream, "look", counted)
    pipeline = Pipeline(lake, definition(nats_server, stream, tmp_path, every="1 h", source={"poll_interval": "1 h"}))
    assert pipeline.run(on_batch=lambda _batch: pipeline.request_stop()).rows == 250
    assert looks == [stream]


def test_a_fault_at_any_point_neither_loses_nor_doubles_a_message(
    lake: quacklake.Lake, nats: NatsConnection, nats_server: NatsServer, stream: str, tmp_path: Path
) -> None:
    given = definition(nats_server, stream, tmp_path)
    end = 0

    def once() -> None:
        nonlocal end
        fill(nats, stream, end, end + 40)
        end += 40
        Pipeline(lake, given).run(until_caught_up=True)

    once()
    with record() as points:
        once()
    for number in seeds.some(range(1, len(points) + 1), 6, "faults of a pipeline from NATS"):
        with arm(Fault(at=number)):
            try:
                once()
            except FaultInjected:
                pass
        end_lease(lake, "orders")
        Pipeline(lake, given).run(until_caught_up=True)
    assert rows("lake", tmp_path, lake) == rows("delta", tmp_path, lake) == expected((0, end))


def test_a_bad_message_stops_a_pipeline_without_dead_letters(
    lake: quacklake.Lake, nats: NatsConnection, nats_server: NatsServer, stream: str, tmp_path: Path
) -> None:
    fill(nats, stream, 0, 3)
    nats.publish([(f"{stream}.x", b"no row", None)])
    given = definition(nats_server, stream, tmp_path)
    del given["dead_letters"]
    with pytest.raises(ConfigError, match="message 4 is not a row"):
        Pipeline(lake, given).run(until_caught_up=True)
    assert lake.sql("SELECT count(*) FROM copied").fetchall() == [(0,)]


def test_a_stream_that_was_made_anew_or_purged_is_an_error(
    lake: quacklake.Lake, nats: NatsConnection, nats_server: NatsServer, stream: str, tmp_path: Path
) -> None:
    given = definition(nats_server, stream, tmp_path)
    fill(nats, stream, 0, 10)
    Pipeline(lake, given).run(until_caught_up=True)
    fill(nats, stream, 10, 20)
    nats.jetstream(f"STREAM.PURGE.{stream}", {})
    fill(nats, stream, 20, 21)
    with pytest.raises(SnapshotExpiredError):
        Pipeline(lake, given).run(until_caught_up=True)
    nats.jetstream(f"STREAM.DELETE.{stream}")
    with pytest.raises(NotFoundError):
        Pipeline(lake, given).run(until_caught_up=True)
    make(nats, stream)
    fill(nats, stream, 0, 30)
    with pytest.raises(StreamMismatchError, match="recreated"):
        Pipeline(lake, given).run(until_caught_up=True)
    assert rows("lake", tmp_path, lake) == expected((0, 10))


def test_rows_of_the_lake_are_published_once_whatever_happens(
    lake: quacklake.Lake, nats: NatsConnection, nats_server: NatsServer, stream: str, tmp_path: Path
) -> None:
    lake.sql("CREATE TABLE orders (id BIGINT, region VARCHAR)")
    place = {"servers": nats_server.url, "stream": stream, "subject": f"{stream}.{{region}}"}
    given = {
        "pipeline": "out",
        "source": {"type": "lake", "table": "orders"},
        "sinks": [{"type": "nats", **place}, {"type": "lake", "table": "copied"}],
        "every": "10 ms",
        "lease": "5 minutes",
    }
    end = 0

    def once() -> None:
        nonlocal end
        lake.table("orders").append([{"id": n, "region": "north"} for n in range(end, end + 20)])
        end += 20
        Pipeline(lake, given).run(until_caught_up=True)

    once()
    with record() as points:
        once()
    for number in seeds.some(range(1, len(points) + 1), 6, "faults of a pipeline into NATS"):
        with arm(Fault(at=number)):
            try:
                once()
            except FaultInjected:
                pass
        end_lease(lake, "out")
        Pipeline(lake, given).run(until_caught_up=True)
    bodies = [body for part in nats.read_range(stream, 1, 10**9) for body in part.data.to_pylist()]
    assert sorted(json.loads(body)["id"] for body in bodies) == list(range(end))
    assert sorted(lake.table("copied").to_arrow().column("id").to_pylist()) == list(range(end))
