"""Delta tables with Iceberg metadata, as readers of Iceberg see them."""

from __future__ import annotations

import json
import logging
import struct
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from importlib import util
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from pyroaring import BitMap

from quacklake.connectors import PreparedCommit, Sink, connector
from quacklake.core.faults import Fault, FaultInjected, arm, record
from quacklake.errors import ConnectorError, MissingExtraError
from tests.connectors.test_two_phases import SCHEMA, comparable, rows
from tests.duckdbs import IS_PINNED, import_extension

deltalake = pytest.importorskip("deltalake", reason="the package deltalake is not installed")
pytest.importorskip("pyiceberg", reason="the package pyiceberg is not installed")
from pyiceberg.table import StaticTable  # noqa: E402

PROPERTY = "delta.universalFormat.enabledFormats"
Z85 = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"


def new(path: Path, **options: Any) -> Sink:
    made: Sink = connector("delta", "sink")({"location": str(path), **options})
    return made


def write(sink: Sink, number: int, *batches: pa.RecordBatch) -> PreparedCommit:
    for batch in batches:
        sink.write_batch(batch)
    prepared = sink.prepare_commit(number)
    sink.finalize_commit(prepared)
    return prepared


def by_pyiceberg(path: Path) -> pa.Table:
    # the files of an upsert have views of texts, which `to_arrow` cannot join with other files
    return StaticTable.from_metadata(str(path)).scan().to_arrow_batch_reader().read_all()


def by_duckdb(path: Path) -> pa.Table:
    return reading_duckdb().execute("SELECT * FROM iceberg_scan(?)", [str(path)]).to_arrow_table()


@cache
def reading_duckdb() -> duckdb.DuckDBPyConnection:
    connection = duckdb.connect()
    for name in ("avro", "iceberg"):
        import_extension(name, con=connection)
        connection.execute(f"LOAD {name}")
    return connection


def readers() -> list[Callable[[Path], pa.Table]]:
    wheels = all(util.find_spec(f"duckdb_extension_{name}") for name in ("avro", "iceberg"))
    return [by_pyiceberg, by_duckdb] if wheels and IS_PINNED else [by_pyiceberg]


def check(path: Path) -> int:
    """Compare what readers of Iceberg see with what the log of Delta has; return the number of rows."""
    expected = comparable(deltalake.DeltaTable(str(path)).to_pyarrow_table())
    for read in readers():
        assert comparable(read(path)) == expected, read.__name__
    return len(expected)


@pytest.mark.parametrize("partition_by", ["", "day", "day,s", "t"])
def test_delta_uniform_read_as_iceberg(tmp_path: Path, partition_by: str) -> None:
    sink = new(tmp_path, partition_by=partition_by)
    sink.initialize(SCHEMA)
    assert deltalake.DeltaTable(str(tmp_path)).metadata().configuration[PROPERTY] == "iceberg"
    for number in range(3):
        write(sink, number, rows(number * 10, number * 10 + 10))
    assert check(tmp_path) == 30
    upserts = new(tmp_path, mode="upsert", key="id", writer_id="upserts")
    upserts.initialize(SCHEMA)
    write(upserts, 0, rows(25, 35, "again"))
    assert check(tmp_path) == 35
    if not partition_by:
        report = new(tmp_path, compaction_min_files=2).maintain()  # type: ignore[attr-defined]
        assert (report.files_compacted > 1, report.files_written) == (True, 1)
        assert check(tmp_path) == 35
        last = StaticTable.from_metadata(str(tmp_path)).current_snapshot()
        assert last is not None and last.summary is not None and last.summary.operation.value == "replace"
    write(new_initialized(tmp_path, mode="overwrite", writer_id="overwrites"), 0, rows(0, 4))
    assert check(tmp_path) == 4


def new_initialized(path: Path, **options: Any) -> Sink:
    sink = new(path, **options)
    sink.initialize(SCHEMA)
    return sink


def test_metadata_that_a_crash_left_behind_is_made_good_by_a_repeat(tmp_path: Path) -> None:
    def run(path: Path) -> None:
        sink = new_initialized(path)
        write(sink, 0, rows(0, 5))
        sink.write_batch(rows(5, 9))
        prepared = sink.prepare_commit(1)
        (path / "prepared").write_text(prepared.to_json())
        sink.finalize_commit(prepared)

    with record() as points:
        run(tmp_path / "whole")
    places = [place for place, point in enumerate(points, 1) if "uniform" in point or "commit.after" in point]
    for number in places[len(places) // 2 :]:
        path = tmp_path / str(number)
        with arm(Fault(at=number)), pytest.raises(FaultInjected):
            run(path)
        assert len(readers()[-1](path)) in (5, 9)  # readers see the one state or the other
        again = new(path).finalize_commit(PreparedCommit.from_json((path / "prepared").read_text()))
        assert (check(path), again.version) == (9, 2), points[number - 1]


def test_commits_of_others_and_a_table_in_the_place_of_another_are_followed(tmp_path: Path) -> None:
    path = tmp_path / "t"
    prepared = write(new_initialized(path), 0, rows(0, 5))
    table = deltalake.DeltaTable(str(path))
    deltalake.write_deltalake(table, pa.Table.from_batches([rows(5, 8)]), mode="append")
    table.delete("id = 2")
    table.alter.add_columns(deltalake.Field("extra", deltalake.schema.PrimitiveType("string")))
    assert len(by_pyiceberg(path)) == 5
    new(path).finalize_commit(prepared)
    assert check(path) == 7
    assert "extra" in by_pyiceberg(path).column_names
    metadata = path / "metadata"
    metadata.rename(tmp_path / "kept")
    for file in (path / "_delta_log").iterdir():
        file.unlink()
    (tmp_path / "kept").rename(metadata)
    write(new_initialized(path, writer_id="another"), 0, rows(0, 2))
    assert check(path) == 2


def test_many_commits_leave_few_snapshots_and_manifests(tmp_path: Path) -> None:
    sink = new_initialized(tmp_path)
    for number in range(25):
        write(sink, number, rows(number, number + 1))
    mirror = StaticTable.from_metadata(str(tmp_path))
    snapshot = mirror.current_snapshot()
    assert snapshot is not None
    assert (len(mirror.snapshots()), len(snapshot.manifests(mirror.io)) < 20) == (11, True)
    assert check(tmp_path) == 25
    for number in range(25, 47):  # more than are followed one by one
        deltalake.write_deltalake(str(tmp_path), pa.Table.from_batches([rows(number, number + 1)]), mode="append")
    write(sink, 25, rows(47, 48))
    assert check(tmp_path) == 48


def test_writers_at_the_same_time_leave_metadata_that_is_whole(tmp_path: Path) -> None:
    new_initialized(tmp_path)

    def run(writer: int) -> None:
        sink = new_initialized(tmp_path, writer_id=str(writer))
        for number in range(4):
            first = writer * 100 + number * 2
            write(sink, number, rows(first, first + 2))

    with ThreadPoolExecutor(3) as threads:
        list(threads.map(run, range(3)))
    new(tmp_path, writer_id="0").finalize_commit(PreparedCommit(3))
    assert check(tmp_path) == 24


def test_the_option_and_the_table_decide(tmp_path: Path) -> None:
    def value(path: Path) -> str | None:
        found: str | None = deltalake.DeltaTable(str(path)).metadata().configuration.get(PROPERTY)
        return found

    off = tmp_path / "off"
    write(new_initialized(off, uniform_iceberg=False), 0, rows(0, 3))
    assert (value(off), (off / "metadata").exists()) == ("", False)
    write(new_initialized(off), 1, rows(3, 6))  # not given: the table decides
    assert (value(off), (off / "metadata").exists()) == ("", False)
    write(new_initialized(off, enable_uniform="true"), 2, rows(6, 7))
    assert (value(off), check(off)) == ("iceberg", 7)
    write(new_initialized(off, uniform_iceberg="false"), 3, rows(7, 8))
    assert value(off) == ""
    foreign = tmp_path / "foreign"
    deltalake.write_deltalake(str(foreign), pa.Table.from_batches([rows(0, 3)]))
    write(new_initialized(foreign), 0, rows(3, 4))
    assert (value(foreign), (foreign / "metadata").exists()) == (None, False)


def test_without_pyiceberg_there_is_no_metadata_and_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    find = util.find_spec
    monkeypatch.setattr(
        "quacklake.connectors.delta.formats.find_spec", lambda name: None if name == "pyiceberg" else find(name)
    )
    with caplog.at_level(logging.WARNING, "quacklake"):
        write(new_initialized(tmp_path), 0, rows(0, 3))
    assert [record.message for record in dict.fromkeys(caplog.records) if "pyiceberg" in record.message] == [
        "the Delta sink writes no Iceberg metadata, because the package pyiceberg is not installed"
    ]
    assert not (tmp_path / "metadata").exists()
    assert deltalake.DeltaTable(str(tmp_path)).metadata().configuration[PROPERTY] == ""
    with pytest.raises(MissingExtraError, match="pyiceberg"):
        new(tmp_path, uniform_iceberg=True)


def vector(*deleted: int) -> dict[str, Any]:
    """Return a deletion vector that is in the log itself."""
    data = struct.pack("<iqi", 1681511377, 1, 0) + BitMap(deleted).serialize()
    padded = data + bytes(-len(data) % 4)
    numbers = struct.unpack(f">{len(padded) // 4}I", padded)
    text = "".join(Z85[number // 85**power % 85] for number in numbers for power in (4, 3, 2, 1, 0))
    return {"storageType": "i", "pathOrInlineDv": text, "sizeInBytes": len(data), "cardinality": len(deleted)}


def test_deletion_vectors_are_refused_before_anything_is_written(tmp_path: Path) -> None:
    table = deltalake.DeltaTable.create(
        str(tmp_path), SCHEMA, configuration={"delta.enableDeletionVectors": "true"}, partition_by=["day"]
    )
    with pytest.raises(ConnectorError, match="deletion vectors"):
        new(tmp_path, uniform_iceberg=True).initialize(SCHEMA)
    assert deltalake.DeltaTable(str(tmp_path)).version() == 0
    sink = new_initialized(tmp_path, uniform_iceberg=False)
    write(sink, 0, pa.record_batch(rows(0, 9).slice(0, 1)))
    table.update_incremental()
    table.alter.set_table_properties({"delta.enableDeletionVectors": "false"})
    new_initialized(tmp_path, uniform_iceberg=True)
    log = tmp_path / "_delta_log"
    lines = [line for file in log.glob("*.json") for line in file.read_text().splitlines()]
    add = next(action["add"] for line in lines if "add" in (action := json.loads(line)))
    gone = {"path": add["path"], "deletionTimestamp": 1, "dataChange": True, "partitionValues": add["partitionValues"]}
    number = deltalake.DeltaTable(str(tmp_path)).version() + 1
    actions = [{"remove": gone}, {"add": {**add, "deletionVector": vector(0)}}]
    (log / f"{number:020}.json").write_text("".join(f"{json.dumps(action)}\n" for action in actions))
    with pytest.raises(ConnectorError, match="deletion vectors"):
        new_initialized(tmp_path, uniform_iceberg=True)
    with pytest.raises(ConnectorError, match="deletion vectors"):
        new(tmp_path).finalize_commit(PreparedCommit(1))
    assert deltalake.DeltaTable(str(tmp_path)).version() == number


def test_old_snapshots_and_their_files_are_removed_by_upkeep(tmp_path: Path) -> None:
    sink = new(tmp_path, compaction_min_files=2, vacuum_retention="0 hours")
    sink.initialize(SCHEMA)
    for number in range(4):
        write(sink, number, rows(number * 10, number * 10 + 10))
    before = {file.name for file in (tmp_path / "metadata").iterdir()}
    sink.maintain()  # type: ignore[attr-defined]
    after = {file.name for file in (tmp_path / "metadata").iterdir()}
    assert check(tmp_path) == 40
    assert len(after) < len(before)
    assert len(StaticTable.from_metadata(str(tmp_path)).snapshots()) == 1
    assert len(list(tmp_path.glob("*.parquet"))) == 1
    write(sink, 4, rows(40, 45))
    assert check(tmp_path) == 45
