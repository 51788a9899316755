"""Files that are read for the last time leave nothing in the memory of the database."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest

import quacklake
from quacklake import Lake
from quacklake.core.duckdb_versions import first_row
from quacklake.errors import CancelledError


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Lake]:
    url = f"sqlite:///{tmp_path / 'lake.db'}"
    with quacklake.connect(url, data_path=tmp_path / "data", data_inlining_row_limit=0) as opened:
        table = opened.create_table("t", pa.schema([("id", pa.int64())]))
        for number in range(5):
            table.append(pa.table({"id": [number, number + 100]}))
        yield opened


def _kept(lake: Lake) -> int:
    """The bytes of files that the database of a lake keeps."""
    with lake.handle.context.engine.connection() as connection:
        query = "SELECT sum(memory_usage_bytes) FROM duckdb_memory() WHERE tag = 'EXTERNAL_FILE_CACHE'"
        row = first_row(connection, query)
    assert row is not None
    return int(row[0])


def _keeps(lake: Lake) -> bool:
    with lake.handle.context.engine.connection() as connection:
        row = first_row(connection, "SELECT current_setting('enable_external_file_cache')")
    assert row is not None
    return bool(row[0])


_COMPACTIONS: dict[str, Callable[[Lake], object]] = {
    "merge": lambda lake: lake.table("t").merge_adjacent_files(),
    "rewrite": lambda lake: (
        lake.table("t").delete("id = 1"),
        lake.table("t").rewrite_data_files(delete_threshold=0.1),
    ),
}


@pytest.mark.parametrize("name", sorted(_COMPACTIONS))
def test_a_compaction_keeps_no_bytes_of_the_files_it_replaces(name: str, lake: Lake) -> None:
    assert lake.table("t").to_arrow().num_rows == 10
    before = _kept(lake)
    _COMPACTIONS[name](lake)
    assert _kept(lake) < max(before, 1)
    assert _keeps(lake)
    assert lake.table("t").count() == (10 if name == "merge" else 9)


def test_bytes_are_kept_again_when_the_last_of_several_is_done(lake: Lake) -> None:
    engine, first, second = lake.handle.context.engine, threading.Event(), threading.Event()
    seen = []

    def other() -> None:
        with engine.connection() as connection, engine.last_reads.over(connection):
            first.set()
            assert second.wait(30)

    thread = threading.Thread(target=other)
    with engine.connection() as connection, engine.last_reads.over(connection):
        thread.start()
        assert first.wait(30)
        seen.append(_keeps(lake))
    seen.append(_keeps(lake))
    second.set()
    thread.join()
    assert [*seen, _keeps(lake)] == [False, False, True]


@pytest.mark.parametrize("interrupted", [False, True])
def test_bytes_are_kept_again_after_an_error(interrupted: bool, lake: Lake) -> None:
    engine, done = lake.handle.context.engine, threading.Event()

    def interrupt() -> None:
        while not done.wait(0.01):  # one that comes before the query starts is lost
            connection.interrupt()

    with (
        pytest.raises(CancelledError if interrupted else duckdb.Error),
        engine.connection() as connection,
        engine.last_reads.over(connection),
    ):
        if interrupted:
            thread = threading.Thread(target=interrupt)
            thread.start()
            try:
                connection.execute("SELECT sum(a.range + b.range) FROM range(10_000_000) a, range(10_000_000) b")
            finally:
                done.set()
                thread.join()
        else:
            connection.execute("SELECT error('no')").fetchall()
    assert _keeps(lake)
    assert lake.table("t").count() == 10
