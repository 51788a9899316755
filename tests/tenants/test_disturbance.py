"""Roles of PostgreSQL that keep others from working, or ask the planner about the rows of others."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from dataclasses import dataclass

import psycopg
import pytest

import quacklake
from quacklake.errors import CatalogUnavailableError
from services import PostgresServer

_TIMEOUTS = ("idle_in_transaction_session_timeout", "lock_timeout", "statement_timeout")


@dataclass(frozen=True)
class Place:
    url: str
    tenants: quacklake.Tenants
    role: str

    def as_role(self) -> psycopg.Connection:
        return psycopg.connect(self.url.replace("://quacklake@", f"://{self.role}@"))

    def owner(self) -> psycopg.Connection:
        return psycopg.connect(self.url, autocommit=True)


@pytest.fixture(scope="module")
def place(postgres_server: PostgresServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    role = postgres_server.create_role("disturber")
    with (
        postgres_server.new_database() as url,
        quacklake.tenants(url, tmp_path_factory.mktemp("data")) as tenants,
    ):
        tenants.create_many(["acme", "beta"])
        with tenants.open("beta") as lake:
            for i in range(30):
                lake.create_table(f"t{i}", [{"salary": i}])
        tenants.grant("acme", role)
        tenants.expose("acme", role, writable=True)
        yield Place(url, tenants, role)


@pytest.mark.parametrize(
    "lock",
    [
        "LOCK TABLE public.ducklake_snapshot IN ACCESS EXCLUSIVE MODE",
        "SELECT pg_advisory_xact_lock(1366647139, hashtext('#1'))",  # the queue of its commits
    ],
)
def test_a_commit_that_a_role_keeps_waiting_ends_with_an_error_that_says_to_try_again(place: Place, lock: str) -> None:
    with place.tenants.open("beta", busy_timeout_ms=300, ducklake_max_retry_count=1) as lake, place.as_role() as other:
        table = lake.table("t0")
        table.append([{"salary": 1}])
        other.execute(lock.encode())
        start = time.monotonic()
        with pytest.raises(CatalogUnavailableError, match="locked by another session") as caught:
            table.append([{"salary": 2}])
        assert caught.value.transient
        assert time.monotonic() - start < 20
        other.rollback()
        table.append([{"salary": 3}])


def test_a_role_has_timeouts_unless_it_had_others(place: Place) -> None:
    with place.as_role() as connection:
        found = {name: connection.execute(f"SHOW {name}".encode()).fetchone() for name in _TIMEOUTS}
    assert found == {
        "idle_in_transaction_session_timeout": ("1h",),
        "lock_timeout": ("1min",),
        "statement_timeout": ("10min",),
    }
    with place.owner() as owner:
        owner.execute(f"ALTER ROLE {place.role} SET lock_timeout = '5s'".encode())
        owner.execute(f"ALTER ROLE {place.role} IN DATABASE {owner.info.dbname} RESET lock_timeout".encode())
    place.tenants.grant("acme", place.role)
    with place.as_role() as connection:
        assert connection.execute("SHOW lock_timeout").fetchone() == ("5s",)


@pytest.mark.parametrize("table", ["tenant_0.ducklake_column", "public.ducklake_column"])
def test_the_planner_does_not_tell_a_role_what_others_have(place: Place, table: str) -> None:
    with place.owner() as owner:
        owner.execute("ANALYZE")
        known = owner.execute("SELECT count(*) FROM pg_stats WHERE attname = 'column_name'").fetchone()
    assert known == (0,)
    with place.as_role() as connection:
        estimates = set()
        for name in ("salary", "nobody has this"):
            plan = connection.execute(f"EXPLAIN SELECT 1 FROM {table} WHERE column_name = '{name}'".encode()).fetchall()
            estimates.add(tuple(re.findall(r"rows=(\d+)", str(plan))))
    assert len(estimates) == 1
