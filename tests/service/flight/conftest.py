"""One Flight server for the tests of a module, and its clients: pyarrow.flight and ADBC."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import adbc_driver_flightsql.dbapi as dbapi
import pyarrow as pa
import pytest
from pyarrow import flight

import quacklake
from quacklake.service.flight import FlightService, FlightSettings
from quacklake.service.identity import Role, TokenGate

READER, OTHER, WRITER, ADMIN = "reader-1", "reader-2", "writer-1", "admin-1"
TOKENS = {READER: Role.READER, OTHER: Role.READER, WRITER: Role.WRITER, ADMIN: Role.ADMIN}
SECRET = b"a secret of the tests alone"


def options(token: str | None, **headers: str) -> flight.FlightCallOptions:
    """Return the options of a call: its token and other headers."""
    given = {name.replace("_", "-"): value for name, value in headers.items()}
    if token is not None:
        given["authorization"] = f"Bearer {token}"
    return flight.FlightCallOptions(
        timeout=60, headers=[(name.encode(), value.encode()) for name, value in given.items()]
    )


def command(sql: str, **more: Any) -> flight.FlightDescriptor:
    """Return the descriptor of a statement."""
    return flight.FlightDescriptor.for_command(json.dumps({"sql": sql, **more}))


def path(*parts: str) -> flight.FlightDescriptor:
    """Return the descriptor of a table."""
    return flight.FlightDescriptor.for_path(*parts)


@dataclass
class Served:
    """A lake and the server in front of it."""

    lake: quacklake.Lake
    service: FlightService
    home: Path

    def client(self) -> flight.FlightClient:
        return flight.connect(self.service.location)

    def info(self, descriptor: flight.FlightDescriptor, token: str = READER, **headers: str) -> flight.FlightInfo:
        with self.client() as client:
            return client.get_flight_info(descriptor, options=options(token, **headers))

    def parts(self, info: flight.FlightInfo, token: str = READER, **headers: str) -> list[pa.Table]:
        with self.client() as client:
            chosen = options(token, **headers)
            return [client.do_get(endpoint.ticket, options=chosen).read_all() for endpoint in info.endpoints]

    def read(self, descriptor: flight.FlightDescriptor, token: str = READER, **headers: str) -> pa.Table:
        return pa.concat_tables(self.parts(self.info(descriptor, token, **headers), token, **headers))

    def sql(self, text: str, token: str = READER, **more: Any) -> pa.Table:
        return self.read(command(text, **more), token)

    def put(
        self,
        table: str,
        batches: Sequence[pa.RecordBatch],
        token: str = WRITER,
        schema: pa.Schema | None = None,
        metadata: bytes | None = None,
        **headers: str,
    ) -> dict[str, Any]:
        """Append batches and return the answer."""
        with self.client() as client:
            schema = batches[0].schema if schema is None else schema
            writer, reader = client.do_put(path("main", table), schema, options=options(token, **headers))
            with writer:
                for number, batch in enumerate(batches):
                    if metadata is not None and number == 0:
                        writer.write_with_metadata(batch, metadata)
                    else:
                        writer.write_batch(batch)
                writer.done_writing()
                answer = reader.read()
            return dict(json.loads(answer.to_pybytes()))

    def adbc(self, token: str = WRITER, *, autocommit: bool = True, **headers: str) -> dbapi.Connection:
        kwargs = {"adbc.flight.sql.authorization_header": f"Bearer {token}"}
        kwargs |= {f"adbc.flight.sql.rpc.call_header.{name}": value for name, value in headers.items()}
        return dbapi.connect(self.service.location, db_kwargs=kwargs, autocommit=autocommit)


def serve(home: Path, **settings: Any) -> Served:
    """Make a lake and start a server for it; the caller ends it."""
    lake = quacklake.connect(f"sqlite:///{home}/lake.db", data_path=home / "files", data_inlining_row_limit=5)
    service = FlightService(TokenGate(lake, TOKENS), FlightSettings(secret=SECRET, **settings))
    return Served(lake, service.serve(), home)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A server whose tables have an endpoint for almost each file."""
    found = serve(tmp_path_factory.mktemp("flight"), endpoint_bytes=1, max_endpoints=4, grace_seconds=5.0)
    with found.lake:
        yield found
        assert found.service.shutdown()
        assert found.service.handlers.slots.taken == 0
