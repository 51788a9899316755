"""The mark of a stream is committed with the rows of its batch: once, in order, and by one run at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

import quacklake
from quacklake.core import faults
from quacklake.core.faults import Fault, FaultInjected
from quacklake.core.format.objects import StreamMark
from quacklake.errors import (
    InvalidNameError,
    NotFoundError,
    StreamBatchDoneError,
    StreamFencedError,
    StreamMismatchError,
)
from quacklake.extend.streams import StreamSource
from tests.catalog.stock import Stock


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[quacklake.Lake]:
    with quacklake.connect(f"sqlite:///{tmp_path}/lake.db", data_path=tmp_path / "data", duckdb_threads=1) as made:
        made.create_table("t", [{"id": -1}])
        yield made


def batch(lake: quacklake.Lake, mark: StreamMark, epoch: int, rows: int = 2, position: str | None = None) -> None:
    with lake.transaction() as tx:
        tx.table("t").append([{"id": epoch * 100 + number} for number in range(rows)])
        tx.mark(mark.name, epoch, mark.run, position)


@pytest.mark.parametrize(
    "database",
    [
        "sqlite",
        "duckdb",
        "postgres",
        "mysql",
    ],
)
def test_a_batch_is_in_the_lake_once_in_every_database(
    database: str, new_url: Callable[[str], str], tmp_path: Path
) -> None:
    with quacklake.connect(new_url(database), data_path=tmp_path / "data", duckdb_threads=1) as lake:
        lake.create_table("t", [{"id": -1}])
        mark = lake.streams.claim("in", "query 1")
        assert (mark.epoch, mark.position) == (-1, None)
        batch(lake, mark, 0)
        batch(lake, mark, 1, position="offset 7")
        before = lake.current_snapshot()
        for epoch in (0, 1):
            with pytest.raises(StreamBatchDoneError, match=f"batch {epoch}"):
                batch(lake, mark, epoch)
        assert (lake.current_snapshot(), lake.table("t").count()) == (before, 5)
        again = lake.streams.claim("in", "query 1")
        assert (again.epoch, again.position) == (1, "offset 7")
        batch(lake, again, 2)
        assert lake.streams.list().to_pylist() == [
            {"stream": "in", "epoch": 2, "position": None, "snapshot_id": before + 1, "query": "query 1"}
        ]
        assert StreamSource(lake._context, lake.table("t").info).start("earliest") == {"table": 1, "after": -1}
        assert lake.verify().ok


def test_a_batch_without_rows_is_marked_without_a_snapshot(lake: quacklake.Lake) -> None:
    mark = lake.streams.claim("in", "query 1")
    before = lake.current_snapshot()
    batch(lake, mark, 0, rows=0, position="7")
    assert lake.current_snapshot() == before
    assert lake.streams.claim("in", "query 1").position == "7"


def test_the_older_of_two_runs_is_fenced(lake: quacklake.Lake) -> None:
    older = lake.streams.claim("in", "query 1")
    batch(lake, older, 0)
    newer = lake.streams.claim("in", "query 1")
    with pytest.raises(StreamFencedError, match="taken over") as caught:
        batch(lake, older, 1)
    assert (caught.value.code, caught.value.transient) == ("stream.fenced", False)
    batch(lake, newer, 1)
    assert lake.table("t").count() == 5


def test_another_query_under_an_old_name_is_refused_unless_it_is_to_start_anew(lake: quacklake.Lake) -> None:
    lake.streams.claim("in", "query 0")  # which has brought nothing
    first = lake.streams.claim("in", "query 1")
    batch(lake, first, 0)
    with pytest.raises(StreamMismatchError, match="another query") as caught:
        lake.streams.claim("in", "query 2")
    assert "restart=True" in str(caught.value)
    batch(lake, first, 1)  # a refusal fences nobody
    second = lake.streams.claim("in", "query 2", restart=True)
    assert second.epoch == -1
    batch(lake, second, 0)
    with pytest.raises(StreamFencedError):
        batch(lake, first, 2)


def test_batches_that_are_not_in_the_lake_are_noticed(lake: quacklake.Lake) -> None:
    mark = lake.streams.claim("in", "query 1")
    with pytest.raises(StreamMismatchError, match=r"batches 0 to 6 .* and batch 7 is next"):
        batch(lake, mark, 7)
    with lake.transaction() as tx:
        tx.handle.tx.mark("in", 7, mark.run, gaps=True)
    batch(lake, mark, 8)
    with pytest.raises(StreamMismatchError, match="batch 9 of"):
        batch(lake, mark, 10)


def test_a_forgotten_stream_begins_anew(lake: quacklake.Lake) -> None:
    mark = lake.streams.claim("in", "query 1")
    with pytest.raises(NotFoundError, match='"inn"') as caught:
        lake.streams.forget("inn")
    assert '"in"' in str(caught.value)
    lake.streams.forget("in")
    with pytest.raises(StreamFencedError, match="forgotten"):
        batch(lake, mark, 0)
    assert lake.streams.claim("in", "query 2").epoch == -1
    for name in ("", " ", "a\n", "x" * 129, 7):
        with pytest.raises(InvalidNameError):
            lake.streams.claim(name, "query")  # type: ignore[arg-type]


def test_a_commit_that_fails_anywhere_is_whole_or_not_there(lake: quacklake.Lake) -> None:
    mark = lake.streams.claim("in", "query 1")
    batch(lake, mark, 0)
    with faults.record() as points:
        batch(lake, mark, 1)
    wanted = [number for number, name in enumerate(points, 1) if name.startswith("catalog.")]
    assert any(points[number - 1] == "catalog.update_stream.after" for number in wanted)
    for epoch, number in enumerate(wanted, 2):
        with faults.arm(Fault(at=number)), pytest.raises(FaultInjected):
            batch(lake, mark, epoch)
        with suppress(StreamBatchDoneError):
            batch(lake, mark, epoch)
        assert lake.table("t").count() == 1 + 2 * (epoch + 1)


def test_two_streams_go_into_one_table(lake: quacklake.Lake) -> None:
    marks = [lake.streams.claim(name, "query") for name in ("a", "b")]
    for epoch in range(3):
        for mark in marks:
            batch(lake, mark, epoch)
    assert lake.table("t").count() == 13
    assert lake.streams.list().column("epoch").to_pylist() == [2, 2]


def test_marks_are_part_of_a_backup_and_nothing_to_stock_clients(
    lake: quacklake.Lake, stock: Stock, tmp_path: Path
) -> None:
    mark = lake.streams.claim("in", "query 1")
    batch(lake, mark, 0)
    lake.backup(tmp_path / "backup")
    batch(lake, mark, 1)
    url = f"sqlite:///{tmp_path}/restored.db"
    with quacklake.restore_backup(tmp_path / "backup", url, tmp_path / "restored") as restored:
        again = restored.streams.claim("in", "query 1")
        assert again.epoch == 0
        with pytest.raises(StreamMismatchError, match="restored from a backup"):
            batch(restored, again, 2)
        batch(restored, again, 1)
        assert restored.table("t").to_arrow().sort_by("id") == lake.table("t").to_arrow().sort_by("id")
    assert stock.run(url, "INSERT INTO t VALUES (7); SELECT count(*) FROM t")[-1] == (6,)
