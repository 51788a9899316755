"""Two phases into tables of other formats, as their own libraries read them."""

from __future__ import annotations

import datetime as dt
import io
import json
import math
import os
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from quacklake.core.faults import Fault, FaultInjected, _hooked, arm, record
from quacklake.errors import ConfigError, ConnectorError, ConstraintError, SchemaMismatchError
from tests.connectors.recover_sink import recover
from tests.connectors.sinks import FORMATS, Format

SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("day", pa.date32()),
        ("v", pa.float64()),
        ("s", pa.string()),
        ("t", pa.timestamp("us", "UTC")),
    ]
)
START = dt.datetime(2024, 1, 1, tzinfo=dt.UTC)


def rows(first: int, end: int, text: str = "s") -> pa.RecordBatch:
    numbers = range(first, end)
    return pa.record_batch(
        {
            "id": list(numbers),
            "day": [None if n % 11 == 10 else dt.date(2024, 1, 1 + n % 3) for n in numbers],
            "v": [float("nan") if n % 7 == 6 else n / 2 for n in numbers],
            "s": [f"{text}{n}" for n in numbers],
            "t": [START + dt.timedelta(hours=7 * n, microseconds=n) for n in numbers],
        },
        schema=SCHEMA,
    )


@pytest.fixture(params=FORMATS)
def form(request: pytest.FixtureRequest) -> Format:
    found = FORMATS[request.param]
    if not found.there():
        pytest.skip(f"the package {found.library} is not installed")
    return found


def comparable(table: pa.Table) -> list[dict[str, object]]:
    """Rows in order, with texts where NaN would not equal itself."""
    listed = table.select(SCHEMA.names).sort_by("id").to_pylist()
    return [{**row, "v": str(row["v"])} for row in listed]


PARTITIONS = [
    *[("delta", text) for text in ("", "day", "day,s", "t")],
    *[("iceberg", text) for text in ("", "day", "days(t)", "bucket(4, id)", "truncate(2, s)", "hours(t)", "void(s)")],
    *[("iceberg", text) for text in ("months(t), bucket(3, s)", "years(day)")],
]


@pytest.mark.parametrize(("name", "partition_by"), PARTITIONS)
def test_rows_are_seen_after_finalize_and_not_before(tmp_path: Path, name: str, partition_by: str) -> None:
    form = FORMATS[name]
    if not form.there():
        pytest.skip(f"the package {form.library} is not installed")
    sink = form.new(tmp_path, partition_by=partition_by)
    sink.initialize(SCHEMA)
    for first in range(0, 40, 10):
        sink.write_batch(rows(first, first + 10))
    prepared = sink.prepare_commit(0)
    assert (prepared.records_written, form.ids(tmp_path)) == (40, [])
    assert prepared.bytes_written == sum((tmp_path / file).stat().st_size for file in form.files(tmp_path))
    assert len(prepared.data_files) == len(form.files(tmp_path))
    info = sink.finalize_commit(prepared)
    assert comparable(form.read(tmp_path)) == comparable(pa.Table.from_batches([rows(0, 40)]))
    assert sink.finalize_commit(prepared).version == info.version
    assert form.new(tmp_path).finalize_commit(prepared).version == info.version
    assert (form.versions(tmp_path), len(form.ids(tmp_path))) == (1, 40)


def test_checkpoints_follow_each_other_and_old_ones_add_nothing(tmp_path: Path, form: Format) -> None:
    sink = form.new(tmp_path, writer_id="one")
    sink.initialize(SCHEMA)
    kept = []
    for number in range(3):
        sink.write_batch(rows(number * 10, number * 10 + 10))
        kept.append(sink.prepare_commit(number))
        sink.finalize_commit(kept[-1])
    for prepared in kept:
        sink.finalize_commit(prepared)
        sink.abort(prepared)  # what the log has stays
    other = form.new(tmp_path, writer_id="two")
    other.initialize(SCHEMA)
    other.write_batch(rows(30, 35))
    other.finalize_commit(other.prepare_commit(0))  # another writer counts for itself
    assert form.ids(tmp_path) == list(range(35))
    assert form.versions(tmp_path) == 4


def test_a_checkpoint_without_rows_is_remembered(tmp_path: Path, form: Format) -> None:
    sink = form.new(tmp_path)
    sink.initialize(SCHEMA)
    empty = sink.prepare_commit(5)
    assert (empty.records_written, empty.data_files) == (0, ())
    sink.finalize_commit(empty)
    sink.write_batch(rows(0, 3))
    sink.finalize_commit(sink.prepare_commit(5))
    assert form.ids(tmp_path) == []


def test_what_was_prepared_before_a_crash_is_aborted_by_a_new_sink(tmp_path: Path, form: Format) -> None:
    first = form.new(tmp_path)
    first.initialize(SCHEMA)
    first.write_batch(rows(0, 10))
    prepared = first.prepare_commit(0)
    again = form.new(tmp_path)
    again.abort(prepared)
    again.abort(prepared)
    again.abort(None)
    assert (form.versions(tmp_path), form.files(tmp_path)) == (0, set())
    again.initialize(SCHEMA)
    again.write_batch(rows(0, 5))
    again.finalize_commit(again.prepare_commit(0))
    assert form.ids(tmp_path) == list(range(5))


def test_an_upsert_replayed_changes_nothing(tmp_path: Path, form: Format) -> None:
    options = {"mode": "upsert", "key": "id"}
    sink = form.new(tmp_path, **options)
    sink.initialize(SCHEMA)
    for number, (first, end) in enumerate([(0, 10), (5, 15), (12, 13)]):
        sink.write_batch(rows(first, end, f"e{number}-"))
        prepared = sink.prepare_commit(number)
        version = sink.finalize_commit(prepared).version
        assert form.new(tmp_path, **options).finalize_commit(prepared).version == version
    texts = [f"e0-{n}" for n in range(5)] + [f"e1-{n}" for n in range(5, 15)]
    texts[12] = "e2-12"
    found = form.read(tmp_path).sort_by("id")
    assert found.column("s").to_pylist() == texts
    assert [file for file in form.files(tmp_path) if "quacklake" in file] == []


def test_an_upsert_keeps_the_last_row_of_a_key(tmp_path: Path, form: Format) -> None:
    sink = form.new(tmp_path, mode="upsert", key="id", target_file_size="1kB")
    sink.initialize(SCHEMA)
    sink.write_batch(rows(0, 5, "old"))
    sink.finalize_commit(sink.prepare_commit(0))
    for text in ("first", "second", "third"):
        sink.write_batch(rows(3, 8, text))
    sink.write_batch(rows(4, 5, "last"))
    sink.finalize_commit(sink.prepare_commit(1))
    texts = [*(f"old{n}" for n in range(3)), "third3", "last4", *(f"third{n}" for n in range(5, 8))]
    assert form.read(tmp_path).sort_by("id").column("s").to_pylist() == texts


def test_an_upsert_that_another_writer_overtakes_is_tried_again(tmp_path: Path, form: Format) -> None:
    sinks = {name: form.new(tmp_path, mode="upsert", key="id", writer_id=name) for name in ("first", "slow", "quick")}
    for name, sink in sinks.items():
        sink.initialize(SCHEMA)
        sink.write_batch(rows(0, 5, name))
    prepared = {name: sink.prepare_commit(0) for name, sink in sinks.items()}
    sinks["first"].finalize_commit(prepared["first"])
    waiting = ["quick"]

    def overtake(point: str) -> None:
        if point == "storage.open_input.before" and waiting:  # the slow one has opened the table
            name = waiting.pop()
            sinks[name].finalize_commit(prepared[name])

    with _hooked(overtake):
        sinks["slow"].finalize_commit(prepared["slow"])
    assert not waiting
    assert form.read(tmp_path).sort_by("id").column("s").to_pylist() == [f"slow{n}" for n in range(5)]


def test_a_row_without_a_key_is_refused_before_it_is_written(tmp_path: Path, form: Format) -> None:
    sink = form.new(tmp_path, mode="upsert", key="id,day")
    sink.initialize(SCHEMA)
    sink.write_batch(rows(0, 5))
    with pytest.raises(ConstraintError, match='"day"'):
        sink.write_batch(rows(5, 15))
    sink.finalize_commit(sink.prepare_commit(0))
    assert form.ids(tmp_path) == list(range(5))


def test_an_overwrite_leaves_the_rows_of_the_last_checkpoint(tmp_path: Path, form: Format) -> None:
    sink = form.new(tmp_path, mode="overwrite")
    sink.initialize(SCHEMA)
    for number in range(3):
        sink.write_batch(rows(number * 10, number * 10 + 5))
        sink.finalize_commit(sink.prepare_commit(number))
    assert form.ids(tmp_path) == list(range(20, 25))


@pytest.mark.parametrize("mode", ["append", "upsert"])
def test_a_death_at_any_point_is_made_good_by_the_next_process(tmp_path: Path, form: Format, mode: str) -> None:
    """The next process finalizes what was prepared, or writes the batch again; either way each row is there once."""

    def run(path: Path) -> None:
        sink = form.new(path, mode=mode, **({"key": "id"} if mode == "upsert" else {}))
        sink.initialize(SCHEMA)
        sink.write_batch(rows(0, 20))
        prepared = sink.prepare_commit(0)
        (path / "prepared").write_text(prepared.to_json())
        sink.finalize_commit(prepared)

    (tmp_path / "whole").mkdir()
    with record() as points:
        run(tmp_path / "whole")
    assert len([point for point in points if point.startswith(f"connector.{form.name}")]) >= 4
    # every step of ours, and the first and the last time that a step of the store is reached
    places = [place for place, point in enumerate(points, 1) if point.startswith("connector.")]
    places += {point: place for place, point in enumerate(points, 1)}.values()
    places += {point: len(points) - place for place, point in enumerate(reversed(points))}.values()
    for number in sorted(set(places)):
        path = tmp_path / str(number)
        path.mkdir()
        with arm(Fault(at=number)), pytest.raises(FaultInjected):
            run(path)
        if number == points.index(f"connector.{form.name}.commit.before") + 1:  # another process once
            command = [sys.executable, "-m", "tests.connectors.recover_sink", form.name, str(path), mode]
            environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
            subprocess.run(command, check=True, env=environment, timeout=120)
        else:
            recover(form.name, path, mode)
        if not (path / "prepared").exists():
            run(path)
        assert form.ids(path) == list(range(20)), points[number - 1]


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"mode": "upsert"}, ConfigError),
        ({"partition_by": "nothing"}, (SchemaMismatchError, ConfigError)),
        ({"mode": "upsert", "key": "nothing"}, SchemaMismatchError),
        ({"target_file_size": "12"}, ConfigError),
        ({"locaton": "x"}, ConfigError),
    ],
)
def test_bad_options_are_refused_and_nothing_is_made(
    tmp_path: Path, form: Format, options: dict[str, str], error: type[Exception]
) -> None:
    with pytest.raises(error):
        form.new(tmp_path, **options).initialize(SCHEMA)
    assert not (tmp_path / "t").exists()
    assert not list(tmp_path.rglob("*.metadata.json"))


def test_types_of_arrow_that_delta_has_under_another_name_are_kept(tmp_path: Path) -> None:
    form = FORMATS["delta"]
    if not form.there():
        pytest.skip("the package deltalake is not installed")
    rows = pa.table(
        {
            "id": pa.array([1, 2]),
            "nested": pa.array([[{"a": "x"}], None], pa.large_list(pa.struct([("a", pa.large_string())]))),
            "mapped": pa.array([[("k", 1)], []], pa.map_(pa.string_view(), pa.timestamp("ms", "Europe/Berlin"))),
            "coded": pa.array(["a", "b"]).dictionary_encode(),
        }
    )
    for number in range(2):  # the second finds the table
        sink = form.new(tmp_path, mode="overwrite")
        sink.initialize(rows.schema)
        for batch in rows.to_batches():
            sink.write_batch(batch)
        sink.finalize_commit(sink.prepare_commit(number))
    assert form.read(tmp_path).sort_by("id").to_pylist() == rows.to_pylist()


@pytest.mark.parametrize("kind", [pa.uint32(), pa.time64("us"), pa.duration("s"), pa.list_(pa.uint64())], ids=str)
def test_a_type_that_delta_does_not_have_is_refused_and_nothing_is_made(tmp_path: Path, kind: pa.DataType) -> None:
    form = FORMATS["delta"]
    if not form.there():
        pytest.skip("the package deltalake is not installed")
    with pytest.raises(SchemaMismatchError, match='"odd"'):
        form.new(tmp_path).initialize(SCHEMA.append(pa.field("odd", kind)))
    assert not (tmp_path / "t").exists()


@pytest.mark.parametrize("text", ["bucket(id)", "bucket(0, id)", "weeks(t)", "days(s)", "days(nothing)", "days(2, t)"])
def test_a_partition_that_cannot_be_is_refused(tmp_path: Path, text: str) -> None:
    form = FORMATS["iceberg"]
    if not form.there():
        pytest.skip("the package pyiceberg is not installed")
    with pytest.raises(ConfigError, match="partition_by"):
        form.new(tmp_path, partition_by=text).initialize(SCHEMA)


def test_a_table_of_another_schema_is_refused(tmp_path: Path, form: Format) -> None:
    form.new(tmp_path, partition_by="day").initialize(SCHEMA)
    other = SCHEMA.set(0, pa.field("id", pa.string()))
    with pytest.raises(SchemaMismatchError, match='"id"'):
        form.new(tmp_path).initialize(other)
    with pytest.raises(SchemaMismatchError, match='"extra"'):
        form.new(tmp_path).initialize(SCHEMA.append(pa.field("extra", pa.int32())))
    with pytest.raises(ConfigError, match="partition"):
        form.new(tmp_path, partition_by="s").initialize(SCHEMA)
    reopened = form.new(tmp_path)
    reopened.initialize(SCHEMA)
    reopened.write_batch(rows(0, 9))
    reopened.finalize_commit(reopened.prepare_commit(0))
    assert len(form.files(tmp_path)) == 3


def test_large_writes_become_several_files_before_the_commit(tmp_path: Path, form: Format) -> None:
    sink = form.new(tmp_path, target_file_size="20kB")
    sink.initialize(SCHEMA)
    for first in range(0, 4000, 200):
        sink.write_batch(rows(first, first + 200))
    assert len(form.files(tmp_path)) > 5
    sink.close()
    sink.close()
    assert form.files(tmp_path) == set()
    with pytest.raises(ConnectorError, match="initialize"):
        sink.write_batch(rows(0, 1))


def test_statistics_of_delta_rule_files_out_and_never_one_too_many(tmp_path: Path) -> None:
    deltalake = pytest.importorskip("deltalake", reason="the package deltalake is not installed")
    form = FORMATS["delta"]
    sink = form.new(tmp_path)
    sink.initialize(SCHEMA)
    for number in range(4):
        sink.write_batch(rows(number * 100, number * 100 + 100))
        sink.finalize_commit(sink.prepare_commit(number))
    table = deltalake.DeltaTable(str(tmp_path / "t"))
    actions = pa.table(table.get_add_actions(flatten=True))
    assert sorted(actions.column("min.id").to_pylist()) == [0, 100, 200, 300]
    assert sorted(actions.column("num_records").to_pylist()) == [100] * 4
    assert "max.v" not in actions.column_names or set(actions.column("max.v").to_pylist()) == {None}
    dataset = table.to_pyarrow_dataset()
    for low, high in ((0, 1), (99, 101), (250, 251), (399, 500)):
        wanted = (pc.field("id") >= low) & (pc.field("id") < high)
        assert sorted(dataset.to_table(filter=wanted).column("id").to_pylist()) == list(range(low, min(high, 400)))
    edge = START + dt.timedelta(hours=7 * 399, microseconds=399)
    assert dataset.to_table(filter=pc.field("t") >= pa.scalar(edge)).num_rows == 1


@pytest.mark.parametrize("row_group_size", [1, 2, None])
def test_statistics_of_a_delta_file_are_those_of_its_rows(row_group_size: int | None) -> None:
    pytest.importorskip("deltalake", reason="the package deltalake is not installed")
    from quacklake.connectors.delta.files import statistics

    moments = [dt.datetime(2024, 1, 1, 1, 2, 3, 4), None, dt.datetime(1950, 1, 1)]
    table = pa.table(
        {
            "small": pa.array([3, None, 255], pa.uint8()),
            "a.b": pa.array([2**62, -5, 1], pa.int64()),
            "number": [1.5, 2.5, -0.0],
            "infinite": [1.5, math.inf, 0.0],
            "nan": [1.0, math.nan, 2.0],
            "text": ["b", "é", "a"],
            "long": ["x" * 65, "y", "z"],
            "day": pa.array([dt.date(2024, 1, 2), dt.date(1960, 1, 1), None]),
            "at": pa.array(moments, pa.timestamp("us")),
            "instant": pa.array(moments, pa.timestamp("us", "UTC")),
            "nothing": pa.array([None] * 3, pa.int64()),
            "list": [[1], [2], None],
        }
    )
    footers: list[pq.FileMetaData] = []
    pq.write_table(table, io.BytesIO(), row_group_size=row_group_size, metadata_collector=footers)
    found = json.loads(statistics(table.schema, footers[0], table), parse_constant=pytest.fail)
    assert found["minValues"] == {
        "small": 3,
        "a.b": -5,
        "number": -0.0,
        "text": "a",
        "day": "1960-01-01",
        "at": "1950-01-01T00:00:00.000000",
        "instant": "1950-01-01T00:00:00.000000Z",
    }
    assert found["maxValues"] == {
        "small": 255,
        "a.b": 2**62,
        "number": 2.5,
        "text": "é",
        "day": "2024-01-02",
        "at": "2024-01-01T01:02:03.000004",
        "instant": "2024-01-01T01:02:03.000004Z",
    }
    assert (found["numRecords"], found["nullCount"]["small"], found["nullCount"]["nothing"]) == (3, 1, 3)
    assert "list" not in found["nullCount"]
