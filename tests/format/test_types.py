"""The scalar types, against what DuckDB itself says of each."""

from __future__ import annotations

import duckdb
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from quacklake.core.format import types
from quacklake.core.format.types import (
    SCALARS,
    StatsKind,
    arrow_type,
    can_store,
    can_widen,
    from_arrow_type,
    parse_type,
)
from quacklake.errors import InputError

# fmt: off
DOCUMENTED = (
    "boolean", "int8", "int16", "int32", "int64", "int128", "uint8", "uint16", "uint32", "uint64", "uint128",
    "float32", "float64", "decimal", "time", "timetz", "date", "timestamp", "timestamptz", "timestamp_s",
    "timestamp_ms", "timestamp_ns", "interval", "varchar", "blob", "json", "uuid", "variant", "geometry",
)
# fmt: on
NAMES = [name for name in SCALARS if name != "unknown"]


@pytest.mark.parametrize("name", [*DOCUMENTED, "timestamp_us", "time_ns", "unknown"])
def test_every_documented_name_is_known(name: str) -> None:
    assert parse_type(name).base == SCALARS[name].name
    assert parse_type(name.upper()) == parse_type(name)


@pytest.mark.parametrize("name", [name for name in NAMES if name != "variant"])
def test_the_arrow_type_is_what_duckdb_exports(name: str) -> None:
    with duckdb.connect() as connection:
        connection.execute("SET timezone = 'UTC'")
        exported = connection.sql(f"SELECT NULL::{types.duckdb_type(name)} AS x").to_arrow_table()
    assert exported.schema.field("x").type == arrow_type(name)


@pytest.mark.parametrize("name", NAMES)
def test_the_duckdb_type_is_one_duckdb_names_so(name: str) -> None:
    with duckdb.connect() as connection:
        found = connection.execute(f"SELECT typeof(NULL::{types.duckdb_type(name)})").fetchone()
    assert found == (types.duckdb_type(name),)


@given(st.integers(1, 38).flatmap(lambda p: st.tuples(st.just(p), st.integers(0, p))))
def test_a_decimal_round_trips(size: tuple[int, int]) -> None:
    text = f"decimal({size[0]},{size[1]})"
    assert str(parse_type(text)) == str(parse_type(f" DECIMAL( {size[0]} , {size[1]} ) ")) == text
    assert from_arrow_type(arrow_type(text)) == text
    assert types.duckdb_type(text) == text.upper()


@pytest.mark.parametrize("text", ["decimal(0,0)", "decimal(39,2)", "decimal(4,5)", "decimal(4)", "decimal(a,b)"])
def test_an_impossible_decimal_is_refused(text: str) -> None:
    with pytest.raises(InputError):
        parse_type(text)


@pytest.mark.parametrize("text", ["ENUM('a')", "UNION(a INT)", "INTEGER[3]", "BIT", "BIGNUM", "VARINT", "array"])
def test_types_ducklake_refuses_are_refused_in_its_words(text: str) -> None:
    with pytest.raises(InputError, match="Failed to convert DuckDB type to DuckLake - unsupported type"):
        parse_type(text)


def test_a_collation_is_refused() -> None:
    with pytest.raises(InputError, match="Collations are not supported"):
        parse_type("VARCHAR COLLATE NOCASE")


@pytest.mark.parametrize(("text", "hint"), [("integer", '"int32"'), ("strin", None), ("varchr", '"varchar"')])
def test_an_unknown_type_hints_at_the_one_meant(text: str, hint: str | None) -> None:
    with pytest.raises(InputError, match="unsupported type") as caught:
        parse_type(text)
    if hint is not None:
        assert hint in str(caught.value)


def test_a_nested_type_has_no_scalar_form() -> None:
    assert str(parse_type("LIST")) == "list"
    with pytest.raises(InputError, match="child columns"):
        arrow_type("struct")


@pytest.mark.parametrize(
    ("arrow", "name"),
    [
        (pa.null(), "int32"),
        (pa.float16(), "float32"),
        (pa.large_string(), "varchar"),
        (pa.string_view(), "varchar"),
        (pa.dictionary(pa.int8(), pa.string()), "varchar"),
        (pa.run_end_encoded(pa.int32(), pa.int64()), "int64"),
        (pa.large_binary(), "blob"),
        (pa.binary_view(), "blob"),
        (pa.binary(7), "blob"),
        (pa.uuid(), "uuid"),
        (pa.json_(), "json"),
        (pa.date64(), "date"),
        (pa.time32("s"), "time"),
        (pa.time32("ms"), "time"),
        (pa.time64("us"), "time"),
        (pa.time64("ns"), "time_ns"),
        (pa.duration("ms"), "interval"),
        (pa.timestamp("s"), "timestamp_s"),
        (pa.timestamp("ns", tz="Europe/Berlin"), "timestamptz"),
        (pa.decimal256(38, 3), "decimal(38,3)"),
        (pa.decimal32(5, 2), "decimal(5,2)"),
    ],
)
def test_arrow_types_find_their_counterpart(arrow: pa.DataType, name: str) -> None:
    assert from_arrow_type(arrow) == name


@pytest.mark.parametrize("name", sorted({row.name for row in SCALARS.values()} - {"null", "timestamptz_ns", "unknown"}))
def test_an_arrow_type_leads_back_to_a_type_that_stores_it(name: str) -> None:
    back = from_arrow_type(arrow_type(name))
    assert back == str(parse_type(name)) or name in {
        "int128",
        "uint128",
        "timetz",
        "json",
        "uuid",
        "variant",
        "geometry",
    }


@pytest.mark.parametrize("arrow", [pa.list_(pa.int8()), pa.decimal256(50, 2), pa.decimal128(5, -2)])
def test_arrow_types_without_a_counterpart_are_refused(arrow: pa.DataType) -> None:
    with pytest.raises(InputError):
        from_arrow_type(arrow)


def test_only_the_documented_widenings_are_allowed() -> None:
    allowed = {(source, target) for source in NAMES for target in NAMES if can_widen(source, target)}
    assert allowed == {
        (f"{sign}{small}", f"{sign}{large}")
        for sign in ("int", "uint")
        for small in (8, 16, 32)
        for large in (16, 32, 64)
        if small < large
    } | {("float32", "float64")}


@pytest.mark.parametrize(("source", "target"), sorted((s, t) for s in NAMES for t in NAMES if can_widen(s, t)))
def test_duckdb_agrees_that_it_widens(source: str, target: str) -> None:
    assert can_store(source, target)
    assert SCALARS[source].stats is SCALARS[target].stats


@pytest.mark.parametrize("name", NAMES)
def test_a_type_stores_itself(name: str) -> None:
    assert can_store(name, name)


@pytest.mark.parametrize(
    ("source", "target"),
    [
        ("int64", "int8"),
        ("uint64", "int128"),
        ("int64", "float32"),
        ("int32", "decimal(4,2)"),
        ("float64", "float32"),
        ("decimal(38,10)", "decimal(4,2)"),
        ("decimal(10,2)", "float64"),
        ("date", "timestamp_ns"),
        ("timestamp_ns", "timestamp_s"),
        ("varchar", "json"),
        ("varchar", "uuid"),
        ("time", "time_ns"),
    ],
)
def test_values_that_convert_are_stored(source: str, target: str) -> None:
    assert can_store(source, target)


@pytest.mark.parametrize(
    ("source", "target"),
    [
        ("varchar", "int32"),
        ("float64", "int64"),
        ("float64", "decimal(10,2)"),
        ("decimal(10,0)", "int64"),
        ("boolean", "int8"),
        ("int8", "boolean"),
        ("uuid", "varchar"),
        ("json", "uuid"),
        ("timestamp", "timestamptz"),
        ("timestamptz", "timestamp"),
        ("timestamp", "date"),
        ("date", "timestamptz"),
        ("time", "timetz"),
        ("blob", "varchar"),
        ("varchar", "blob"),
        ("blob", "geometry"),
        ("int32", "list"),
        ("list", "struct"),
    ],
)
def test_values_that_would_change_meaning_are_not_stored(source: str, target: str) -> None:
    assert not can_store(source, target)


def test_types_without_statistics_are_those_of_the_format() -> None:
    assert {name for name, row in SCALARS.items() if row.stats is StatsKind.NONE} == {
        "null",
        "timestamptz_ns",
        "int128",
        "uint128",
        "timetz",
        "interval",
        "unknown",
    }
