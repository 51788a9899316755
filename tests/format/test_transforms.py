"""Partition transforms of values, arrays and in SQL."""

from __future__ import annotations

import datetime as dt

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from quacklake.core.format.layout import CALENDAR, EPOCH, IDENTITY, Transform
from quacklake.core.format.transforms import apply, bucket, duckdb_expression
from quacklake.core.format.types import arrow_type, civil, day_number, duckdb_type
from quacklake.errors import InputError

from .oracle import in_utc

DATES = {
    "date": (-(2**31) + 2, 2**31 - 2),
    "timestamp": (-9223372022400000000, 2**63 - 2),
    "timestamptz": (-9223372022400000000, 2**63 - 2),
    "timestamp_s": (-9223372022400, 9223372036854),
    "timestamp_ms": (-9223372022400000, 9223372036854775),
    "timestamp_ns": (-(2**63) + 10**15, 2**63 - 2),
}


@pytest.mark.parametrize("type", DATES)
@settings(max_examples=12, deadline=None)
@given(data=st.data())
def test_arrays_and_sql_agree_on_every_part(type: str, data: st.DataObject) -> None:
    low, high = DATES[type]
    if type == "timestamptz":
        low = -62_135_596_800_000_000  # other years are counted in another way
    near = (
        200
        * 366
        * (86_400 * {"date": 1, "timestamp_s": 1, "timestamp_ms": 10**3, "timestamp_ns": 10**9}.get(type, 10**6))
    )
    if type == "date":
        near //= 86_400
    numbers = data.draw(
        st.lists(st.integers(max(low, -near), min(high, near)) | st.integers(low, high) | st.none(), min_size=1)
    )
    if type == "timestamp_ns":
        # Before 1970 DuckDB cuts nanoseconds toward zero.
        numbers = [None if number is None else number // 1000 * 1000 for number in numbers]
    storage = pa.int32() if type == "date" else pa.int64()
    values = pa.table({"c": pa.array(numbers, storage).cast(arrow_type(type))})
    names = (*CALENDAR, *EPOCH)
    with in_utc() as connection:
        rows = connection.execute(
            f"SELECT {', '.join(duckdb_expression(Transform(name), 'c', type) for name in names)} "
            f"FROM (SELECT c::{duckdb_type(type)} AS c FROM values)"
        ).fetchall()
    for index, name in enumerate(names):
        assert apply(values["c"], Transform(name), type).to_pylist() == [row[index] for row in rows]


@pytest.mark.parametrize("type", ["date", "timestamp", "timestamp_ns", "timestamptz"])
def test_infinity_has_no_parts(type: str) -> None:
    extreme = 2**31 - 1 if type == "date" else 2**63 - 1
    array = pa.array([extreme, -extreme, None], pa.int32() if type == "date" else pa.int64()).cast(arrow_type(type))
    with in_utc() as connection:
        for name in (*CALENDAR, *EPOCH):
            assert apply(array, Transform(name), type).to_pylist() == [None, None, None]
            expression = duckdb_expression(Transform(name), f"'infinity'::{duckdb_type(type)}", type)
            assert connection.execute(f"SELECT {expression}").fetchone() == (None,)


def test_the_identity_is_the_column_itself() -> None:
    array = pa.chunked_array([[1, 2], [3]])
    assert apply(array, IDENTITY, "int64").to_pylist() == [1, 2, 3]
    assert duckdb_expression(IDENTITY, '"c"', "int64") == '"c"'


def test_the_hours_of_a_time_go_up_to_24() -> None:
    array = pa.array([0, 86_400_000_000, None], pa.int64()).cast(pa.time64("us"))
    assert apply(array, Transform("hour"), "time").to_pylist() == [0, 24, None]


@pytest.mark.parametrize("array", [pa.array([1]), pa.array(["2024-01-01"]), pa.array([1]).cast(pa.duration("us"))])
def test_what_has_no_parts_is_refused(array: pa.Array) -> None:
    with pytest.raises(InputError):
        apply(array, Transform("day"), "int64")


@given(st.lists(st.integers(-(2**63), 2**63 - 1) | st.none(), min_size=1), st.integers(1, 2**31 - 1))
def test_buckets_of_arrays_are_those_of_their_values(values: list[int | None], count: int) -> None:
    found = apply(pa.array(values, pa.int64()), Transform("bucket", count), "int64")
    assert found.type == pa.int32()
    assert found.to_pylist() == [bucket(value, "int64", count) for value in values]


@pytest.mark.parametrize(
    ("value", "type", "expected"),
    [
        # From the specification of Iceberg, whose hash this is.
        (34, "int32", 2017239379),
        (dt.date(2017, 11, 16), "date", -653330422),
        (dt.time(22, 31, 8), "time", -662762989),
        (dt.datetime(2017, 11, 16, 22, 31, 8), "timestamp", -2047944441),
        ("iceberg", "varchar", 1210000089),
        (b"\x00\x01\x02\x03", "blob", -188683207),
        (1.0, "float64", -142385009),
        (1.0, "float32", -142385009),
        (-0.0, "float64", 1669671676),
        (True, "boolean", 1392991556),
    ],
)
def test_buckets_are_those_of_iceberg(value: object, type: str, expected: int) -> None:
    assert bucket(value, type, 2**31 - 1) == (expected & 0x7FFFFFFF) % (2**31 - 1)


def test_a_bucket_of_null_is_null() -> None:
    assert bucket(None, "int32", 4) is None


@pytest.mark.parametrize(
    ("value", "type"),
    [("x", "int32"), (float("nan"), "float64"), (1 << 64, "int64"), ("x", "date"), ([1], "int128"), (b"", "geometry")],
)
def test_what_is_not_of_the_type_has_no_bucket(value: object, type: str) -> None:
    with pytest.raises(InputError):
        bucket(value, type, 4)


@given(st.integers(-(10**9), 10**9))
def test_a_day_comes_back_from_its_date(day: int) -> None:
    assert day_number(*civil(day)) == day
