"""Streams out of encrypted tables: each row once, and no key in anything that Spark keeps."""

from __future__ import annotations

import base64
import pickle
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import quacklake
from quacklake.core import faults
from quacklake.core.faults import Fault, FaultInjected
from quacklake.errors import CorruptFileError
from quacklake.extend.streams import StreamSource
from quacklake.spark.read.scan import read_slice
from quacklake.spark.streams.pipeline import slices_of
from quacklake.spark.streams.source import EARLIEST
from tests.conformance.clients import LakeSite

from .test_encrypted import fill, keys_of
from .test_streams_out import Collected, contents

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.conformance.conftest import MakeSite


@pytest.fixture
def site(make_site: MakeSite) -> LakeSite:
    made = make_site("sqlite", 0, encrypted=True)
    fill(made)
    return made


def tells(folder: Path, site: LakeSite) -> list[str]:
    """Return the files of a folder that hold a key of the lake, in any encoding, or the place of its catalog."""
    keys = keys_of(site)
    raw = [base64.b64decode(key) for key in keys]
    hidden = [*(key.encode() for key in keys), *raw, *(key.hex().encode() for key in raw)]
    hidden += [str(site.catalog_file).encode(), site.catalog_file.name.encode()]
    files = [path for path in folder.rglob("*") if path.is_file()]
    assert files
    return [str(path) for path in files if any(secret in path.read_bytes() for secret in hidden)]


def feed_of(lake: quacklake.Lake, since: int = 0) -> list[tuple[Any, ...]]:
    rows = lake.table("t").changes(since).to_arrow().to_pylist()
    return sorted(((row["id"], row["name"], row["change_type"], row["snapshot_id"]) for row in rows), key=str)


@pytest.mark.daily(0.22)
def test_changes_stream_once_over_a_restart_and_nothing_that_is_kept_holds_a_key(
    site: LakeSite, session: SparkSession, tmp_path: Path
) -> None:
    lake = site.lake()
    spark = quacklake.spark(lake, session)
    found = Collected(tmp_path / "stream")

    def read() -> list[list[tuple[Any, ...]]]:
        rows = spark.read_stream("t", changes=True).select("id", "name", "_change_type", "_commit_version")
        found.run(rows.dropDuplicates())  # so that Spark has a state to keep
        return [sorted(batch, key=str) for batch in found.batches if batch]

    first = feed_of(lake)
    assert len(first) == 500 + 31 + 300 + 16
    assert read() == [first]
    # as if it had been killed just before Spark wrote down that the batch was done
    for name in ("0", ".0.crc"):
        (tmp_path / "stream" / "checkpoint" / "commits" / name).unlink()
    assert read() == [first], "the same batch again, from what its offsets tell"
    base = lake.current_snapshot()
    table = lake.table("t")
    table.update({"name": "new"}, "id IN (1, 2, 1001)")
    table.delete("id BETWEEN 100 AND 110")
    table.append(pa.table({"id": range(5000, 5020), "name": ["more"] * 20, "n": [0.0] * 20}))
    table.merge_adjacent_files()
    assert read() == [feed_of(lake, base + 1)]
    assert list((tmp_path / "stream" / "checkpoint").glob("state/*"))
    assert not tells(tmp_path / "stream", site)


def test_inserts_stream_through_plain_spark_code(site: LakeSite, session: SparkSession, tmp_path: Path) -> None:
    lake = site.lake()
    quacklake.register_spark(session, lake)
    found = Collected(tmp_path / "stream")
    stream = session.readStream.format("quacklake").load("t").select("id")
    left = sorted(lake.table("t").to_arrow().column("id").to_pylist())
    assert len(left) == 500 - 31 + 300 - 16
    assert sorted(row[0] for row in found.run(stream)) == left
    lake.table("t").append(pa.table({"id": [7000], "name": ["x"], "n": [1.0]}))
    assert found.run(stream) == [(7000,)]
    assert not tells(tmp_path / "stream", site)


def test_each_task_gets_the_keys_of_its_own_files_only(site: LakeSite, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("quacklake.spark.read.slices.SLICE_BYTES", 1)
    lake = site.lake()
    keys = [key.encode() for key in lake.table("t").plan().files.column("encryption_key").to_pylist()]
    source = StreamSource(lake._context, lake.table("t").info)
    start = source.start(EARLIEST)
    parts = [pickle.dumps(part) for part in slices_of(source, source.plan(start, source.latest(start)))]
    assert [[key for key in keys if key in part] for part in parts] == [[key] for key in keys]
    assert sum(batch.num_rows for part in parts for batch in read_slice(pickle.loads(part))) == 800 - 31 - 16
    assert not any(key.decode() in repr(pickle.loads(part)) for key in keys for part in parts)


@pytest.mark.parametrize("starting", [EARLIEST, "state"])
def test_a_file_without_a_key_is_not_read(site: LakeSite, starting: str) -> None:
    lake = site.lake()
    if starting == "state":
        lake.expire_snapshots(versions=[0, 1])
    source = StreamSource(lake._context, lake.table("t").info, changes=True)
    start = source.start(EARLIEST)
    assert ("state" in start) == (starting == "state")
    end = source.latest(start)
    with closing(sqlite3.connect(site.catalog_file)) as connection:
        kept = connection.execute("SELECT encryption_key, data_file_id FROM ducklake_data_file").fetchall()
        connection.execute("UPDATE ducklake_data_file SET encryption_key = NULL")
        connection.commit()
        with pytest.raises(CorruptFileError, match="no key"):
            source.plan(start, end)
        with pytest.raises(CorruptFileError, match="no key"):
            lake.table("t").changes(3).plan()
        connection.executemany("UPDATE ducklake_data_file SET encryption_key = ? WHERE data_file_id = ?", kept)
        connection.commit()


def test_a_pipeline_from_an_encrypted_table_brings_each_row_once(
    site: LakeSite, session: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("quacklake.spark.streams.pipeline._HERE", -1)  # on the executors, however little it is
    lake = site.lake()
    lake.create_table("copy", {"id": pa.int64(), "name": pa.string(), "n": pa.float64()})
    table = lake.table("t")

    def flow() -> Any:
        spark = quacklake.spark(lake, session)
        changes: dict[str, Any] = {"changes": True, "mode": "changes", "on": "id"}
        return spark.pipeline("t", "SELECT * FROM source", "copy", name="copy", **changes)

    flow().run()
    table.update({"name": "new"}, "id < 5")
    table.delete("id = 450")
    for number, point in enumerate(("stream.batch.planned", "catalog.commit.before", "catalog.commit.after")):
        table.append(pa.table({"id": [8000 + number], "name": [point], "n": [1.0]}))
        with faults.arm(Fault(pattern=point, at=2 if point.startswith("catalog") else 1)), pytest.raises(FaultInjected):
            flow().run()
    flow().run()
    assert contents(lake, "copy") == contents(lake, "t")
    assert flow().run() == []
    mark = lake.streams.list().column("position").to_pylist()
    assert not any(key in str(mark) for key in keys_of(site))
    for file in site.data_path.rglob("*.parquet"):
        assert file.read_bytes()[-4:] == b"PARE", "nothing of the lake is in the clear"
