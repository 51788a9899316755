"""The changes of rows of an Iceberg table."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from quacklake.connectors import Source, SourceCheckpoint
from quacklake.errors import ConfigError, ConnectorError, SnapshotExpiredError
from tests.connectors.sinks import FORMATS, Iceberg

pytest.importorskip("pyiceberg", reason="the package pyiceberg is not installed")
FORM = FORMATS["iceberg"]
assert isinstance(FORM, Iceberg)
SCHEMA = pa.schema([("id", pa.int64()), ("v", pa.string()), ("t", pa.timestamp("us", "UTC"))])


def rows(*values: tuple[int, str]) -> pa.RecordBatch:
    return pa.record_batch(
        {"id": [n for n, _ in values], "v": [v for _, v in values], "t": [0] * len(values)}, schema=SCHEMA
    )


def upsert(path: Path, number: int, *values: tuple[int, str]) -> None:
    sink = FORM.new(path, mode="upsert", key="id")
    sink.initialize(SCHEMA)
    sink.write_batch(rows(*values))
    sink.finalize_commit(sink.prepare_commit(number))


def feed(path: Path, **options: Any) -> Source:
    return FORM.source(path, mode="continuous", change_data_feed=True, **options)


def drain(source: Source) -> list[tuple[Any, ...]]:
    found = [row for batch in iter(source.poll_next, None) for row in batch.to_pylist()]
    kind = "_op" if "_op" in source.schema().names else "_change_type"
    return [(row[kind], row["id"], row["v"]) for row in found]


def test_an_upsert_has_both_sides_of_each_row_that_changed(tmp_path: Path) -> None:
    upsert(tmp_path, 0, (1, "a"), (2, "b"), (3, "c"))
    source = feed(tmp_path, key="id")
    source.start()
    assert drain(source) == [("insert", 1, "a"), ("insert", 2, "b"), ("insert", 3, "c")]
    upsert(tmp_path, 1, (2, "z"), (3, "c"), (4, "d"))  # the third is as it was
    assert drain(source) == [("update_preimage", 2, "b"), ("insert", 4, "d"), ("update_postimage", 2, "z")]
    FORM.delete(tmp_path, 1)
    assert drain(source) == [("delete", 1, "a")]
    FORM.new(tmp_path, compaction_min_files=2).maintain()  # type: ignore[attr-defined]
    assert drain(source) == []  # the same rows in another file
    again = feed(tmp_path, key="id", changelog="op")
    again.start()
    letters = [("I", 1, "a"), ("I", 2, "b"), ("I", 3, "c"), ("I", 4, "d"), ("U", 2, "z"), ("D", 1, "a")]
    assert drain(again) == letters
    versions = [snapshot.snapshot_id for snapshot in FORM.table(tmp_path).snapshots()]  # type: ignore[attr-defined]
    whole = feed(tmp_path)
    whole.start()
    batches = list(iter(whole.poll_next, None))
    assert {n for batch in batches for n in batch.column("_commit_version").to_pylist()} <= set(versions)
    assert all(batch.schema == whole.schema() for batch in batches)


def test_without_a_key_a_changed_row_goes_and_comes(tmp_path: Path) -> None:
    upsert(tmp_path, 0, (1, "a"), (2, "b"))
    upsert(tmp_path, 1, (2, "z"))
    source = feed(tmp_path)
    source.start()
    assert drain(source)[2:] == [("delete", 2, "b"), ("insert", 2, "z")]


def test_equal_rows_are_counted(tmp_path: Path) -> None:
    sink = FORM.new(tmp_path)
    sink.initialize(SCHEMA)
    sink.write_batch(rows((1, "a"), (1, "a"), (1, "a"), (2, "b")))
    sink.finalize_commit(sink.prepare_commit(0))
    over = FORM.new(tmp_path, mode="overwrite", writer_id="over")
    over.initialize(SCHEMA)
    over.write_batch(rows((1, "a"), (2, "b"), (2, "b")))
    over.finalize_commit(over.prepare_commit(0))
    source = feed(tmp_path)
    source.start()
    assert drain(source)[4:] == [("delete", 1, "a"), ("delete", 1, "a"), ("insert", 2, "b")]


@pytest.mark.parametrize("size", [1, 3])
def test_a_feed_that_ends_anywhere_goes_on_behind_its_checkpoint(tmp_path: Path, size: int) -> None:
    upsert(tmp_path, 0, (1, "a"), (2, "a"))
    upsert(tmp_path, 1, (2, "b"), (3, "b"))
    FORM.delete(tmp_path, 1)
    whole = feed(tmp_path, key="id")
    whole.start()
    expected, found = drain(whole), []
    checkpoint: SourceCheckpoint | None = None
    for _ in range(len(expected)):
        source = feed(tmp_path, key="id", batch_rows=size)
        source.start(checkpoint)
        batch = source.poll_next()
        if batch is None:
            break
        found += [(row["_change_type"], row["id"], row["v"]) for row in batch.to_pylist()]
        checkpoint = SourceCheckpoint.from_json(source.current_checkpoint().to_json())
        source.close()
    assert found == expected


def test_a_position_whose_snapshot_has_expired_is_an_error(tmp_path: Path) -> None:
    first = FORM.append(tmp_path, 0, 2)
    FORM.append(tmp_path, 2, 4)
    table = FORM.table(tmp_path)  # type: ignore[attr-defined]
    table.maintenance.expire_snapshots().by_ids([first]).commit()
    source = FORM.source(tmp_path, mode="incremental", version=first)
    source.start()
    with pytest.raises(SnapshotExpiredError):
        source.poll_next()


def test_what_cannot_be_read_is_a_typed_error(tmp_path: Path) -> None:
    upsert(tmp_path, 0, (1, "a"), (2, "b"))
    source = feed(tmp_path, key="id")
    source.start()
    drain(source)
    with pytest.raises(ConfigError, match="idd"):
        feed(tmp_path, key="idd").start()
    with pytest.raises(ConfigError, match="key"):
        FORM.source(tmp_path, key="id")
    upsert(tmp_path, 1, (1, "z"))
    table = FORM.table(tmp_path)  # type: ignore[attr-defined]
    table.maintenance.expire_snapshots().by_ids([table.snapshots()[0].snapshot_id]).commit()
    with pytest.raises((SnapshotExpiredError, ConnectorError)):
        drain(source)
