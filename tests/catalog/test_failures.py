"""The errors of each database, and what the catalog makes of them."""

from __future__ import annotations

import errno
import os
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import duckdb
import pytest
import sqlalchemy as sa

import quacklake
from quacklake import Lake
from quacklake.core import faults
from quacklake.core.catalog import parse_url
from quacklake.core.catalog.databases.connections import Collision
from quacklake.core.catalog.databases.database import Failure
from quacklake.errors import (
    CatalogError,
    CatalogUnavailableError,
    NotFoundError,
    QuacklakeError,
    ReadOnlyError,
    UnsupportedVersionError,
)
from services import PostgresServer
from tests.catalog.stock import Stock
from tests.layout import inlined_rows, new_row

pytestmark = pytest.mark.daily(0.5)

NewUrl = Callable[[str], str]
POSTGRES = "postgres"
MYSQL = "mysql"


@contextmanager
def new_lake(url: str, tmp_path: Path) -> Iterator[Lake]:
    with quacklake.connect(url, data_path=tmp_path / "data") as lake:
        lake.create_table("t", [{"x": 1}])
        yield lake


@contextmanager
def writing(lake: Lake) -> Iterator[sa.Connection]:
    """A transaction that may change the metadata, for damage by hand."""
    catalog = lake._context.catalog
    with catalog._engine.connect() as connection, catalog.backend.begin_commit(connection).begin():
        yield connection


def classify(lake: Lake, statement: str) -> Failure:
    """Return the kind of failure that the catalog sees in the error of a statement."""
    catalog = lake._context.catalog
    with catalog._engine.connect() as connection, pytest.raises(sa.exc.DBAPIError) as caught:
        catalog.backend.begin_commit(connection).exec_driver_sql(statement)
    assert caught.value.orig is not None
    return catalog.backend.classify(caught.value.orig)


@pytest.mark.parametrize("database", ["sqlite", "duckdb", POSTGRES, MYSQL])
def test_f9_1_a_snapshot_id_that_is_taken_is_a_collision(database: str, new_url: NewUrl, tmp_path: Path) -> None:
    with new_lake(new_url(database), tmp_path) as lake:
        found = classify(lake, new_row("ducklake_snapshot", snapshot_id=0))
    assert found is Failure.COLLISION


@pytest.mark.parametrize("database", ["duckdb", POSTGRES, MYSQL])
def test_a_table_that_is_not_there_is_absent(database: str, new_url: NewUrl, tmp_path: Path) -> None:
    with new_lake(new_url(database), tmp_path) as lake:
        assert classify(lake, "SELECT * FROM nowhere") is Failure.ABSENT


@pytest.mark.parametrize("database", ["sqlite", "duckdb", POSTGRES, MYSQL])
def test_nonsense_is_something_else(database: str, new_url: NewUrl, tmp_path: Path) -> None:
    with new_lake(new_url(database), tmp_path) as lake:
        assert classify(lake, "SELEKT 1") is Failure.OTHER


@pytest.mark.parametrize("database", [POSTGRES, MYSQL])
def test_a_connection_that_was_cut_is_unavailable(database: str, new_url: NewUrl, tmp_path: Path) -> None:
    with new_lake(new_url(database), tmp_path) as lake:
        kill = "SELECT pg_terminate_backend(pg_backend_pid())" if database == "postgres" else "KILL CONNECTION_ID()"
        catalog = lake._context.catalog
        with catalog._engine.connect() as connection, pytest.raises(sa.exc.DBAPIError) as caught:
            connection.exec_driver_sql(kill)
            connection.exec_driver_sql("SELECT 1")
        assert caught.value.orig is not None
        known = catalog.backend.classify(caught.value.orig)
        assert known is Failure.UNAVAILABLE or caught.value.connection_invalidated
        assert lake.table("t").count() == 1


@pytest.mark.postgres
def test_deadlocks_timeouts_and_serialization_failures_of_postgres_can_be_tried_again(
    postgres_url: str, tmp_path: Path
) -> None:
    with new_lake(postgres_url, tmp_path) as lake:
        raised = "DO $$ BEGIN RAISE EXCEPTION 'x' USING ERRCODE = '{}'; END $$"
        for state in ("40001", "40P01", "23505"):
            assert classify(lake, raised.format(state)) is Failure.COLLISION
        for state in ("55P03", "57P01", "57014", "53300", "08006"):
            assert classify(lake, raised.format(state)) is Failure.UNAVAILABLE
        assert classify(lake, raised.format("53100")) is Failure.FULL
        for state in ("42501", "25006"):
            assert classify(lake, raised.format(state)) is Failure.FORBIDDEN
        for state in ("22012", "XX000"):
            assert classify(lake, raised.format(state)) is Failure.OTHER


@pytest.mark.parametrize("reason", [errno.ENOSPC, errno.EDQUOT, errno.EFBIG])
def test_a_full_disk_under_a_duckdb_file_is_no_lost_race(tmp_path: Path, reason: int) -> None:
    with new_lake(f"duckdb:///{tmp_path}/lake.db", tmp_path) as lake:
        error = duckdb.TransactionException(f'Failed to commit: Could not write file "x": {os.strerror(reason)}')
        assert lake._context.catalog.backend.classify(error) is Failure.FULL


@pytest.mark.mysql
def test_deadlocks_and_timeouts_of_mysql_can_be_tried_again(mysql_url: str, tmp_path: Path) -> None:
    with new_lake(mysql_url, tmp_path) as lake:
        signal = "SIGNAL SQLSTATE '45000' SET MYSQL_ERRNO = {}, MESSAGE_TEXT = 'x'"
        for number in (1213, 1062):
            assert classify(lake, signal.format(number)) is Failure.COLLISION
        for number in (1205, 1040):
            assert classify(lake, signal.format(number)) is Failure.UNAVAILABLE
        for number in (1021, 1114):
            assert classify(lake, signal.format(number)) is Failure.FULL
        for number in (1142, 1290, 1044):
            assert classify(lake, signal.format(number)) is Failure.FORBIDDEN
        assert classify(lake, signal.format(1690)) is Failure.OTHER


def test_a_locked_sqlite_file_is_unavailable_and_usable_again_afterwards(tmp_path: Path) -> None:
    path = tmp_path / "lake.db"
    with new_lake(f"sqlite:///{path}", tmp_path):
        pass
    settings: dict[str, Any] = {"busy_timeout_ms": 50, "ducklake_max_retry_count": 1}
    with quacklake.connect(f"sqlite:///{path}", **settings) as lake:
        other = sqlite3.connect(path)
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(CatalogUnavailableError) as caught:
            lake.table("t").append([{"x": 2}])
        assert caught.value.transient
        assert lake.table("t").count() == 1  # reading goes on
        other.rollback()
        other.close()
        lake.table("t").append([{"x": 2}])
        assert lake.table("t").count() == 2


def test_a_sqlite_file_that_somebody_else_reads_cannot_be_committed_to(tmp_path: Path, stock: Stock) -> None:
    path = tmp_path / "lake.db"
    stock.run(f"sqlite:///{path}", "CREATE TABLE t (x BIGINT)", options=[f"DATA_PATH '{tmp_path / 'data'}/'"])
    other = sqlite3.connect(path)
    other.execute("BEGIN EXCLUSIVE")
    settings: dict[str, Any] = {"busy_timeout_ms": 50, "ducklake_max_retry_count": 1}
    with pytest.raises(CatalogUnavailableError):
        quacklake.connect(f"sqlite:///{path}", **settings).table("t").append([{"x": 1}])
    other.rollback()
    other.execute("BEGIN")
    other.execute("SELECT * FROM ducklake_snapshot").fetchall()
    with quacklake.connect(f"sqlite:///{path}", **settings) as lake:
        with pytest.raises(CatalogUnavailableError):
            lake.table("t").append([{"x": 1}])
        other.rollback()
        other.close()
        lake.table("t").append([{"x": 1}])
    assert stock.rows(f"sqlite:///{path}") == {"main.t": [(1,)]}


def test_a_file_that_is_no_database_is_a_catalog_error(tmp_path: Path) -> None:
    path = tmp_path / "lake.db"
    path.write_bytes(b"this is not a database, though it is long enough to be one" * 100)
    for database in ("sqlite", "duckdb"):
        with pytest.raises(CatalogError):
            quacklake.connect(f"{database}:///{path}", data_path=tmp_path / "data")


def test_a_file_that_is_not_there_is_not_found_unless_it_may_be_made(tmp_path: Path) -> None:
    for database in ("sqlite", "duckdb"):
        url = f"{database}:///{tmp_path / 'no.db'}"
        with pytest.raises(NotFoundError):
            quacklake.connect(url, create=False)
        assert not (tmp_path / "no.db").exists()


@pytest.mark.parametrize("database", ["sqlite", "duckdb", POSTGRES])
def test_an_unknown_version_is_refused(database: str, new_url: NewUrl, tmp_path: Path) -> None:
    url = new_url(database)
    with new_lake(url, tmp_path) as lake, writing(lake) as connection:
        connection.exec_driver_sql("UPDATE ducklake_metadata SET value = '7.3' WHERE key = 'version'")
    with pytest.raises(UnsupportedVersionError, match=r"7\.3"):
        quacklake.connect(url)


@pytest.mark.postgres
def test_a_connection_lost_while_inlined_rows_are_read_is_an_error_of_ours(
    postgres_url: str, postgres_server: PostgresServer, tmp_path: Path
) -> None:
    name = parse_url(postgres_url).url.database
    with new_lake(postgres_url, tmp_path) as lake:

        def cut(point: str) -> None:
            if point == "catalog.inlined_rows.before":
                with postgres_server._connect() as connection:
                    connection.execute(
                        "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE datname = %s", (name,)
                    )

        with faults._hooked(cut), pytest.raises(CatalogUnavailableError):
            lake.table("t").to_arrow()
        assert lake.table("t").to_pylist() == [{"x": 1}]


@pytest.mark.parametrize("database", ["sqlite", "duckdb", POSTGRES, MYSQL])
def test_metadata_that_is_damaged_is_an_error_of_ours(database: str, new_url: NewUrl, tmp_path: Path) -> None:
    with new_lake(new_url(database), tmp_path) as lake:
        with writing(lake) as connection:
            connection.exec_driver_sql(f"DROP TABLE {inlined_rows(1, 1)[0]}")
        with pytest.raises(QuacklakeError):
            lake.table("t").to_arrow()
        with pytest.raises(QuacklakeError):
            lake.table("t").delete("x = 1")


# -- rights -------------------------------------------------------------------------------------------------------------


def test_a_read_only_file_can_be_read_and_not_written(tmp_path: Path) -> None:
    path = tmp_path / "lake.db"
    with new_lake(f"sqlite:///{path}", tmp_path):
        pass
    with quacklake.connect(f"sqlite:///{path}", read_only=True) as lake:
        assert lake.table("t").to_pylist() == [{"x": 1}]
        with pytest.raises(ReadOnlyError):
            lake.table("t").append([{"x": 2}])
        with pytest.raises(ReadOnlyError):
            lake.create_schema("s")


@contextmanager
def role(url: str, *rights: str) -> Iterator[str]:
    """The URL for a new role of a PostgreSQL database with only these rights."""
    parsed = parse_url(url).url
    name = f"r_{parsed.database}"
    engine = sa.create_engine(parsed, poolclass=sa.NullPool)
    with engine.begin() as connection:
        connection.exec_driver_sql(f'CREATE ROLE "{name}" LOGIN')
        connection.exec_driver_sql("REVOKE CREATE ON SCHEMA public FROM PUBLIC")
        for right in rights:
            connection.exec_driver_sql(f'GRANT {right} TO "{name}"')
    try:
        yield parsed.set(username=name).render_as_string()
    finally:
        with engine.begin() as connection:
            connection.exec_driver_sql(f'DROP OWNED BY "{name}"')
            connection.exec_driver_sql(f'DROP ROLE "{name}"')


@pytest.mark.postgres
def test_a_role_that_may_only_select_reads_everything_and_writes_nothing(postgres_url: str, tmp_path: Path) -> None:
    with new_lake(postgres_url, tmp_path) as lake:
        lake.table("t").append([{"x": n} for n in range(2, 40)])
        lake.table("t").delete("x = 7")
    with role(postgres_url, "SELECT ON ALL TABLES IN SCHEMA public") as url, quacklake.connect(url) as lake:
        assert lake.table("t").count("x < 10") == 8
        assert lake.snapshots().num_rows == 4
        before = set(tmp_path.rglob("*.parquet"))
        for write in (
            lambda: lake.table("t").append([{"x": 1}]),
            lambda: lake.table("t").append([{"x": n} for n in range(20)]),
            lambda: lake.create_table("u", [{"y": 1}]),
        ):
            with pytest.raises(ReadOnlyError):
                write()
        assert set(tmp_path.rglob("*.parquet")) == before


@pytest.mark.postgres
def test_a_role_that_may_not_make_tables_writes_files_and_known_inlined_tables(
    postgres_url: str, tmp_path: Path, stock: Stock
) -> None:
    options = [f"DATA_PATH '{tmp_path / 'data'}/'"]
    stock.run(postgres_url, "CREATE TABLE t (x BIGINT)", "INSERT INTO t VALUES (1)", options=options)
    rights = "SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public"
    with role(postgres_url, rights) as url, quacklake.connect(url) as lake:
        lake.table("t").append([{"x": 2}])
        lake.table("t").append([{"x": n} for n in range(3, 40)])
        lake.table("t").delete("x = 1")
        with pytest.raises(ReadOnlyError):
            lake.create_table("u", [{"y": 1}])  # its inlined table would have to be made
        with quacklake.connect(url, data_inlining_row_limit=0) as other:
            other.create_table("v", [{"y": n} for n in range(40)])
    assert len(stock.rows(postgres_url)["main.t"]) == 38


@pytest.mark.mysql
def test_a_table_that_mysql_made_after_a_read_began_holds_nothing_for_it(mysql_url: str, tmp_path: Path) -> None:
    """The server lists tables as they are now, and refuses to read those that are newer than the transaction."""
    with new_lake(mysql_url, tmp_path) as lake, quacklake.connect(mysql_url) as other:
        lake.options.set("data_inlining_row_limit", 0)
        table = lake.create_table("u", [{"id": id_} for id_ in range(100)])
        lake.options.set("data_inlining_row_limit", 10)
        with other._context.catalog.read() as reader:
            before = reader.snapshots.latest()
            assert table.delete("id = 1") == 1
            assert reader.inlined.deletes(before, table.info.id).num_rows == 0
        assert other.table("u").count() == 99


@pytest.mark.mysql
def test_a_mysql_user_who_may_only_select_reads_and_writes_nothing(mysql_url: str, tmp_path: Path) -> None:
    parsed = parse_url(mysql_url).url
    user = f"r_{str(parsed.database)[-20:]}"
    with new_lake(mysql_url, tmp_path):
        pass
    engine = sa.create_engine(parsed, poolclass=sa.NullPool)
    with engine.begin() as connection:
        connection.exec_driver_sql(f"CREATE USER '{user}'@'127.0.0.1' IDENTIFIED BY 'x'")
        connection.exec_driver_sql(f"GRANT SELECT ON `{parsed.database}`.* TO '{user}'@'127.0.0.1'")
    try:
        url = parsed.set(username=user, password="x").render_as_string(hide_password=False)
        with quacklake.connect(url) as lake:
            assert lake.table("t").to_pylist() == [{"x": 1}]
            with pytest.raises(ReadOnlyError):
                lake.table("t").append([{"x": 2}])
    finally:
        with engine.begin() as connection:
            connection.exec_driver_sql(f"DROP USER '{user}'@'127.0.0.1'")


def test_a_duckdb_file_that_another_process_has_open_is_unavailable(tmp_path: Path, stock: Stock) -> None:
    url = f"duckdb:///{tmp_path / 'lake.db'}"
    with new_lake(url, tmp_path), pytest.raises(AssertionError, match="lock"):
        stock.rows(url)
    with duckdb.connect(tmp_path / "lake.db") as mine:
        assert mine.execute("SELECT count(*) FROM ducklake_snapshot").fetchone() == (2,)


def test_a_collision_is_transient() -> None:
    assert Collision("x").transient
