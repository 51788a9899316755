"""Rows with more columns than the table of a sink."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from quacklake.connectors import Sink
from quacklake.connectors.evolution import holds, united
from quacklake.errors import SchemaMismatchError
from tests.connectors.sinks import FORMATS, Format

FIRST = pa.schema([("id", pa.int64()), ("n", pa.int32()), ("s", pa.string())])


@pytest.fixture(params=FORMATS)
def form(request: pytest.FixtureRequest) -> Format:
    found = FORMATS[request.param]
    if not found.there():
        pytest.skip(f"the package {found.library} is not installed")
    return found


def rows(schema: pa.Schema, *values: tuple[Any, ...]) -> pa.RecordBatch:
    return pa.record_batch([list(column) for column in zip(*values, strict=True)], schema=schema)


def finish(sink: Sink, number: int) -> None:
    sink.finalize_commit(sink.prepare_commit(number))


def seen(form: Format, path: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = form.read(path).sort_by("id").to_pylist()
    return found


@pytest.mark.parametrize("mode", ["append", "upsert"])
def test_schema_evolution_adds_column(form: Format, tmp_path: Path, mode: str) -> None:
    options = {"mode": mode, "key": "id", "schema_evolution": True}
    sink = form.new(tmp_path, **options)
    sink.initialize(FIRST)
    sink.write_batch(rows(FIRST, (1, 1, "a")))
    finish(sink, 0)
    wider = FIRST.append(pa.field("extra", pa.float64(), nullable=False))
    again = form.new(tmp_path, **options)
    again.initialize(wider)
    again.initialize(wider)  # a repeat adds nothing
    again.write_batch(rows(wider, (2, 2, "b", 2.5)))
    finish(again, 1)
    assert seen(form, tmp_path) == [
        {"id": 1, "n": 1, "s": "a", "extra": None},
        {"id": 2, "n": 2, "s": "b", "extra": 2.5},
    ]
    sink.write_batch(rows(FIRST, (3, 3, "c")))  # a writer that knows nothing of the column
    finish(sink, 2)
    assert seen(form, tmp_path)[2] == {"id": 3, "n": 3, "s": "c", "extra": None}


@pytest.mark.parametrize("mode", ["append", "upsert"])
def test_a_column_may_come_and_go_between_batches_of_one_commit(form: Format, tmp_path: Path, mode: str) -> None:
    sink = form.new(tmp_path, mode=mode, key="id", **{"schema.evolution": "true"})
    sink.initialize(FIRST)
    wider = pa.schema([("extra", pa.string()), *FIRST])
    narrower = pa.schema([("id", pa.int64()), ("n", pa.int16())])
    sink.write_batch(rows(FIRST, (1, 1, "a")))
    sink.write_batch(rows(wider, ("x", 2, 2, "b")))
    sink.write_batch(rows(narrower, (3, 3)))
    sink.write_batch(rows(FIRST, (4, 4, "d")))
    prepared = sink.prepare_commit(0)
    assert prepared.records_written == 4
    form.new(tmp_path, mode=mode, key="id").finalize_commit(prepared)  # another process, which knows no schema
    assert seen(form, tmp_path) == [
        {"id": 1, "n": 1, "s": "a", "extra": None},
        {"id": 2, "n": 2, "s": "b", "extra": "x"},
        {"id": 3, "n": 3, "s": None, "extra": None},
        {"id": 4, "n": 4, "s": "d", "extra": None},
    ]


def test_without_the_option_other_rows_are_refused_and_the_table_stays(form: Format, tmp_path: Path) -> None:
    sink = form.new(tmp_path)
    sink.initialize(FIRST)
    wider = FIRST.append(pa.field("extra", pa.float64()))
    with pytest.raises(SchemaMismatchError, match='"extra"'):
        form.new(tmp_path).initialize(wider)
    with pytest.raises(SchemaMismatchError, match='"extra"'):
        sink.write_batch(rows(wider, (1, 1, "a", 1.0)))
    with pytest.raises(SchemaMismatchError, match='"s"'):
        sink.write_batch(rows(FIRST.remove(2), (1, 1)))
    sink.write_batch(rows(pa.schema([FIRST.field(2), FIRST.field(0), FIRST.field(1)]), ("a", 1, 1)))  # in another order
    finish(sink, 0)
    assert seen(form, tmp_path) == [{"id": 1, "n": 1, "s": "a"}]


def test_types_are_widened_where_the_format_can(form: Format, tmp_path: Path) -> None:
    form.new(tmp_path).initialize(FIRST)
    narrow = FIRST.set(0, pa.field("id", pa.int32()))
    sink = form.new(tmp_path, schema_evolution=True)
    sink.initialize(narrow)
    sink.write_batch(rows(narrow, (1, 1, "a")))
    finish(sink, 0)
    wide = FIRST.set(1, pa.field("n", pa.int64()))
    with pytest.raises(SchemaMismatchError, match='"s"'):
        form.new(tmp_path, schema_evolution=True).initialize(FIRST.set(2, pa.field("s", pa.int64())))
    if form.name == "delta":
        with pytest.raises(SchemaMismatchError, match='"n"') as caught:
            form.new(tmp_path, schema_evolution=True).initialize(wide)
        assert "widened" in str(caught.value)
        return
    sink.write_batch(rows(wide, (2, 2**40, "b")))
    finish(sink, 1)
    assert [row["n"] for row in seen(form, tmp_path)] == [1, 2**40]


def test_types_that_hold_others() -> None:
    decimal = pa.decimal128
    assert holds(pa.float64(), pa.float32()) and not holds(pa.float32(), pa.float64())
    assert holds(decimal(12, 2), decimal(9, 2)) and not holds(decimal(12, 3), decimal(9, 2))
    assert not holds(pa.string(), pa.int64())
    with pytest.raises(SchemaMismatchError, match='"a"'):
        united(pa.schema([("a", pa.int64())]), pa.schema([("a", pa.string())]))
