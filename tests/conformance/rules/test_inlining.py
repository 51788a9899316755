"""Rows and deletes that are kept in the catalog."""

from __future__ import annotations

import pytest

from ..conftest import MakeSite
from ..steps import table_schema
from .books import Books


def test_f6_1_inlined_rows_begin_and_end_with_snapshots(books: Books) -> None:
    for book in books.books:
        name = f"ducklake_inlined_data_{book.table_id('things')}"
        ((table,),) = book.rows(
            f"SELECT table_name FROM ducklake_inlined_data_tables WHERE starts_with(table_name, '{name}_')"
        )
        created, *_ = book.versions["deletes"]
        rows = book.rows(
            f"SELECT row_id, begin_snapshot - {created}, end_snapshot - {created}, id FROM {table} ORDER BY ALL"
        )
        assert rows == [
            (2, 8, 10, 2),
            (80, 3, 6, 200),
            (81, 3, 8, 201),
            (81, 8, 10, 201),
            (82, 3, 10, 202),
            (83, 3, 10, 203),
        ]
    books.check("deletes")


def test_f6_2_small_deletes_of_files_are_inlined_by_position(books: Books) -> None:
    for book in books.books:
        listed = "SELECT count(*) FROM ducklake_inlined_data_tables WHERE contains(table_name, 'delete')"
        assert book.rows(listed) == [(0,)]
        _, second = [row["data_file_id"] for _, row in book.files("added") if row["mapping_id"] is not None]
        found = book.rows(f"FROM ducklake_inlined_delete_{book.table_id('added')} ORDER BY ALL")
        version = book.versions["added"][2]
        assert found == [(second, position, version) for position in range(5)]
    books.check("added")


@pytest.mark.mysql
def test_f6_3_the_limit_of_the_table_comes_before_that_of_the_schema_and_the_lake(make_site: MakeSite) -> None:
    """On MySQL; on the other databases together with the other client."""
    site = make_site("mysql", inlining=20)
    lake = site.lake()
    lake.create_table("t", table_schema("a INTEGER"))
    counts = []
    for change in ({}, {"value": 2}, {"value": 9, "schema": "main"}, {"value": 3, "table": "t"}):
        if change:
            lake.options.set("data_inlining_row_limit", **change)
        lake.table("t").append([{"a": i} for i in range(5)])
        counts.append(lake.table("t").files().num_rows)
    assert counts == [0, 1, 1, 2]


def test_f6_4_inlined_values_keep_their_types(books: Books) -> None:
    for book in books.books:
        name = f"ducklake_inlined_data_{book.table_id('kinds')}"
        tables = book.rows(
            f"SELECT table_name FROM ducklake_inlined_data_tables WHERE starts_with(table_name, '{name}_')"
        )
        assert sum(book.rows(f"SELECT count(*) FROM {table}")[0][0] for (table,) in tables) == 4
    books.check("types")


def test_f6_5_a_flush_writes_the_rows_and_their_deletes(upkept: Books) -> None:
    for book in upkept.books:
        name = f"ducklake_inlined_data_{book.table_id('flushed')}"
        for (table,) in book.rows(
            f"SELECT table_name FROM ducklake_inlined_data_tables WHERE starts_with(table_name, '{name}_')"
        ):
            assert book.rows(f"SELECT count(*) FROM {table}") == [(0,)]
        flushed = [row for _, row in book.files("flushed") if row["partial_max"] is not None]
        assert [row["record_count"] for row in flushed] == [7]
    upkept.check("flush")
