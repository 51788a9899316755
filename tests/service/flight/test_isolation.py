"""Every call of Flight and Flight SQL, made by everybody: strangers get nothing, readers change nothing."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pyarrow as pa
import pytest
from pyarrow import flight

from quacklake.core.engines.duckdb.expressions import FUNCTIONS
from quacklake.core.format.types import SCALARS
from quacklake.service.flight.handlers import ACTIONS, METADATA, PUTS, QUERIES
from quacklake.service.flight.messages import MESSAGES
from quacklake.service.flight.tickets import Sealer
from tests.service.flight.calls import (
    ACTS,
    COMMANDS,
    EVERY,
    PARAMETERS,
    ROWS,
    RPCS,
    WRITES,
    Calls,
    described,
    ingestion,
)
from tests.service.flight.conftest import ADMIN, OTHER, READER, SECRET, WRITER, Served, command, options, path

_OWN = {"init", "port", "run", "serve", "shutdown", "wait"}
"""Methods of a server for its own process, not for clients."""


@pytest.fixture(scope="module")
def target(served: Served) -> Served:
    served.lake.sql("CREATE TABLE target (i BIGINT)")
    served.lake.sql("INSERT INTO target VALUES (41), (42)")
    served.lake.create_table("keyed", {"a": int, "b": str}, primary_key=["b", "a"])
    return served


@pytest.fixture
def client(target: Served) -> Iterator[flight.FlightClient]:
    with target.client() as found:
        yield found


def test_every_call_is_in_the_matrix() -> None:
    public = {name for name in dir(flight.FlightServerBase) if not name.startswith("_")}
    assert public - _OWN == set(RPCS)
    assert {*QUERIES, *METADATA, *PUTS} == set(COMMANDS)
    assert {name for name in MESSAGES if name.startswith("Command")} == set(COMMANDS)
    assert set(ACTIONS) == set(ACTS)


@pytest.mark.parametrize("name", EVERY)
@pytest.mark.parametrize("token", [None, "", "wrong", "None", READER.upper(), READER + "1"])
def test_a_stranger_gets_nothing(client: flight.FlightClient, name: str, token: str | None) -> None:
    # the client of Arrow has an error of its own for get_schema
    with pytest.raises((flight.FlightUnauthenticatedError, OSError), match=r"\[unauthenticated\]"):
        EVERY[name](Calls(client, options(token)))


@pytest.mark.parametrize("name", EVERY)
def test_a_reader_reads_and_changes_nothing(target: Served, client: flight.FlightClient, name: str) -> None:
    before = target.lake.current_snapshot()
    calls = Calls(client, options(READER))
    if name in WRITES:
        with pytest.raises(flight.FlightUnauthorizedError, match=r"\[not_permitted\]"):
            EVERY[name](calls)
    elif name == "do_exchange":
        with pytest.raises(pa.ArrowNotImplementedError, match=r"\[unsupported\]"):
            EVERY[name](calls)
    else:
        EVERY[name](calls)
    assert target.lake.current_snapshot() == before


@pytest.mark.parametrize("name", sorted(WRITES))
def test_a_writer_changes_rows_once(target: Served, client: flight.FlightClient, name: str) -> None:
    before, count = target.lake.current_snapshot(), target.lake.table("target").count()
    EVERY[name](Calls(client, options(WRITER)))
    assert target.lake.current_snapshot() == before + 1
    assert target.lake.table("target").count() == count + 1


def _tickets(target: Served, token: str) -> list[flight.Ticket]:
    descriptors = [
        path("target"),
        command("FROM target"),
        described("CommandStatementQuery", query="FROM target"),
        described("CommandGetTables"),
    ]
    if token == WRITER:
        descriptors.append(described("CommandStatementQuery", query="UPDATE target SET i = i"))
    return [endpoint.ticket for each in descriptors for endpoint in target.info(each, token).endpoints]


@pytest.mark.parametrize("owner", [READER, WRITER])
@pytest.mark.parametrize("token", [OTHER, ADMIN])
def test_a_ticket_of_another_principal_is_refused(
    target: Served, client: flight.FlightClient, owner: str, token: str
) -> None:
    for ticket in _tickets(target, owner):
        with pytest.raises(flight.FlightUnauthorizedError, match="another principal"):
            Calls(client, options(token)).ticket(ticket)
        info = MESSAGES["FlightInfo"](endpoint=[{"ticket": {"ticket": ticket.ticket}}])
        with pytest.raises(flight.FlightUnauthorizedError, match="another principal"):
            Calls(client, options(token)).plain("CancelFlightInfo", info=info)
        Calls(client, options(owner)).ticket(ticket)


def test_a_prepared_statement_of_another_principal_is_refused(client: flight.FlightClient) -> None:
    handle = Calls(client, options(WRITER)).prepare("INSERT INTO target VALUES (?)")
    for token in (READER, ADMIN):
        calls = Calls(client, options(token))
        for name in ("CommandPreparedStatementQuery", "CommandPreparedStatementUpdate"):
            with pytest.raises(flight.FlightUnauthorizedError, match="another principal"):
                calls.put(described(name, prepared_statement_handle=handle), PARAMETERS)
        with pytest.raises(flight.FlightUnauthorizedError, match="another principal"):
            calls.rows(described("CommandPreparedStatementQuery", prepared_statement_handle=handle))


def test_a_transaction_of_another_principal_does_not_exist(target: Served, client: flight.FlightClient) -> None:
    writer, admin = Calls(client, options(WRITER)), Calls(client, options(ADMIN))
    before = target.lake.table("target").count()
    id_ = writer.begin()
    insert = described("CommandStatementUpdate", query="INSERT INTO target VALUES (1)", transaction_id=id_)
    assert writer.count(writer.put(insert, ROWS)) == 1
    assert writer.count(writer.put(ingestion("target", transaction_id=id_), ROWS)) == 1
    for stranger in (
        lambda: admin.put(insert, ROWS),
        lambda: admin.put(ingestion("target", transaction_id=id_), ROWS),
        lambda: admin.rows(described("CommandStatementQuery", query="FROM target", transaction_id=id_)),
        lambda: admin.packed("EndTransaction", transaction_id=id_, action=1),
    ):
        with pytest.raises(pa.ArrowKeyError, match="no such transaction"):
            stranger()
    admin.packed("EndTransaction", transaction_id=id_, action=2)  # rolls back nothing of others
    assert target.lake.table("target").count() == before
    writer.packed("EndTransaction", transaction_id=id_, action=1)
    assert target.lake.table("target").count() == before + 2
    with pytest.raises(pa.ArrowKeyError, match="no such transaction"):
        writer.packed("EndTransaction", transaction_id=id_, action=1)


def test_a_failed_ingestion_spoils_its_transaction(target: Served, client: flight.FlightClient) -> None:
    calls = Calls(client, options(WRITER))
    before, id_ = target.lake.table("target").count(), calls.begin()
    calls.put(ingestion("target", transaction_id=id_), ROWS)
    with pytest.raises(pa.ArrowInvalid, match="schema_mismatch"):
        calls.put(ingestion("fresh", missing=1, existing=1, transaction_id=id_), pa.table({"a": [1]}))
        calls.put(ingestion("target", transaction_id=id_), pa.table({"other": ["x"]}))
    for again in (
        lambda: calls.put(ingestion("target", transaction_id=id_), ROWS),
        lambda: calls.rows(described("CommandStatementQuery", query="FROM target", transaction_id=id_)),
    ):
        with pytest.raises(pa.ArrowInvalid, match="aborted"):
            again()
    with pytest.raises(pa.ArrowInvalid, match="COMMIT has rolled it back"):  # as in DuckDB, and told
        calls.packed("EndTransaction", transaction_id=id_, action=1)
    assert target.lake.table("target").count() == before and "fresh" not in target.lake


@pytest.mark.parametrize("text", ["COMMIT", "/* */ rollback", "END", "ABORT", "BEGIN"])
def test_a_statement_does_not_end_a_transaction_unseen(target: Served, client: flight.FlightClient, text: str) -> None:
    calls = Calls(client, options(WRITER))
    before, id_ = target.lake.table("target").count(), calls.begin()
    calls.put(ingestion("target", transaction_id=id_), ROWS)
    with pytest.raises(pa.ArrowInvalid, match="EndTransaction"):
        calls.put(described("CommandStatementUpdate", query=text, transaction_id=id_), ROWS)
    with pytest.raises(pa.ArrowInvalid, match="EndTransaction"):
        calls.rows(described("CommandStatementQuery", query=text, transaction_id=id_))
    with pytest.raises(pa.ArrowInvalid, match="EndTransaction"):
        calls.rows(described("CommandStatementQuery", query=text))
    calls.packed("EndTransaction", transaction_id=id_, action=2)
    assert target.lake.table("target").count() == before


def test_an_expired_ticket_is_refused(target: Served, client: flight.FlightClient) -> None:
    calls = Calls(client, options(READER))
    old = Sealer(SECRET, 60, 1 << 20, now=lambda: time.time() - 61)
    principal = target.service.handlers.sealer.open
    facts = [
        principal(ticket.ticket, _principal(target), "part", "query", "metadata") for ticket in _tickets(target, READER)
    ]
    for fact in facts:
        kind = fact.pop("kind")
        more = {name: value for name, value in fact.items() if name not in ("for", "until")}
        with pytest.raises(pa.ArrowInvalid, match="expired"):
            calls.ticket(flight.Ticket(old.seal(kind, _principal(target), **more)))
    handle = old.seal("prepared statement", _principal(target), sql="SELECT 1")
    with pytest.raises(pa.ArrowInvalid, match="expired"):
        calls.rows(described("CommandPreparedStatementQuery", prepared_statement_handle=handle))


def test_a_sealed_text_is_good_for_its_own_use_only(target: Served, client: flight.FlightClient) -> None:
    calls = Calls(client, options(READER))
    handle = calls.prepare("SELECT 1")
    with pytest.raises(pa.ArrowInvalid, match="not expected here"):
        calls.ticket(flight.Ticket(handle))
    for ticket in _tickets(target, READER):
        with pytest.raises(pa.ArrowInvalid, match="not expected here"):
            calls.rows(described("CommandPreparedStatementQuery", prepared_statement_handle=ticket.ticket))


def _principal(target: Served) -> str:
    from quacklake.service.identity import TokenGate

    gate = target.service._entrance._gate
    assert isinstance(gate, TokenGate)
    return gate.enter(READER).principal


def test_primary_keys_and_types_are_told(target: Served, client: flight.FlightClient) -> None:
    calls = Calls(client, options(READER))
    keys = calls.rows(described("CommandGetPrimaryKeys", table="keyed")).to_pylist()
    assert [(key["column_name"], key["key_sequence"]) for key in keys] == [("b", 1), ("a", 2)]
    assert calls.rows(described("CommandGetPrimaryKeys", table="nothing")).num_rows == 0
    types = calls.rows(described("CommandGetXdbcTypeInfo", data_type=12)).to_pylist()
    assert [each["type_name"] for each in types] == ["JSON", "VARCHAR"]
    every = calls.rows(described("CommandGetXdbcTypeInfo")).to_pylist()
    order = [(each["data_type"], each["type_name"]) for each in every]
    assert order == sorted(order)
    known = {scalar.duckdb.partition("(")[0] for scalar in SCALARS.values()}
    assert {each["type_name"] for each in every} == known
    info = calls.rows(described("CommandGetSqlInfo", info=[0, 3, 8])).to_pylist()
    assert info == [
        {"info_name": 0, "value": "Quacklake"},
        {"info_name": 3, "value": True},
        {"info_name": 8, "value": 1},
    ]
    numbers = calls.rows(described("CommandGetSqlInfo"))["info_name"].to_pylist()
    assert numbers == [*range(12), 100, 101, *range(500, 577)]  # all that the protocol has


def test_the_functions_that_are_told_can_be_called(target: Served, client: flight.FlightClient) -> None:
    calls = Calls(client, options(READER))
    told = calls.rows(described("CommandGetSqlInfo", info=[509, 510, 511, 512])).to_pylist()
    names = {name.lower() for each in told for name in each["value"]}
    assert names and names <= FUNCTIONS
