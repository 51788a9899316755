"""Every call of Flight and Flight SQL as a client makes it, by its name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pyarrow as pa
from pyarrow import flight

from quacklake.service.flight.messages import MESSAGES, pack, unpack
from tests.service.flight.conftest import path

ROWS = pa.table({"i": pa.array([1], pa.int64())})
PARAMETERS = pa.table({"0": pa.array([7], pa.int64())})


def described(name: str, **values: Any) -> flight.FlightDescriptor:
    """Return the descriptor of a command."""
    return flight.FlightDescriptor.for_command(pack(name, **values))


class Calls:
    """The calls of one client with one set of options."""

    def __init__(self, client: flight.FlightClient, options: flight.FlightCallOptions) -> None:
        self.client = client
        self.options = options

    def rows(self, descriptor: flight.FlightDescriptor) -> pa.Table:
        info = self.client.get_flight_info(descriptor, options=self.options)
        return pa.concat_tables([self.ticket(endpoint.ticket) for endpoint in info.endpoints])

    def ticket(self, ticket: flight.Ticket) -> pa.Table:
        return self.client.do_get(ticket, options=self.options).read_all()

    def put(self, descriptor: flight.FlightDescriptor, table: pa.Table) -> bytes:
        writer, reader = self.client.do_put(descriptor, table.schema, options=self.options)
        with writer:
            writer.write_table(table)
            writer.done_writing()
            answer = reader.read()
        return b"" if answer is None else answer.to_pybytes()

    def act(self, name: str, body: bytes) -> list[bytes]:
        return [result.body.to_pybytes() for result in self.client.do_action((name, body), options=self.options)]

    def packed(self, name: str, **values: Any) -> Any:
        """Run an action of Flight SQL and return its answer."""
        answers = self.act(name, pack(f"Action{name}Request", **values))
        return unpack(answers[0])[1] if answers else None

    def plain(self, name: str, **values: Any) -> Any:
        """Run an action of Flight itself and return its answer."""
        [answer] = self.act(name, MESSAGES[f"{name}Request"](**values).SerializeToString())
        return MESSAGES[f"{name}Result"].FromString(answer)

    def prepare(self, sql: str, **values: Any) -> bytes:
        return bytes(self.packed("CreatePreparedStatement", query=sql, **values).prepared_statement_handle)

    def begin(self) -> bytes:
        return bytes(self.packed("BeginTransaction").transaction_id)

    def count(self, answer: bytes) -> int:
        return int(MESSAGES["DoPutUpdateResult"].FromString(answer).record_count)


def ingestion(table: str, missing: int = 2, existing: int = 2, **values: Any) -> flight.FlightDescriptor:
    """Return the command of a bulk ingestion; by default into a table that must exist."""
    definition = {"if_not_exist": missing, "if_exists": existing}
    return described("CommandStatementIngest", table=table, table_definition_options=definition, **values)


RPCS: Mapping[str, Callable[[Calls], object]] = {
    "list_flights": lambda c: list(c.client.list_flights(options=c.options)),
    "get_flight_info": lambda c: c.client.get_flight_info(path("target"), options=c.options),
    "get_schema": lambda c: c.client.get_schema(path("target"), options=c.options),
    "do_get": lambda c: c.rows(path("target")),
    "do_put": lambda c: c.put(path("target"), ROWS),
    "do_action": lambda c: c.act("CloseSession", b""),
    "list_actions": lambda c: list(c.client.list_actions(options=c.options)),
    "do_exchange": lambda c: _exchange(c),
}
COMMANDS: Mapping[str, Callable[[Calls], object]] = {
    "CommandStatementQuery": lambda c: c.rows(described("CommandStatementQuery", query="FROM target")),
    "CommandPreparedStatementQuery": lambda c: c.rows(
        described("CommandPreparedStatementQuery", prepared_statement_handle=c.prepare("FROM target"))
    ),
    "CommandStatementUpdate": lambda c: c.put(
        described("CommandStatementUpdate", query="INSERT INTO target VALUES (1)"), ROWS
    ),
    "CommandPreparedStatementUpdate": lambda c: c.put(
        described(
            "CommandPreparedStatementUpdate", prepared_statement_handle=c.prepare("INSERT INTO target VALUES (?)")
        ),
        PARAMETERS,
    ),
    "CommandStatementIngest": lambda c: c.put(ingestion("target"), ROWS),
    "CommandGetCatalogs": lambda c: c.rows(described("CommandGetCatalogs")),
    "CommandGetDbSchemas": lambda c: c.rows(described("CommandGetDbSchemas")),
    "CommandGetTables": lambda c: c.rows(described("CommandGetTables", include_schema=True)),
    "CommandGetTableTypes": lambda c: c.rows(described("CommandGetTableTypes")),
    "CommandGetPrimaryKeys": lambda c: c.rows(described("CommandGetPrimaryKeys", table="keyed")),
    "CommandGetExportedKeys": lambda c: c.rows(described("CommandGetExportedKeys", table="target")),
    "CommandGetImportedKeys": lambda c: c.rows(described("CommandGetImportedKeys", table="target")),
    "CommandGetCrossReference": lambda c: c.rows(described("CommandGetCrossReference", pk_table="a", fk_table="b")),
    "CommandGetSqlInfo": lambda c: c.rows(described("CommandGetSqlInfo")),
    "CommandGetXdbcTypeInfo": lambda c: c.rows(described("CommandGetXdbcTypeInfo")),
}
ACTS: Mapping[str, Callable[[Calls], object]] = {
    "CreatePreparedStatement": lambda c: c.prepare("FROM target"),
    "ClosePreparedStatement": lambda c: c.packed(
        "ClosePreparedStatement", prepared_statement_handle=c.prepare("SELECT 1")
    ),
    "BeginTransaction": lambda c: c.packed("EndTransaction", transaction_id=c.begin(), action=2),
    "EndTransaction": lambda c: c.packed("EndTransaction", transaction_id=c.begin(), action=1),
    "CancelQuery": lambda c: c.packed("CancelQuery", info=b""),
    "CancelFlightInfo": lambda c: c.plain("CancelFlightInfo"),
    "SetSessionOptions": lambda c: c.plain("SetSessionOptions"),
    "GetSessionOptions": lambda c: c.plain("GetSessionOptions"),
    "CloseSession": lambda c: c.plain("CloseSession"),
}
EVERY = {**RPCS, **COMMANDS, **ACTS}
WRITES = {
    "do_put",
    "CommandStatementUpdate",
    "CommandPreparedStatementUpdate",
    "CommandStatementIngest",
}
"""The calls that change rows; the others only read."""


def _exchange(calls: Calls) -> object:
    writer, reader = calls.client.do_exchange(path("target"), options=calls.options)
    with writer:
        return reader.read_all()
