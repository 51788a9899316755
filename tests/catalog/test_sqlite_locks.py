"""SQLite catalogs beside another copy of SQLite in the same process, and what a writer that died leaves."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import duckdb
import pytest

import quacklake
from quacklake.core.catalog.databases import sqlite_connection
from quacklake.core.catalog.databases.sqlite_connection import FileLock, is_supported
from quacklake.errors import CatalogError, CatalogLockedError, ReadOnlyError
from tests.duckdbs import import_extension
from tests.layout import plain_only

pytestmark = pytest.mark.skipif(not is_supported(), reason="this system has no locks of open file descriptions")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """The database of a lake with one table, which nobody has open."""
    with quacklake.connect(f"sqlite:///{tmp_path}/lake.db", data_path=tmp_path / "data") as lake:
        lake.create_table("t", [{"id": 0}])
    return tmp_path / "lake.db"


def mode(path: Path) -> str:
    """The journal that a database file says it has."""
    return "wal" if sqlite_connection.read_head(path, 20)[18] == 2 else "rollback"


def stock(path: Path) -> duckdb.DuckDBPyConnection:
    plain_only("stock DuckDB cannot open a catalog of a shared lake")
    for name in ("ducklake", "sqlite_scanner"):
        import_extension(name)
    connection = duckdb.connect()
    connection.execute("LOAD ducklake; LOAD sqlite_scanner")
    connection.execute(f"ATTACH 'ducklake:sqlite:{path}' AS l")
    return connection


def test_a_transaction_of_stock_in_the_same_process_keeps_what_it_has_read(path: Path) -> None:
    settings: dict[str, Any] = {"busy_timeout_ms": 100}
    with quacklake.connect(f"sqlite:///{path}", **settings) as lake, stock(path) as other:
        other.execute("BEGIN")
        assert other.execute("FROM l.t").fetchall() == [(0,)]
        with pytest.raises(CatalogLockedError, match="in this process"):
            lake.table("t").append([{"id": 1}])
        assert lake.table("t").count() == 1
        other.execute("INSERT INTO l.t VALUES (2)")
        other.execute("COMMIT")
        lake.table("t").append([{"id": 3}])
        assert sorted(other.execute("FROM l.t").fetchall()) == [(0,), (2,), (3,)]


def test_closing_a_lake_leaves_the_locks_of_stock_in_the_same_process_alone(path: Path) -> None:
    with stock(path) as other:
        other.execute("BEGIN")
        other.execute("FROM l.t").fetchall()
        with quacklake.connect(f"sqlite:///{path}") as lake:
            assert lake.table("t").count() == 1
        lock = FileLock(str(path))
        try:
            assert lock.holder() == os.getpid()
        finally:
            sqlite_connection.set_aside(lock)
        other.execute("COMMIT")
    with quacklake.connect(f"sqlite:///{path}") as lake:
        lake.table("t").append([{"id": 1}])


def test_no_descriptor_is_left_when_the_last_lake_is_closed(path: Path) -> None:
    def descriptors() -> int:
        return len(list(Path("/proc/self/fd").iterdir()))

    with quacklake.connect(f"sqlite:///{path}") as lake:
        lake.table("t").count()
    before = descriptors()
    for _ in range(5):
        with quacklake.connect(f"sqlite:///{path}") as lake, quacklake.connect(f"sqlite:///{path}") as other:
            lake.table("t").append([{"id": 1}])
            other.table("t").count()
    assert descriptors() == before


def test_a_lake_with_a_write_ahead_log_gets_a_rollback_journal_when_nobody_else_has_it(path: Path) -> None:
    with quacklake.connect(f"sqlite:///{path}", sqlite_journal="wal") as logged:
        logged.table("t").append([{"id": 1}])
        assert mode(path) == "wal"
        with quacklake.connect(f"sqlite:///{path}") as lake:  # which goes on as it is
            lake.table("t").append([{"id": 2}])
            assert mode(path) == "wal"
        assert logged.table("t").count() == 3
    with quacklake.connect(f"sqlite:///{path}") as lake:
        lake.table("t").append([{"id": 3}])
        assert mode(path) == "rollback"
        assert lake.table("t").count() == 4


def test_what_a_dead_process_has_left_in_a_write_ahead_log_is_kept(path: Path) -> None:
    code = f"""
import os, quacklake
lake = quacklake.connect("sqlite:///{path}", sqlite_journal="wal")
lake.table("t").append([{{"id": 1}}])
os._exit(0)
"""
    subprocess.run([sys.executable, "-c", code], check=True)
    assert Path(f"{path}-wal").stat().st_size > 0
    with quacklake.connect(f"sqlite:///{path}") as lake:
        assert mode(path) == "rollback"
        assert lake.table("t").count() == 2


def test_a_lake_that_gets_a_write_ahead_log_while_it_is_open_goes_on(path: Path) -> None:
    with quacklake.connect(f"sqlite:///{path}") as lake:
        assert lake.table("t").count() == 1
        other = sqlite3.connect(path)
        assert other.execute("PRAGMA journal_mode=WAL").fetchone() == ("wal",)
        lake.table("t").append([{"id": 1}])
        assert lake.table("t").count() == 2
        other.close()


@pytest.mark.crash
def test_what_a_writer_that_died_has_half_written_is_undone(path: Path) -> None:
    code = f"""
import os, signal, sqlite3
connection = sqlite3.connect({str(path)!r}, isolation_level=None)
connection.execute("PRAGMA cache_size=1")
connection.execute("BEGIN IMMEDIATE")
connection.execute("DELETE FROM ducklake_snapshot")
connection.execute("CREATE TABLE much (a)")
for number in range(2000):
    connection.execute("INSERT INTO much VALUES (randomblob(2000))")
os.kill(os.getpid(), signal.SIGKILL)
"""
    subprocess.run([sys.executable, "-c", code], check=False)
    assert Path(f"{path}-journal").read_bytes()[:1] != b"\\0"
    with pytest.raises(ReadOnlyError):
        quacklake.connect(f"sqlite:///{path}", read_only=True)
    with quacklake.connect(f"sqlite:///{path}") as lake:
        assert not Path(f"{path}-journal").exists()
        assert lake.table("t").count() == 1
        lake.table("t").append([{"id": 1}])
        assert lake.verify().ok


def test_a_catalog_without_room_is_told_at_once(path: Path) -> None:
    with quacklake.connect(f"sqlite:///{path}") as lake:
        with lake._context.catalog.connected() as connection:
            driver = connection.connection.driver_connection
            assert driver is not None
            (pages,) = driver.execute("PRAGMA page_count").fetchone()
            driver.execute(f"PRAGMA max_page_count={pages}")
        began = time.monotonic()
        with pytest.raises(CatalogError, match="no room left") as caught:
            for _ in range(200):
                lake.table("t").append([{"id": 1}] * 10)
        assert not caught.value.transient
        assert time.monotonic() - began < 20
        count = lake.table("t").count()
        with quacklake.connect(f"sqlite:///{path}", busy_timeout_ms=0) as other:
            other.table("t").append([{"id": 2}])
            assert other.table("t").count() == count + 1


def test_nobody_looks_into_an_empty_file_that_another_fills(tmp_path: Path) -> None:
    """SQLite without locks would take the journal of the other for a left-over, and remove it."""
    path = tmp_path / "empty.db"
    path.touch()
    writer, reader = (sqlite_connection.open_locked(str(path), 0.05, read_only=False) for _ in range(2))
    assert writer is not None
    assert reader is not None
    reader.begin(write=False)
    with pytest.raises(sqlite3.OperationalError, match="locked"):
        writer.begin(write=True)
    reader.rollback()
    writer.begin(write=True)
    writer.execute("CREATE TABLE t (id INTEGER)")
    with pytest.raises(sqlite3.OperationalError, match="locked"):
        reader.begin(write=False)
    writer.commit()
    reader.begin(write=False)
    assert reader.execute("SELECT count(*) FROM t").fetchall() == [(0,)]
    reader.rollback()
    for connection in (writer, reader):
        connection.close()
