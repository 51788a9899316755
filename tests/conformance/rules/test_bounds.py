"""Statistics: texts that bound the values, and what must not be read into them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from ..clients import LakeSite
from ..conftest import MakeSite, kinds
from ..steps import AlterColumn, Append, Create, Delete, Step, Update
from .books import Books

ALL = kinds("sqlite", "duckdb", "postgres", "mysql")


def play(make_site: MakeSite, kind: str, steps: list[Step]) -> list[LakeSite]:
    """The lakes that the clients make from steps: ours, and the other client's if it has one."""
    found = [make_site(kind)]
    for step in steps:
        step.run(found[0].lake())
    if kind != "mysql":
        found.append(make_site(kind))
        for step in steps:
            for statement in step.sql():
                found[1].stock().execute(statement)
    return found


def count(site: LakeSite, where: str, *, stock: bool) -> int:
    """The rows that a client finds, which must be both if both can read the lake."""
    found = site.lake().table("t").count(where)
    if stock and site.kind != "mysql":
        assert site.stock().execute(f"SELECT count(*) FROM t WHERE {where}").fetchone() == (found,)
    return found


def _in_order(extra: Any) -> Any:
    """Extra statistics with the fields of a variant in a fixed order, and without their sizes."""
    if not isinstance(extra, list):
        return extra
    fields = [{key: value for key, value in field.items() if key != "column_size_bytes"} for field in extra]
    return sorted(fields, key=lambda field: str(field["field_name"]))


def test_f7_1_bounds_are_texts_of_their_type(books: Books) -> None:
    where = "table_id = (SELECT max(table_id) FROM ducklake_table WHERE table_name = 'kinds')"
    found = books.same("file_column_stats", "column_id, min_value, max_value", f"{where} AND column_id <> 1")
    bounds = {column: (low, high) for column, low, high in found}
    assert bounds[2] == ("0", "1")
    assert bounds[4] == ("-32768", "32767")
    assert bounds[14] == ("-9999999.99", "9999999.99")
    assert bounds[16] == ("1969-12-31", "9999-12-31")
    assert bounds[18] == ("1969-12-31 23:59:59+00", "2024-03-31 01:30:00+00")
    assert bounds[24] == ("", "00FF")
    assert (bounds[6], bounds[11], bounds[22]) == ((None, None),) * 3, "none of 128-bit integers and intervals"


def test_f7_2_totals_never_shrink_and_the_next_row_id_is_exact(books: Books) -> None:
    where = "table_id = (SELECT max(table_id) FROM ducklake_table WHERE table_name = 'things')"
    assert books.same("table_stats", "next_row_id", where) == [(111,)]
    bounds = books.same("table_column_stats", "min_value, max_value", f"{where} AND column_id = 1")
    assert bounds == [("0", "311")], "all rows from 0 to 299 are deleted"


def test_f7_3_boxes_of_geometries_and_fields_of_variants(books: Books) -> None:
    where = "table_id = (SELECT max(table_id) FROM ducklake_table WHERE table_name = 'shapes')"
    found = books.each(
        f"SELECT column_id, extra_stats FROM ducklake_file_column_stats WHERE {where} AND extra_stats IS NOT NULL"
    )
    first, *others = [{column: _in_order(json.loads(text)) for column, text in rows} for rows in found]
    assert all(other == first for other in others)
    assert first[3]["bbox"]["xmax"] == 11
    assert (first[3]["types"], first[5]["types"]) == (["point"], ["linestring"]), "also inside of a struct"
    assert [field["field_name"] for field in first[2]] == ['"a"', '"b".element']


@pytest.mark.parametrize("kind", ALL)
def test_f7_4_statistics_that_are_missing_in_one_file_are_missing_in_all(make_site: MakeSite, kind: str) -> None:
    steps: list[Step] = [
        Create("t", "id INTEGER, x DOUBLE"),
        Append("t", "SELECT i::INTEGER, i::DOUBLE FROM range(12) r(i)"),
        Append("t", "SELECT i::INTEGER, 'nan'::DOUBLE FROM range(12, 24) r(i)"),
        Append("t", "SELECT i::INTEGER, i::DOUBLE FROM range(100, 112) r(i)"),
    ]
    for site in play(make_site, kind, steps):
        assert count(site, "x > 5", stock=True) == 6 + 12 + 12, "NaN is greater than all"
        assert count(site, "x < 5", stock=True) == 5
        assert count(site, "x = 105", stock=True) == 1


@pytest.mark.parametrize("kind", ALL)
def test_f7_5_totals_of_columns_leave_nothing_out(make_site: MakeSite, kind: str) -> None:
    """Stock DuckLake 1.5.5 writes totals that do not bound the rows after a change of type."""
    steps: list[Step] = [
        Create("t", "id INTEGER, x INTEGER"),
        Append("t", "SELECT i::INTEGER, (i * 100)::INTEGER FROM range(12) r(i)"),
        AlterColumn("t", "x", "BIGINT"),
        Append("t", "SELECT 50, 5000000000"),
        Append("t", "SELECT 51, 256::BIGINT"),
    ]
    ours, *others = play(make_site, kind, steps)
    for site in (ours, *others):
        for where, expected in (("x = 1100", 1), ("x = 5000000000", 1), ("x < 0", 0), ("x > 200", 11)):
            assert count(site, where, stock=site is ours) == expected, where


@pytest.mark.parametrize("kind", ALL)
def test_f7_6_bounds_in_another_text_form_leave_nothing_out(make_site: MakeSite, kind: str) -> None:
    """Stock DuckLake 1.5.5 writes the bounds of inlined rows as SQL shows the values."""
    steps: list[Step] = [
        Create("t", "id INTEGER, b BOOLEAN, x DOUBLE, y BLOB"),
        Append("t", "SELECT i::INTEGER, i % 2 = 0, i::DOUBLE, '\\x00\\xFF'::BLOB FROM range(12) r(i)"),
        Append("t", "SELECT 50, true, 'nan'::DOUBLE, 'x'::BLOB"),
        Update("t", {"x": "-1"}, "id = 3"),
        Delete("t", "id = 4"),
    ]
    for site in play(make_site, kind, steps):
        assert count(site, "b", stock=True) == 6
        assert count(site, "NOT b", stock=True) == 6
        assert count(site, "y = 'x'::BLOB", stock=True) == 1
        assert count(site, "x < 0", stock=True) == 1
