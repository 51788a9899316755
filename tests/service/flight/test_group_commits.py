"""Appends by Flight wait for their commit as those by HTTP do: many share a snapshot, and each hears of its own rows."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pyarrow as pa
import pytest
from pyarrow import flight

from quacklake.core import faults
from quacklake.service.app import create_app
from quacklake.service.appends import GroupCommits
from quacklake.service.flight import FlightService, FlightSettings
from quacklake.service.identity import TokenGate
from quacklake.service.serving import BackgroundService
from quacklake.service.settings import ServiceSettings
from tests.service.flight.conftest import ADMIN, TOKENS, WRITER, Served
from tests.service.serving import client, sample_lake

SCHEMA = pa.schema([("id", pa.int64()), ("name", pa.string())])


def batch(*ids: int) -> pa.RecordBatch:
    return pa.record_batch([pa.array(ids, pa.int64()), pa.array(["n"] * len(ids))], schema=SCHEMA)


class Doors(Served):
    """A lake served by Flight and by HTTP, whose appends wait in one queue."""

    commits: GroupCommits
    http: httpx.Client

    def waiting(self) -> int:
        return sum(each.group.waiting for each in self.commits._lakes.values())


@pytest.fixture(scope="module")
def doors(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Doors]:
    home: Path = tmp_path_factory.mktemp("doors")
    settings = ServiceSettings(port=0)
    commits, lake = GroupCommits(settings), sample_lake(home)
    gate = TokenGate(lake, TOKENS)
    second = FlightService(gate, FlightSettings(grace_seconds=5.0), commits=commits).serve()
    app = create_app(gate, settings, at_end=second.shutdown, commits=commits)
    with BackgroundService(app, settings) as url, client(url, WRITER) as http:
        found = Doors(lake, second, home)
        found.commits, found.http = commits, http
        yield found


def at_once(doors: Doors, *works: Any) -> list[Any]:
    """Let works wait behind a commit that is held until all of them wait; return their answers or errors."""
    entered, free = threading.Event(), threading.Event()

    def hold(name: str) -> None:
        if name == "service.append.before" and not free.is_set():
            entered.set()
            assert free.wait(30)

    def answer(work: Any) -> Any:
        try:
            return work()
        except (pa.ArrowException, flight.FlightError) as error:
            return error

    with faults._hooked(hold), ThreadPoolExecutor(len(works) + 1) as pool:
        first = pool.submit(doors.put, "t", [batch(-1)])
        assert entered.wait(30)
        answers = [pool.submit(answer, work) for work in works]
        until = time.monotonic() + 30
        while doors.waiting() < len(works) and time.monotonic() < until:
            time.sleep(0.001)
        free.set()
        assert first.result()["rows"] == 1
        return [each.result() for each in answers]


def test_appends_of_one_author_that_come_at_once_share_a_snapshot(doors: Doors) -> None:
    before = doors.lake.current_snapshot()
    answers = at_once(doors, *(lambda n=n: doors.put("t", [batch(*range(1000 * n, 1001 * n))]) for n in range(1, 9)))
    assert [answer["rows"] for answer in answers] == list(range(1, 9))
    assert {answer["snapshot"] for answer in answers} == {before + 2}
    wanted = [id_ for n in range(1, 9) for id_ in range(1000 * n, 1001 * n)]
    found = doors.lake.table("t").to_arrow(where="id >= 1000 AND id < 10000")["id"].to_pylist()
    assert sorted(found) == wanted
    assert all(each["author"].startswith("token-") for each in doors.lake.snapshots().to_pylist()[-2:])


def test_appends_of_two_authors_have_snapshots_of_their_own(doors: Doors) -> None:
    tokens = [WRITER, ADMIN, WRITER, ADMIN, WRITER]
    answers = at_once(doors, *(lambda t=t, n=n: doors.put("t", [batch(20_000 + n)], t) for n, t in enumerate(tokens)))
    authors = {each["snapshot_id"]: each["author"] for each in doors.lake.snapshots().to_pylist()}
    for token in (WRITER, ADMIN):
        mine = {authors[answer["snapshot"]] for answer, own in zip(answers, tokens, strict=True) if own == token}
        assert len(mine) == 1
    assert len({authors[answer["snapshot"]] for answer in answers}) == 2


def test_an_append_that_does_not_fit_fails_alone(doors: Doors) -> None:
    wrong = pa.record_batch({"other": ["x"]})
    works = [lambda n=n: doors.put("t", [batch(30_000 + n)]) for n in range(4)]
    answers = at_once(doors, *works, lambda: doors.put("t", [wrong]), lambda: doors.put("missing", [batch(1)]))
    assert [answer["rows"] for answer in answers[:4]] == [1] * 4
    assert "input.schema_mismatch" in str(answers[4]) and "not_found" in str(answers[5])
    assert doors.lake.table("t").to_arrow(where="id >= 30000 AND id < 40000").num_rows == 4


def test_one_key_by_both_doors_at_once_adds_its_rows_once(doors: Doors) -> None:
    def by_flight(*ids: int) -> Any:
        return lambda: doors.put("t", [batch(*ids)], x_quacklake_idempotency_key="both")

    def by_http(*ids: int) -> Any:
        rows = [{"id": id_, "name": "n"} for id_ in ids]
        return lambda: doors.http.post("/api/v1/tables/t/rows", json=rows, headers={"Idempotency-Key": "both"})

    answers = at_once(doors, by_flight(40_001, 40_002), by_http(40_001, 40_002), by_flight(40_001, 40_002))
    told = [answer if isinstance(answer, dict) else answer.json() for answer in answers]
    assert [each["rows"] for each in told] == [2, 2, 2]
    assert sorted(each["repeated"] for each in told) == [False, True, True]
    assert len({each["snapshot"] for each in told}) == 1
    assert doors.lake.table("t").to_arrow(where="id >= 40000 AND id < 50000").num_rows == 2
    with pytest.raises(pa.ArrowInvalid, match="already_exists"):
        by_flight(40_001)()


def test_another_number_of_rows_under_the_same_key_is_refused_also_at_once(doors: Doors) -> None:
    works = [lambda ids=ids: doors.put("t", [batch(*ids)], x_quacklake_idempotency_key="odd") for ids in ((1,), (1, 2))]
    good, bad = sorted(at_once(doors, *works), key=lambda each: isinstance(each, Exception))
    assert good["rows"] in (1, 2) and "already_exists" in str(bad)


@pytest.mark.parametrize("size", ["1MB", 0])
def test_large_appends_are_written_by_themselves(tmp_path: Path, size: int | str) -> None:
    with sample_lake(tmp_path) as lake:
        gate = TokenGate(lake, TOKENS)
        with FlightService(gate, FlightSettings(group_bytes=size)) as service:
            found = Served(lake, service, tmp_path)
            many = batch(*range(10_000))
            assert found.put("t", [many] * 12, x_quacklake_idempotency_key="many")["rows"] == 120_000
            assert found.put("t", [many] * 12, x_quacklake_idempotency_key="many")["repeated"]
            assert found.put("t", [batch(7)])["rows"] == 1
            assert not service.handlers.commits._lakes if size == 0 else len(service.handlers.commits._lakes) == 1
        assert lake.table("t").count() == 120_091


def test_a_server_that_stops_answers_what_waits(tmp_path: Path) -> None:
    with sample_lake(tmp_path) as lake:
        service = FlightService(TokenGate(lake, TOKENS)).serve()
        found = Served(lake, service, tmp_path)
        began, go_on = threading.Event(), threading.Event()

        def hold(name: str) -> None:
            if name == "service.append.before":
                began.set()
                assert go_on.wait(30)

        with faults._hooked(hold), ThreadPoolExecutor(2) as pool:
            answer = pool.submit(found.put, "t", [batch(500)])
            assert began.wait(30)
            ending = pool.submit(service.shutdown)
            go_on.set()
            assert json.dumps(answer.result()["rows"]) == "1"
            assert ending.result()
        assert lake.table("t").count("id = 500") == 1
