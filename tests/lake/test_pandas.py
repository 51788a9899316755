"""Frames of pandas with Arrow types: every type there and back, and no copy of what was read."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pytest

import quacklake
from quacklake.errors import InputError, SchemaMismatchError


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[quacklake.Lake]:
    with quacklake.connect(f"sqlite:///{tmp_path}/lake.db", data_path=tmp_path / "data", duckdb_threads=1) as made:
        yield made


ROWS = pa.table(
    {
        "i": pa.array([2**62 + 1, None, 3], pa.int64()),
        "s": ["a", None, ""],
        "n": pa.array([Decimal("1.10"), None, Decimal("-2.00")], pa.decimal128(10, 2)),
        "d": pa.array([dt.date(1, 1, 1), None, dt.date(9999, 12, 31)]),
        "z": pa.array([dt.datetime(9999, 1, 1, tzinfo=dt.UTC), None, None], pa.timestamp("us", "UTC")),
        "l": pa.array([[1, None], None, []], pa.list_(pa.int32())),
        "t": pa.array([{"x": 1.5}, None, {"x": None}]),
    }
)


def test_values_keep_their_arrow_types_there_and_back(lake: quacklake.Lake) -> None:
    table = lake.create_table("t", ROWS)
    for frame in (
        table.to_pandas(dtype_backend="pyarrow"),
        table.scan().to_pandas(dtype_backend="pyarrow"),
        lake.sql("FROM t").to_pandas(dtype_backend="pyarrow"),
    ):
        assert all(isinstance(dtype, pd.ArrowDtype) for dtype in frame.dtypes)
        assert frame["i"].tolist() == [2**62 + 1, pd.NA, 3]
        back = lake.create_table(f"back{len(lake.tables())}", table.schema)
        assert back.append(frame) == 3
        assert back.to_pylist() == table.to_pylist() == ROWS.to_pylist()
    assert table.to_pandas(["i"], "i = 3", dtype_backend="pyarrow").to_dict("records") == [{"i": 3}]


def test_a_frame_shares_the_memory_that_was_read(lake: quacklake.Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    scan = lake.create_table("t", pa.table({"i": range(1000), "x": [0.5] * 1000, "s": ["text"] * 1000})).scan()
    read = scan.to_arrow()
    monkeypatch.setattr(type(scan), "to_arrow", lambda _: read)
    frame = scan.to_pandas(dtype_backend="pyarrow")
    for name in read.column_names:
        kept, given = pa.chunked_array(frame[name].array.__arrow_array__()).chunk(0), read[name].chunk(0)
        assert [b and b.address for b in kept.buffers()] == [b and b.address for b in given.buffers()]


def test_another_kind_of_types_is_refused(lake: quacklake.Lake) -> None:
    table = lake.create_table("t", [{"id": 1}])
    with pytest.raises(InputError, match="numpy_nullable") as caught:
        table.to_pandas(dtype_backend="numpy_nullable")
    assert "pyarrow" in str(caught.value.hint)


def test_an_index_with_the_name_of_a_column_and_other_values_is_refused(lake: quacklake.Lake) -> None:
    frame = pd.DataFrame({"id": [1, 2], "v": [1.5, None]})
    lake.create_table("kept", frame.set_index(["id", "v"], drop=False))
    assert lake.table("kept").to_pylist() == [{"id": 1, "v": 1.5}, {"id": 2, "v": None}]
    others = (pd.Index([7, 8], name="id"), pd.MultiIndex.from_arrays([[1, 2], [5, 6]], names=["id", "v"]))
    for index in others:
        with pytest.raises(SchemaMismatchError, match="the index of the pandas frame is named like") as caught:
            lake.create_table("lost", frame.set_index(index))
        assert "rename_axis" in str(caught.value.hint)
    assert lake.tables() == ["main.kept"]


def test_sparse_columns_are_read_as_others(lake: quacklake.Lake) -> None:
    frame = pd.DataFrame({"i": pd.arrays.SparseArray([0, 0, 7]), "s": ["a", "b", "c"]})
    expected = [(0, "a"), (0, "b"), (7, "c")]
    table = lake.create_table("t", frame)
    assert lake.sql("FROM t ORDER BY s").fetchall() == expected
    assert lake.sql("FROM frame ORDER BY s").fetchall() == expected
    assert table.merge(frame, on="s").updated == 3
    table.append(frame)
    assert table.count() == 6
