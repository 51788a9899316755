"""Transactions of NATS in the lake: each once, whenever the writer dies."""

from __future__ import annotations

import json
import os
import secrets
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

import quacklake
from quacklake.connectors.nats.connection import NatsConnection
from quacklake.core import faults
from quacklake.core.faults import Fault, FaultInjected
from quacklake.errors import InputError, NotFoundError, StreamFencedError
from quacklake.lake.lake import Lake
from quacklake_ekko.nats_writer import REJECTED, WriterReport, node_of, run_writer
from quacklake_ekko.settings import WriterSettings
from quacklake_ekko.simulator import Simulation, publish
from quacklake_ekko.table import TABLE
from quacklake_ekko.transactions import NodeConfig
from services import NatsServer
from tests.seeds import SEED

SIMULATION = Simulation(seed=SEED, transactions=10, duplicates=0.1, late=0.1, reorgs=0.1, malformed=0.05)


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Lake]:
    with quacklake.connect(f"sqlite:///{tmp_path}/lake.db", data_path=str(tmp_path / "data")) as opened:
        yield opened


@pytest.fixture
def settings(nats_server: NatsServer) -> WriterSettings:
    """A new stream, whose subjects begin with a new word."""
    word = f"t{secrets.token_hex(5)}"
    return WriterSettings(
        batch_size=30,
        flush_interval=timedelta(milliseconds=50),
        nats_url=nats_server.url,
        nats_stream=word,
        nats_subjects=(f"{word}.>",),
    )


def send(settings: WriterSettings, blocks: int = 12) -> tuple[set[str], int]:
    """Publish simulated messages, and return the hashes of their transactions and how many are none."""
    with NatsConnection(settings.nats_url) as nats:
        stream = settings.nats_stream
        nats.jetstream(f"STREAM.CREATE.{stream}", {"name": stream, "subjects": [f"{stream}.>"], "storage": "memory"})
        bodies = list(SIMULATION.messages(blocks))
        nats.publish([(f"{stream}.x", body, None) for body in bodies])
    hashes, bad = set(), 0
    for body in bodies:
        try:
            hashes.add(json.loads(body)["hash"])
        except (ValueError, KeyError, TypeError):
            bad += 1
    return hashes, bad


def check(lake: Lake, hashes: set[str], bad: int) -> None:
    found = lake.table(TABLE).to_arrow(["tx_hash"]).column("tx_hash").to_pylist()
    assert len(found) == len(set(found))
    assert set(found) == hashes
    sequences = lake.table(REJECTED).to_arrow(["sequence"]).column("sequence").to_pylist()
    assert len(sequences) == len(set(sequences)) == bad


def test_every_message_is_a_row_or_has_a_reason(lake: Lake, settings: WriterSettings) -> None:
    hashes, bad = send(settings)
    told: list[int] = []
    report = run_writer(settings, lake, until_idle=True, watch=lambda each: told.append(each.sequence))
    check(lake, hashes, bad)
    assert (report.rejected, report.commits, report.sequence) == (bad, len(told), report.messages)
    assert told == sorted(told)
    assert all(lake.table(REJECTED).to_arrow().column("reason").to_pylist())
    assert run_writer(settings, lake, until_idle=True) == WriterReport()


def test_a_writer_that_fails_at_any_point_loses_and_doubles_nothing(lake: Lake, settings: WriterSettings) -> None:
    hashes, bad = send(settings)
    for at in (1, 2, 5, 9, 14, 20, 27, 35):
        with faults.arm(Fault(at=at, pattern="[cn]at*")):
            try:
                run_writer(settings, lake, until_idle=True)
            except FaultInjected:
                continue
    run_writer(settings, lake, until_idle=True)
    check(lake, hashes, bad)


_CHILD = """
import sys, quacklake
from datetime import timedelta
from quacklake_ekko.nats_writer import run_writer
from quacklake_ekko.settings import WriterSettings
url, stream, lake = sys.argv[1:]
settings = WriterSettings(30, timedelta(milliseconds=50), url, stream, (f"{stream}.>",))
with quacklake.connect(lake) as opened:
    run_writer(settings, opened, until_idle=True)
"""


def test_a_writer_that_is_killed_loses_and_doubles_nothing(lake: Lake, settings: WriterSettings) -> None:
    hashes, bad = send(settings)
    run_writer(replace(settings, batch_size=1, nats_subjects=("none.of.it",)), lake, until_idle=True)
    command = [sys.executable, "-c", _CHILD, settings.nats_url, settings.nats_stream, lake.url]
    for fault in ("2:kill:nats_writer.commit.before", "1:kill:nats_writer.commit.after"):
        env = {**os.environ, "QUACKLAKE_FAULT": fault}
        assert subprocess.run(command, env=env, timeout=120, check=False).returncode == -signal.SIGKILL
    assert 0 < lake.table(TABLE).count() < len(hashes)
    run_writer(settings, lake, until_idle=True)
    check(lake, hashes, bad)


def test_a_second_writer_takes_over(lake: Lake, settings: WriterSettings) -> None:
    hashes, bad = send(settings)
    taken: list[WriterReport] = []

    def watch(report: WriterReport) -> None:
        if not taken:
            taken.append(run_writer(settings, lake, until_idle=True))

    with pytest.raises(StreamFencedError):
        run_writer(settings, lake, until_idle=True, watch=watch)
    check(lake, hashes, bad)


def test_a_writer_goes_on_until_it_is_stopped(lake: Lake, settings: WriterSettings) -> None:
    stop = threading.Event()
    send(settings, blocks=1)
    before = 0

    def watch(report: WriterReport) -> None:
        nonlocal before
        if not before:
            before = report.messages
            with NatsConnection(settings.nats_url) as nats:
                nats.publish([(f"{settings.nats_stream}.late", b"{}", None)])
        elif lake.table(REJECTED).count("subject LIKE '%.late'"):
            stop.set()

    report = run_writer(settings, lake, stop=stop, watch=watch)
    assert report.messages > before


def test_the_simulator_publishes_what_the_writer_reads(
    lake: Lake, nats_server: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    word = f"w{secrets.token_hex(5)}"
    settings = WriterSettings(nats_url=nats_server.url, nats_stream=word, nats_subjects=(f"{word}.*.*.*.persistence",))
    simulation = Simulation(transactions=3)
    monkeypatch.setattr(Simulation, "subject", f"{word}.avalanche.fuji.evm.persistence")
    assert publish(settings, simulation, 4) == publish(settings, simulation, 4) == 12
    report = run_writer(settings, lake, until_idle=True)
    assert (report.messages, report.rejected, lake.table(TABLE).count()) == (24, 0, 12)


def test_a_subject_names_the_node_where_the_message_does_not() -> None:
    assert node_of("transactions.evm.avalanche.fuji", {}) == NodeConfig("avalanche", "fuji", "evm")
    assert node_of("ekko.avalanche.fuji.evm.persistence", {}) == NodeConfig("avalanche", "fuji", "evm")
    assert node_of("transactions.evm.avalanche.fuji", {"network": "A"}) == NodeConfig("A", "fuji", "evm")
    with pytest.raises(InputError, match="network"):
        node_of("transactions", {})


def test_a_transaction_without_a_time_has_that_of_its_message(lake: Lake, settings: WriterSettings) -> None:
    send(settings, blocks=0)
    body = json.loads(next(Simulation(transactions=1).messages(1)))
    del body["timestamp"]
    with NatsConnection(settings.nats_url) as nats:
        nats.publish([(f"{settings.nats_stream}.x", json.dumps(body).encode(), None)])
    run_writer(settings, lake, until_idle=True)
    (row,) = lake.table(TABLE).to_pylist()
    assert row["block_time"] == row["ingested_at"]
    assert abs(row["block_time"] - datetime.now(UTC)) < timedelta(minutes=10)


def test_a_stream_that_is_missing_is_named(lake: Lake, settings: WriterSettings) -> None:
    with pytest.raises(NotFoundError, match=settings.nats_stream):
        run_writer(settings, lake, until_idle=True)
