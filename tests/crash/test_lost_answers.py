"""A commit whose answer is lost is made exactly once, or raises ``CommitUnknown``."""

from __future__ import annotations

import itertools
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest
import sqlalchemy as sa

import quacklake
from quacklake import Lake
from quacklake.core import faults
from quacklake.core.catalog import parse_url
from quacklake.errors import CommitUnknown, QuacklakeError
from services import MySQLServer, PostgresServer
from tests.catalog.stock import Stock
from tests.crash.homes import Home, Workshop, look
from tests.crash.operations import OPERATIONS, note
from tests.crash.proxy import Proxy
from tests.seeds import LONG, some
from tests.transaction.waiting import together

pytestmark = pytest.mark.crash

SERVERS = ["postgres", "mysql"]


@contextmanager
def each_time(callback: Callable[[str], None]) -> Iterator[None]:
    """Call back at every fault point."""
    with faults._hooked(callback):
        yield


@contextmanager
def losing(home: Home, how: str, times: int = 1) -> Iterator[tuple[Lake, Proxy]]:
    """A lake behind a proxy that will lose its next commits."""
    url = parse_url(home.url).url
    assert url.port is not None
    with Proxy(url.port) as proxy:
        through = replace(home, url=url.set(port=proxy.port).render_as_string(hide_password=False))
        with through.connect() as lake:
            note(lake, 1)

            def arm(point: str) -> None:
                if point == "catalog.commit.before" and proxy.losses < times:
                    proxy.lose(how)

            with each_time(arm):
                yield lake, proxy


@pytest.mark.parametrize("operation", ["append_few", "append_many", "delete_few"] if LONG else ["append_many"])
@pytest.mark.parametrize("how", ["request", "answer", "late"])
@pytest.mark.parametrize("workshop", SERVERS, indirect=True)
def test_a_commit_is_made_once_when_the_connection_is_lost_during_it(
    workshop: Workshop, operation: str, how: str
) -> None:
    home = workshop.copy()
    with home.connect() as lake:
        before = look(lake).snapshots
    with losing(home, how) as (lake, proxy):
        OPERATIONS[operation].run(lake)
        assert proxy.losses == 1
        note(lake, 2)
    with workshop.copy().connect() as lake:
        OPERATIONS[operation].run(lake)
        expected = look(lake).tables["main.t"]
    with home.connect() as lake:
        found = look(lake)
    assert found.tables["main.t"] == expected
    assert found.snapshots == before + 3
    assert home.referenced() <= home.files()


@pytest.mark.parametrize("how", ["request", "answer", "late"])
@pytest.mark.parametrize("workshop", SERVERS[:1], indirect=True)
def test_a_group_whose_answer_is_lost_is_committed_once(workshop: Workshop, how: str) -> None:
    home = workshop.copy()
    with home.connect() as lake:
        before = look(lake)
    with losing(home, how) as (lake, proxy):
        lost = proxy.losses
        table = lake.table("t")
        given = table.to_arrow().slice(0, 1)
        assert together(lake, [lambda: table.append(given)] * 4) == [1] * 4
        assert proxy.losses == lost + 1
    with home.connect() as lake:
        found = look(lake)
        assert len(found.tables["main.t"]) == len(before.tables["main.t"]) + 4


@pytest.mark.parametrize("workshop", SERVERS[:1], indirect=True)
@pytest.mark.parametrize("how", ["request", "answer"])
def test_a_commit_is_made_once_when_asking_for_it_is_lost_too(workshop: Workshop, how: str) -> None:
    home = workshop.copy()
    with losing(home, how, times=3) as (lake, proxy):
        OPERATIONS["append_many"].run(lake)
        assert proxy.losses == 3
        assert lake.table("t").count("id >= 2000") == 30
    assert home.referenced() <= home.files()


@pytest.mark.parametrize("workshop", SERVERS, indirect=True)
def test_a_database_that_does_not_come_back_makes_the_commit_unknown_and_keeps_its_files(workshop: Workshop) -> None:
    home = workshop.copy()
    with losing(home, "all") as (lake, _), pytest.raises(CommitUnknown):
        OPERATIONS["append_many"].run(lake)
    assert home.referenced() <= home.files()
    with home.connect() as lake:
        assert lake.table("t").count("id >= 2000") == 30


def _cut_postgres(server: PostgresServer, name: str) -> None:
    with server._connect() as connection:
        connection.execute("SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE datname = %s", (name,))


def _cut_mysql(server: MySQLServer, name: str) -> None:
    connection = server._connect()
    try:
        with connection.cursor() as cursor:
            cursor.execute("SELECT id FROM information_schema.processlist WHERE db = %s", (name,))
            for (id_,) in cursor.fetchall():
                cursor.execute(f"KILL {id_}")
    finally:
        connection.close()


@pytest.mark.timeout(1200)
@pytest.mark.parametrize("operation", ["append_many", "transaction"] if LONG else ["append_many"])
@pytest.mark.parametrize("workshop", SERVERS, indirect=True)
def test_connections_cut_at_any_point_never_lose_or_double_a_commit(
    workshop: Workshop, request: pytest.FixtureRequest, operation: str
) -> None:
    server = request.getfixturevalue(f"{workshop.database}_server")
    cut = _cut_postgres if workshop.database == "postgres" else _cut_mysql
    with workshop.copy().connect() as lake:
        old = look(lake)
        with faults.record() as points:
            OPERATIONS[operation].run(lake)
        new = look(lake)
    home = workshop.copy()
    always = [at for at, point in enumerate(points, 1) if "commit" in point]
    for at in some(
        range(1, len(points) + 1), len(always) + 1, "cut connections", workshop.database, operation, always=always
    ):
        point = points[at - 1]
        count = itertools.count(1)

        def strike(_: str, at: int = at, place: Home = home, count: Iterator[int] = count) -> None:
            if next(count) == at:
                cut(server, str(parse_url(place.url).url.database))

        error: QuacklakeError | None = None
        with home.connect() as lake, each_time(strike):
            try:
                OPERATIONS[operation].run(lake)
            except QuacklakeError as caught:
                error = caught
        with home.connect() as lake:
            found = look(lake)
        assert found in (old, new), point
        assert isinstance(error, CommitUnknown) or (found == new) == (error is None), point
        assert home.referenced() <= home.files(), point
        if found == new:
            home = workshop.copy()


@pytest.mark.parametrize("workshop", ["sqlite", "duckdb"], indirect=True)
@pytest.mark.parametrize("committed", [True, False])
def test_a_commit_that_says_nothing_is_looked_up(
    workshop: Workshop, stock: Stock, monkeypatch: pytest.MonkeyPatch, committed: bool
) -> None:
    home = workshop.copy()
    lake = home.connect()
    note(lake, 1)
    real = sa.RootTransaction.commit
    losses = 0

    def commit(transaction: sa.RootTransaction) -> None:
        nonlocal losses
        losses += 1
        if losses == 1 and committed:
            real(transaction)
        if losses == 1:
            error = sqlite3.OperationalError("disk I/O error")
            raise sa.exc.OperationalError("COMMIT", None, error, connection_invalidated=True)
        real(transaction)

    def arm(point: str) -> None:
        if point == "catalog.commit.before":
            monkeypatch.setattr(sa.RootTransaction, "commit", commit)

    with each_time(arm):
        OPERATIONS["append_many"].run(lake)
    monkeypatch.undo()
    assert losses > 1
    assert lake.table("t").count("id >= 2000") == 30
    lake.close()
    assert len(stock.rows(home.url)["main.t"]) == 83 + 30


@pytest.mark.postgres
def test_without_a_place_for_tokens_a_lost_answer_is_unknown(
    postgres_url: str, postgres_server: PostgresServer, stock: Stock, tmp_path: object
) -> None:
    """A lake of stock DuckDB, through a user who may write rows but not make tables."""
    name = postgres_url.rsplit("/", 1)[1]
    stock.run(
        postgres_url,
        "CREATE TABLE t AS SELECT range AS id FROM range(100)",
        options=[f"DATA_PATH '{tmp_path}/'", "DATA_INLINING_ROW_LIMIT 0"],
    )
    role = f"r_{name}"
    url = parse_url(postgres_url).url
    engine = sa.create_engine(url, poolclass=sa.NullPool)
    with engine.begin() as connection:
        connection.exec_driver_sql(f'CREATE ROLE "{role}" LOGIN')
        connection.exec_driver_sql(f'GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO "{role}"')
        connection.exec_driver_sql("REVOKE CREATE ON SCHEMA public FROM PUBLIC")
    home = Home(url.set(username=role).render_as_string(), tmp_path)  # type: ignore[arg-type]
    try:
        with quacklake.connect(home.url, data_inlining_row_limit=0) as lake:
            lake.table("t").append([{"id": 100}])
            assert lake.table("t").count() == 101
        assert "quacklake_commits" not in sa.inspect(engine).get_table_names()
        with Proxy(postgres_server.port) as proxy:
            through = url.set(username=role, port=proxy.port).render_as_string()
            with quacklake.connect(through, data_inlining_row_limit=0) as lake:
                lake.table("t").append([{"id": 101}])

                def arm(point: str) -> None:
                    if point == "catalog.commit.before":
                        proxy.lose("answer")

                with each_time(arm), pytest.raises(CommitUnknown):
                    lake.table("t").append([{"id": 102}])
        with quacklake.connect(home.url) as lake:
            assert lake.table("t").count("id = 102") == 1
            assert sorted(lake.table("t").to_arrow().column("id").to_pylist()) == list(range(103))
    finally:
        with engine.begin() as connection:
            connection.exec_driver_sql(f'DROP OWNED BY "{role}"')
            connection.exec_driver_sql(f'DROP ROLE "{role}"')
