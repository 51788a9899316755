"""Rows from many threads, committed in batches: none lost, none twice."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import quacklake
from quacklake.errors import ConfigError, InputError, QuacklakeError
from quacklake.pipelines import BufferedWriter


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[quacklake.Lake]:
    with quacklake.connect(f"sqlite:///{tmp_path}/lake.db", data_path=str(tmp_path / "data")) as opened:
        opened.sql("CREATE TABLE t (id BIGINT NOT NULL, v VARCHAR)")
        opened.sql("CREATE TABLE u (id BIGINT, v VARCHAR)")
        yield opened


def ids(lake: quacklake.Lake, table: str = "t") -> list[int]:
    found: list[int] = lake.table(table).to_arrow(columns=["id"]).column("id").to_pylist()
    return found


def commits(lake: quacklake.Lake) -> int:
    rows: int = lake.snapshots().num_rows
    return rows


def until(condition: object, seconds: float = 10) -> None:
    deadline = time.monotonic() + seconds
    while not condition():  # type: ignore[operator]
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_full_batch_is_committed_by_itself(lake: quacklake.Lake) -> None:
    before = commits(lake)
    with BufferedWriter(lake, batch_rows=10, flush_interval="1 hour") as writer:
        for number in range(25):
            writer.write("t", {"id": number, "v": "x"})
        until(lambda: writer.pending < 10)
        assert sorted(ids(lake)) == list(range(len(ids(lake))))
        assert len(ids(lake)) >= 20
    assert ids(lake) == list(range(25))
    assert 1 <= commits(lake) - before <= 3


def test_the_oldest_row_waits_for_the_interval_and_no_longer(lake: quacklake.Lake) -> None:
    with BufferedWriter(lake, flush_interval="100 ms") as writer:
        writer.write("t", {"id": 1})
        assert ids(lake) == []
        until(lambda: ids(lake) == [1])


def test_many_threads_lose_and_double_nothing(lake: quacklake.Lake) -> None:
    with BufferedWriter(lake, batch_rows=50, flush_interval="20 ms") as writer:

        def work(worker: int) -> None:
            for number in range(100):
                writer.write("t" if number % 2 else "u", {"id": worker * 1000 + number})
                if number % 30 == 0:
                    writer.flush_all()

        threads = [threading.Thread(target=work, args=(worker,)) for worker in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    everything = sorted(worker * 1000 + number for worker in range(8) for number in range(100))
    assert sorted(ids(lake, "t") + ids(lake, "u")) == everything


def test_a_key_that_comes_again_replaces_the_first(lake: quacklake.Lake) -> None:
    with BufferedWriter(lake, keys={"t": ["id"]}) as writer:
        for text in ("a", "b"):
            for number in range(5):
                writer.write("t", {"id": number, "v": f"{text}{number}"})
        assert writer.flush_all() == 10
        writer.write("t", {"id": 3, "v": "c3"})
    rows = {row["id"]: row["v"] for row in lake.table("t").to_arrow().to_pylist()}
    assert rows == {0: "b0", 1: "b1", 2: "b2", 3: "c3", 4: "b4"}


def test_rows_that_cannot_be_committed_are_kept_and_the_error_is_raised(lake: quacklake.Lake) -> None:
    writer = BufferedWriter(lake, batch_rows=2, flush_interval="1 hour")
    writer.write("t", {"id": None})
    writer.write("t", {"id": 2})
    until(lambda: writer._error is not None)
    with pytest.raises(QuacklakeError, match="NULL"):
        writer.write("t", {"id": 3})
    assert writer.pending == 2
    assert ids(lake) == []
    lake.sql("ALTER TABLE t ALTER id DROP NOT NULL")
    assert writer.flush_all() == 2
    assert sorted(ids(lake), key=str) == [2, None]
    writer.close()


def test_a_writer_that_is_ahead_of_the_lake_waits(lake: quacklake.Lake) -> None:
    writer = BufferedWriter(lake, batch_rows=5, max_rows=10, flush_interval="1 hour")
    peak = 0
    for number in range(100):
        writer.write("t", {"id": number})
        peak = max(peak, writer.pending)
    writer.close()
    assert peak <= 10
    assert ids(lake) == list(range(100))


def test_the_event_loop_goes_on_while_a_row_waits(lake: quacklake.Lake) -> None:
    async def work() -> int:
        with BufferedWriter(lake, batch_rows=5, max_rows=5, flush_interval="1 hour") as writer:
            for number in range(30):
                await writer.write_async("t", {"id": number})
            return await writer.flush_all_async()

    asyncio.run(work())
    assert ids(lake) == list(range(30))


def test_bad_calls_are_refused(lake: quacklake.Lake) -> None:
    for options in ({"batch_rows": 0}, {"batch_rows": 10, "max_rows": 5}, {"flush_interval": "30"}):
        with pytest.raises(ConfigError):
            BufferedWriter(lake, **options)  # type: ignore[arg-type]
    writer = BufferedWriter(lake)
    with pytest.raises(InputError, match="mapping"):
        writer.write("t", [1, 2])  # type: ignore[arg-type]
    writer.write("t", {"id": 1, "nothing": 2})
    with pytest.raises(InputError, match="'nothing'"):
        writer.flush("t")
    with pytest.raises(InputError):
        writer.close()
    with pytest.raises(InputError, match="closed"):
        writer.write("t", {"id": 1})
    writer.close()
