"""A stream out of a table gives the rows of its change feed, each once, in batches of any size."""

from __future__ import annotations

import pickle
import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import quacklake
from quacklake.errors import InputError, NotFoundError, SnapshotExpiredError, StreamMismatchError
from quacklake.extend.streams import StreamSource
from quacklake.spark.read.scan import read_slice
from quacklake.spark.streams.pipeline import slices_of
from quacklake.spark.streams.source import EARLIEST, LATEST, Position, open_source
from tests.seeds import LONG, chance

pytest.importorskip("pyspark")


pytestmark = pytest.mark.needs_spark("4.0")


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[quacklake.Lake]:
    url = f"sqlite:///{tmp_path}/lake.db"
    with quacklake.connect(url, data_path=tmp_path / "data", duckdb_threads=1) as made:
        made.create_table("t", {"id": pa.int64(), "v": pa.string()})
        yield made


def source_of(lake: quacklake.Lake, name: str = "t", **options: Any) -> StreamSource:
    return open_source(lake._context, lake.table(name).info, **options)


def read(source: StreamSource, start: Position, end: Position) -> list[tuple[Any, ...]]:
    """The rows between two positions, as tasks read them; a time is left out."""
    found: list[tuple[Any, ...]] = []
    wide = len(source.columns) + (2 if source.changes else 0)
    for part in slices_of(source, source.plan(start, end)):
        for batch in read_slice(pickle.loads(pickle.dumps(part))):
            found += zip(*(column.to_pylist() for column in batch.columns[:wide]), strict=True)
    return found


def drain(source: StreamSource, start: Position) -> tuple[list[list[tuple[Any, ...]]], Position]:
    """All batches up to now, and where they end."""
    batches = []
    while (end := source.latest(start)) != start:
        batches.append(read(source, start, end))
        start = end
    return batches, start


def feed_of(lake: quacklake.Lake, since: int = 0) -> Counter[tuple[Any, ...]]:
    rows = lake.table("t").changes(since).to_arrow().to_pylist()
    return Counter((row["id"], row["v"], row["change_type"], row["snapshot_id"]) for row in rows)


def rows_of(first: int, count: int, text: str = "x") -> pa.Table:
    return pa.table({"id": range(first, first + count), "v": [f"{text}{number}" for number in range(count)]})


def grow(lake: quacklake.Lake, dice: random.Random, step: int) -> None:
    """Something that happens to a table."""
    table = lake.table("t")
    match dice.randrange(8):
        case 0 | 1:
            table.append(rows_of(step * 100, dice.choice((2, 40)), f"s{step}-"))
        case 2:
            table.update({"v": f"u{step}"}, f"id % 7 = {dice.randrange(7)}")
        case 3:
            table.delete(f"id % 11 = {dice.randrange(11)}")
        case 4:
            table.merge(rows_of(step * 50, 30, f"m{step}-"), on="id")
        case 5:
            table.flush_inlined_data()
        case 6:
            table.merge_adjacent_files()
        case 7:
            lake.create_table(f"other{step}", [{"id": step}])


@pytest.mark.parametrize("number", range(20 if LONG else 2))
def test_any_history_streams_as_its_change_feed_tells_it(
    number: int, lake: quacklake.Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    dice = chance("stream source", number)
    monkeypatch.setattr("quacklake.spark.read.slices.SLICE_BYTES", 1000)
    sources = [source_of(lake), source_of(lake, changes=True), source_of(lake, changes=True, max_files=1)]
    positions = [source.start(EARLIEST) for source in sources]
    seen: list[Counter[tuple[Any, ...]]] = [Counter() for _ in sources]
    last = 0
    for step in range(14):
        grow(lake, dice, step)
        if dice.random() < 0.4 or step == 13:
            for index, source in enumerate(sources):
                batches, positions[index] = drain(source, positions[index])
                seen[index].update(row for batch in batches for row in batch)
            last = lake.current_snapshot()
    expected = feed_of(lake)
    assert last == lake.current_snapshot()
    assert seen[1] == expected
    assert seen[2] == expected
    inserted = Counter(row[:2] for row in expected.elements() if row[2] == "insert")
    assert seen[0] == inserted


@pytest.mark.parametrize("number", range(40 if LONG else 3))
def test_whenever_a_stream_starts_it_begins_with_the_rows_that_exist(number: int, lake: quacklake.Lake) -> None:
    dice = chance("stream start", number)
    for step in range(10):
        grow(lake, dice, step)
        if dice.random() < 0.2:
            lake.expire_snapshots("0 seconds")
        source = source_of(lake, max_files=dice.choice((None, 1)))
        batches, end = drain(source, source.start(EARLIEST))
        found = Counter(row[:2] for batch in batches for row in batch)
        assert found == Counter((row["id"], row["v"]) for row in lake.table("t").to_pylist())
        lake.table("t").append(rows_of(10_000 + step, 1, "last"))
        batches, _ = drain(source, end)
        assert [row[0] for batch in batches for row in batch] == [10_000 + step]


def test_batches_come_in_the_order_of_snapshots_and_within_limits(lake: quacklake.Lake) -> None:
    table = lake.table("t")
    for number in range(6):
        table.append(rows_of(number * 100, 20))
    batches, end = drain(source_of(lake, max_files=2), source_of(lake).start(EARLIEST))
    assert [len(batch) for batch in batches] == [40, 40, 40]
    assert [min(batch)[0] for batch in batches] == [0, 200, 400]
    assert end == {"table": 1, "after": lake.current_snapshot()}
    batches, _ = drain(source_of(lake, max_bytes=1), source_of(lake).start(EARLIEST))
    assert [len(batch) for batch in batches] == [20] * 6, "a batch has a whole snapshot, however large"


def test_a_stream_starts_where_it_is_told_to(lake: quacklake.Lake) -> None:
    table = lake.table("t")
    table.append(rows_of(0, 2))
    lake.tag("before")
    table.append(rows_of(10, 2))
    time = lake.snapshots().column("snapshot_time").to_pylist()[-1]
    source = source_of(lake)
    for starting, first in ((EARLIEST, 0), (3, 10), ("before", 0), (time, 10), (str(time), 10)):
        batches, _ = drain(source, source.start(starting))
        assert min(row[0] for batch in batches for row in batch) == first, starting
    assert drain(source, source.start(LATEST))[0] == []
    assert drain(source, source.start(4))[0] == []
    for wrong, error in ((5, NotFoundError), (-1, InputError), ("lastest", NotFoundError), ("7 apples", InputError)):
        with pytest.raises(error):
            source.start(wrong)


def test_the_earliest_start_gives_the_rows_that_exist_and_then_new_ones(lake: quacklake.Lake) -> None:
    table = lake.table("t")
    for number in range(3):
        table.append(rows_of(number * 100, 20))
    lake.create_table("other", [{"id": 1}])
    lake.table("other").delete()
    whole = source_of(lake, max_files=1)
    assert [len(batch) for batch in drain(whole, whole.start(EARLIEST))[0]] == [20] * 3, "as long as no row is lost"
    table.delete("id < 5")
    table.update({"v": "new"}, "id = 100")
    source = source_of(lake)
    start = source.start(EARLIEST)
    # what happens behind the start is not part of it
    table.delete("id = 200")
    table.append(rows_of(900, 2))
    table.merge_adjacent_files()
    batches, end = drain(source, start)
    found = sorted(row[0] for batch in batches for row in batch)
    assert found == [*range(5, 20), *range(100, 120), *range(200, 220), 900, 901]
    assert [row[1] for batch in batches for row in batch if row[0] == 100] == ["new"]
    assert drain(source, end)[0] == []


def test_a_start_that_has_expired_is_told_with_the_oldest_that_is_left(lake: quacklake.Lake) -> None:
    table = lake.table("t")
    for number in range(4):
        table.append(rows_of(number * 100, 20))
    table.delete("id = 0")
    source = source_of(lake)
    behind = source.start(2)
    lake.tag("kept", 1)
    lake.expire_snapshots(versions=[0, 2, 3])
    for starting in (0, 2, 3, "kept", "2020-01-01"):
        with pytest.raises(SnapshotExpiredError, match="cannot start at") as caught:
            source.start(starting)
        assert "oldest start left is 5" in str(caught.value)
    with pytest.raises(SnapshotExpiredError):
        source.plan(behind, source.latest(behind))
    batches, end = drain(source, source.start(EARLIEST))
    assert len(batches) == 1 and len(batches[0]) == 79, "a row that was deleted before the start does not exist"
    feed = source_of(lake, changes=True)
    assert [len(batch) for batch in drain(feed, feed.start(EARLIEST))[0]] == [81], "the oldest state, then the delete"
    table.append(rows_of(900, 3))
    assert [len(batch) for batch in drain(source, end)[0]] == [3]


def test_a_stream_moves_on_where_only_others_write(lake: quacklake.Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("quacklake.extend.streams._QUIET", 3)
    source = source_of(lake)
    lake.table("t").append(rows_of(0, 2))
    _, end = drain(source, source.start(EARLIEST))
    other = lake.create_table("other", [{"id": 1}])
    assert source.latest(end) == end, "what others write is no batch"
    for number in range(3):
        other.append([{"id": number}])
    moved = source.latest(end)
    assert moved["after"] == lake.current_snapshot()
    assert read(source, end, moved) == []


def test_a_stream_goes_on_after_a_column_was_added_or_renamed_but_not_without_its_own(lake: quacklake.Lake) -> None:
    table = lake.table("t")
    source = source_of(lake)
    table.append(rows_of(0, 2))
    _, end = drain(source, source.start(EARLIEST))
    table.add_column("w", pa.int32())
    table.rename_column("v", "text")
    table.append([{"id": 5, "text": "new", "w": 1}])
    batches, end = drain(source, end)
    assert batches == [[(5, "new")]]
    table.drop_column("text")
    with pytest.raises(StreamMismatchError, match=r'"v" of .* was dropped'):
        source.latest(end)
    assert drain(source_of(lake), end)[0] == [], "a new stream has the columns of today"


def test_a_table_of_the_same_name_is_another_table(lake: quacklake.Lake) -> None:
    source = source_of(lake)
    start = source.start(EARLIEST)
    lake.drop_table("t")
    with pytest.raises(NotFoundError, match="dropped"):
        source.latest(start)
    lake.create_table("t", {"id": pa.int64()})
    with pytest.raises(StreamMismatchError, match="another table"):
        source_of(lake).latest(start)


def test_changes_need_their_names_for_themselves(lake: quacklake.Lake) -> None:
    lake.create_table("odd", {"_Change_Type": pa.string(), "rowid": pa.int64(), "snapshot_id": pa.int64()})
    with pytest.raises(InputError, match="_Change_Type"):
        source_of(lake, "odd", changes=True)
    lake.table("odd").append([{"_Change_Type": "a", "rowid": 7, "snapshot_id": 8}])
    source = source_of(lake, "odd")
    assert drain(source, source.start(EARLIEST))[0] == [[("a", 7, 8)]]
