"""Stages of files, which another process can make from the same plain data."""

from __future__ import annotations

import pickle
from pathlib import Path

import pyarrow as pa
import pytest

from quacklake.connectors import PreparedCommit, Sink, WrittenFile, connector
from quacklake.errors import PathError
from tests.connectors.nats_sinks import new_sink
from tests.connectors.sinks import FORMATS, Iceberg
from tests.connectors.test_two_phases import SCHEMA, comparable, rows


def test_files_of_a_stage_in_another_process_are_committed_by_a_delta_sink(tmp_path: Path) -> None:
    form = FORMATS["delta"]
    pytest.importorskip("deltalake", reason="the package deltalake is not installed")
    from quacklake.connectors.delta.files import delta_stage

    sink = form.new(tmp_path, partition_by="day")
    sink.initialize(SCHEMA)
    data = pickle.loads(pickle.dumps((str(tmp_path / "t"), {}, SCHEMA, ["day"])))
    location, storage, schema, partition_by = data
    stage = delta_stage(
        location, storage, schema, upsert=False, partition_by=partition_by, target_bytes=1 << 20, compression="zstd"
    )
    stage.add(rows(0, 10))
    sink.finalize_commit(PreparedCommit(0, stage.take()))
    assert comparable(form.read(tmp_path)) == comparable(pa.Table.from_batches([rows(0, 10)]))


def test_files_of_a_stage_in_another_process_are_committed_by_an_iceberg_sink(tmp_path: Path) -> None:
    form = FORMATS["iceberg"]
    pytest.importorskip("pyiceberg", reason="the package pyiceberg is not installed")
    from quacklake.connectors.iceberg.files import iceberg_stage, storage_of

    assert isinstance(form, Iceberg)
    sink = form.new(tmp_path, partition_by="days(t), bucket(2, id)")
    sink.initialize(SCHEMA)
    table = form.table(tmp_path)
    data = (table.location(), storage_of(table), table.schema(), table.spec())
    stage = iceberg_stage(
        *pickle.loads(pickle.dumps(data)),
        columns=SCHEMA.names,
        upsert=False,
        target_bytes=1 << 20,
        compression="zstd",
    )
    stage.add(rows(0, 10))
    sink.finalize_commit(PreparedCommit(0, stage.take()))
    assert comparable(form.read(tmp_path)) == comparable(pa.Table.from_batches([rows(0, 10)]))


def _new(kind: str, path: Path, mode: str) -> Sink:
    if kind == "nats":
        return new_sink("nats://127.0.0.1:1", "theirs", path / "t")
    if kind == "hudi":
        made: Sink = connector("hudi", "sink")({"type": "hudi", "location": str(path / "t"), "key": "id"})
        return made
    form = FORMATS[kind]
    if not form.there():
        pytest.skip(f"the package {form.library} is not installed")
    sink = form.new(path, mode=mode, **({"key": "id"} if mode == "upsert" else {}))
    sink.initialize(SCHEMA)
    return sink


@pytest.mark.parametrize(
    ("kind", "mode"),
    [
        ("delta", "append"),
        ("delta", "upsert"),
        ("iceberg", "append"),
        ("iceberg", "upsert"),
        ("nats", ""),
        ("hudi", ""),
    ],
)
def test_files_that_a_checkpoint_names_elsewhere_are_neither_shown_nor_removed(
    tmp_path: Path, kind: str, mode: str
) -> None:
    """Whoever writes the catalog of a pipeline writes its checkpoints."""
    stranger = tmp_path / "other/part.parquet"
    stranger.parent.mkdir()
    stranger.write_text("of somebody else")
    sink = _new(kind, tmp_path, mode)
    hostile = ["../other/part.parquet", str(stranger), f"file://{stranger}", "x/../../other/part.parquet"]
    if (kind, mode) != ("delta", "append"):  # whose files are anywhere in its table
        hostile.append("other/part.parquet")
    for path in hostile:
        prepared = PreparedCommit(7, (WrittenFile(path, 16, 1),), 16, 1)
        for act in (sink.finalize_commit, sink.abort):
            with pytest.raises(PathError):
                act(prepared)
    assert stranger.read_text() == "of somebody else"
    if mode:
        assert FORMATS[kind].read(tmp_path).num_rows == 0
