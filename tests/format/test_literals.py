"""Values as text, against the text DuckDB prints."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from quacklake.core.format.texts import literal_text
from quacklake.core.format.types import duckdb_type
from quacklake.errors import InputError

from .oracle import in_utc
from .test_bounds import VALUES

ALL_VALUES = VALUES | {
    "int128": st.integers(-(2**127), 2**127 - 1),
    "uint128": st.integers(0, 2**128 - 1),
}


@pytest.mark.parametrize("type", ALL_VALUES)
@settings(max_examples=8)
@given(data=st.data())
def test_the_text_is_what_duckdb_prints_for_the_value(type: str, data: st.DataObject) -> None:
    values = data.draw(st.lists(ALL_VALUES[type], min_size=1, max_size=50))
    texts = [literal_text(value, type) for value in values]
    with in_utc() as connection:
        rows = connection.execute(
            f"SELECT x::VARCHAR FROM (SELECT unnest(?::VARCHAR[])::{duckdb_type(type)} AS x)", [texts]
        ).fetchall()
    if type == "float32":
        assert [float(text) for text in texts] == pytest.approx([float(text) for (text,) in rows])  # type: ignore[arg-type]
    else:
        assert texts == [text for (text,) in rows]


@given(st.binary())
def test_a_blob_comes_back_from_its_text(value: bytes) -> None:
    with in_utc() as connection:
        text = literal_text(value, "blob")
        assert connection.execute("SELECT ?::VARCHAR::BLOB, ?::BLOB::VARCHAR", [text, value]).fetchone() == (
            value,
            text,
        )


@pytest.mark.parametrize(
    ("value", "type", "text"),
    [
        (None, "int32", None),
        (None, "list", None),
        ("7", "int32", "7"),
        (7.0, "int32", "7"),
        (True, "boolean", "true"),
        ("FALSE", "boolean", "false"),
        (1, "float64", "1.0"),
        (float("nan"), "float32", "nan"),
        (float("-inf"), "float64", "-inf"),
        (Decimal("1.5"), "decimal(9,2)", "1.50"),
        ("1.005", "decimal(9,2)", "1.01"),
        (Decimal("-0.001"), "decimal(9,2)", "0.00"),
        (10**38 - 1, "decimal(38,0)", "9" * 38),
        ("2024-01-05", "date", "2024-01-05"),
        (0, "timestamptz", "1970-01-01 00:00:00+00"),
        (dt.time(1, 2, 3, 500_000), "time", "01:02:03.5"),
        ("NULL", "varchar", "NULL"),
        ('{"a": [1]}', "json", '{"a": [1]}'),
        ("A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11", "uuid", "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"),
    ],
)
def test_values_have_one_text(value: object, type: str, text: str | None) -> None:
    assert literal_text(value, type) == text


@pytest.mark.parametrize(
    ("value", "type"),
    [
        ("x", "int32"),
        (1.5, "int32"),
        (128, "int8"),
        (-1, "uint64"),
        (2, "boolean"),
        ("yes", "boolean"),
        (10, "decimal(2,1)"),
        ("9.99", "decimal(2,1)"),
        ("1e999999999999", "decimal(2,1)"),
        (Decimal("NaN"), "decimal(2,1)"),
        ("2024-02-30", "date"),
        (True, "date"),
        (3, "varchar"),
        ("{", "json"),
        ("ab", "blob"),
        (3, "blob"),
        ("x", "uuid"),
        ([1], "list"),
        ("1 day", "interval"),
        ("01:00:00+00", "timetz"),
        ("1", "variant"),
        (b"", "geometry"),
    ],
)
def test_values_of_another_type_are_refused(value: object, type: str) -> None:
    with pytest.raises(InputError):
        literal_text(value, type)
