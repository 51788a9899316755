"""Columns in the SQL of Spark, as text; that Spark takes them for what they mean is tested with Spark."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quacklake.core.format.layout import Transform
from quacklake.core.format.schema import Column
from quacklake.core.format.types import SCALARS
from quacklake.errors import UnsupportedFeatureError
from quacklake.spark.runtime.types import (
    adopted,
    initial_value,
    key_expression,
    literal,
    plain_in_parquet,
    quote,
    read_type,
    shown,
    shown_type,
    stored,
    stored_type,
)


def column(type_: str, *children: Column, id_: int = 1, name: str = "c") -> Column:
    return Column(id_, name, type_, children=children)


@given(st.text())
def test_literals_hold_neither_quotes_nor_backslashes_of_their_own(text: str) -> None:
    found = literal(text)
    if found.startswith("decode("):
        assert bytes.fromhex(found.split("'")[1]).decode() == text
    else:
        assert found == f"'{text}'"
        assert "'" not in text
        assert "\\" not in text


def test_names_are_quoted() -> None:
    assert quote("a`b c") == "`a``b c`"


@pytest.mark.parametrize("type_", [name for name in SCALARS if name not in ("unknown", "decimal")])
def test_every_type_is_read_and_shown(type_: str) -> None:
    one = column(type_)
    for time in (False, True):
        assert read_type(one, time=time)
        assert shown_type(one, time=time) not in ("", "VOID")
        assert shown("v", one, one, time=time)
        assert initial_value(one, time=time) == f"CAST(NULL AS {shown_type(one, time=time)})"


def test_what_has_its_form_already_is_left_alone() -> None:
    inner = column(
        "struct", column("int64", id_=3, name="x"), column("varchar", id_=4, name="y"), id_=2, name="element"
    )
    whole = column("list", inner)
    assert shown("v", whole, whole, time=False) == "v"
    renamed = column("list", column("struct", column("int64", id_=3, name="z"), id_=2, name="element"))
    assert shown("v", whole, renamed, time=False) == (
        "transform(v, ql_0 -> IF(ql_0 IS NULL, NULL, named_struct('z', ql_0.`x`)))"
    )
    assert shown("v", column("int32"), column("int64"), time=False) == "CAST(v AS BIGINT)"


def test_spark_says_what_it_cannot_write_and_what_needs_a_mapping() -> None:
    for type_ in ("geometry", "time_ns"):
        with pytest.raises(UnsupportedFeatureError):
            stored_type(column(type_))
    assert plain_in_parquet(column("struct", column("uuid", id_=2, name="u")))
    assert not plain_in_parquet(column("struct", column("list", column("int8", id_=3), id_=2, name="l")))
    assert not plain_in_parquet(column("timestamp_ns"))


def test_values_are_checked_on_their_way() -> None:
    assert stored("v", column("int64"), column("int64"), "c", time=False) == "v"
    assert "raise_error" in stored("v", column("int64"), column("int32"), "c", time=False)
    assert "BETWEEN 0 AND 255" in stored("v", column("int64"), column("uint8"), "c", time=False)
    assert adopted(column("varchar"), column("interval"), time=False).type == "interval"
    assert adopted(column("varchar"), column("int32"), time=False).type == "varchar"


def test_partition_keys_of_instants_are_taken_in_utc() -> None:
    assert "unix_micros" in str(key_expression(Transform("month"), "c", "timestamptz"))
    assert key_expression(Transform("month"), "c", "timestamp") == "CAST(month(c) AS STRING)"
    assert key_expression(Transform("bucket", 4), "c", "int32") is None
