"""Threads that share one lake."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
import pytest

import quacklake
from quacklake import Lake
from tests.concurrency.test_processes import check_catalog, check_history
from tests.concurrency.work import batch, open_lake, prepare
from tests.crash.homes import check_rows

pytestmark = [pytest.mark.concurrency, pytest.mark.daily(0.35), pytest.mark.timeout(600)]

ALL = [
    "sqlite",
    "duckdb",
    "postgres",
    "mysql",
]
THREADS = 16
NewLake = Callable[[str], str]


@pytest.mark.parametrize("database", ALL)
def test_sixteen_threads_share_a_lake(database: str, new_lake: NewLake, commits: int) -> None:
    count = max(3, commits // 8)
    url = new_lake(database)
    with open_lake(url) as lake:
        prepare(lake, writers=THREADS)
    with open_lake(url) as lake:
        stop = threading.Event()

        def write(writer: int) -> None:
            for seq in range(count):
                with lake.transaction() as tx:
                    tx.table("history").append(batch(writer, seq))
                    tx.table("mirror").append(batch(writer, seq))
            lake.table("latest").update({"seq": count}, f"writer = {writer}")

        def read() -> int:
            reads = 0
            while not stop.is_set():
                with lake.transaction() as tx:
                    assert tx.table("history").to_arrow().num_rows == tx.table("mirror").to_arrow().num_rows
                reads += 1
            return reads

        with ThreadPoolExecutor(THREADS + 1) as pool:
            reading = pool.submit(read)
            writing = [pool.submit(write, writer) for writer in range(THREADS)]
            try:
                for one in writing:
                    one.result()
            finally:
                stop.set()
            assert reading.result() > 0
        assert check_history(lake.table("history").to_arrow()) == dict.fromkeys(range(THREADS), count)
        assert check_history(lake.table("mirror").to_arrow()) == dict.fromkeys(range(THREADS), count)
        assert lake.table("latest").to_arrow().column("seq").to_pylist() == [count] * THREADS
        for table in ("history", "mirror", "latest"):
            check_rows(lake, table)
    if database != "duckdb":
        check_catalog(url)


@pytest.mark.parametrize("database", ALL)
def test_the_first_writes_of_a_lake_may_come_from_many_threads_at_once(database: str, new_lake: NewLake) -> None:
    """Everything that is done once before the first write, or for the first inlined row, is done by one of them."""
    url = new_lake(database)
    with open_lake(url) as lake:
        lake.create_table("t", {"x": pa.int64()})
    with open_lake(url) as lake, ThreadPoolExecutor(8) as pool:
        barrier = threading.Barrier(8)

        def first(n: int) -> None:
            barrier.wait()
            lake.table("t").append([{"x": n}])

        for one in [pool.submit(first, n) for n in range(8)]:
            one.result()
        assert sorted(lake.table("t").to_arrow().column("x").to_pylist()) == list(range(8))
        assert 3 <= lake.snapshots().num_rows <= 10, "appends that waited share a snapshot"


def test_a_pool_that_is_too_small_makes_threads_wait_not_fail(new_lake: NewLake) -> None:
    url = new_lake("sqlite")
    with quacklake.connect(url, pool_size=1, pool_max_overflow=0) as lake, ThreadPoolExecutor(8) as pool:
        lake.create_table("t", {"x": pa.int64()})

        def work(n: int) -> int:
            lake.table("t").append([{"x": n}])
            return lake.table("t").count()

        counts = list(pool.map(work, range(24)))
    assert max(counts) == 24


def test_threads_see_tables_that_other_threads_make(new_lake: NewLake) -> None:
    with open_lake(new_lake("sqlite")) as lake, ThreadPoolExecutor(6) as pool:

        def work(n: int) -> list[dict[str, object]]:
            lake.create_table(f"t{n}", [{"x": n}])
            return lake.table(f"t{n}").to_pylist()

        assert list(pool.map(work, range(12))) == [[{"x": n}] for n in range(12)]
        assert _names(lake) == sorted(f"main.t{n}" for n in range(12))


def _names(lake: Lake) -> list[str]:
    return sorted(lake.tables())
