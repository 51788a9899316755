"""The calls of Flight and Flight SQL, each by its name: what it needs and what it does.

The tables ``QUERIES``, ``METADATA``, ``PUTS`` and ``ACTIONS`` are all there is; a command that is in none of them is
refused.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import asdict
from typing import Any

import pyarrow as pa
from pyarrow import flight

from quacklake.errors import InputError, UnsupportedFeatureError
from quacklake.extend.names import TableRef
from quacklake.service.appends import GroupCommits
from quacklake.service.flight import appends, metadata, scans
from quacklake.service.flight.appends import Ingestion, Upload
from quacklake.service.flight.callers import COOKIE, Caller, SessionOptions
from quacklake.service.flight.messages import MESSAGES, pack, parse, unpack
from quacklake.service.flight.queries import CATALOG, Queries, snapshot_of
from quacklake.service.flight.server_info import SQL_INFO, TYPE_INFO, server_facts, type_info
from quacklake.service.flight.settings import FlightSettings
from quacklake.service.flight.statements import QUERY, RESULT, Asked, Statements, json_object
from quacklake.service.flight.streams import Held, Slots, Stream, Watch, of_table
from quacklake.service.flight.tickets import Sealer
from quacklake.service.flight.transactions import Transactions
from quacklake.service.idempotency import ForgetKeys
from quacklake.service.identity import Role

PART, ANSWER = "part", "metadata"
_CLOSED, _CANCELLED, _NOT_CANCELLABLE = 1, 1, 3
_INVALID_NAME, _INVALID_VALUE = 1, 2
_COMMIT, _ROLLBACK = 1, 2


class Handlers:
    """Answers calls that were let in."""

    def __init__(self, settings: FlightSettings, options: SessionOptions, commits: GroupCommits) -> None:
        self.settings = settings
        self.commits = commits
        self.options = options
        self.sealer = Sealer(settings.secret, settings.ticket_seconds, settings.size("max_message") * 2)
        self.held = Held(settings.held_seconds)
        self.slots = Slots(settings.max_streams, settings.max_all_streams)
        self.watch = Watch(self._tidy)
        self.queries = Queries(settings, self.slots, self.held, self.watch)
        self.transactions = Transactions(settings, self.queries.sessions, self.watch)
        self.forget = ForgetKeys(settings.key_seconds)
        self.statements = Statements(settings, self.queries, self.transactions, self.held, self.sealer)

    def _tidy(self) -> None:
        self.held.tidy()
        self.transactions.tidy()

    def close(self) -> None:
        """Roll back what is open and close every session."""
        self.watch.close()
        self.held.tidy(everything=True)
        self.transactions.tidy(everything=True)
        self.queries.sessions.close()

    # -- rows ----------------------------------------------------------------------------------------------------------

    def info(self, caller: Caller, context: Any, descriptor: Any) -> flight.FlightInfo:
        """Return where the rows of a descriptor are."""
        ref, snapshot = self._table(caller, descriptor)
        if ref is not None:
            return self._table_info(caller, descriptor, ref, snapshot)
        if _is_json(descriptor):
            asked = self.statements.from_json(caller, descriptor.command)
            return self.statements.info(caller, context, asked, descriptor)
        name, message = self._unpack_command(descriptor)
        if name in QUERIES:
            return self.statements.info(caller, context, QUERIES[name](self, caller, message), descriptor)
        if name in METADATA:
            ticket = self.sealer.seal(ANSWER, caller.owner, lake=caller.lake, asked=descriptor.command)
            return flight.FlightInfo(METADATA[name][0](message), descriptor, [self.statements.endpoint(ticket)])
        raise _unknown(name)

    def schema(self, caller: Caller, context: Any, descriptor: Any) -> pa.Schema:
        """Return the columns of a descriptor."""
        ref, snapshot = self._table(caller, descriptor)
        if ref is not None:
            lake = caller.identity.lake
            found: pa.Schema = (
                (lake if snapshot is None else lake.at(version=snapshot)).table(scans.table_name(ref)).schema
            )
            return found
        if _is_json(descriptor):
            return self._query_schema(caller, context, self.statements.from_json(caller, descriptor.command))
        name, message = self._unpack_command(descriptor)
        if name in QUERIES:
            return self._query_schema(caller, context, QUERIES[name](self, caller, message))
        if name in METADATA:
            return METADATA[name][0](message)
        raise _unknown(name)

    def _query_schema(self, caller: Caller, context: Any, asked: Asked) -> pa.Schema:
        schema = self.queries.schema(caller, context, asked.sql)
        if schema is None:
            raise InputError("the statement is no query")
        return schema

    def _table(self, caller: Caller, descriptor: Any) -> tuple[TableRef | None, int | None]:
        """Return the table that a descriptor names, and its snapshot; None for another descriptor."""
        if descriptor.descriptor_type == flight.DescriptorType.PATH:
            return table_of_path(descriptor.path, caller.schema), None
        if not _is_json(descriptor):
            return None, None
        asked = json_object(descriptor.command, self.settings)
        if "table" not in asked:
            return None, None
        if asked.keys() - {"table", "version", "timestamp"} or not isinstance(asked["table"], str):
            raise InputError("a command for a table is a JSON object with table, and version or timestamp beside it")
        return TableRef.parse(asked["table"]), snapshot_of(caller, asked.get("version"), asked.get("timestamp"))

    def _table_info(self, caller: Caller, descriptor: Any, ref: TableRef, snapshot: int | None) -> flight.FlightInfo:
        schema, parts = scans.parts(caller, self.settings, ref, snapshot)
        tickets = [self.sealer.seal(PART, caller.owner, lake=caller.lake, **asdict(part)) for part in parts]
        # the number of rows is not told: the principal may not see all of them
        return flight.FlightInfo(schema, descriptor, [self.statements.endpoint(ticket) for ticket in tickets])

    def listing(self, caller: Caller, criteria: bytes) -> Iterator[flight.FlightInfo]:
        """Return the tables of the lake, or of the schema that the criteria name."""
        try:
            schema = criteria.decode() or None
        except UnicodeDecodeError:
            raise InputError("the criteria are the name of a schema") from None
        for ref, columns in scans.names(caller, self.settings.max_listed, schema):
            yield flight.FlightInfo(columns, flight.FlightDescriptor.for_path(ref.schema, ref.name), [])

    def rows(self, caller: Caller, context: Any, ticket: bytes) -> Stream:
        """Return the rows of a ticket."""
        facts = self.sealer.open(ticket, caller.owner, PART, QUERY, RESULT, ANSWER)
        if facts["kind"] in (QUERY, RESULT):
            return self.statements.stream(caller, context, facts)
        if facts["lake"] != caller.lake:
            raise InputError("this ticket is for another lake", hint="send the same header database")
        if facts["kind"] == PART:
            return scans.start(caller, self.queries, self.settings, scans.part_of(facts))
        name, message = unpack(facts["asked"])
        return of_table(METADATA[name][1](self, caller, context, message))

    # -- changes -------------------------------------------------------------------------------------------------------

    def put(self, caller: Caller, context: Any, descriptor: Any, reader: Any) -> bytes | None:
        """Take the rows of a client; return the answer."""
        if descriptor.descriptor_type == flight.DescriptorType.PATH:
            ref = table_of_path(descriptor.path, caller.schema)
            caller.identity.require(Role.WRITER)
            release = self.queries.slot(caller)
            try:
                upload = Upload(reader, context, self.settings)
                found = appends.append(caller, upload, Ingestion(ref), self.forget, self.commits)
            finally:
                release()
            return json.dumps(found).encode()
        name, message = self._unpack_command(descriptor)
        if name not in PUTS:
            raise _unknown(name)
        return PUTS[name](self, caller, context, message, reader)

    def update(self, caller: Caller, context: Any, message: Any, reader: Any) -> bytes:
        """Run a statement that changes rows."""
        return _count(self.statements.update(caller, context, self.statements.from_message(caller, message)))

    def update_prepared(self, caller: Caller, context: Any, message: Any, reader: Any) -> bytes:
        """Run a prepared statement once for each row of parameters."""
        asked = self.statements.open(caller, message.prepared_statement_handle)
        bound = self.statements.bound(caller, asked, reader)
        return _count(self.statements.update(caller, context, asked if bound.values is None else bound))

    def bind(self, caller: Caller, context: Any, message: Any, reader: Any) -> bytes:
        """Bind parameters to a prepared query: its new handle has them, so that threads do not disturb each other."""
        asked = self.statements.open(caller, message.prepared_statement_handle)
        handle = self.statements.seal(caller, self.statements.bound(caller, asked, reader))
        made = MESSAGES["DoPutPreparedStatementResult"](prepared_statement_handle=handle)
        return bytes(made.SerializeToString())

    def ingest(self, caller: Caller, context: Any, message: Any, reader: Any) -> bytes:
        """Write rows into a table, which may be made for them."""
        ingestion = appends.ingestion_of(message, caller.schema)
        caller.identity.require(ingestion.role)
        release = self.queries.slot(caller)
        try:
            upload = Upload(reader, context, self.settings)
            if message.HasField("transaction_id") and message.transaction_id:
                with self.transactions.session(caller, context, message.transaction_id) as session:
                    return _count(appends.append_in(session, CATALOG, upload, ingestion))
            return _count(appends.append(caller, upload, ingestion, self.forget, self.commits)["rows"])
        finally:
            release()

    # -- actions -------------------------------------------------------------------------------------------------------

    def act(self, caller: Caller, context: Any, name: str, body: bytes) -> list[bytes]:
        """Run an action; return its results."""
        if name not in ACTIONS:
            raise UnsupportedFeatureError(f"there is no action {name!r:.100}", hint="list_actions tells all")
        if len(body) > self.settings.size("max_message") * 2:
            raise InputError("the body of the action is too long")
        message_name, is_packed, run, _ = ACTIONS[name]
        if is_packed:
            found, message = unpack(body)
            if found != message_name:
                raise InputError(f"the action {name} takes a {message_name}, not a {found}")
        else:
            message = parse(message_name, body)
        return run(self, caller, context, message)

    def create_prepared(self, caller: Caller, context: Any, message: Any) -> list[bytes]:
        """Prepare a statement."""
        asked = self.statements.from_message(caller, message)
        handle, schema, parameters = self.statements.prepare(caller, context, asked)
        return [
            pack(
                "ActionCreatePreparedStatementResult",
                prepared_statement_handle=handle,
                dataset_schema=b"" if schema is None else bytes(schema.serialize()),
                parameter_schema=bytes(parameters.serialize()) if parameters.names else b"",
            )
        ]

    def close_prepared(self, caller: Caller, context: Any, message: Any) -> list[bytes]:
        """Close a prepared statement, of which the server keeps nothing."""
        self.statements.open(caller, message.prepared_statement_handle)
        return []

    def begin(self, caller: Caller, context: Any, message: Any) -> list[bytes]:
        """Begin a transaction."""
        return [pack("ActionBeginTransactionResult", transaction_id=self.transactions.begin(caller))]

    def end(self, caller: Caller, context: Any, message: Any) -> list[bytes]:
        """Commit or roll back a transaction."""
        if message.action not in (_COMMIT, _ROLLBACK):
            raise InputError("a transaction ends by commit or rollback")
        self.transactions.end(caller, message.transaction_id, commit=message.action == _COMMIT)
        return []

    def cancel_query(self, caller: Caller, context: Any, message: Any) -> list[bytes]:
        """Cancel a query, in the older way of the protocol."""
        info = parse("FlightInfo", message.info)
        return [pack("ActionCancelQueryResult", result=self._cancel(caller, info))]

    def cancel_info(self, caller: Caller, context: Any, message: Any) -> list[bytes]:
        """Cancel a query."""
        found = MESSAGES["CancelFlightInfoResult"](status=self._cancel(caller, message.info))
        return [bytes(found.SerializeToString())]

    def _cancel(self, caller: Caller, info: Any) -> int:
        done = [self.statements.cancel(caller, endpoint.ticket.ticket) for endpoint in info.endpoint]
        return _CANCELLED if any(done) else _NOT_CANCELLABLE

    def set_options(self, caller: Caller, context: Any, message: Any) -> list[bytes]:
        """Set the options of a session, whose cookie the answer carries."""
        chosen, errors = self.options.get(caller.owner, caller.cookie), []
        for option in message.session_options:
            problem = self._set(caller, chosen, option)
            if problem:
                errors.append({"key": option.key, "value": {"value": problem}})
        cookie = self.options.put(caller.owner, caller.cookie, chosen)
        context.add_header("set-cookie", f"{COOKIE}={cookie}; HttpOnly")
        return [bytes(MESSAGES["SetSessionOptionsResult"](errors=errors).SerializeToString())]

    def _set(self, caller: Caller, chosen: dict[str, str], option: Any) -> int | None:
        if option.key not in SessionOptions.NAMES:
            return _INVALID_NAME
        value = option.value.string_value if option.value.HasField("string_value") else None
        allowed = [CATALOG] if option.key == "catalog" else caller.identity.lake.schemas()
        if value is not None and value not in allowed:
            return _INVALID_VALUE
        chosen.pop(option.key, None)
        if value is not None:
            chosen[option.key] = value
        return None

    def get_options(self, caller: Caller, context: Any, message: Any) -> list[bytes]:
        """Return the options of a session."""
        found = {"catalog": CATALOG, "schema": caller.schema or "main"}
        options = [{"key": key, "value": {"string_value": value}} for key, value in found.items()]
        return [bytes(MESSAGES["GetSessionOptionsResult"](session_options=options).SerializeToString())]

    def close_session(self, caller: Caller, context: Any, message: Any) -> list[bytes]:
        """Forget the options of a session."""
        self.options.close(caller.owner, caller.cookie)
        return [bytes(MESSAGES["CloseSessionResult"](status=_CLOSED).SerializeToString())]

    # -- metadata ------------------------------------------------------------------------------------------------------

    def tables(self, caller: Caller, context: Any, message: Any) -> pa.Table:
        """Return the tables and views, with their columns on request."""
        if not message.include_schema:
            return metadata.tables(caller, self.settings, message, None)
        with self.queries.session(caller, context, read_only=True) as session:
            return metadata.tables(caller, self.settings, message, session)

    def sql_info(self, caller: Caller, context: Any, message: Any) -> pa.Table:
        """Return facts about the server."""
        read_only = caller.identity.role < Role.WRITER
        return server_facts(self.settings, read_only=read_only, wanted=list(message.info))

    def _unpack_command(self, descriptor: Any) -> tuple[str, Any]:
        if len(descriptor.command) > self.settings.size("max_message") * 2:
            raise InputError("the command is too long")
        return unpack(descriptor.command)


def table_of_path(path: list[bytes], schema: str | None) -> TableRef:
    """Return the table that a path names: ``[schema, table]``, ``[table]`` or ``["schema.table"]``."""
    try:
        names = [part.decode() for part in path]
    except UnicodeDecodeError:
        raise InputError("the path of a table is text") from None
    if len(names) == 2 and all(names):
        return TableRef(*names)
    if len(names) != 1 or not names[0]:
        raise InputError("the path of a table has one or two parts", hint='["schema", "table"] or ["schema.table"]')
    found = TableRef.parse(names[0])
    return TableRef(schema, found.name) if schema is not None and "." not in names[0] else found


def _is_json(descriptor: Any) -> bool:
    return bool(descriptor.command and descriptor.command.lstrip()[:1] == b"{")


def _count(rows: int) -> bytes:
    return bytes(MESSAGES["DoPutUpdateResult"](record_count=rows).SerializeToString())


def _unknown(name: str) -> UnsupportedFeatureError:
    return UnsupportedFeatureError(f"{name} is not answered here")


def _read_optional(message: Any, name: str) -> Any:
    return getattr(message, name) if message.HasField(name) else None


def _no_keys(handlers: Handlers, caller: Caller, context: Any, message: Any) -> pa.Table:
    return metadata.foreign_keys()


def _always(schema: pa.Schema) -> Callable[[Any], pa.Schema]:
    return lambda _: schema


QUERIES: dict[str, Callable[[Handlers, Caller, Any], Asked]] = {
    "CommandStatementQuery": lambda self, caller, m: self.statements.from_message(caller, m),
    "CommandPreparedStatementQuery": lambda self, caller, m: self.statements.open(caller, m.prepared_statement_handle),
}
"""The commands that run a statement for its rows."""

METADATA: dict[str, tuple[Callable[[Any], pa.Schema], Callable[[Handlers, Caller, Any, Any], pa.Table]]] = {
    "CommandGetCatalogs": (_always(metadata.CATALOGS), lambda self, caller, _, m: metadata.catalogs(caller)),
    "CommandGetDbSchemas": (
        _always(metadata.DB_SCHEMAS),
        lambda self, caller, _, m: metadata.db_schemas(
            caller, _read_optional(m, "catalog"), _read_optional(m, "db_schema_filter_pattern")
        ),
    ),
    "CommandGetTables": (
        lambda m: metadata.TABLES_WITH_SCHEMA if m.include_schema else metadata.TABLES,
        Handlers.tables,
    ),
    "CommandGetTableTypes": (_always(metadata.TABLE_TYPES), lambda self, caller, _, m: metadata.table_types(caller)),
    "CommandGetPrimaryKeys": (
        _always(metadata.PRIMARY_KEYS),
        lambda self, caller, _, m: metadata.primary_keys(caller, m),
    ),
    "CommandGetExportedKeys": (_always(metadata.FOREIGN_KEYS), _no_keys),
    "CommandGetImportedKeys": (_always(metadata.FOREIGN_KEYS), _no_keys),
    "CommandGetCrossReference": (_always(metadata.FOREIGN_KEYS), _no_keys),
    "CommandGetSqlInfo": (_always(SQL_INFO), Handlers.sql_info),
    "CommandGetXdbcTypeInfo": (
        _always(TYPE_INFO),
        lambda self, caller, _, m: type_info(_read_optional(m, "data_type")),
    ),
}
"""The commands that ask about the lake: their columns, and how they are answered."""

PUTS: dict[str, Callable[[Handlers, Caller, Any, Any, Any], bytes]] = {
    "CommandStatementUpdate": Handlers.update,
    "CommandPreparedStatementUpdate": Handlers.update_prepared,
    "CommandPreparedStatementQuery": Handlers.bind,
    "CommandStatementIngest": Handlers.ingest,
}
"""The commands with which clients send rows or parameters."""

ACTIONS: dict[str, tuple[str, bool, Callable[[Handlers, Caller, Any, Any], list[bytes]], str]] = {
    "CreatePreparedStatement": (
        "ActionCreatePreparedStatementRequest",
        True,
        Handlers.create_prepared,
        "Prepare a statement",
    ),
    "ClosePreparedStatement": (
        "ActionClosePreparedStatementRequest",
        True,
        Handlers.close_prepared,
        "Close a prepared statement",
    ),
    "BeginTransaction": ("ActionBeginTransactionRequest", True, Handlers.begin, "Begin a transaction"),
    "EndTransaction": ("ActionEndTransactionRequest", True, Handlers.end, "Commit or roll back a transaction"),
    "CancelQuery": ("ActionCancelQueryRequest", True, Handlers.cancel_query, "Cancel a query"),
    "CancelFlightInfo": ("CancelFlightInfoRequest", False, Handlers.cancel_info, "Cancel a query"),
    "SetSessionOptions": ("SetSessionOptionsRequest", False, Handlers.set_options, "Set options of the session"),
    "GetSessionOptions": ("GetSessionOptionsRequest", False, Handlers.get_options, "Return the options of the session"),
    "CloseSession": ("CloseSessionRequest", False, Handlers.close_session, "Close the session"),
}
"""The actions: the message each takes, whether that is packed as ``Any``, how it is run, and what it does."""
