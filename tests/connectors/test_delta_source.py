"""Tests of the Delta source alone."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from quacklake.connectors import connector
from quacklake.connectors.protocols import Source
from quacklake.errors import ConnectorError, CorruptFileError, SnapshotExpiredError

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


@pytest.mark.parametrize("feed", [False, True])
def test_versions_whose_files_a_vacuum_has_removed_are_gone(tmp_path: Path, feed: bool) -> None:
    path = tmp_path / "t"
    configuration = {"delta.enableChangeDataFeed": "true"} if feed else None
    write(path, 0, 10, configuration=configuration)
    write(path, 10, 20)
    write(path, 20, 30)
    behind = new_source(path, mode="continuous", change_data_feed=feed)
    behind.start()
    assert behind.poll_next() is not None
    table(path).optimize.compact()
    table(path).vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False)
    later = new_source(path, mode="incremental", version=0, change_data_feed=feed)
    later.start()
    for source in (behind, later):
        with pytest.raises(SnapshotExpiredError, match="of the Delta table is gone") as said:
            list(drain(source))
        assert "begin without a checkpoint" in str(said.value.hint)
    fresh = new_source(path)
    fresh.start()
    assert ids(fresh) == list(range(30))
    for file in path.rglob("part-*.parquet"):  # no vacuum does this
        file.unlink()
    damaged = new_source(path)
    damaged.start()
    with pytest.raises(CorruptFileError):
        list(drain(damaged))


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


def test_a_log_that_is_gone_is_an_error_and_not_silence(path: Path) -> None:
    source = new_source(path, mode="incremental", version=0)
    (path / "_delta_log" / f"{1:020}.json").unlink()
    with pytest.raises((SnapshotExpiredError, ConnectorError)):
        source.start()
        ids(source)
