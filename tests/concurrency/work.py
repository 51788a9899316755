"""The work of the processes in the concurrency tests. Each function runs in a child; see ``tests.crash.forks``."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa

import quacklake
from quacklake import Lake
from quacklake.errors import AlreadyExistsError, CommitConflict
from tests.catalog.stock import attached, connect

__all__ = [
    "HISTORY",
    "append_history",
    "batch",
    "create_same",
    "increment",
    "make",
    "open_lake",
    "prepare",
    "read_pairs",
    "stock_history",
    "upsert",
]

HISTORY = pa.schema([("writer", pa.int64()), ("seq", pa.int64()), ("part", pa.int64())])
_LARGE = 12


def open_lake(url: str, **settings: Any) -> Lake:
    return quacklake.connect(url, duckdb_threads=1, ducklake_max_retry_count=200, ducklake_retry_wait_ms=5, **settings)


def prepare(lake: Lake, writers: int) -> None:
    """Create two tables that are always written together, and a row for each writer."""
    lake.create_table("history", HISTORY)
    lake.create_table("mirror", HISTORY)
    lake.create_table("latest", pa.table({"writer": pa.array(range(writers), pa.int64()), "seq": [-1] * writers}))


def batch(writer: int, seq: int) -> pa.Table:
    """The rows of one commit: every fifth is too large to be inlined."""
    count = _LARGE if seq % 5 == 4 else 1
    columns = [[writer] * count, [seq] * count, list(range(count))]
    return pa.table([pa.array(column, pa.int64()) for column in columns], schema=HISTORY)


def append_history(url: str, writer: int, count: int, log: str, update_every: int = 4) -> int:
    """Append (writer, seq) to both tables, ``count`` times; now and then update the writer's own row.

    Each commit is noted in ``log`` when it is known to be done.
    """
    with open_lake(url) as lake, Path(log).open("a") as noted:
        for seq in range(count):
            rows = batch(writer, seq)
            with lake.transaction() as tx:
                tx.table("history").append(rows)
                tx.table("mirror").append(rows)
            noted.write(f"{seq}\n")
            noted.flush()
            if seq % update_every == update_every - 1:
                assert lake.table("latest").update({"seq": seq}, f"writer = {writer}") == 1
    return count


def read_pairs(url: str, stop: str) -> list[int]:
    """Until ``stop`` exists: the counts of both tables in one view, which must be equal and never shrink."""
    seen: list[int] = []
    with open_lake(url) as lake:
        while not Path(stop).exists():
            with lake.transaction() as tx:
                one, two = tx.table("history").to_arrow().num_rows, tx.table("mirror").to_arrow().num_rows
                assert one == two == tx.table("history").count(), (one, two)
            assert not seen or one >= seen[-1]
            seen.append(one)
    return seen


def increment(url: str, times: int) -> int:
    """Add one to the only row of ``counter``, again and again."""
    with open_lake(url) as lake:
        for _ in range(times):
            lake.table("counter").update({"n": quacklake.expr("n + 1")}, "id = 0")
    return times


def upsert(url: str, writer: int, keys: list[int], times: int) -> int:
    """Merge the same keys as everybody else."""
    with open_lake(url) as lake:
        for n in range(times):
            rows = [{"id": key, "writer": writer, "n": n} for key in keys]
            lake.table("things").merge(rows, on="id")
    return times


def create_same(url: str, writer: int) -> bool:
    """Make a table that everybody wants to make; True when it was this one."""
    with open_lake(url) as lake:
        try:
            lake.create_table("wanted", [{"writer": writer}])
        except (AlreadyExistsError, CommitConflict):
            return False
    return True


def make(url: str, data_path: str, start: float) -> str:
    """Make the lake or open the one somebody else has made, all at the same moment."""
    time.sleep(max(0.0, start - time.time()))
    with quacklake.connect(url, data_path=data_path) as lake:
        return lake.data_path


def stock_history(url: str, writer: int, count: int, log: str) -> int:
    """Stock DuckDB appends (writer, seq) to both tables; what it gives up is tried again."""
    connection = connect()
    connection.execute("SET ducklake_max_retry_count = 100")
    with attached(connection, url), Path(log).open("a") as noted:
        for seq in range(count):
            connection.register("rows", batch(writer, seq))
            while True:
                try:
                    connection.execute("BEGIN")
                    connection.execute("INSERT INTO history SELECT * FROM rows")
                    connection.execute("INSERT INTO mirror SELECT * FROM rows")
                    connection.execute("COMMIT")
                    break
                except duckdb.TransactionException:
                    with_rollback(connection)
            noted.write(f"{seq}\n")
            noted.flush()
    return count


def with_rollback(connection: duckdb.DuckDBPyConnection) -> None:
    try:
        connection.execute("ROLLBACK")
    except duckdb.TransactionException:
        pass  # the failed commit has ended the transaction
