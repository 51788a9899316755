"""Small columns gone through once, against the functions that know every type."""

from __future__ import annotations

import random
from typing import Any

import pyarrow as pa
import pytest

from quacklake.core.format import inline, small_batches
from quacklake.core.format.schema import Column, TableSchema
from quacklake.core.format.stats import of_array

DATABASES = ("sqlite", "postgres", "mysql", "duckdb", inline.PACKED)
_TICKS = (0, 1, -1, 999, -86_400_000_001, 1_700_000_000_123_456, 2**62, -(2**62), 2**63 - 1, -(2**63) + 1)
VALUES: dict[str, tuple[Any, ...]] = {
    "boolean": (True, False),
    "int32": (0, 1, -1, 2**31 - 1, -(2**31)),
    "int64": (0, 7, -7, 2**63 - 1, -(2**63)),
    "varchar": ("", "a", "é", "\U0001f986", "z" * 300, "\U0010ffff" * 200, "a\0b", "it's", "\ud7ff"),
    "float64": (0.0, -0.0, 1.5, -1e300, 5e-324, float("inf"), float("-inf"), float("nan")),
    "date": (0, 1, -719_163, 2**31 - 1, -(2**31) + 1, 2_932_897),
    "timestamp": _TICKS,
    "timestamp_s": (0, 1, -1, 9_223_372_036_854, -9_223_372_036_854),
    "timestamp_ms": (0, 1, -1, 9_223_372_036_854_775),
    "timestamp_ns": (0, 1, -1, 2**63 - 1, -9_223_286_400_000_000_000, 1_700_000_000_123_456_789),
    "timestamptz": _TICKS,
    "time": (0, 1, 86_399_999_999, 86_400_000_000),
}


def _encoded(array: pa.ChunkedArray, column: Column, database: str) -> small_batches.Encoded | None:
    return small_batches.encode(pa.table({"c": array}), TableSchema((column,)), database)[0]


def _array(column: Column, values: list[Any]) -> pa.ChunkedArray:
    arrow = column.arrow_type()
    if column.type in ("boolean", "int32", "int64", "varchar", "float64"):
        return pa.chunked_array([pa.array(values, arrow)])
    plain = pa.int32() if arrow.bit_width == 32 else pa.int64()
    return pa.chunked_array([pa.array(values, plain).view(arrow)])


@pytest.mark.parametrize("database", DATABASES)
@pytest.mark.parametrize("type", VALUES)
def test_a_small_column_is_encoded_and_measured_as_by_the_functions_for_every_type(type: str, database: str) -> None:
    column, dice = Column(3, "c", type), random.Random(f"{type} {database}")
    for _ in range(30):
        some = [dice.choice((None, *VALUES[type])) for _ in range(dice.choice((1, 2, 9)))]
        array = _array(column, dice.choice((some, [value for value in some if value is not None], [None] * len(some))))

        found = _encoded(array, column, database)

        assert found is not None or not len(array)
        if found is None:
            continue
        assert repr(found[0]) == repr(inline.encode(array, column, database))
        assert repr([found[1]]) == repr(of_array(array, column))


def test_what_is_large_or_of_another_type_is_left_to_the_functions_for_every_type() -> None:
    assert _encoded(pa.chunked_array([[1] * 201]), Column(1, "c", "int64"), "sqlite") is None
    assert _encoded(pa.chunked_array([[1], [2]]), Column(1, "c", "int64"), "sqlite") is None
    assert _encoded(pa.chunked_array([[b"1"]]), Column(1, "c", "blob"), "sqlite") is None
    assert _encoded(pa.chunked_array([["{}"]]), Column(1, "c", "json"), "sqlite") is None
    assert _encoded(pa.chunked_array([[1]]).cast(pa.int32()), Column(1, "c", "int64"), "sqlite") is None
    assert _encoded(pa.chunked_array([[]], pa.int64()), Column(1, "c", "int64"), "sqlite") is None
