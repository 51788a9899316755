"""Statistics text, against what DuckDB prints and how it orders."""

from __future__ import annotations

import datetime as dt
import itertools
import math
import struct
import uuid
from decimal import Decimal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from quacklake.core.format.bounds import MAX_BOUND, comparable, decode, encode, encode_comparable, shorten
from quacklake.core.format.types import INFINITY, SCALARS, StatsKind, duckdb_type, from_physical

from .oracle import in_utc

FLOAT32 = st.floats(width=32, allow_nan=False)
VALUES: dict[str, st.SearchStrategy[object]] = {
    "boolean": st.booleans(),
    **{f"int{bits}": st.integers(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) for bits in (8, 16, 32, 64)},
    **{f"uint{bits}": st.integers(0, 2**bits - 1) for bits in (8, 16, 32, 64)},
    "float32": FLOAT32,
    "float64": st.floats(allow_nan=False),
    "decimal(4,1)": st.integers(-9999, 9999).map(lambda n: Decimal(n).scaleb(-1)),
    "decimal(4,4)": st.integers(-9999, 9999).map(lambda n: Decimal(n).scaleb(-4)),
    "decimal(18,0)": st.integers(-(10**18) + 1, 10**18 - 1).map(Decimal),
    "decimal(38,10)": st.integers(-(10**38) + 1, 10**38 - 1).map(
        lambda n: Decimal((n < 0, tuple(map(int, str(abs(n)))), -10))
    ),
    "time": st.times(),
    "time_ns": st.times(),
    "date": st.dates(),
    "timestamp": st.datetimes(),
    "timestamp_s": st.datetimes().map(lambda t: t.replace(microsecond=0)),
    "timestamp_ms": st.datetimes().map(lambda t: t.replace(microsecond=t.microsecond // 1000 * 1000)),
    "timestamp_ns": st.datetimes(dt.datetime(1700, 1, 1), dt.datetime(2260, 1, 1)),
    "timestamptz": st.datetimes(dt.datetime(2, 1, 1), dt.datetime(9998, 1, 1), timezones=st.just(dt.UTC)),
    "varchar": st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=20),
    "json": st.sampled_from(["{}", '{"a": 1}', "[]", "1"]),
    "blob": st.binary(max_size=20),
    "uuid": st.uuids(),
}
EXPLICIT = {
    "date": ["infinity", "-infinity", "0044-03-15 (BC)", "0001-01-01 (BC)", "12345-01-01",
             "5881580-07-10", "5877642-06-25 (BC)"],
    "timestamp": ["infinity", "-infinity", "0044-03-15 (BC) 01:00:00", "12345-01-01 00:00:00.5",
                  "294247-01-10 04:00:54.775806", "290309-12-22 (BC) 00:00:00"],
    "timestamptz": ["infinity", "-infinity", "0044-03-15 (BC) 01:00:00+00", "12345-01-01 00:00:00+00"],
    "timestamp_s": ["infinity", "-infinity", "12345-01-01 00:00:00"],
    "timestamp_ms": ["infinity", "-infinity", "2024-01-01 01:02:03.123"],
    "timestamp_ns": ["infinity", "-infinity", "2024-01-01 01:02:03.123456789", "1677-09-22 00:00:00"],
    "time": ["24:00:00", "00:00:00", "23:59:59.999999"],
    "float64": ["inf", "-inf", "1e+16", "1000000000000000.0", "1e-05", "0.0001", "-0.0",
                "1.7976931348623157e+308", "5e-324"],
    "float32": ["inf", "-inf", "1e+30", "123456790.0", "16777216.0", "1e-07", "3.4028235e+38", "1e-45"],
}  # fmt: skip


def test_every_type_with_bounds_is_tested() -> None:
    bounded = {
        row.name for row in SCALARS.values() if row.stats not in (StatsKind.NONE, StatsKind.GEOMETRY, StatsKind.VARIANT)
    }
    assert {name.partition("(")[0] for name in VALUES} == bounded


@pytest.mark.parametrize("type", VALUES)
@settings(max_examples=8)
@given(data=st.data())
def test_the_text_is_what_duckdb_prints_and_the_order_what_duckdb_sorts(type: str, data: st.DataObject) -> None:
    values = data.draw(st.lists(VALUES[type], min_size=1, max_size=60))
    texts = [encode(value, type) for value in values]
    assert None not in texts
    with in_utc() as connection:
        # Booleans and blobs have their own documented texts; DuckDB casts those texts back.
        source = "unhex(t)" if type == "blob" else f"t::{duckdb_type(type)}"
        target = "hex(x)" if type == "blob" else "CAST(x::INTEGER AS VARCHAR)" if type == "boolean" else "x::VARCHAR"
        rows = connection.execute(
            f"SELECT t, {target} FROM (SELECT t, {source} AS x FROM (SELECT unnest(?::VARCHAR[]) AS t)) ORDER BY x",
            [texts],
        ).fetchall()
    if type == "float32":
        # DuckDB's digits are not always the fewest that give the same float; ours are.
        assert all(decode(text, type) == decode(printed, type) and len(text) <= len(printed) for text, printed in rows)
    else:
        assert [text for text, _ in rows] == [printed for _, printed in rows]
    decoded = [decode(text, type) for text, _ in rows]
    assert all(one <= two for one, two in itertools.pairwise(decoded))  # type: ignore[operator]
    assert sorted(text for text, _ in rows) == sorted(texts)  # type: ignore[type-var]


@pytest.mark.parametrize("type", VALUES)
@settings(max_examples=30)
@given(data=st.data())
def test_a_value_decodes_to_its_comparable_form(type: str, data: st.DataObject) -> None:
    value = data.draw(VALUES[type])
    text = encode(value, type)
    decoded = decode(text, type)
    assert decoded == comparable(value, type)
    assert decoded is not None
    assert encode_comparable(decoded, type) == text


@pytest.mark.parametrize(("type", "text"), [(type, text) for type, texts in EXPLICIT.items() for text in texts])
def test_extreme_values_keep_their_text_and_place(type: str, text: str) -> None:
    with in_utc() as connection:
        (printed,) = connection.execute(f"SELECT ?::{duckdb_type(type)}::VARCHAR", [text]).fetchone() or (None,)
    assert printed == text
    value = decode(text, type)
    assert value is not None
    assert encode_comparable(value, type) == text


@pytest.mark.parametrize("type", EXPLICIT)
def test_extreme_values_are_ordered_as_duckdb_orders_them(type: str) -> None:
    with in_utc() as connection:
        rows = connection.execute(
            f"SELECT t FROM (SELECT unnest(?::VARCHAR[]) AS t) ORDER BY t::{duckdb_type(type)}", [EXPLICIT[type]]
        ).fetchall()
    decoded = [decode(text, type) for (text,) in rows]
    assert decoded == sorted(decoded)  # type: ignore[type-var]


@given(st.floats(width=32, allow_nan=False))
def test_a_float32_text_reads_back_as_the_same_float(value: float) -> None:
    text = encode(value, "float32")
    assert text is not None
    assert decode(text, "float32") == value
    if math.isfinite(value):
        assert struct.pack("<f", float(text)) == struct.pack("<f", value)


@pytest.mark.parametrize(
    ("text", "type", "value"),
    [
        ("true", "boolean", True),
        ("false", "boolean", False),
        ("78", "blob", b"x"),
        ("00FF", "blob", b"\x00\xff"),
        ("x", "blob", b"x"),
        ("\\x00\\xFF", "blob", b"\x00\xff"),
        ("a\\x22b", "blob", b'a"b'),
        ("", "blob", b""),
        ("", "varchar", ""),
        ("1.50", "decimal(9,1)", Decimal("1.5")),
        ("A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11", "uuid", uuid.UUID("a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11").int),
        ("2024-01-01 02:00:00+02", "timestamptz", 1704067200 * 10**9),
        ("2024-01-01T00:00:00Z", "timestamptz", 1704067200 * 10**9),
        ("2024-01-01 05:30:00+05:30", "timestamptz", 1704067200 * 10**9),
        ("2023-12-31 23:59:59-00:00:01", "timestamptz", 1704067200 * 10**9),
    ],
)
def test_both_encodings_are_read(text: str, type: str, value: object) -> None:
    assert decode(text, type) == value


@pytest.mark.parametrize(
    ("text", "type"),
    [
        (None, "int32"),
        ("nan", "float64"),
        ("NaN", "float32"),
        ("x", "float64"),
        ("", "int32"),
        ("1.5", "int32"),
        ("NaN", "decimal(4,1)"),
        ("Infinity", "decimal(4,1)"),
        ("x", "decimal(4,1)"),
        ("yes", "boolean"),
        ("2024-02-30", "date"),
        ("2024-13-01", "date"),
        ("today", "date"),
        ("25:00:00", "time"),
        ("12:60:00", "time"),
        ("2024-01-01 12:60:00", "timestamp"),
        ("ff", "blob"),
        ("aB", "blob"),
        ("\\y", "blob"),
        ("é", "blob"),
        ("nobody", "uuid"),
        ("1", "int128"),
        ("1", "uint128"),
        ("1 day", "interval"),
        ("01:00:00+00", "timetz"),
        ("1", "variant"),
        ("1", "list"),
    ],
)
def test_what_is_not_certain_is_unknown(text: str | None, type: str) -> None:
    assert decode(text, type) is None


@pytest.mark.parametrize("type", [type for type in VALUES if type not in ("varchar", "json")])
@given(text=st.text(max_size=12) | st.text(st.sampled_from("0123456789-:+. eE_infatyBC()xFf\\"), max_size=20))
@settings(max_examples=60)
def test_any_text_is_read_or_unknown(type: str, text: str) -> None:
    value = decode(text, type)
    assert value is None or not (isinstance(value, float) and math.isnan(value))


@pytest.mark.parametrize(
    ("value", "type"),
    [(None, "int32"), (math.nan, "float64"), (1, "int128"), ("a\0b", "varchar"), ([1], "list"), (b"", "geometry")],
)
def test_values_without_a_text(value: object, type: str) -> None:
    assert encode(value, type) is None


@pytest.mark.parametrize(
    ("value", "type"), [("x", "blob"), (3, "varchar"), ("x", "date"), (3, "timestamp"), ("x", "int32")]
)
def test_values_of_another_type_are_refused(value: object, type: str) -> None:
    with pytest.raises((TypeError, ValueError)):
        encode(value, type)


def test_infinity_is_beyond_every_date() -> None:
    latest = decode("294247-01-10 04:00:54.775806", "timestamp")
    assert isinstance(latest, int)
    assert -INFINITY < -latest < latest < INFINITY
    assert from_physical(2**31 - 1, "D", bits=32) == INFINITY
    assert from_physical(-(2**63) + 1, "us") == -INFINITY


@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=400) | st.binary(max_size=400))
def test_a_shortened_bound_is_still_a_bound(value: str | bytes) -> None:
    low, high = shorten(value, upper=False), shorten(value, upper=True)
    assert low is not None
    assert low <= value  # type: ignore[operator]
    assert high is None or high >= value  # type: ignore[operator]
    for bound in (low, high):
        if bound is not None:
            raw = bound.encode() if isinstance(bound, str) else bytes(bound)  # type: ignore[arg-type]
            assert len(raw) <= MAX_BOUND + 3


@pytest.mark.parametrize("value", ["\U0010ffff" * 300, b"\xff" * 300])
def test_what_has_no_short_upper_bound_has_none(value: str | bytes) -> None:
    assert shorten(value, upper=True) is None


def test_a_long_bound_is_raised_past_the_surrogates() -> None:
    assert shorten("\ud7ff" * 200, upper=True) == "\ud7ff" * 84 + "\ue000"
