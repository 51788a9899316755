"""Appends by HTTP and by Flight under one set of keys: whichever door a retry comes through, its rows are there once."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import flight

from quacklake.lake import Lake
from quacklake.service.flight import FlightService, FlightSettings
from quacklake.service.identity import TokenGate
from tests.seeds import SEED
from tests.service.serving import TOKENS, Served, is_problem, sample_lake, served

SCHEMA = pa.schema([("id", pa.int64()), ("name", pa.string())])


@dataclass
class Doors:
    """One lake, served by HTTP and by Flight."""

    http: Served
    flight: str

    @property
    def lake(self) -> Lake:
        return self.http.lake

    def by_http(self, table: str, ids: list[int], key: str | None) -> dict[str, Any]:
        headers = {} if key is None else {"Idempotency-Key": key}
        answer = self.http.writer.post(f"/api/v1/tables/{table}/rows", json=[{"id": i} for i in ids], headers=headers)
        if answer.status_code == 409:
            raise ValueError(answer.json()["code"])
        assert answer.status_code == 201, answer.text
        found: dict[str, Any] = answer.json()
        return found

    def by_flight(self, table: str, ids: list[int], key: str | None) -> dict[str, Any]:
        headers = [(b"authorization", b"Bearer writer-token")]
        if key is not None:
            headers.append((b"x-quacklake-idempotency-key", key.encode()))
        place = flight.FlightDescriptor.for_path("main", table)
        with flight.connect(self.flight) as client:
            writer, answers = client.do_put(place, SCHEMA, options=flight.FlightCallOptions(headers=headers))
            try:
                with writer:
                    writer.write_batch(pa.record_batch([ids, [None] * len(ids)], schema=SCHEMA))
                    writer.done_writing()
                    found: dict[str, Any] = json.loads(answers.read().to_pybytes())
            except pa.ArrowInvalid as error:
                raise ValueError(str(error)) from None
        return found

    def by_merge(self, table: str, ids: list[int], value: str, key: str) -> dict[str, Any]:
        rows = [{"id": i, "name": value} for i in ids]
        answer = self.http.writer.post(
            f"/api/v1/tables/{table}/merge?on=id", json=rows, headers={"Idempotency-Key": key}
        )
        assert answer.status_code == 200, answer.text
        found: dict[str, Any] = answer.json()
        return found


@contextmanager
def doors(lake: Lake) -> Iterator[Doors]:
    with (
        FlightService(TokenGate(lake, TOKENS), FlightSettings()) as second,
        served(lake) as first,
    ):
        yield Doors(first, second.location)


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Doors]:
    with doors(sample_lake(tmp_path_factory.mktemp("doors"))) as found:
        yield found


@pytest.fixture
def table(both: Doors) -> Iterator[str]:
    both.lake.create_table("w", SCHEMA)
    yield "w"
    both.lake.drop_table("w")


@pytest.mark.parametrize("first", ["http", "flight"])
def test_a_retry_by_the_other_door_adds_nothing_and_gets_the_same_answer(both: Doors, table: str, first: str) -> None:
    ways = [both.by_http, both.by_flight] if first == "http" else [both.by_flight, both.by_http]
    key = f"over {first}"
    answer = ways[0](table, [1, 2], key)
    assert answer == {"rows": 2, "snapshot": both.lake.current_snapshot(), "repeated": False}
    for way in ways:
        assert way(table, [1, 2], key) == {**answer, "repeated": True}
    assert both.lake.table(table).count() == 2


def test_another_request_under_a_used_key_is_refused_by_both_doors(both: Doors, table: str) -> None:
    both.by_http(table, [1, 2], "used")
    with pytest.raises(ValueError, match="already_exists"):
        both.by_http(table, [1, 3], "used")
    with pytest.raises(ValueError, match="already_exists"):
        both.by_flight(table, [1], "used")
    with pytest.raises(ValueError, match="already_exists"):
        both.by_flight("t", [1, 2], "used")
    merge = both.http.writer.post(
        f"/api/v1/tables/{table}/merge?on=id", json=[{"id": 1}], headers={"Idempotency-Key": "used"}
    )
    is_problem(merge, 409, "already_exists")
    assert both.lake.table(table).count() == 2


def test_other_rows_under_a_used_key_are_refused_also_if_they_are_as_many(both: Doors, table: str) -> None:
    both.by_flight(table, [1, 2], "flown")
    with pytest.raises(ValueError, match="already_exists"):
        both.by_flight(table, [1, 3], "flown")
    with pytest.raises(ValueError, match="already_exists"):
        both.by_http(table, [1, 2, 3], "flown")
    assert both.by_flight(table, [1, 2], "flown")["repeated"]
    assert both.by_http(table, [1, 2], "flown")["repeated"]
    assert both.lake.table(table).count() == 2


def test_a_table_is_the_same_under_each_of_its_names(both: Doors, table: str) -> None:
    first = both.by_http("main.w", [1], "named")
    assert both.by_http("w", [1], "named") == {**first, "repeated": True}
    assert both.by_flight("w", [1], "named") == {**first, "repeated": True}


def test_one_key_at_both_doors_at_once_is_done_once(both: Doors, table: str) -> None:
    def send(number: int) -> dict[str, Any]:
        return (both.by_http if number % 2 else both.by_flight)(table, [number // 8], f"race {number // 8}")

    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(send, range(32)))
    assert sorted(both.lake.table(table).to_arrow()["id"].to_pylist()) == [0, 1, 2, 3]
    for start in range(0, 32, 8):
        mine = answers[start : start + 8]
        assert len({answer["snapshot"] for answer in mine}) == 1
        assert sum(not answer["repeated"] for answer in mine) == 1


# -- random requests against a model -----------------------------------------------------------------------------------


def play(both: Doors, seed: object, clients: int, requests: int) -> None:
    """Let clients send random appends, merges and repeats of any client's requests; compare the rows with a model.

    Appends take ids of their own. A merge sets the name of ids that only its client merges, so that the order of the
    requests of different clients does not matter to what is left in the end.
    """
    both.lake.create_table("r", SCHEMA)
    both.lake.create_table("m", SCHEMA, primary_key="id")
    sent: list[tuple[str, list[int]]] = []
    appended: Counter[int] = Counter()
    merged: dict[int, str] = {}

    def client(number: int) -> None:
        dice = random.Random(f"{seed} {number}")
        last: tuple[list[int], str, str] | None = None
        for turn in range(requests):
            way = dice.choice([both.by_http, both.by_flight])
            choice = dice.random()
            if choice < 0.3 and sent:
                key, ids = dice.choice(list(sent))
                assert way("r", ids, key)["repeated"] is True
            elif choice < 0.5:
                ids = [number * 100 + dice.randrange(6) for _ in range(3)]
                last = (sorted(set(ids)), f"{number} {turn}", f"m {seed} {number} {turn}")
                assert both.by_merge("m", *last)["repeated"] is False
                merged.update(dict.fromkeys(last[0], last[1]))
            elif choice < 0.6 and last is not None:
                assert both.by_merge("m", *last)["repeated"] is True
            else:
                ids = [dice.randrange(1000) for _ in range(dice.randrange(12))]
                key = f"a {seed} {number} {turn}"
                again = dice.random() < 0.3
                answers = [way("r", ids, key), *([way("r", ids, key)] if again else [])]
                assert [(answer["rows"], answer["repeated"]) for answer in answers] == [
                    (len(ids), False),
                    (len(ids), True),
                ][: len(answers)]
                appended.update(ids)
                sent.append((key, ids))

    with ThreadPoolExecutor(clients) as pool:
        list(pool.map(client, range(clients)))
    assert Counter(both.lake.table("r").to_arrow()["id"].to_pylist()) == appended
    assert {row["id"]: row["name"] for row in both.lake.table("m").to_pylist()} == merged
    assert both.lake.table("m").count() == len(merged)
    assert both.lake.verify().ok


@pytest.mark.parametrize(
    "catalog",
    ["sqlite", "postgres", *(pytest.param(each, marks=pytest.mark.daily(0.3)) for each in ("duckdb", "mysql"))],
)
def test_random_requests_with_retries_leave_what_the_model_says(
    tmp_path: Path, request: pytest.FixtureRequest, catalog: str
) -> None:
    urls = {"sqlite": None, "duckdb": f"duckdb:///{tmp_path}/lake.duckdb"}
    url = urls[catalog] if catalog in urls else request.getfixturevalue(f"{catalog}_url")
    with doors(sample_lake(tmp_path, url)) as both:
        play(both, f"{SEED} {catalog}", clients=3, requests=12)
