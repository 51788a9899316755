"""After a process forks with a lake open, parent and child both continue, each with its own connections."""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest

import quacklake
from quacklake import Lake
from quacklake.core.duckdb_versions import connect
from quacklake.core.engines.duckdb.idle import IdleDatabases
from quacklake.errors import CatalogError, CommitConflict, SqlError

NewUrl = Callable[[str], str]
pytestmark = [
    pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork"),
    pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning"),
]

SHARED = [
    "sqlite",
    "postgres",
    "mysql",
]


def in_child(work: Callable[[], Any]) -> Any:
    """Return the result of some work in a forked child, which has twenty seconds for it."""
    receiving, sending = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            result: Any = work()
        except BaseException as error:
            result = error
        os.write(sending, pickle.dumps(result))
        os._exit(0)
    os.close(sending)
    clock = threading.Timer(20, os.kill, (child, signal.SIGKILL))
    clock.start()
    with os.fdopen(receiving, "rb") as pipe:
        told = pipe.read()
    clock.cancel()
    os.waitpid(child, 0)
    assert told, "the child hung"
    result = pickle.loads(told)
    if isinstance(result, BaseException):
        raise result
    return result


def everything(lake: Lake) -> list[int]:
    """Use every part of a lake once."""
    table = lake.table("t")
    table.append([{"id": 1}])
    table.append(pa.table({"id": range(100)}))
    rows: int = lake.sql("SELECT count(*) FROM t").fetchall()[0][0]
    return [table.count(), rows, table.scan(where="id >= 0").to_arrow().num_rows]


@pytest.mark.parametrize("database", SHARED)
def test_parent_and_children_go_on_with_a_lake_that_was_open_before_the_fork(
    database: str, new_url: NewUrl, tmp_path: Path
) -> None:
    with quacklake.connect(new_url(database), data_path=tmp_path / "data") as lake:
        lake.create_table("t", [{"id": 0}])
        assert everything(lake) == [102] * 3
        assert in_child(lambda: everything(lake)) == [203] * 3
        assert everything(lake) == [304] * 3


def test_a_fork_in_the_middle_of_a_commit_leaves_it_to_the_parent(tmp_path: Path) -> None:
    settings: dict[str, Any] = {"busy_timeout_ms": 200, "ducklake_max_retry_count": 0}
    with quacklake.connect(f"sqlite:///{tmp_path}/lake.db", data_path=tmp_path / "data", **settings) as lake:
        table = lake.create_table("t", [{"id": 0}])
        with lake._context.catalog.commit() as writer:
            writer.run_sql("UPDATE ducklake_metadata SET value = value")
            with pytest.raises(quacklake.errors.CatalogUnavailableError):
                in_child(lambda: table.append([{"id": 1}]))
            assert in_child(table.count) == 1
        table.append([{"id": 2}])
        assert in_child(table.count) == 2


def test_a_fork_in_the_turn_of_a_transaction_leaves_it_to_the_parent(tmp_path: Path) -> None:
    url, settings = f"sqlite:///{tmp_path}/lake.db", {"busy_timeout_ms": 200, "ducklake_max_retry_count": 0}
    with quacklake.connect(url, data_path=tmp_path / "data", turn_ms=60_000, **settings) as lake:
        table = lake.create_table("t", [{"id": 0}])
        for old, new in ((0, 1), (1, 2)):
            with pytest.raises(CommitConflict), lake.transaction() as tx:
                tx.table("t").update({"id": 9}, f"id = {old}")
                table.update({"id": new}, f"id = {old}")

        def give_back() -> str:
            tx.rollback()
            with pytest.raises(quacklake.errors.CatalogUnavailableError):
                table.append([{"id": 4}])
            return "the parent has it"

        with lake.transaction() as opened:
            tx = opened.handle.tx
            opened.table("t").update({"id": 3}, "id = 2")
            assert in_child(give_back) == "the parent has it"
        assert table.to_pylist() == [{"id": 3}]


def test_a_duckdb_file_that_the_parent_has_open_is_refused_in_the_child(tmp_path: Path) -> None:
    with quacklake.connect(f"duckdb:///{tmp_path}/lake.db", data_path=tmp_path / "data") as lake:
        table = lake.create_table("t", [{"id": 0}])
        for use in (table.count, lambda: quacklake.connect(lake.url).table("t").count()):
            with pytest.raises(CatalogError, match="parent of this process"):
                in_child(use)
        assert table.count() == 1


def test_a_session_of_the_parent_is_refused_in_the_child(tmp_path: Path) -> None:
    with quacklake.connect(f"sqlite:///{tmp_path}/lake.db", data_path=tmp_path / "data") as lake:
        lake.create_table("t", [{"id": 0}])
        session = lake._sessions.current()
        with pytest.raises(SqlError, match="forked"):
            in_child(lambda: session.statement("FROM t"))
        assert in_child(lambda: lake.sql("SELECT count(*) FROM t").fetchall()) == [(1,)]
        assert session.statement("FROM t").fetchall() == [(0,)]


def test_a_child_leaves_the_idle_databases_to_its_parent() -> None:
    waiting: IdleDatabases[duckdb.DuckDBPyConnection] = IdleDatabases()
    with connect() as database:
        waiting.leave({}, database)
        assert in_child(lambda: waiting.take({}) is None)
        assert waiting.take({}) is database
        assert database.execute("SELECT 1").fetchall() == [(1,)]


def test_a_child_leaves_the_databases_of_sessions_to_its_parent(tmp_path: Path) -> None:
    url, query = f"sqlite:///{tmp_path}/lake.db", "SELECT id FROM t WHERE id > 0"
    with quacklake.connect(url, data_path=tmp_path / "data") as lake:
        lake.create_table("t", [{"id": 0}, {"id": 1}])
        assert lake.sql(query).fetchall() == [(1,)]
        left = lake._sessions.current().attachments.database

        def work() -> list[Any]:
            with quacklake.connect(url) as own:
                return [own.sql(query).fetchall(), own._sessions.current().attachments.database is left]

        assert in_child(work) == [[(1,)], False]
        assert lake.sql(query).fetchall() == [(1,)]
    assert left is not None
    assert left.connection.execute("SELECT 1").fetchall() == [(1,)]


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="needs the memory map of a process")
@pytest.mark.parametrize("as_tests", [True, False])
def test_large_blocks_of_a_test_process_are_outside_of_its_heap(as_tests: bool) -> None:
    code = """
import ctypes, re
libc = ctypes.CDLL(None)
libc.malloc.restype, libc.malloc.argtypes, libc.free.argtypes = ctypes.c_void_p, [ctypes.c_size_t], [ctypes.c_void_p]
libc.free(libc.malloc(30 << 20))  # from now on glibc takes smaller ones from the heap, unless it is told otherwise
block = libc.malloc(20 << 20)
with open("/proc/self/maps") as maps:
    heap = re.search(r"^([0-9a-f]+)-([0-9a-f]+) .*\\[heap\\]", maps.read(), re.M)
print(int(heap[1], 16) <= block < int(heap[2], 16))
"""
    environment = dict(os.environ)
    if not as_tests:
        environment.pop("MALLOC_MMAP_THRESHOLD_")
    run = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert run.stdout.strip() == str(not as_tests)
