"""Column statistics, against what the reference implementation writes for the same rows."""

from __future__ import annotations

import datetime as dt
import json
import math
import timeit
import uuid
from decimal import Decimal
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from quacklake.core.format.bounds import decode
from quacklake.core.format.schema import Column, ColumnRow, TableSchema, from_arrow, unflatten
from quacklake.core.format.stats import ColumnStats, TableColumnStats, merge, of_array

from .oracle import lake

LONG = "x" * 300
ROWS = {
    "BOOLEAN": "true, false, NULL",
    "TINYINT": "-3, 7, NULL",
    "SMALLINT": "-3, 7",
    "INTEGER": "-3, 7, 12",
    "BIGINT": "9223372036854775807, 2, NULL",
    "HUGEINT": "1, 2, NULL",
    "UTINYINT": "255, 0",
    "UBIGINT": "18446744073709551615, 3",
    "FLOAT": "0.1, 1e30, -2.5, NULL",
    "DOUBLE": "0.1, 'nan', 1e300, 'inf', NULL",
    "DECIMAL(4,1)": "1.5, -2.5, NULL",
    "DECIMAL(4,4)": "0.1234, 0.5",
    "DECIMAL(38,10)": "1.5, -99999999.5",
    "TIME": "'24:00:00', '01:02:03.5', NULL",
    "DATE": "'2024-01-01', 'infinity', '0044-03-15 (BC)', NULL",
    "TIMESTAMP": "'2024-01-01 01:02:03.5', '-infinity', '12345-01-01 00:00:00'",
    "TIMESTAMP_S": "'2024-01-01 01:02:03', '1969-01-01 00:00:00'",
    "TIMESTAMP_MS": "'2024-01-01 01:02:03.123'",
    "TIMESTAMP_NS": "'2024-01-01 01:02:03.123456789', NULL",
    "TIMESTAMPTZ": "'2024-01-01 01:02:03+02', NULL",
    "VARCHAR": f"'a', 'Z', 'é', '', '{LONG}', NULL",
    "BLOB": "'x'::BLOB, '\\x00\\xFF'::BLOB, NULL",
    "JSON": "'{\"a\":1}', NULL",
    "UUID": "'ffffffff-e89b-12d3-a456-426614174000', '123e4567-e89b-12d3-a456-426614174000', NULL",
    "GEOMETRY": "'POINT(1 2)'::GEOMETRY, 'LINESTRING(0 0, 5 -6)'::GEOMETRY, NULL",
    "INTEGER[]": "[1, NULL, 3], NULL, [], [NULL]",
    "INTEGER[][]": "[[1, 2], NULL, []], [], NULL, [[7]]",
    "STRUCT(a INTEGER, b VARCHAR[])": "{'a': 1, 'b': ['x']}, NULL, {'a': NULL, 'b': []}",
    "MAP(VARCHAR, DOUBLE)": "MAP {'k': 1}, NULL, MAP {}, MAP {'a': NULL}",
    "STRUCT(m MAP(INTEGER, STRUCT(d DATE)[]))": "{'m': MAP {1: [{'d': '2024-01-01'::DATE}], 2: NULL}}, NULL",
}


Written = tuple[TableSchema, pa.Table, list[tuple[Any, ...]]]
"""The columns, rows and file statistics of a table the reference implementation has written."""


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Written]:
    """A table with one column for every entry of ROWS, made by the reference implementation."""
    with lake(tmp_path_factory.mktemp("reference")) as connection:
        return {type: _write(connection, f"t{number}", type) for number, type in enumerate(ROWS)}


def _write(connection: duckdb.DuckDBPyConnection, name: str, type: str) -> Written:
    catalog = "__ducklake_metadata_l"
    connection.execute(f"CREATE TABLE l.{name} (x {type})")
    connection.execute(f"INSERT INTO l.{name} SELECT unnest(CAST([{ROWS[type]}] AS {type}[]))")
    its = f"WHERE table_id = (SELECT table_id FROM {catalog}.ducklake_table WHERE table_name = '{name}')"
    rows = connection.execute(
        "SELECT column_id, parent_column, column_order, column_name, column_type, initial_default, default_value, "
        f"nulls_allowed, default_value_type, default_value_dialect FROM {catalog}.ducklake_column {its}"
    ).fetchall()
    written = connection.execute(
        "SELECT column_id, value_count, null_count, min_value, max_value, contains_nan, extra_stats "
        f"FROM {catalog}.ducklake_file_column_stats {its} ORDER BY column_id"
    ).fetchall()
    return (
        unflatten(ColumnRow(*row) for row in rows),
        connection.sql(f"SELECT x FROM l.{name}").to_arrow_table(),
        written,
    )


@pytest.mark.parametrize("type", ROWS)
def test_statistics_equal_those_of_the_reference_implementation(type: str, reference: dict[str, Written]) -> None:
    schema, table, written = reference[type]
    assert schema.to_arrow().types == table.schema.types
    ours = of_array(table["x"], schema.columns[0])
    for one, theirs in zip(ours, written, strict=True):
        assert (one.column_id, one.value_count, one.null_count) == theirs[:3]
        assert (one.min, one.max) == theirs[3:5]
        assert one.contains_nan == theirs[5]
        # The two write the same numbers with other digits.
        assert one.extra == theirs[6] or json.loads(one.extra or "") == json.loads(theirs[6])


@pytest.mark.parametrize("type", [type for type in ROWS if "[" not in type])
def test_many_rows_have_the_statistics_of_few(type: str, reference: dict[str, Written]) -> None:
    schema, table, _ = reference[type]
    column = schema.columns[0]
    few = of_array(table["x"], column)
    for array in (pa.chunked_array(table["x"].chunks * 300), pa.concat_arrays(table["x"].chunks * 300)):
        expected = [
            s._replace(value_count=300 * (s.value_count or 0), null_count=300 * (s.null_count or 0)) for s in few
        ]
        assert of_array(array, column) == expected


def _one(array: pa.Array | pa.ChunkedArray, type: str) -> ColumnStats:
    (only,) = of_array(array, Column(1, "x", type))
    return only


UUIDS = [uuid.UUID(int=5), uuid.UUID(int=2**127)]


@pytest.mark.parametrize("repeat", [1, 500])
@pytest.mark.parametrize(
    ("array", "type", "low", "high"),
    [
        (pa.array(["b", "a", None, "b"]).dictionary_encode(), "varchar", "a", "b"),
        (pa.array(["b", "a"], pa.string_view()), "varchar", "a", "b"),
        (pa.array(["b", "a"], pa.large_string()), "varchar", "a", "b"),
        (pa.array(['"b"', "1"], pa.json_(pa.string())), "json", '"b"', "1"),
        (pa.array([b"b", b"\x00"], pa.binary_view()), "blob", "00", "62"),
        (pa.array([b"ab", b"zz"], pa.binary(2)), "blob", "6162", "7A7A"),
        (pa.array([u.bytes for u in UUIDS], pa.uuid()), "uuid", str(UUIDS[0]), str(UUIDS[1])),
        (pa.array([u.bytes for u in UUIDS], pa.binary(16)), "uuid", str(UUIDS[0]), str(UUIDS[1])),
        (pa.array([str(u).upper() for u in UUIDS]), "uuid", str(UUIDS[0]), str(UUIDS[1])),
        (pa.array([1, 2], pa.int64()), "int8", "1", "2"),
        (pa.array([1, 2], pa.int64()), "float64", "1.0", "2.0"),
        (pa.array([1, 2], pa.int64()), "decimal(5,2)", "1.00", "2.00"),
        (pa.array([1.5, math.nan], pa.float16()), "float32", "1.5", "1.5"),
        (pa.array([dt.date(2024, 1, 1)], pa.date64()), "date", "2024-01-01", "2024-01-01"),
        (pa.array([dt.date(2024, 1, 1)], pa.date32()), "timestamp", "2024-01-01 00:00:00", "2024-01-01 00:00:00"),
        (pa.array([3], pa.time32("s")), "time", "00:00:03", "00:00:03"),
        (pa.array([1], pa.timestamp("ns", tz="Asia/Tokyo")), "timestamptz",
         "1970-01-01 00:00:00.000000001+00", "1970-01-01 00:00:00.000000001+00"),
        (pa.array([Decimal("1.5"), Decimal("-2.5")]), "decimal(38,1)", "-2.5", "1.5"),
    ],
)  # fmt: skip
def test_arrays_of_other_layouts_are_measured(array: pa.Array, type: str, low: str, high: str, repeat: int) -> None:
    measured = _one(pa.chunked_array([array] * repeat), type)
    assert (measured.min, measured.max) == (low, high)


@pytest.mark.parametrize("size", [0, 3, 1000])
@pytest.mark.parametrize("type", ["int32", "float64", "varchar", "timestamp", "interval", "uuid"])
def test_a_column_without_values_has_no_bounds(type: str, size: int) -> None:
    for array in (pa.nulls(size), pa.nulls(size, Column(1, "x", type).arrow_type())):
        nan = False if type == "float64" else None
        assert _one(array, type) == ColumnStats(1, None, 0, size, contains_nan=nan)


@pytest.mark.parametrize("size", [1, 1000])
def test_only_nan_has_no_bounds(size: int) -> None:
    assert _one(pa.array([math.nan] * size), "float64") == ColumnStats(1, None, size, 0, contains_nan=True)


def test_nested_columns_without_values_have_leaves() -> None:
    arrow = pa.schema([("m", pa.map_(pa.string(), pa.list_(pa.struct([("a", pa.int8()), ("b", pa.date32())]))))])
    column = from_arrow(arrow).columns[0]
    for array in (pa.nulls(2, arrow.field("m").type), pa.nulls(2), pa.chunked_array([], arrow.field("m").type)):
        assert [(s.column_id, s.value_count, s.null_count) for s in of_array(array, column)] == [
            (2, 0, len(array)),
            (5, 0, len(array)),
            (6, 0, len(array)),
        ]


def test_a_missing_struct_in_a_list_counts_once() -> None:
    # The reference implementation counts it twice and then writes a value count of 0 next to the bounds.
    arrow = pa.schema([("x", pa.list_(pa.struct([("d", pa.int8())])))])
    (measured,) = of_array(pa.array([[{"d": 1}, None], None], arrow.field("x").type), from_arrow(arrow).columns[0])
    assert measured == ColumnStats(3, None, 1, 2, "1", "1", min_exact=True, max_exact=True)


def test_bounds_without_counted_values_still_widen_the_table() -> None:
    old, miscounted = TableColumnStats(1, False, None, "1", "6"), ColumnStats(1, 0, 0, 4, "9", "9")
    assert merge(old, miscounted, "int32", first=False).max == "9"


def test_a_slice_is_measured_without_its_surroundings() -> None:
    arrow = pa.schema([("m", pa.map_(pa.string(), pa.int8())), ("s", pa.struct([("l", pa.list_(pa.int8()))]))])
    schema = from_arrow(arrow)
    table = pa.table(
        {"m": [[("z", 9)], [("b", 2)], None, [("a", 1)]], "s": [{"l": [99]}, {"l": [3, 4]}, None, {"l": [-9]}]}, arrow
    )
    part = table.slice(1, 2)
    assert [(s.min, s.max, s.null_count) for s in of_array(part["m"], schema.columns[0])] == [
        ("b", "b", 1),
        ("2", "2", 1),
    ]
    assert [(s.min, s.max, s.null_count) for s in of_array(part["s"], schema.columns[1])] == [("3", "4", 1)]


@given(st.lists(st.none() | st.floats(width=64), max_size=8), st.lists(st.none() | st.floats(width=64), max_size=8))
def test_merged_bounds_hold_for_both_sides(one: list[float | None], two: list[float | None]) -> None:
    first = merge(None, _one(pa.array(one, pa.float64()), "float64"), "float64", first=True)
    both = merge(first, _one(pa.array(two, pa.float64()), "float64"), "float64", first=False)
    values = [value for value in one + two if value is not None and not math.isnan(value)]
    low, high = decode(both.min, "float64"), decode(both.max, "float64")
    assert low is None or all(value >= low for value in values)  # type: ignore[operator]
    assert high is None or all(value <= high for value in values)  # type: ignore[operator]
    assert both.contains_null is (None in one + two)
    assert both.contains_nan is any(value is not None and math.isnan(value) for value in one + two)


NEW = ColumnStats(1, 10, 2, 0, "5", "7")


def test_the_first_rows_decide_alone() -> None:
    assert merge(TableColumnStats(1, True, None, "0", "9"), NEW, "int32", first=True) == TableColumnStats(
        1, False, None, "5", "7"
    )


def test_a_column_the_table_knew_nothing_of_stays_unknown() -> None:
    assert merge(None, NEW, "int32", first=False) == TableColumnStats(1)


@pytest.mark.parametrize(
    ("old", "new", "low", "high"),
    [
        (("1", "6"), ("5", "10"), "1", "10"),
        (("9", "10"), ("-5", "9"), "-5", "10"),
        ((None, "6"), ("5", "7"), None, "7"),
        (("1", "6"), (None, None), None, None),
        (("x", "6"), ("5", "7"), None, "7"),
    ],
)
def test_a_bound_that_either_side_lacks_is_lost(
    old: tuple[str | None, str | None], new: tuple[str | None, str | None], low: str | None, high: str | None
) -> None:
    added = NEW._replace(min=new[0], max=new[1])
    merged = merge(TableColumnStats(1, False, None, *old), added, "int32", first=False)
    assert (merged.min, merged.max) == (low, high)


def test_rows_without_values_leave_the_bounds_alone() -> None:
    old = TableColumnStats(1, False, None, "1", "6", "{}")
    assert merge(old, ColumnStats(1, 0, 0, 4), "int32", first=False) == old._replace(contains_null=True)


def test_merging_turns_plain_casts_into_the_documented_text() -> None:
    added = ColumnStats(1, 1, 1, 0, "1", "1")
    assert merge(TableColumnStats(1, False, None, "0", "true"), added, "boolean", first=False).max == "1"
    blob = ColumnStats(1, 1, 1, 0, "00", "00")
    assert merge(TableColumnStats(1, False, None, "00FF", "x"), blob, "blob", first=False).max == "78"


def test_a_nan_bound_of_another_writer_is_dropped() -> None:
    merged = merge(TableColumnStats(1, False, True, "1.0", "nan"), NEW, "float64", first=False)
    assert (merged.min, merged.max, merged.contains_nan) == ("1.0", None, None)


@pytest.mark.parametrize(
    ("old", "new", "merged"), [(None, 1, None), (False, None, None), (True, 0, True), (False, 2, True)]
)
def test_null_is_known_only_when_both_sides_know(old: bool | None, new: int | None, merged: bool | None) -> None:
    added = NEW._replace(null_count=new)
    assert merge(TableColumnStats(1, old), added, "int32", first=False).contains_null is merged


def test_ten_rows_are_measured_in_microseconds() -> None:
    column, array = Column(1, "x", "int64"), pa.chunked_array([list(range(10))])
    best = min(timeit.repeat(lambda: of_array(array, column), number=200, repeat=20)) / 200
    assert best < 100e-6, "ten times the aim, for slow machines"
