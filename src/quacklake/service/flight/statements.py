"""Statements of clients: run for their rows or for their changes, prepared, and bound to values."""

from __future__ import annotations

import datetime as dt
import json
import secrets
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from typing import Any

import pyarrow as pa
from pyarrow import flight

from quacklake import Session
from quacklake.dbapi.bulk_inserts import bulk_insert
from quacklake.errors import CancelledError, InputError, UnsupportedFeatureError
from quacklake.service.expansion import plain_batch, plain_schema, unpacked_size
from quacklake.service.flight.appends import read_chunk
from quacklake.service.flight.callers import Caller
from quacklake.service.flight.parameters import parameters_of, rows_of, schema_of
from quacklake.service.flight.queries import Answer, Parameters, Queries, Statement, run_one, snapshot_of
from quacklake.service.flight.settings import FlightSettings
from quacklake.service.flight.streams import Held, Stream, of_table
from quacklake.service.flight.tickets import Sealer
from quacklake.service.flight.transactions import Transactions
from quacklake.service.identity import Role

#: The kinds of sealed texts.
QUERY, RESULT, PREPARED, TRANSACTION = "query", "result", "prepared statement", "transaction"

_COUNT = "Count"
"""The only column of the answer of a statement that changes rows and returns none."""


@dataclass(frozen=True)
class Asked:
    """A statement as a client asks for it: with its transaction, or the snapshot that it names."""

    sql: str
    transaction: bytes | None = None
    values: bytes | None = None
    """The parameters as an Arrow IPC stream."""
    parameters: Any = None
    """The parameters as JSON has them."""
    snapshot: int | None = None
    lake: str = ""
    """The lake among all lakes; see ``Caller``."""
    schema: str | None = None
    is_prepared: bool = False

    def rows(self) -> Sequence[Parameters]:
        """Return each set of parameters; one without values where there is none."""
        if self.values is None:
            return [self.parameters]
        return rows_of(self.sql, pa.ipc.open_stream(self.values).read_all())


class Statements:
    """Runs what clients ask for, and makes and opens the tickets of it."""

    def __init__(
        self, settings: FlightSettings, queries: Queries, transactions: Transactions, held: Held, sealer: Sealer
    ) -> None:
        self._settings = settings
        self._queries = queries
        self._transactions = transactions
        self._held = held
        self._sealer = sealer

    # -- what is asked -------------------------------------------------------------------------------------------------

    def from_json(self, caller: Caller, text: bytes) -> Asked:
        """Return the statement of a JSON command. Raise ``InputError``."""
        asked = json_object(text, self._settings)
        sql, parameters = asked.get("sql"), asked.get("parameters")
        unknown = asked.keys() - {"sql", "parameters", "version", "timestamp"}
        if not isinstance(sql, str) or unknown or not isinstance(parameters, list | dict | None):
            raise InputError(
                "a command is a JSON object with sql, and parameters, version or timestamp beside it",
                hint='{"sql": "SELECT * FROM t WHERE id = ?", "parameters": [1]}',
            )
        snapshot = snapshot_of(caller, asked.get("version"), asked.get("timestamp"))
        return Asked(sql, parameters=parameters, snapshot=snapshot, lake=caller.lake, schema=caller.schema)

    def from_message(self, caller: Caller, message: Any) -> Asked:
        """Return the statement of a message that has a query and may have a transaction."""
        transaction = message.transaction_id if message.HasField("transaction_id") and message.transaction_id else None
        return Asked(message.query, transaction, lake=caller.lake, schema=caller.schema)

    def seal(self, caller: Caller, asked: Asked) -> bytes:
        """Return the handle of a prepared statement."""
        return self._sealer.seal(PREPARED, caller.owner, **_facts(asked))

    def open(self, caller: Caller, handle: bytes) -> Asked:
        """Return the statement of a handle. Raise ``InputError`` or ``NotPermittedError``."""
        return replace(_parse_asked(caller, self._sealer.open(handle, caller.owner, PREPARED)), is_prepared=True)

    def bound(self, caller: Caller, asked: Asked, reader: Any) -> Asked:
        """Return a statement with the parameters that a client sends."""
        return replace(asked, values=self._values(reader))

    def _values(self, reader: Any) -> bytes | None:
        """Return parameters as an Arrow IPC stream; None where no column came."""
        most, size, count = self._settings.size("max_message"), 0, 0
        batches: list[pa.RecordBatch] = []
        schema = plain_schema(reader.schema)
        while True:
            try:
                batch = read_chunk(reader).data
            except StopIteration:
                break
            if batch is None:
                continue
            batch.validate(full=True)  # offsets that point elsewhere would show the memory of the service
            size, count = size + sum(map(unpacked_size, batch.columns)), count + batch.num_rows
            if size > most or count > self._settings.max_parameter_rows:
                raise InputError(
                    f"the parameters have more than {self._settings.max_parameter_rows} rows or {most} bytes",
                    hint="ingest many rows in bulk",
                )
            batches.append(plain_batch(batch, schema))
        if not schema.names:
            return None
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, schema) as writer:
            for batch in batches:
                writer.write_batch(batch)
        return bytes(sink.getvalue())

    # -- rows ----------------------------------------------------------------------------------------------------------

    def info(self, caller: Caller, context: Any, asked: Asked, descriptor: Any) -> flight.FlightInfo:
        """Run a statement and return the ticket of its rows.

        The result waits a while for the reader. Later, the ticket runs a query again, at the same snapshot, where only
        reading is allowed. The ticket of a statement that has changed rows holds their number. A prepared query that
        is slow stops, and runs when its ticket is used.
        """
        number = secrets.token_hex(16)
        slow = threading.Event()
        try:
            with self._prompt(asked, number, slow):
                answer = self._run(caller, context, asked, number)
        except CancelledError:
            found = self._columns(caller, context, asked) if slow.is_set() else None
            if found is not None:
                schema, snapshot = found
                facts = _facts(replace(asked, snapshot=snapshot))
                ticket = self._sealer.seal(QUERY, caller.owner, number=number, **facts)
                return flight.FlightInfo(schema, descriptor, [self.endpoint(ticket)], ordered=True)
            if not slow.is_set():
                raise
            answer = self._run(caller, context, asked)
        try:
            if answer.changed >= 0 and answer.stream.schema.names == [_COUNT]:
                table = pa.Table.from_batches(list(answer.stream.batches), answer.stream.schema)
                ticket = self._sealer.seal(RESULT, caller.owner, rows=_ipc(table))
                answer.stream.close()
            else:
                facts = _facts(replace(asked, snapshot=answer.snapshot))
                ticket = self._sealer.seal(QUERY, caller.owner, number=number, **facts)
                self._held.put(number, caller.identity, answer.stream)
        except BaseException:
            answer.stream.close()
            raise
        return flight.FlightInfo(answer.stream.schema, descriptor, [self.endpoint(ticket)], ordered=True)

    @contextmanager
    def _prompt(self, asked: Asked, number: str, slow: threading.Event) -> Iterator[None]:
        """Cancel a prepared query that does not begin to answer soon, and say so."""
        if not asked.is_prepared or asked.transaction is not None or not Session.is_query(asked.sql):
            yield
            return

        def stop() -> None:
            slow.set()
            self._held.cancel(number)

        timer = threading.Timer(self._settings.prompt_seconds, stop)
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()

    def endpoint(self, ticket: bytes) -> flight.FlightEndpoint:
        """Return the endpoint of a ticket: this server, and until when."""
        until = dt.datetime.now(dt.UTC) + dt.timedelta(seconds=self._settings.ticket_seconds)
        return flight.FlightEndpoint(ticket, [], pa.scalar(until, pa.timestamp("ns", "UTC")))

    def _run(self, caller: Caller, context: Any, asked: Asked, number: str | None = None) -> Answer:
        chosen, statement = _choose_schema(caller, asked)
        if asked.transaction is not None:
            return self._transactions.run(chosen, context, asked.transaction, statement)
        return self._queries.run(chosen, context, statement, number)

    def _columns(self, caller: Caller, context: Any, asked: Asked) -> tuple[pa.Schema, int] | None:
        chosen, statement = _choose_schema(caller, asked)
        return self._queries.columns(chosen, context, statement)

    def stream(self, caller: Caller, context: Any, ticket: dict[str, Any]) -> Stream:
        """Return the rows of a ticket."""
        if ticket["kind"] == RESULT:
            return of_table(pa.ipc.open_stream(ticket["rows"]).read_all())
        asked = _parse_asked(caller, ticket)
        waiting = self._held.take(ticket["number"], caller.identity)
        if waiting is not None:
            return waiting
        if asked.transaction is not None:
            raise InputError("the result has been read already, or waited too long", hint="run the statement again")
        number = ticket["number"]
        return self._held.reading(number, self._run(caller, context, asked, number).stream)

    def cancel(self, caller: Caller, ticket: bytes) -> bool:
        """Stop the statement of a ticket; return False if nothing runs."""
        facts = self._sealer.open(ticket, caller.owner, QUERY, RESULT, "part", "metadata")
        return facts["kind"] == QUERY and self._held.cancel(facts["number"])

    # -- changes -------------------------------------------------------------------------------------------------------

    def update(self, caller: Caller, context: Any, asked: Asked) -> int:
        """Run a statement once for each row of parameters, all or none; return the rows that it changed, or -1."""
        chosen, rows = replace(caller, schema=asked.schema), asked.rows()
        if asked.transaction is not None:
            with self._transactions.session(chosen, context, asked.transaction) as session:
                return _run_each(session, asked.sql, rows)
        with self._queries.session(chosen, context, read_only=caller.identity.role < Role.WRITER) as session:
            if len(rows) == 1:
                return run_one(session, asked.sql, rows[0]).rowcount
            session.sql("BEGIN")
            count = _run_each(session, asked.sql, rows)
            session.sql("COMMIT")
            return count

    def prepare(self, caller: Caller, context: Any, asked: Asked) -> tuple[bytes, pa.Schema | None, pa.Schema]:
        """Return the handle of a statement, the columns of its rows if it has any, and its parameters."""
        chosen = replace(caller, schema=asked.schema)
        types = self._queries.parameter_types(chosen, context, asked.sql)
        schema = None
        if asked.transaction is None:  # else it may read and change what its transaction has made
            schema = self._queries.schema(chosen, context, asked.sql, types)
            asked = replace(asked, sql=self._queries.with_columns(chosen, context, asked.sql))
        return self.seal(caller, asked), schema, schema_of(asked.sql, types)


def _choose_schema(caller: Caller, asked: Asked) -> tuple[Caller, Statement]:
    """Return the caller in the schema of a statement, and the statement with its values."""
    rows = asked.rows()
    if len(rows) != 1:
        raise UnsupportedFeatureError("a query takes one row of parameters")
    return replace(caller, schema=asked.schema), Statement(asked.sql, rows[0], asked.snapshot)


def _run_each(session: Session, sql: str, rows: Sequence[Parameters]) -> int:
    """Run a statement for each row of parameters: an INSERT of single rows at once. Return the rows that it changed."""
    bulk = bulk_insert(sql) if len(rows) > 1 else None
    if bulk is not None:
        names = parameters_of(sql)
        columns = bulk.columns([[row[name] for name in names] for row in rows if isinstance(row, Mapping)])
        if columns is not None:
            return run_one(session, bulk.from_lists(), columns).rowcount
    counts = [run_one(session, sql, row).rowcount for row in rows]
    known = [count for count in counts if count >= 0]
    return sum(known) if known or not counts else -1


def _facts(asked: Asked) -> dict[str, Any]:
    return {name: value for name, value in asdict(asked).items() if value is not None}


def _parse_asked(caller: Caller, facts: dict[str, Any]) -> Asked:
    asked = Asked(**{name: facts[name] for name in Asked.__dataclass_fields__ if name in facts})
    if asked.lake != caller.lake:
        raise InputError("this ticket is for another lake", hint="send the same header database")
    return asked


def _ipc(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())


def json_object(text: bytes, settings: FlightSettings) -> dict[str, Any]:
    """Return a JSON object. Raise ``InputError``."""
    if len(text) > settings.size("max_message"):
        raise InputError("the command is too long")
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise InputError("the command is neither a message of Flight SQL nor a JSON object")
    return found
