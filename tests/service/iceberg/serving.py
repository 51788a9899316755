"""The Iceberg catalog on a loopback port, and the readers that tests let loose on it."""

from __future__ import annotations

import datetime as dt
import hashlib
import threading
import time
import uuid
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import duckdb
import pyarrow as pa
import uvicorn
from fastapi import FastAPI
from pyiceberg.catalog import Catalog, load_catalog

from quacklake import Lake
from quacklake.errors import NotFoundError, UnauthenticatedError
from quacklake.service.iceberg import IcebergSettings, iceberg_router
from quacklake.service.identity import Identity, Role
from tests.duckdbs import import_extension

__all__ = ["TOKEN", "Lakes", "Service", "checksum", "duckdb_reader", "pyiceberg_reader", "rows_of", "served"]

TOKEN = "secret-token"


class Lakes:
    """A gate to any number of lakes by name, with one token for all."""

    def __init__(self) -> None:
        self.lakes: dict[str, Lake] = {}

    def enter(self, token: str | None, lake: str | None = None) -> Identity:
        if token != TOKEN:
            raise UnauthenticatedError
        known = self.lakes.get(lake) if lake is not None else next(iter(self.lakes.values()), None)
        if known is None:
            raise NotFoundError("there is no such lake")
        return Identity("tester", Role.READER, known)

    def close(self) -> None:
        self.lakes.clear()


class Service:
    """A running server; ``url`` is what clients are given."""

    def __init__(self, gate: Lakes, url: str) -> None:
        self.gate = gate
        self.url = url
        self._duckdb: duckdb.DuckDBPyConnection | None = None

    def duckdb(self) -> duckdb.DuckDBPyConnection:
        """A DuckDB with the extension and the token, once: loading it takes longer than most tests."""
        if self._duckdb is None:
            with ExitStack() as stack:  # a test that is skipped here leaves none behind for the next
                made = stack.enter_context(duckdb.connect(config={"threads": 1}))
                for extension in ("avro", "iceberg"):  # in this order
                    import_extension(extension, con=made)
                    made.execute(f"LOAD {extension}")
                made.execute("SET timezone = 'UTC'")
                made.execute(f"CREATE SECRET (TYPE iceberg, TOKEN '{TOKEN}')")
                stack.pop_all()
                self._duckdb = made
        return self._duckdb

    def close(self) -> None:
        if self._duckdb is not None:
            self._duckdb.close()

    def add(self, lake: Lake, name: str | None = None) -> str:
        """Serve a lake under a name of its own, which is returned."""
        name = name or f"lake-{uuid.uuid4().hex[:8]}"
        self.gate.lakes[name] = lake
        return name


@contextmanager
def served(settings: IcebergSettings | None = None) -> Iterator[Service]:
    """Run the catalog in a thread."""
    gate, app = Lakes(), FastAPI()
    app.include_router(iceberg_router(gate, settings), prefix="/iceberg")
    server = uvicorn.Server(uvicorn.Config(app, host="127.0.0.1", port=0, log_level="error", lifespan="off"))
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        while not server.started:
            assert thread.is_alive()
            time.sleep(0.005)
        port = server.servers[0].sockets[0].getsockname()[1]
        service = Service(gate, f"http://127.0.0.1:{port}/iceberg")
        yield service
        service.close()
    finally:
        server.should_exit = True
        thread.join()


def pyiceberg_reader(service: Service, name: str, **properties: str) -> Catalog:
    return load_catalog(name, **{"type": "rest", "uri": service.url, "warehouse": name, "token": TOKEN, **properties})


@contextmanager
def duckdb_reader(service: Service, name: str) -> Iterator[duckdb.DuckDBPyConnection]:
    """A connection with the lake attached as ``ice``."""
    connection = service.duckdb()
    connection.execute(f"ATTACH '{name}' AS ice (TYPE iceberg, ENDPOINT '{service.url}', DEFAULT_SCHEMA 'main')")
    try:
        yield connection
    finally:
        connection.execute("DETACH ice")


def _plain(value: Any) -> Any:
    """A value as every reader gives it."""
    if isinstance(value, uuid.UUID):
        return str(value)
    if isinstance(value, dt.datetime) and value.tzinfo is not None:
        return value.astimezone(dt.UTC).isoformat()
    if isinstance(value, dict):
        return tuple((key, _plain(item)) for key, item in value.items())
    if isinstance(value, list | tuple):
        return tuple(map(_plain, value))
    if isinstance(value, bytearray):
        return bytes(value)
    return value


def rows_of(table: pa.Table | Iterable[Sequence[Any]]) -> list[str]:
    """The rows as texts in order: equal for equal rows."""
    rows = zip(*(column.to_pylist() for column in table.columns), strict=True) if isinstance(table, pa.Table) else table
    return sorted(repr(tuple(map(_plain, row))) for row in rows)


def checksum(table: pa.Table | Iterable[Sequence[Any]]) -> str:
    return hashlib.sha256("\n".join(rows_of(table)).encode()).hexdigest()
