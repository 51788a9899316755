"""A Delta table as a source, in its four modes."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from quacklake.connectors import SourceCheckpoint, connector
from quacklake.connectors.protocols import Source
from quacklake.errors import ConfigError, ConnectorError, SnapshotExpiredError, StreamMismatchError
from tests.seeds import SEED

deltalake = pytest.importorskip("deltalake", reason="the package deltalake is not installed")


def write(path: Path, first: int, end: int, **options: Any) -> None:
    rows = pa.table({"id": list(range(first, end)), "part": [n % 2 for n in range(first, end)]})
    deltalake.write_deltalake(str(path), rows, mode="append", partition_by=["part"], **options)


def table(path: Path) -> Any:
    return deltalake.DeltaTable(str(path))


def new_source(path: Path, **options: Any) -> Source:
    made: Source = connector("delta", "source")({"location": str(path), "poll_interval": "1 millisecond", **options})
    return made


def drain(source: Source) -> Iterator[pa.RecordBatch]:
    while (batch := source.poll_next()) is not None:
        yield batch


def ids(source: Source) -> list[int]:
    return sorted(n for batch in drain(source) for n in batch.column("id").to_pylist())


@pytest.fixture
def path(tmp_path: Path) -> Path:
    for first in (0, 10, 20):
        write(tmp_path / "t", first, first + 10)
    return tmp_path / "t"


def test_the_modes_that_end_read_what_they_say(path: Path) -> None:
    for options, expected in [
        ({}, range(30)),
        ({"mode": "snapshot", "version": 1}, range(20)),
        ({"mode": "snapshot", "timestamp": "2999-01-01"}, range(30)),
        ({"mode": "incremental", "version": 0}, range(10, 30)),
        ({"mode": "incremental", "version": 2}, range(0)),
    ]:
        source = new_source(path, **options)
        source.start()
        assert ids(source) == list(expected), options
        assert source.poll_next() is None
    assert source.schema() == pa.schema([("id", pa.int64()), ("part", pa.int64())])


def test_a_continuous_source_gives_each_row_once_as_commits_come(path: Path) -> None:
    source = new_source(path, mode="continuous")
    source.start()
    assert ids(source) == list(range(30))
    write(path, 30, 40)
    write(path, 40, 41)
    assert ids(source) == list(range(30, 41))
    table(path).optimize.compact()  # moves rows, adds none
    assert ids(source) == []
    again = new_source(path, mode="continuous")
    again.start(source.current_checkpoint())
    write(path, 41, 42)
    assert ids(again) == [41]


def test_a_source_that_ends_anywhere_goes_on_behind_its_checkpoint(path: Path) -> None:
    """Random histories and random deaths: what was returned before a checkpoint and after it is everything, once."""
    dice = random.Random(SEED)
    for _ in range(4):
        seen: Counter[int] = Counter()
        checkpoint: SourceCheckpoint | None = None
        last = table(path).to_pyarrow_table().num_rows
        for _ in range(dice.randint(3, 8)):
            source = new_source(path, mode="continuous", batch_rows=dice.randint(1, 6))
            source.start(checkpoint)
            for _ in range(dice.randint(0, 9)):
                batch = source.poll_next()
                if batch is not None:
                    seen.update(batch.column("id").to_pylist())
            checkpoint = SourceCheckpoint.from_json(source.current_checkpoint().to_json())
            source.close()
            if dice.random() < 0.4:
                write(path, last, last + dice.randint(1, 5))
                last = table(path).to_pyarrow_table().num_rows
        source = new_source(path, mode="continuous", batch_rows=4)
        source.start(checkpoint)
        seen.update(ids(source))
        assert seen == Counter(range(last))


def test_delta_source_cdf(tmp_path: Path) -> None:
    path = tmp_path / "t"
    schema = pa.schema([("id", pa.int64()), ("v", pa.string())])
    deltalake.DeltaTable.create(str(path), schema, configuration={"delta.enableChangeDataFeed": "true"})
    deltalake.write_deltalake(str(path), pa.table({"id": [1, 2], "v": ["a", "b"]}), mode="append")
    table(path).update({"v": "'z'"}, predicate="id = 1")
    table(path).delete("id = 2")
    source = new_source(path, mode="continuous", change_data_feed=True, batch_rows=1)
    source.start()
    found = [row for batch in drain(source) for row in batch.to_pylist()]
    assert [(row["_change_type"], row["id"], row["v"], row["_commit_version"]) for row in found] == [
        ("insert", 1, "a", 1),
        ("insert", 2, "b", 1),
        ("update_preimage", 1, "a", 2),
        ("update_postimage", 1, "z", 2),
        ("delete", 2, "b", 3),
    ]
    assert source.schema().field("_commit_timestamp").type == pa.timestamp("us", "UTC")
    short = new_source(path, mode="incremental", version=1, change_data_feed=True, changelog="op")
    short.start()
    assert [(row["_op"], row["id"]) for batch in drain(short) for row in batch.to_pylist()] == [("U", 1), ("D", 2)]


def test_changed_rows_without_a_feed_are_an_error_or_what_the_option_says(path: Path) -> None:
    table(path).delete("id = 3")
    write(path, 30, 31)
    for choice, expected in (("skip", [30]), ("rows", [*range(1, 10, 2), 30])):
        source = new_source(path, mode="incremental", version=2, on_change=choice)
        source.start()
        assert ids(source) == [n for n in expected if n != 3]
    source = new_source(path, mode="incremental", version=2)
    source.start()
    with pytest.raises(ConnectorError, match="version 3"):
        ids(source)


def test_another_table_in_the_place_of_the_first_is_an_error(path: Path, tmp_path: Path) -> None:
    source = new_source(path, mode="continuous")
    source.start()
    ids(source)
    path.rename(tmp_path / "old")
    write(path, 0, 5)
    with pytest.raises(StreamMismatchError):
        new_source(path, mode="continuous").start(source.current_checkpoint())


def test_a_log_that_is_gone_is_an_error_and_not_silence(path: Path) -> None:
    source = new_source(path, mode="incremental", version=0)
    (path / "_delta_log" / f"{1:020}.json").unlink()
    with pytest.raises((SnapshotExpiredError, ConnectorError)):
        source.start()
        ids(source)


@pytest.mark.parametrize(
    "options",
    [
        {"mode": "snapshot"},
        {"mode": "incremental"},
        {"mode": "sometimes"},
        {"timestamp": "noon", "mode": "snapshot"},
        {"change_data_feed": True},
        {"pol_interval": "1s"},
        {"on_change": "what"},
    ],
)
def test_bad_options_are_refused(path: Path, options: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        new_source(path, **options)


def test_a_place_without_a_table_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ConnectorError):
        new_source(tmp_path / "nothing").start()
    with pytest.raises(ConnectorError, match="start"):
        new_source(tmp_path / "nothing").poll_next()


def test_an_idle_source_waits_its_interval(path: Path) -> None:
    source = new_source(path, mode="continuous", poll_interval="50 ms")
    source.start()
    ids(source)
    import time

    begun = time.monotonic()
    assert source.poll_next() is None
    assert source.poll_next() is None
    assert timedelta(seconds=time.monotonic() - begun) >= timedelta(milliseconds=50)
