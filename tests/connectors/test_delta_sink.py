"""Two phases into a Delta table, as ``deltalake`` and DuckDB read it."""

from __future__ import annotations

import datetime as dt
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

deltalake = pytest.importorskip("deltalake", reason="the package deltalake is not installed")

from quacklake.connectors.delta import DeltaSink  # noqa: E402
from quacklake.errors import ConfigError, SchemaMismatchError  # noqa: E402
from quacklake.faults import Fault, FaultInjected, arm, record  # noqa: E402

SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("day", pa.date32()),
        ("v", pa.float64()),
        ("s", pa.string()),
        ("t", pa.timestamp("us", "UTC")),
    ]
)


def rows(first: int, end: int, text: str = "s") -> pa.RecordBatch:
    start = dt.datetime(2024, 1, 1, tzinfo=dt.UTC)
    return pa.record_batch(
        {
            "id": list(range(first, end)),
            "day": [None if n % 11 == 10 else dt.date(2024, 1, 1 + n % 3) for n in range(first, end)],
            "v": [float("nan") if n % 7 == 6 else n / 2 for n in range(first, end)],
            "s": [f"{text}{n}" for n in range(first, end)],
            "t": [start + dt.timedelta(microseconds=n) for n in range(first, end)],
        },
        schema=SCHEMA,
    )


def new_sink(path: Path, **options: Any) -> DeltaSink:
    return DeltaSink({"type": "delta", "location": str(path / "t"), **options})


def read(path: Path) -> pa.Table:
    return deltalake.DeltaTable(str(path / "t")).to_pyarrow_table().sort_by("id")


def ids(path: Path) -> list[int]:
    found: list[int] = read(path).column("id").to_pylist()
    return found


def files(path: Path) -> set[str]:
    found = (entry.relative_to(path / "t") for entry in (path / "t").rglob("*") if entry.is_file())
    return {str(entry) for entry in found if "_delta_log" not in entry.parts}


@pytest.mark.parametrize("partition_by", ["", "day", "day,s"])
def test_rows_are_seen_after_finalize_and_not_before(tmp_path: Path, partition_by: str) -> None:
    sink = new_sink(tmp_path, partition_by=partition_by)
    sink.initialize(SCHEMA)
    for first in range(0, 40, 10):
        sink.write_batch(rows(first, first + 10))
    prepared = sink.prepare_commit(0)
    assert (prepared.records_written, ids(tmp_path)) == (40, [])
    assert prepared.bytes_written == sum((tmp_path / "t" / name).stat().st_size for name in files(tmp_path))
    info = sink.finalize_commit(prepared)
    assert info.version == deltalake.DeltaTable(str(tmp_path / "t")).version() == 1
    expected = pa.Table.from_batches([rows(0, 40)])
    assert read(tmp_path).select(SCHEMA.names).drop_columns("v").equals(expected.drop_columns("v"))
    assert sink.finalize_commit(prepared).version == 1
    assert len(ids(tmp_path)) == 40


def test_statistics_rule_files_out_and_never_one_too_many(tmp_path: Path) -> None:
    sink = new_sink(tmp_path)
    sink.initialize(SCHEMA)
    for epoch in range(4):
        sink.write_batch(rows(epoch * 100, epoch * 100 + 100))
        sink.finalize_commit(sink.prepare_commit(epoch))
    table = deltalake.DeltaTable(str(tmp_path / "t"))
    actions = pa.table(table.get_add_actions(flatten=True))
    assert sorted(actions.column("min.id").to_pylist()) == [0, 100, 200, 300]
    assert sorted(actions.column("num_records").to_pylist()) == [100] * 4
    assert "max.v" not in actions.column_names or set(actions.column("max.v").to_pylist()) == {None}
    dataset = table.to_pyarrow_dataset()
    import pyarrow.compute as pc

    for low, high in ((0, 1), (99, 101), (250, 251), (399, 500)):
        wanted = (pc.field("id") >= low) & (pc.field("id") < high)
        assert sorted(dataset.to_table(filter=wanted).column("id").to_pylist()) == list(range(low, min(high, 400)))
    edge = dt.datetime(2024, 1, 1, tzinfo=dt.UTC) + dt.timedelta(microseconds=399)
    assert dataset.to_table(filter=pc.field("t") >= pa.scalar(edge)).num_rows == 1


def test_delta_sink_exactly_once(tmp_path: Path) -> None:
    """Prepared and crashed: a new sink aborts, and the table is as it was."""
    first = new_sink(tmp_path)
    first.initialize(SCHEMA)
    first.write_batch(rows(0, 10))
    prepared = first.prepare_commit(0)
    again = new_sink(tmp_path)
    again.abort(prepared)
    again.abort(prepared)
    again.abort(None)
    assert (deltalake.DeltaTable(str(tmp_path / "t")).version(), files(tmp_path)) == (0, set())
    again.initialize(SCHEMA)
    again.write_batch(rows(0, 5))
    committed = again.prepare_commit(0)
    again.finalize_commit(committed)
    new_sink(tmp_path).abort(committed)  # what the log has stays
    assert ids(tmp_path) == list(range(5))


def test_an_upsert_replayed_changes_nothing(tmp_path: Path) -> None:
    sink = new_sink(tmp_path, mode="upsert", key="id")
    sink.initialize(SCHEMA)
    for epoch, (first, end) in enumerate([(0, 10), (5, 15), (12, 13)]):
        sink.write_batch(rows(first, end, f"e{epoch}-"))
        prepared = sink.prepare_commit(epoch)
        version = sink.finalize_commit(prepared).version
        assert new_sink(tmp_path, mode="upsert", key="id").finalize_commit(prepared).version == version
    assert ids(tmp_path) == list(range(15))
    texts = [f"e0-{n}" for n in range(5)] + [f"e1-{n}" for n in range(5, 15)]
    texts[12] = "e2-12"
    assert read(tmp_path).column("s").to_pylist() == texts
    assert [name for name in files(tmp_path) if name.startswith("_quacklake")] == []


@pytest.mark.parametrize("mode", ["append", "upsert"])
def test_a_death_at_any_point_is_made_good_by_the_next_process(tmp_path: Path, mode: str) -> None:
    """The next process finalizes what was prepared, or writes the batch again; either way each row is there once."""

    def run(path: Path) -> None:
        sink = new_sink(path, mode=mode, **({"key": "id"} if mode == "upsert" else {}))
        sink.initialize(SCHEMA)
        sink.write_batch(rows(0, 20))
        prepared = sink.prepare_commit(0)
        (path / "prepared").write_text(prepared.to_json())
        sink.finalize_commit(prepared)

    (tmp_path / "whole").mkdir()
    with record() as points:
        run(tmp_path / "whole")
    named = [point for point in points if point.startswith("connector.")]
    assert len(named) == 4
    for number in range(1, len(points) + 1):
        path = tmp_path / str(number)
        path.mkdir()
        with arm(Fault(at=number)), pytest.raises(FaultInjected):
            run(path)
        script = Path(__file__).with_name("recover_delta.py")
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
        if number in (1, len(points)):  # another process once, this one for the others
            subprocess.run([sys.executable, script, path, mode], check=True, env=environment, timeout=120)
        else:
            from tests.connectors.recover_delta import recover

            recover(path, mode)
        if not (path / "prepared").exists():
            run(path)
        assert ids(path) == list(range(20)), points[number - 1]


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"mode": "upsert"}, ConfigError),
        ({"partition_by": "nothing"}, SchemaMismatchError),
        ({"mode": "upsert", "key": "nothing"}, SchemaMismatchError),
        ({"target_file_size": "12"}, ConfigError),
        ({"locaton": "x"}, ConfigError),
    ],
)
def test_bad_options_are_refused_and_nothing_is_made(
    tmp_path: Path, options: dict[str, str], error: type[Exception]
) -> None:
    with pytest.raises(error):
        new_sink(tmp_path, **options).initialize(SCHEMA)
    assert not (tmp_path / "t").exists()


def test_a_table_of_another_schema_is_refused(tmp_path: Path) -> None:
    new_sink(tmp_path, partition_by="day").initialize(SCHEMA)
    other = SCHEMA.set(0, pa.field("id", pa.string()))
    with pytest.raises(SchemaMismatchError, match='"id"'):
        new_sink(tmp_path).initialize(other)
    with pytest.raises(SchemaMismatchError, match='"extra"'):
        new_sink(tmp_path).initialize(SCHEMA.append(pa.field("extra", pa.int32())))
    with pytest.raises(ConfigError, match="partitioned by day"):
        new_sink(tmp_path, partition_by="s").initialize(SCHEMA)
    reopened = new_sink(tmp_path)
    reopened.initialize(SCHEMA)
    reopened.write_batch(rows(0, 9))
    reopened.finalize_commit(reopened.prepare_commit(0))
    assert len(files(tmp_path)) == 3


def test_large_writes_become_several_files_before_the_commit(tmp_path: Path) -> None:
    sink = new_sink(tmp_path, target_file_size="20kB")
    sink.initialize(SCHEMA)
    for first in range(0, 4000, 200):
        sink.write_batch(rows(first, first + 200))
    assert len(files(tmp_path)) > 5
    sink.close()
    assert files(tmp_path) == set()
