"""Strangers and broken clients: nothing escapes, nothing leaks, and the server goes on."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pyarrow as pa
import pytest
from pyarrow import flight

import quacklake
from quacklake.errors import CatalogUnavailableError, InternalError, StorageError
from quacklake.service.flight import FlightService, FlightSettings
from quacklake.service.flight.failures import to_status
from quacklake.service.flight.messages import MESSAGES, SQL, pack
from quacklake.service.flight.metadata import like
from quacklake.service.flight.tickets import Sealer
from quacklake.service.identity import TokenGate
from tests.seeds import SEED
from tests.service.flight.calls import ROWS, Calls, described
from tests.service.flight.conftest import READER, TOKENS, WRITER, Served, command, options, path
from tests.sql.safety.conftest import CANARY, Place, corpus, lake, place  # noqa: F401

_REFUSED = (pa.ArrowInvalid, pa.ArrowKeyError, pa.ArrowNotImplementedError, flight.FlightUnauthorizedError)

#: A writer may change rows.
_ESCAPES = [
    (token, kind)
    for kind in sorted({kind for kind, _ in corpus("escapes")})
    for token in (READER, WRITER)
    if (token, kind) != (WRITER, "changes")
]


@pytest.fixture(scope="module")
def watched(place: Place, lake: quacklake.Lake) -> Iterator[Served]:  # noqa: F811
    """A server of the lake with the hostile views and macros."""
    with FlightService(TokenGate(lake, TOKENS), FlightSettings()) as service:
        yield Served(lake, service, place.home)


@pytest.mark.daily(0.3)
@pytest.mark.parametrize(("token", "kind"), _ESCAPES)
def test_no_statement_escapes(watched: Served, place: Place, token: str, kind: str) -> None:  # noqa: F811
    before, snapshot = place.state(), watched.lake.current_snapshot()
    owned = [str(place.home / "files"), str(place.home / "lake.db")]
    with watched.client() as client:
        calls = Calls(client, options(token))
        for statement in [place.filled(text) for name, text in corpus("escapes") if name == kind]:
            for ask in (
                lambda text=statement: calls.rows(command(text)),
                lambda text=statement: calls.put(described("CommandStatementUpdate", query=text), ROWS),
            ):
                with pytest.raises(_REFUSED) as caught:
                    print(statement, ask())
                text = str(caught.value)
                assert CANARY not in text and "Traceback" not in text
                assert [own for own in owned if own in text and own not in statement] == []
    assert place.state() == before and watched.lake.current_snapshot() == snapshot
    assert place.connections == []


def _broken(chance: random.Random, data: bytes) -> bytes:
    """Return bytes with some of them changed, cut off or repeated."""
    changed = bytearray(data)
    for _ in range(chance.randint(1, 4)):
        at = chance.randrange(len(changed) + 1)
        match chance.choice(["flip", "cut", "insert", "repeat"]):
            case "flip" if at < len(changed):
                changed[at] ^= 1 << chance.randrange(8)
            case "cut":
                del changed[at:]
            case "insert":
                changed[at:at] = chance.randbytes(chance.randint(1, 9))
            case _:
                changed += changed[:at]
    return bytes(changed)


def test_broken_messages_are_refused_or_mean_something(served: Served) -> None:
    chance = random.Random(f"messages {SEED}")
    commands = [
        pack("CommandStatementQuery", query="SELECT 1"),
        pack("CommandGetTables", include_schema=True, table_name_filter_pattern="%"),
        pack("CommandPreparedStatementQuery", prepared_statement_handle=b"x" * 40),
        b'{"sql": "SELECT 1", "parameters": [[{"a": 1}]]}',
    ]
    refused = []
    with served.client() as client:
        calls = Calls(client, options(READER))
        for _ in range(150):
            data = _broken(chance, chance.choice(commands))
            try:
                calls.rows(flight.FlightDescriptor.for_command(data))
            except _REFUSED as error:
                refused.append(str(error))
        for _ in range(60):
            name = chance.choice(["CreatePreparedStatement", "EndTransaction", "CancelFlightInfo", "SetSessionOptions"])
            try:
                calls.act(name, _broken(chance, pack("ActionCreatePreparedStatementRequest", query="SELECT 1")))
            except _REFUSED as error:
                refused.append(str(error))
        assert calls.rows(command("SELECT 1 AS i")).to_pylist() == [{"i": 1}]
    assert len(refused) > 50
    assert [text for text in refused if "Traceback" in text or "site-packages" in text] == []


def test_broken_tickets_are_refused(served: Served) -> None:
    chance = random.Random(f"tickets {SEED}")
    with served.client() as client:
        calls = Calls(client, options(READER))
        whole = client.get_flight_info(command("SELECT 1"), options=calls.options).endpoints[0].ticket.ticket
        for _ in range(100):
            broken = _broken(chance, whole)
            if broken == whole:
                continue
            with pytest.raises(pa.ArrowInvalid, match="not made by this server"):
                calls.ticket(flight.Ticket(broken))
        forged = Sealer(b"the secret of another server", 60, 1 << 20).seal("query", "anybody", sql="SELECT 1")
        with pytest.raises(pa.ArrowInvalid, match="not made by this server"):
            calls.ticket(flight.Ticket(forged))
        assert calls.ticket(flight.Ticket(whole)).num_rows == 1


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{",
        b"[]",
        b'{"sql": 1}',
        b'{"sql": "SELECT 1", "more": 1}',
        b'{"sql": "SELECT 1", "parameters": "x"}',
        b'{"table": 1}',
        b'{"sql": "SELECT 1", "version": true}',
        b'{"sql": "SELECT 1", "timestamp": 7}',
        b'{"sql": ""}',
        b'{"sql": "-- nothing"}',
        b'{"a":' * 100_000,
        pack("ActionBeginTransactionRequest"),
        pack("DoPutUpdateResult"),
    ],
    ids=lambda data: data[:30].decode("latin-1"),
)
def test_a_command_that_is_none_is_refused(served: Served, data: bytes) -> None:
    with pytest.raises((pa.ArrowInvalid, pa.ArrowNotImplementedError)):
        served.read(flight.FlightDescriptor.for_command(data))


def test_what_the_server_does_not_know_is_unimplemented(served: Served) -> None:
    with served.client() as client:
        calls = Calls(client, options(READER))
        with pytest.raises(pa.ArrowNotImplementedError, match="no action"):
            calls.act("DropEverything", b"")
        with pytest.raises(pa.ArrowNotImplementedError, match="not answered"):
            calls.put(described("CommandGetTables"), ROWS)
        with pytest.raises(pa.ArrowInvalid, match="takes a"):
            calls.act("BeginTransaction", pack("ActionEndTransactionRequest"))


def test_a_wrong_header_is_refused(served: Served) -> None:
    with served.client() as client:
        for header in ("Basic %%%", "Basic " + "eA==", "Digest x", "Bearer", "Bearer " + "x" * 5000):
            call = flight.FlightCallOptions(headers=[(b"authorization", header.encode())])
            with pytest.raises((flight.FlightUnauthenticatedError, pa.ArrowInvalid)):
                list(client.list_actions(options=call))


def test_errors_of_stores_and_bugs_tell_a_number_instead_of_places(caplog: pytest.LogCaptureFixture) -> None:
    for error in (StorageError("/secret/path failed"), InternalError("at /secret/path"), RuntimeError("/secret/path")):
        status = to_status(error)
        assert isinstance(status, flight.FlightInternalError)
        assert "/secret" not in str(status) and "incident" in str(status)
    assert "/secret/path failed" in caplog.text
    assert isinstance(to_status(CatalogUnavailableError("/secret/db")), flight.FlightUnavailableError)
    assert "/secret" not in str(to_status(CatalogUnavailableError("/secret/db")))


def test_messages_have_the_numbers_of_the_protocol() -> None:
    """The bytes are those that the reference implementation of Flight SQL writes."""
    query = MESSAGES["CommandStatementQuery"](query="SELECT 1", transaction_id=b"t")
    assert query.SerializeToString() == b"\x0a\x08SELECT 1\x12\x01t"
    packed = pack("CommandGetCatalogs")
    assert packed == b"\x0a\x40type.googleapis.com/" + f"{SQL}.CommandGetCatalogs".encode()


@pytest.mark.parametrize(
    ("pattern", "yes", "no"),
    [("", [""], ["a"]), ("%", ["", "ab"], []), ("a_", ["ab"], ["a", "abc"]), (r"a\_", ["a_"], ["ab"])],
)
def test_a_pattern_matches_as_in_sql(pattern: str, yes: list[str], no: list[str]) -> None:
    assert [name for name in yes + no if like(pattern)(name)] == yes


def test_a_pattern_of_many_wildcards_takes_no_time() -> None:
    assert not like("%a" * 200 + "b")("a" * 2000)


def test_a_table_in_a_schema_that_is_missing_is_not_found(served: Served) -> None:
    with pytest.raises(pa.ArrowKeyError, match="not_found"):
        served.read(path("nowhere", "t"))
    with pytest.raises(pa.ArrowKeyError, match="not_found"):
        served.read(command("SELECT 1"), schema="nowhere")
