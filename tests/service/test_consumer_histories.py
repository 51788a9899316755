"""Random histories of consumers and listeners: whatever dies in between, nothing is lost, and nothing comes twice."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

import quacklake
from quacklake.errors import LeaseHeldError, QuacklakeError, StreamFencedError
from quacklake.lake import Lake
from quacklake.service.consumers import Consumers
from tests.seeds import chance, some
from tests.service.serving import Served, client, sample_lake, served

LONG, OVER = 3_600.0, 0.0001
"""Seconds of a lease that lasts, and of one that is over at once."""


@dataclass
class Worker:
    """A worker of a consumer: its lease, and what it has read but not acknowledged."""

    lease: str | None = None
    rows: list[int] = field(default_factory=list)
    last: int = 0


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lake]:
    home: Path = tmp_path_factory.mktemp("consumers")
    with quacklake.connect(f"sqlite:///{home}/lake.db", data_path=home / "data") as lake:
        lake.create_table("other", {"id": "BIGINT"})
        yield lake


@pytest.mark.parametrize("number", some(range(60), 3, "consumers"))
def test_each_row_is_acknowledged_once_whoever_dies(lake: Lake, number: int) -> None:
    numbers, table = chance("consumers", number), f"t{number}"
    lake.create_table(table, {"id": "BIGINT"})
    consumers, workers = Consumers(lake, "ann", 10), [Worker() for _ in range(3)]
    first = lake.current_snapshot()
    # the model: whose lease counts, whether it is over, and the snapshot that comes next
    holder: str | None = None
    over, following, sent, done = True, first, 0, list[int]()

    def claim(worker: Worker) -> None:
        nonlocal holder, over
        seconds = numbers.choice([LONG, LONG, OVER])
        if not over:
            with pytest.raises(LeaseHeldError):
                consumers.claim("c", table, first, seconds)
            return
        turn = consumers.claim("c", table, first, seconds)
        assert turn.next == following
        worker.lease, worker.rows, worker.last = turn.lease, [], following - 1
        holder, over = turn.lease, seconds == OVER

    def read(worker: Worker) -> None:
        if worker.lease != holder:
            with pytest.raises(StreamFencedError):
                consumers.of("c", str(worker.lease))
            return
        turn = consumers.of("c", str(worker.lease))
        assert turn.next == following
        newest = lake.current_snapshot()
        worker.last = numbers.randint(turn.next - 1, newest)
        scan = None if worker.last < turn.next else lake.table(table).changes(turn.next, worker.last)
        worker.rows = [] if scan is None else scan.to_arrow().column("id").to_pylist()

    def acknowledge(worker: Worker) -> None:
        nonlocal over, following
        seconds = numbers.choice([LONG, 0.0, OVER])
        if worker.lease != holder:
            with pytest.raises(StreamFencedError):
                consumers.acknowledge("c", str(worker.lease), worker.last, seconds)
            return
        turn = consumers.acknowledge("c", str(worker.lease), worker.last, seconds)
        done.extend(worker.rows)
        following = max(following, worker.last + 1)
        assert turn.next == following
        worker.rows, over = [], seconds != LONG

    for _ in range(60):
        worker = numbers.choice(workers)
        match numbers.randrange(6):
            case 0 | 1:
                count = numbers.randrange(1, 4)
                lake.table(table).append([{"id": sent + each} for each in range(count)])
                sent += count
            case 2:
                claim(worker)
            case 3 if worker.lease is not None:
                read(worker)
            case 4 if worker.lease is not None:
                acknowledge(worker)
            case _:
                worker.lease, worker.rows = None, []  # it dies, and its lease stays
                if numbers.random() < 0.3:
                    lake.table("other").append([{"id": 1}])  # a snapshot without changes of the table
    if holder is not None and not over:  # whoever has the turn gives it back
        consumers.acknowledge("c", holder, following - 1, 0)
    last = consumers.claim("c", table, first, LONG)
    assert last.next == following
    rest = lake.table(table).changes(last.next).to_arrow() if last.next <= lake.current_snapshot() else None
    done += [] if rest is None else rest.column("id").to_pylist()
    assert sorted(done) == list(range(sent))
    consumers.forget("c")
    for principal in ("bob", "ann\0c"):
        with pytest.raises(QuacklakeError):
            Consumers(lake, principal, 10).of("c", last.lease)


@pytest.fixture(scope="module")
def listening(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with served(sample_lake(tmp_path_factory.mktemp("listening")), poll_seconds=0.02) as found:
        yield found


@pytest.mark.parametrize("number", some(range(20), 2, "listeners"))
def test_a_listener_that_comes_again_hears_of_each_commit_once(listening: Served, number: int) -> None:
    numbers, lake = chance("listeners", number), listening.lake
    begin = known = lake.current_snapshot()
    heard: list[int] = []
    for _ in range(6):
        for _ in range(numbers.randrange(3)):
            lake.table("t").append([{"id": 1, "name": "before"}])
        behind = lake.current_snapshot() - known
        wanted = numbers.randint(0, behind + 2)
        with (
            client(listening.url, "reader-token") as own,
            own.stream("GET", "/api/v1/events", headers={"Last-Event-ID": str(known)}) as stream,
        ):
            lines = stream.iter_lines()
            assert next(lines) == ": listening"
            for _ in range(wanted - behind):
                lake.table("t").append([{"id": 1, "name": "while it listens"}])
            while wanted:
                line = next(lines)
                if line.startswith("id: "):
                    known = int(line[4:])
                if line.startswith("data: "):
                    heard.append(json.loads(line[6:])["snapshot"])
                    wanted -= 1
    assert heard == list(range(begin + 1, known + 1))
