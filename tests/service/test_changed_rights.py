"""Rights that end while something is open: transactions, results that wait, streams of events and long polls."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import pyarrow as pa
import pytest
from pyarrow import flight

import quacklake
from quacklake import Lake
from quacklake.service.access_gate import AccessGate
from quacklake.service.app import create_app
from quacklake.service.flight import FlightService, FlightSettings
from quacklake.service.serving import BackgroundService
from quacklake.service.settings import ServiceSettings
from tests.service.flight.calls import Calls, described, ingestion
from tests.service.flight.conftest import command, options, path
from tests.service.serving import client

ROWS = 20


@dataclass
class Doors:
    """A lake behind HTTP and Flight, and the token of a user who is now and then an administrator."""

    lake: Lake
    url: str
    flights: flight.FlightClient
    token: str

    def calls(self) -> Calls:
        return Calls(self.flights, options(self.token))

    def http(self) -> httpx.Client:
        return client(self.url, self.token)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Doors]:
    home: Path = tmp_path_factory.mktemp("rights")
    lake = quacklake.connect(f"sqlite:///{home}/lake.db", data_path=home / "data", token_cache_ms=0)
    lake.sql(f"CREATE TABLE t AS SELECT range AS id, 'secret ' || range AS note FROM range({ROWS})")
    lake.access.create_user("boss", ["writer"])
    lake.access.create_policy("few", "t", "id < 3")
    gate, settings = AccessGate(lake), ServiceSettings(port=0, poll_seconds=0.02)
    service = FlightService(gate, FlightSettings(port=0)).serve()
    with BackgroundService(create_app(gate, settings), settings) as url, flight.connect(service.location) as flights:
        yield Doors(lake, url, flights, lake.access.tokens.create("boss"))
        assert service.shutdown()


@pytest.fixture
def doors(served: Doors) -> Doors:
    """The doors, as an administrator comes to them."""
    served.lake.access.add_member("admin", "boss")
    return served


def _demote(doors: Doors) -> None:
    doors.lake.access.remove_member("admin", "boss")


def test_a_transaction_of_an_administrator_ends_with_the_role(doors: Doors) -> None:
    calls, before = doors.calls(), doors.lake.current_snapshot()
    for way in range(4):
        doors.lake.access.add_member("admin", "boss")
        id_ = calls.begin()
        query = described("CommandStatementQuery", query="FROM t", transaction_id=id_)
        delete = described("CommandStatementUpdate", query="DELETE FROM t", transaction_id=id_)
        assert calls.rows(query).num_rows == ROWS
        calls.put(delete, pa.table({"i": [1]}))
        _demote(doors)
        with pytest.raises(flight.FlightUnauthorizedError, match="no longer an administrator"):
            match way:
                case 0:
                    calls.rows(query)
                case 1:
                    calls.put(delete, pa.table({"i": [1]}))
                case 2:
                    calls.put(ingestion("t", transaction_id=id_), pa.table({"id": [99], "note": ["x"]}))
                case 3:
                    calls.packed("EndTransaction", transaction_id=id_, action=1)
        with pytest.raises((pa.ArrowKeyError, flight.FlightUnauthorizedError)):
            calls.packed("EndTransaction", transaction_id=id_, action=1)
    assert (doors.lake.table("t").count(), doors.lake.current_snapshot()) == (ROWS, before)


def test_the_rows_of_a_transaction_that_wait_are_not_read_without_the_role(doors: Doors) -> None:
    calls = doors.calls()
    query = described("CommandStatementQuery", query="FROM t", transaction_id=calls.begin())
    info = doors.flights.get_flight_info(query, options=calls.options)
    _demote(doors)
    with pytest.raises(pa.ArrowInvalid, match="waited too long"):
        calls.ticket(info.endpoints[0].ticket)


@pytest.mark.parametrize("form", ["query", "table", "flight sql", "prepared"])
def test_a_ticket_shows_what_may_be_seen_when_it_is_used(doors: Doors, form: str) -> None:
    calls = doors.calls()
    descriptor = {
        "query": lambda: command("FROM t"),
        "table": lambda: path("t"),
        "flight sql": lambda: described("CommandStatementQuery", query="FROM t"),
        "prepared": lambda: described(
            "CommandPreparedStatementQuery", prepared_statement_handle=calls.prepare("FROM t")
        ),
    }[form]()
    info = doors.flights.get_flight_info(descriptor, options=calls.options)
    _demote(doors)
    rows = pa.concat_tables([calls.ticket(endpoint.ticket) for endpoint in info.endpoints])
    assert sorted(rows.column("id").to_pylist()) == [0, 1, 2]
    waiting = doors.flights.get_flight_info(descriptor, options=calls.options)
    doors.lake.access.create_policy("none", "t", "id < 1")
    doors.lake.access.drop_policy("few", "t")
    try:
        rows = pa.concat_tables([calls.ticket(endpoint.ticket) for endpoint in waiting.endpoints])
        assert rows.column("id").to_pylist() == [0]
        unchanged = doors.flights.get_flight_info(descriptor, options=calls.options)
        assert calls.ticket(unchanged.endpoints[0].ticket).num_rows == 1
    finally:
        doors.lake.access.create_policy("few", "t", "id < 3")
        doors.lake.access.drop_policy("none", "t")


def _descriptors(calls: Calls, table: str) -> dict[str, flight.FlightDescriptor]:
    return {
        "query": command(f"FROM {table}"),
        "table": path(table),
        "flight sql": described("CommandStatementQuery", query=f"FROM {table}"),
        "prepared": described(
            "CommandPreparedStatementQuery", prepared_statement_handle=calls.prepare(f"FROM {table}")
        ),
    }


def _replayed(calls: Calls, info: flight.FlightInfo) -> list[object]:
    """Return the values that the tickets of an answer show; none if they are refused."""
    try:
        rows = [calls.ticket(endpoint.ticket) for endpoint in info.endpoints]
    except (flight.FlightError, pa.ArrowInvalid, pa.ArrowKeyError) as error:
        return ["CANARY"] if "CANARY" in str(error) else []
    return [value for table in rows for row in table.to_pylist() for value in row.values()]


@pytest.mark.daily(0.3)
@pytest.mark.parametrize("end", ["token", "user", "grant", "replaced", "renamed"])
def test_a_ticket_that_is_used_again_shows_nothing_after_the_right_has_ended(served: Doors, end: str) -> None:
    lake, access = served.lake, served.lake.access
    lake.sql("CREATE OR REPLACE TABLE seen AS SELECT 'shown' AS x FROM range(3)")
    access.create_user("eve", if_not_exists=True)
    access.grant("SELECT", "eve", table="seen")
    token = access.tokens.create("eve")
    calls = Calls(served.flights, options(token))
    infos = {
        form: served.flights.get_flight_info(descriptor, options=calls.options)
        for form, descriptor in _descriptors(calls, "seen").items()
    }
    assert {form: set(_replayed(calls, info)) for form, info in infos.items()} == {form: {"shown"} for form in infos}
    match end:
        case "token":
            access.tokens.revoke(token)
        case "user":
            access.disable_user("eve")
        case "grant":
            access.revoke("SELECT", "eve", table="seen")
        case "replaced":
            lake.sql("CREATE OR REPLACE TABLE seen AS SELECT 'CANARY' AS x FROM range(3)")
        case "renamed":
            lake.rename_table("seen", "moved")
            lake.sql("CREATE TABLE seen AS SELECT 'CANARY' AS x FROM range(3)")
    try:
        found = {form: set(_replayed(calls, info)) for form, info in infos.items()}
    finally:
        access.enable_user("eve")
        if end == "renamed":
            lake.drop_table("moved")
    if end in ("replaced", "renamed"):  # the table that was granted is still to be read in its snapshot
        assert all(values <= {"shown"} for values in found.values()), found
    else:
        assert not any(found.values()), found


def _events(lines: Iterator[str], until: str) -> list[str]:
    found = []
    for line in lines:
        found.append(line)
        if line.startswith(until):
            break
    return found


def test_a_stream_of_events_tells_what_its_listener_may_know_now(doors: Doors) -> None:
    with doors.http() as http, http.stream("GET", "/api/v1/events") as stream:
        lines = stream.iter_lines()
        assert next(lines) == ": listening"
        doors.lake.create_table("first", {"i": int})
        assert "first" in _events(lines, "data:")[-1]
        _demote(doors)
        doors.lake.create_table("hidden", {"i": int})
        told = json.loads(_events(lines, "data:")[-1].removeprefix("data:"))
        assert told == {"snapshot": doors.lake.current_snapshot()}
        doors.lake.access.disable_user("boss")
        try:
            doors.lake.create_table("more", {"i": int})
            assert not any("snapshot" in line for line in lines), "the stream ends, and tells nothing before"
        finally:
            doors.lake.access.enable_user("boss")
    for name in ("first", "hidden", "more"):
        doors.lake.drop_table(name)


def test_a_poll_that_waits_ends_with_the_rights_of_its_end(doors: Doors) -> None:
    with doors.http() as http:
        turn = http.post("/api/v1/consumers/c/claim", json={"table": "t"}).json()

        def change() -> None:
            _demote(doors)
            doors.lake.table("t").append([{"id": 100, "note": "hidden"}])

        timer = threading.Timer(0.2, change)
        timer.start()
        answer = http.get("/api/v1/consumers/c/changes", params={"lease": turn["lease"], "wait": 20})
        timer.join()
        assert answer.status_code == 200 and answer.json()["rows"] == []
    doors.lake.table("t").delete("id = 100")
