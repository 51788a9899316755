"""Variant columns: any value goes in, and what is shredded has the statistics that stock DuckLake writes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import quacklake
from quacklake.core.format.extras import ShreddedField, parse_fields, render_fields, shredded_fields
from quacklake.core.format.stats import ColumnStats, TableColumnStats, merge
from tests.catalog.stock import Stock

ROWS = "SELECT i::INTEGER, {'a': i, 'b': 'n' || i, 'c': [i, i + 1], 'd': {'e': i / 4}}::VARIANT FROM range(50) r(i)"
STATS = (
    "SELECT column_id, column_size_bytes, value_count, null_count, min_value, max_value, contains_nan, extra_stats"
    " FROM __ducklake_metadata_l.ducklake_file_column_stats WHERE data_file_id = {file} ORDER BY ALL"
)
FIELDS = (
    "SELECT column_id, variant_path, shredded_type, column_size_bytes, value_count, null_count, min_value, max_value,"
    " contains_nan, extra_stats FROM __ducklake_metadata_l.ducklake_file_variant_stats WHERE data_file_id = {file}"
    " ORDER BY ALL"
)


@pytest.fixture
def url(tmp_path: Path, stock: Stock) -> str:
    url = f"sqlite:///{tmp_path / 'lake.db'}"
    options = [f"DATA_PATH '{tmp_path / 'data'}'", "DATA_INLINING_ROW_LIMIT 0"]
    stock.run(url, "CREATE TABLE v(id INTEGER, x VARIANT)", f"INSERT INTO v {ROWS}", options=options)
    return url


def fields(rows: list[tuple[Any, ...]]) -> list[Any]:
    """Statistics with the fields of a variant in a fixed order."""
    return [
        (*row[:-1], None if row[-1] is None else sorted(json.loads(row[-1]), key=lambda field: field["field_name"]))
        for row in rows
    ]


def test_the_statistics_of_a_file_are_those_that_stock_writes(url: str, stock: Stock) -> None:
    with quacklake.connect(url, data_inlining_row_limit=0) as lake:
        assert lake.table("v").update({"id": quacklake.expr("id")}) == 50
    files = stock.run(url, "SELECT data_file_id FROM __ducklake_metadata_l.ducklake_data_file ORDER BY 1")
    ((first,), (second,)) = files
    # the sizes differ: ours has a column with row ids too, and other pages
    for query, size in ((STATS, 1), (FIELDS, 3)):
        theirs, ours = (fields(stock.run(url, query.format(file=file))) for file in (first, second))
        assert theirs
        assert [_without_sizes(row, size) for row in ours] == [_without_sizes(row, size) for row in theirs]


def _without_sizes(row: tuple[Any, ...], at: int) -> tuple[Any, ...]:
    *values, extra = row
    if isinstance(extra, list):
        extra = [{key: value for key, value in field.items() if key != "column_size_bytes"} for field in extra]
    return (*values[:at], *values[at + 1 :], extra)


def test_any_value_goes_into_a_variant_and_stock_finds_it(url: str, stock: Stock) -> None:
    with quacklake.connect(url, data_inlining_row_limit=0) as lake:
        table = lake.table("v")
        table.append([{"id": 1000, "x": {"a": 5000, "b": "zz"}}])
        table.append([{"id": 1001, "x": "text"}, {"id": 1002, "x": None}])
        table.append([{"id": 1003, "x": 7}])
        assert table.count() == 54
        assert table.to_pylist(["x"], "id = 1001") == [{"x": "text"}]
    # bounds of the whole table that did not hold would hide these rows
    assert stock.run(url, "SELECT id FROM v WHERE x.a::BIGINT = 5000") == [(1000,)]
    assert stock.run(url, "SELECT count(*), count(x) FROM v") == [(54, 53)]
    assert stock.run(url, "SELECT id FROM v WHERE variant_typeof(x) = 'INT64' OR x::VARCHAR = '7' ORDER BY id") == [
        (1003,)
    ]


def test_variants_in_a_duckdb_catalog_are_ours_and_stock_s(tmp_path: Path, stock: Stock) -> None:
    url = f"duckdb:///{tmp_path / 'lake.db'}"
    with quacklake.connect(url, data_path=tmp_path / "data") as lake:
        lake.sql("CREATE TABLE v(id INTEGER, x VARIANT)")
        lake.table("v").append([{"id": 1, "x": 42}])
        lake.sql("INSERT INTO v VALUES (2, {'a': 1}::VARIANT)")
        assert lake.table("v").files().num_rows == 2  # the catalog keeps no variants of ours
    assert stock.run(url, "SELECT id, x::VARCHAR FROM v ORDER BY id") == [(1, "42"), (2, "{'a': 1}")]
    stock.run(url, "INSERT INTO v VALUES (3, 'three'::VARIANT)")  # but those of stock
    with quacklake.connect(url) as lake:
        assert lake.table("v").files().num_rows == 2
        assert lake.table("v").to_pylist(where="id = 3") == [{"id": 3, "x": "three"}]
        assert lake.table("v").update({"x": quacklake.expr("7::VARIANT")}, "id = 3") == 1
        lake.table("v").flush_inlined_data()
        assert lake.table("v").count() == 3
    assert stock.run(url, "SELECT x::VARCHAR FROM v WHERE id = 3") == [("7",)]


def test_a_field_that_is_not_always_of_its_type_has_no_statistics() -> None:
    shape = 'STRUCT(metadata BLOB, "value" BLOB, typed_value BIGINT)'
    found = {
        '"metadata"': {"variant_type": shape, "null_count": "0", "num_values": "4"},
        '"typed_value"': {"min": "0", "max": "9", "null_count": "2", "num_values": "4", "column_size_bytes": "10"},
        '"value"': {"min": "057A", "max": "057A", "null_count": "2", "num_values": "4"},
    }
    assert shredded_fields(found) == []
    always = found | {'"value"': {"null_count": "4", "num_values": "4"}}
    assert shredded_fields(always) == [ShreddedField("root", "int64", 10, 4, 2, "0", "9")]
    assert shredded_fields({}) == shredded_fields({"metadata": {"variant_type": "nonsense("}}) == []


def test_what_is_stored_is_read_back_and_nonsense_is_nothing() -> None:
    known = [ShreddedField('"a b"."c"', "float64", 3, 10, 1, "0.5", "2.5", True), ShreddedField("element", "int8", 1)]
    assert parse_fields(render_fields(known)) == known
    assert render_fields([]) is None
    for text in (None, "", "{}", "[1]", '[{"a": 1}]', "null", "[" * 100_000):
        assert parse_fields(text) == []


def test_the_statistics_of_a_table_keep_what_all_files_have() -> None:
    def stats(*found: ShreddedField) -> ColumnStats:
        return ColumnStats(2, 0, 10, 0, extra=render_fields(found))

    one = stats(ShreddedField('"a"', "int64", 1, 10, 0, "9", "10"), ShreddedField('"b"', "int64", 1, 10, 0, "1", "1"))
    two = stats(ShreddedField('"a"', "int64", 1, 10, 2, "-5", "9"), ShreddedField('"b"', "varchar", 1, 10, 0, "1", "1"))
    table = merge(None, one, "variant", first=True)
    table = merge(table, two, "variant", first=False)
    assert parse_fields(table.extra) == [ShreddedField('"a"', "int64", 2, 20, 2, "-5", "10")]
    assert merge(table, ColumnStats(2), "variant", first=False).extra is None
    assert merge(TableColumnStats(2), one, "variant", first=False).extra is None
