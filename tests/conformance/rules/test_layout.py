"""Partitions and orders."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import duckdb
import pyarrow.parquet as pq
import pytest

from quacklake.errors import QuacklakeError

from ..conftest import MakeSite, kinds
from ..steps import table_schema
from .books import Book, Books


def values_of_rows(book: Book) -> dict[int, Counter[tuple[str | None, ...]]]:
    """Of each row of the partitioned table: the partition values of the files that held it."""
    values = dict(
        book.rows(
            "SELECT data_file_id, list(partition_value ORDER BY partition_key_index) FROM ducklake_file_partition_value"
            " GROUP BY ALL"
        )
    )
    found: dict[int, Counter[tuple[str | None, ...]]] = {}
    for path, row in book.files("parts"):
        texts = tuple(values.get(row["data_file_id"], ()))
        for id_ in pq.ParquetFile(path).read(["id"]).column("id").to_pylist():
            found.setdefault(id_, Counter())[texts] += 1
    return found


def test_f3_1_transforms_give_the_same_values_to_every_row(books: Books) -> None:
    assert [row[0] for row in books.same("partition_column", "transform")] == ["bucket(4)", "identity", "month", "year"]
    first, *others = [values_of_rows(book) for book in books.books]
    assert len(first) == 60
    assert all(other == first for other in others)
    assert first[0] == Counter([("0", "2023"), ("moved/on", "6")]), "calendar components, and the bucket of Iceberg"


def test_f3_2_files_keep_the_partitioning_they_were_written_with(books: Books) -> None:
    ids = [row[0] for row in books.same("partition_info", "partition_id, begin_snapshot")]
    for book in books.books:
        files = book.files("parts")
        assert {row["partition_id"] for _, row in files} - {None} <= set(ids)
        folders = {
            path.parent.relative_to(book.site.data_path).as_posix() for path, row in files if row["partition_id"]
        }
        assert "main/parts/bucket=0/year=2023" in folders or any("year=2023" in folder for folder in folders)
        assert any(folder.startswith("main/parts/region=r0/month=") for folder in folders)
        assert book.site.lake().table("parts").count("region = 'moved/on' AND ts < '2024-01-01'") == 10
    books.check("partitions", same_ids=False)


@pytest.mark.parametrize("kind", kinds("sqlite", "duckdb", "postgres", "mysql"))
def test_f3_3_partitions_of_the_next_version_are_refused(make_site: MakeSite, kind: str) -> None:
    site = make_site(kind)
    lake = site.lake()
    lake.create_table("t", table_schema("ts TIMESTAMP"))
    before = lake.current_snapshot()
    with pytest.raises(QuacklakeError):
        lake.table("t").set_partitioned_by("epoch_day(ts)")
    assert lake.current_snapshot() == before
    if kind != "mysql":
        with pytest.raises(duckdb.Error):
            site.stock().execute("ALTER TABLE t SET PARTITIONED BY (epoch_day(ts))")


def test_f4_1_orders_are_expressions_that_hold_for_new_files(books: Books) -> None:
    found = books.same("sort_expression", "sort_key_index, expression")
    assert [text.replace('"', "") for _, text in found] == ["name", "(id % 7)"]
    for book in books.books:
        first, second = (_column(path, "name") for path, _ in book.files("ordered"))
        assert first == sorted(first, reverse=True)
        assert second == [f"n{number}" for number in range(30, 42)]
    versions = books.same("schema_versions", where=f"table_id = {books.books[0].table_id('ordered')}")
    assert len(versions) == 1, "an order is no new version of the columns"
    books.check("orders")


def _column(path: Path, name: str) -> list[str]:
    found: list[str] = pq.ParquetFile(path).read([name]).column(name).to_pylist()
    return found
