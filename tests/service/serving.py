"""A running service for tests: one for each module that asks for it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import sqlalchemy as sa

import quacklake
from quacklake.core.access import TenantUser
from quacklake.errors import UnauthenticatedError
from quacklake.lake import Lake
from quacklake.service.app import create_app
from quacklake.service.identity import Role, TokenGate
from quacklake.service.serving import BackgroundService
from quacklake.service.settings import ServiceSettings


class OpenLakes:
    """Lakes that are open, as a gate takes the catalogs of a shared one."""

    def __init__(self, lakes: Mapping[str, Lake]) -> None:
        self._lakes = lakes
        self.tokens = self

    def open(self, name: str) -> Lake:
        return self._lakes[name]

    def verify(self, token: str, catalog: str | None = None) -> TenantUser:
        for number, (name, lake) in enumerate(self._lakes.items()):
            if catalog in (None, name):
                with suppress(UnauthenticatedError):
                    return self._user(number, name, lake.access.tokens.verify(token))
        raise UnauthenticatedError

    def find_user(self, name: str, catalog: str | None = None) -> TenantUser:
        for number, (each, lake) in enumerate(self._lakes.items()):
            if catalog in (None, each) and lake.access.is_enabled(name):
                return self._user(number, each, name)
        raise UnauthenticatedError

    def _user(self, number: int, name: str, user: str) -> TenantUser:
        row = self._lakes[name].handle.context.catalog.tenant_row
        return TenantUser(number if row is None else row.id, name, user)


TOKENS = {"reader-token": Role.READER, "writer-token": Role.WRITER, "admin-token": Role.ADMIN}


@dataclass
class Served:
    """A lake, its URL, and a client for each role."""

    lake: Lake
    url: str
    reader: httpx.Client
    writer: httpx.Client
    admin: httpx.Client
    anonymous: httpx.Client

    def rows(self, sql: str, parameters: Any = None, **more: Any) -> list[dict[str, Any]]:
        """Run SQL as a reader, and return the rows."""
        answer = self.reader.post("/api/v1/sql", json={"sql": sql, "parameters": parameters, **more})
        assert answer.status_code == 200, answer.text
        found: list[dict[str, Any]] = answer.json()["rows"]
        return found


def client(url: str, token: str | None) -> httpx.Client:
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    return httpx.Client(base_url=url, headers=headers, timeout=60)


@contextmanager
def served(lake: Lake, **settings: Any) -> Iterator[Served]:
    chosen = ServiceSettings(port=0, **settings)
    with BackgroundService(create_app(TokenGate(lake, TOKENS), chosen), chosen) as url:
        clients = [client(url, f"{role}-token") for role in ("reader", "writer", "admin")] + [client(url, None)]
        try:
            yield Served(lake, url, *clients)
        finally:
            for each in clients:
                each.close()


def sample_lake(folder: Path, url: str | None = None) -> Lake:
    lake = quacklake.connect(url or f"sqlite:///{folder}/lake.db", folder / "data", create=True)
    lake.create_table("t", {"id": "BIGINT", "name": "VARCHAR"})
    lake.table("t").append([{"id": number, "name": f"n{number}"} for number in range(100)])
    lake.table("t").delete("id >= 90")
    return lake


@contextmanager
def away(postgres_url: str) -> Iterator[None]:
    """Let nobody use a database of PostgreSQL for the length of a block."""
    target = sa.make_url(postgres_url)
    name = target.database
    admin = sa.create_engine(
        target.set(drivername="postgresql+psycopg", database="postgres"), isolation_level="AUTOCOMMIT"
    )
    try:
        with admin.connect() as connection:
            connection.exec_driver_sql(f'ALTER DATABASE "{name}" ALLOW_CONNECTIONS false')
            connection.exec_driver_sql(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s", (name,)
            )
            try:
                yield
            finally:
                connection.exec_driver_sql(f'ALTER DATABASE "{name}" ALLOW_CONNECTIONS true')
    finally:
        admin.dispose()


def is_problem(answer: httpx.Response, status: int, code: str) -> dict[str, Any]:
    """Assert that an answer is a problem, and return it."""
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    found: dict[str, Any] = json.loads(answer.content)
    assert (found["code"], found["status"]) == (code, status)
    assert found["request_id"] == answer.headers["x-request-id"]
    return found
