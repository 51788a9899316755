"""The NATS sink under kill -9, of itself and of the server: no row is lost, and none comes twice."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from quacklake.connectors.nats import publishing
from quacklake.connectors.nats.connection import NatsConnection
from quacklake.connectors.nats.publishing import Progress, Sighting
from quacklake.errors import ConnectorUnavailableError, SnapshotExpiredError
from services import NatsServer
from tests.connectors.nats_sinks import SCHEMA, ids, make_stream, new_sink, rows, staged
from tests.seeds import SEED


def test_a_client_that_is_killed_at_any_point_is_made_good_by_the_next(nats_server: NatsServer, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.connectors.kill_nats_sink", nats_server.url, str(tmp_path)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    points = json.loads(done.stdout)
    own = [point.removeprefix("connector.nats.") for point in points if point.startswith("connector.nats.")]
    assert list(dict.fromkeys(own)) == [
        "prepare.before",
        "prepare.after",
        "publish.before",
        "publish.sent",
        "publish.after",
        "commit.after",
        "clean.after",
    ]
    assert own.count("publish.sent") > 1
    assert points.count("storage.publish.after") == 2


@pytest.fixture
def server(nats_server: NatsServer, tmp_path: Path) -> Iterator[NatsServer]:
    """A server that may be killed."""
    with NatsServer(tmp_path / "nats") as started:
        yield started


def kill(server: NatsServer) -> None:
    """End the server as a power cut of its process would."""
    process = server._process
    assert process is not None
    os.kill(process.pid, signal.SIGKILL)
    process.wait()


def restart(server: NatsServer) -> None:
    """Start it again on the same port, with the data that it had."""
    with (server.directory / "again.log").open("wb") as log:
        server._process = subprocess.Popen(server.command(), cwd=server.directory, stdout=log, stderr=log)


def test_a_server_that_is_killed_while_rows_are_published_has_each_row_once(
    server: NatsServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with NatsConnection(server.url) as nats:
        make_stream(nats, "orders", storage="file", duplicate_window=100_000_000)
    sink = new_sink(server.url, "orders", tmp_path, max_in_flight=200, max_retries=8)
    sink.initialize(SCHEMA)
    sink.write_batch(rows(0, 5000))
    prepared = sink.prepare_commit(0)
    dice = random.Random(SEED)
    due = sorted(dice.sample(range(2, 25), 2))
    blocks = 0

    def hook(point: str) -> None:
        nonlocal blocks
        blocks += point == "connector.nats.publish.sent"
        if due and point == "connector.nats.publish.sent" and blocks >= due[0]:
            due.pop(0)
            kill(server)
            threading.Timer(0.2, restart, [server]).start()

    monkeypatch.setattr(publishing, "reach", hook)
    info = sink.finalize_commit(prepared)
    assert due == []
    with NatsConnection(server.url) as nats:
        assert sorted(ids(nats, "orders")) == list(range(5000))
        assert (info.version, staged(tmp_path)) == (5000, [])


def test_a_server_that_stays_away_is_an_error_and_a_later_finalize_publishes_the_rest(
    server: NatsServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with NatsConnection(server.url) as nats:
        make_stream(nats, "orders", storage="file", duplicate_window=100_000_000)
    sink = new_sink(server.url, "orders", tmp_path, max_in_flight=100, max_retries=1)
    sink.initialize(SCHEMA)
    sink.write_batch(rows(0, 1000))
    prepared = sink.prepare_commit(0)
    sent = 0

    def hook(point: str) -> None:
        nonlocal sent
        sent += point == "connector.nats.publish.sent"
        if sent == 4:
            kill(server)
            monkeypatch.undo()

    monkeypatch.setattr(publishing, "reach", hook)
    with pytest.raises(ConnectorUnavailableError):
        sink.finalize_commit(prepared)
    assert len(staged(tmp_path)) == 1
    restart(server)
    later = new_sink(server.url, "orders", tmp_path, max_retries=8)
    later.finalize_commit(prepared)
    with NatsConnection(server.url) as nats:
        assert ids(nats, "orders") == list(range(1000))


def test_rows_are_kept_when_the_server_is_away_while_they_are_prepared(server: NatsServer, tmp_path: Path) -> None:
    with NatsConnection(server.url) as nats:
        make_stream(nats, "orders", storage="file")
    sink = new_sink(server.url, "orders", tmp_path, max_retries=1, target_file_size="1B")
    sink.initialize(SCHEMA)
    sink.write_batch(rows(0, 10))
    kill(server)
    with pytest.raises(ConnectorUnavailableError):
        sink.prepare_commit(0)
    restart(server)
    with NatsConnection(server.url, attempts=8) as nats:
        nats.jetstream("INFO")  # the server is back
    prepared = sink.prepare_commit(0)
    assert prepared.records_written == 10
    sink.finalize_commit(prepared)
    with NatsConnection(server.url) as nats:
        assert ids(nats, "orders") == list(range(10))


def test_a_process_that_slept_looks_at_the_stream_again(
    nats_server: NatsServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A writer is held up after its window of duplicates, and another finishes in its place: nothing comes twice."""
    with NatsConnection(nats_server.url) as nats:
        make_stream(nats, "slept", duplicate_window=100_000_000)
        sink = new_sink(nats_server.url, "slept", tmp_path)
        sink.initialize(SCHEMA)
        sink.write_batch(rows(0, 100))
        prepared = sink.prepare_commit(0)
        other = new_sink(nats_server.url, "slept", tmp_path)
        blocks = 0

        def hook(point: str) -> None:
            nonlocal blocks
            blocks += point == "connector.nats.publish.sent"
            if blocks == 2:
                blocks += 1
                other.finalize_commit(prepared)
                time.sleep(1.1)  # this process is held up while the server forgets the ids

        monkeypatch.setattr(publishing, "reach", hook)
        sink.finalize_commit(prepared)
        assert ids(nats, "slept") == list(range(100))


def test_what_a_look_has_found_is_never_too_much_or_too_little() -> None:
    """Random histories of a stream: what is done was stored, and what is not done was not, or nothing is decided."""
    dice = random.Random(SEED)
    decided = 0
    for _ in range(3000):
        total, window, after = dice.randint(1, 30), dice.randint(1, 6), dice.randint(0, 5)
        # messages are sent in order, at most `window` ahead of the first that is not stored; some are refused
        stored: dict[int, int] = {}
        sequence = after
        low = 0
        for number in range(dice.randint(0, total)):
            while low in stored:
                low += 1
            if number >= low + window:
                break
            while dice.random() < 0.3:
                sequence += 1  # those of others
            if dice.random() < 0.85:
                sequence += 1
                stored[number] = sequence
        everything = range(after + 1, sequence + 1)
        removed = {each for each in everything if dice.random() < dice.choice([0, 0, 0.1, 0.9])}
        if dice.random() < 0.3:
            removed |= set(range(after + 1, after + 1 + dice.randint(0, len(everything))))
        seen = [(place, number) for number, place in stored.items() if place not in removed]
        pairs = np.array(seen, dtype=np.int64).reshape(-1, 2)
        progress = Progress(total, after, window, fresh=False)
        try:
            progress.take(Sighting(sequence, max(removed, default=0), pairs[:, 0], pairs[:, 1]), trusting=False)
        except SnapshotExpiredError:
            assert removed
            continue
        decided += 1
        assert set(np.flatnonzero(progress.done).tolist()) == set(stored), (total, window, stored, removed)
    assert decided > 1000
