"""A source continues with another NATS server when one dies or refuses, or says why it cannot."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from quacklake.connectors.nats import NatsSource
from quacklake.connectors.nats.connection import NatsConnection
from quacklake.errors import ConfigError, ConnectorUnavailableError
from services import NatsServer
from tests.connectors.nats_sinks import make_stream, new_sink


@pytest.fixture
def server(nats_server: NatsServer, tmp_path: Path) -> Iterator[NatsServer]:
    """A server that may be killed."""
    with NatsServer(tmp_path / "nats") as started:
        yield started


@pytest.fixture
def dead() -> Iterator[str]:
    """An address where nobody answers."""
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        yield f"nats://127.0.0.1:{unused.getsockname()[1]}"


def fill(url: str, count: int) -> None:
    with NatsConnection(url) as nats:
        make_stream(nats, "orders", storage="file")
        nats.publish([("orders.a", b'{"id": %d}' % n, None) for n in range(count)])


def new_source(servers: str, **options: Any) -> NatsSource:
    return NatsSource({"servers": servers, "stream": "orders", "schema": "id BIGINT", "mode": "batch", **options})


def kill_and_restart(server: NatsServer) -> None:
    """End the server as a power cut of its process would, and start it again on the same port after a while."""
    process = server._process
    assert process is not None
    os.kill(process.pid, signal.SIGKILL)
    process.wait()

    def start() -> None:
        with (server.directory / "again.log").open("wb") as log:
            server._process = subprocess.Popen(server.command(), cwd=server.directory, stdout=log, stderr=log)

    threading.Timer(0.2, start).start()


def test_a_source_goes_on_behind_the_last_message_when_its_server_is_killed(server: NatsServer, dead: str) -> None:
    fill(server.url, 6000)
    source = new_source(f"{dead},{server.url}", max_messages=500, max_retries=8)
    source.start()
    seen: list[int] = []
    while (batch := source.poll_next()) is not None:
        seen += batch.column("id").to_pylist()
        if len(seen) in (1000, 4000):
            kill_and_restart(server)
    assert seen == list(range(6000))


def test_a_range_that_breaks_in_the_middle_of_a_batch_has_no_gap_and_no_duplicate(server: NatsServer) -> None:
    """The server dies while a batch is on its way, before the client has taken all of it."""
    fill(server.url, 30_000)
    with NatsConnection(server.url, attempts=8) as nats:
        seen: list[int] = []
        received = nats._receive
        calls = 0

        def receive(*arguments: Any) -> None:
            nonlocal calls
            calls += 1
            if calls in (8, 20):
                kill_and_restart(server)
            received(*arguments)

        nats._receive = receive  # type: ignore[method-assign]
        for part in nats.read_range("orders", 1, 30_001, batch=20_000):
            seen += part.sequences.tolist()
        assert calls > 20
        assert seen == list(range(1, 30_001))


def test_the_first_of_two_servers_may_be_dead_or_refuse_us(server: NatsServer, dead: str, tmp_path: Path) -> None:
    fill(server.url, 10)
    with NatsServer(settings={"authorization": {"token": "t0ken"}}) as closed:
        for first in (dead, closed.url):
            source = new_source(f"{first}, {server.url}")
            source.start()
            batch = source.poll_next()
            assert batch is not None
            assert batch.num_rows == 10
            source.close()
        sink = new_sink(f"{dead},{server.url}", "orders", tmp_path, subject="orders.a")
        sink.initialize(batch.schema)
        sink.write_batch(batch)
        assert sink.finalize_commit(sink.prepare_commit(0)).version == 20
        with pytest.raises(ConfigError, match="credentials"):
            new_source(closed.url).start()
        with pytest.raises(ConnectorUnavailableError, match="cannot be reached"):
            new_source(f"{closed.url}, {dead}", max_retries=1).start()


def test_a_url_may_refer_to_a_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NATS_LOGIN", "ann:s3cret")
    with NatsServer(settings={"authorization": {"user": "ann", "password": "s3cret"}}) as server:
        fill(server.url.replace("//", "//ann:s3cret@"), 3)
        source = new_source(server.url.replace("//", "//${env:NATS_LOGIN}@"))
        source.start()
        assert "s3cret" not in repr(source.stream)
        source.close()


@pytest.mark.parametrize(
    ("settings", "given"),
    [
        ({"user": "ann", "password": "s3cret"}, {"user": "ann", "password": "wr0ng"}),
        ({"token": "s3cret"}, {"token": "wr0ng"}),
    ],
    ids=["password", "token"],
)
def test_wrong_credentials_of_sources_and_sinks_are_an_error_without_a_secret(
    settings: dict[str, str], given: dict[str, str], tmp_path: Path
) -> None:
    with NatsServer(settings={"authorization": settings}) as server:
        source = new_source(server.url, **given)
        sink = new_sink(server.url, "orders", tmp_path, **given)
        for begin in (source.start, lambda: sink.initialize(source.schema())):
            with pytest.raises(ConfigError, match="credentials") as caught:
                begin()
            shown = f"{caught.value} {source.stream!r} {caught.value.__context__!r}"
            assert "s3cret" not in shown
            assert "wr0ng" not in shown
