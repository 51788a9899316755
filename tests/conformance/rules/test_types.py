"""Types, nested columns and defaults."""

from __future__ import annotations

import duckdb
import pyarrow as pa
import pytest

from quacklake.core.duckdb_versions import arrow_table
from quacklake.core.format.schema import Column, TableSchema
from quacklake.errors import QuacklakeError

from ..conftest import MakeSite, kinds
from ..steps import table_schema
from .books import Books

_SCALARS = {
    *("boolean", "int8", "int16", "int32", "int64", "int128", "uint8", "uint16", "uint32", "uint64", "uint128"),
    *("float32", "float64", "decimal(9,2)", "time", "timetz", "date", "timestamp", "timestamptz", "timestamp_s"),
    *("timestamp_ms", "timestamp_ns", "interval", "varchar", "blob", "json", "uuid"),
}
_REFUSED = ("INTEGER[3]", "ENUM ('a', 'b')", "UNION(a INTEGER, b VARCHAR)", "BIT", "BIGNUM")


def types(books: Books, *tables: str) -> set[str]:
    names = ", ".join(f"'{name}'" for name in tables)
    where = f"table_id IN (SELECT table_id FROM ducklake_table WHERE table_name IN ({names}))"
    return {row[0] for row in books.same("column", "DISTINCT column_type", where)}


def test_f2_1_scalar_types_have_names_and_keep_every_value(books: Books) -> None:
    assert types(books, "kinds", "zones") == _SCALARS
    books.check("types")
    books.check("zones")


@pytest.mark.parametrize("kind", kinds("sqlite", "duckdb", "postgres", "mysql"))
def test_f2_2_types_that_only_the_code_knows_are_accepted(make_site: MakeSite, kind: str) -> None:
    """``timestamp_us`` is another name of ``timestamp``; a time of nanoseconds is kept where it can be inlined."""
    site = make_site(kind)
    lake = site.lake()
    lake.create_table("us", TableSchema((Column(1, "t", "timestamp_us"),)))
    lake.table("us").append(_moment())
    assert lake.table("us").count("t = '2024-01-01 12:00:00.123456'") == 1
    if kind == "mysql":
        return
    assert site.stock().execute("SELECT t::VARCHAR FROM us").fetchall() == [("2024-01-01 12:00:00.123456",)]
    if kind == "postgres":  # stock DuckLake cannot make such a table there
        return
    site.stock().execute("CREATE TABLE ns(t TIME_NS); INSERT INTO ns VALUES ('12:34:56.123456789')")
    with duckdb.connect() as connection:
        site.lake().register(connection)
        assert connection.execute("SELECT t::VARCHAR FROM ns").fetchall() == [("12:34:56.123456789",)]


def _moment() -> pa.Table:
    with duckdb.connect() as connection:
        return arrow_table(connection, "SELECT TIMESTAMP '2024-01-01 12:00:00.123456' AS t")


def test_f2_3_every_node_of_a_nested_column_is_a_column(books: Books) -> None:
    where = (
        "table_id = (SELECT max(table_id) FROM ducklake_table WHERE table_name = 'fields') AND column_id BETWEEN 4 AND 11"
        " AND end_snapshot IS NULL"
    )
    found = books.same("column", "column_id, column_name, column_type, parent_column", where)
    assert found == [
        (4, "s", "struct", None),
        (5, "a", "int32", 4),
        (6, "b", "varchar", 4),
        (7, "l", "list", None),
        (8, "element", "int32", 7),
        (9, "m", "map", None),
        (10, "key", "varchar", 9),
        (11, "value", "int64", 9),
    ]
    books.check("evolution")


def test_f2_4_variants_and_geometries_also_inside_of_others(books: Books) -> None:
    assert types(books, "shapes") == {"int32", "variant", "geometry", "struct"}
    books.check("variants")


def test_f2_5_a_type_only_becomes_wider(books: Books) -> None:
    where = "table_id = (SELECT max(table_id) FROM ducklake_table WHERE table_name = 'fields') AND column_id IN (2, 3)"
    found = books.same("column", "column_id, column_type, end_snapshot IS NULL", f"{where} AND column_name <> 'small'")
    assert set(found) == {(2, "int16", False), (2, "int64", True), (3, "float32", False), (3, "float64", True)}
    for book in books.books:
        with pytest.raises(QuacklakeError):
            book.site.lake().table("fields").alter_column("large", "SMALLINT")
        if book.site.kind != "mysql":
            with pytest.raises(duckdb.Error):
                book.site.stock().execute("ALTER TABLE fields ALTER large SET DATA TYPE SMALLINT")


@pytest.mark.parametrize("kind", kinds("sqlite", "duckdb", "postgres", "mysql"))
def test_f2_6_types_outside_of_the_format_are_refused(make_site: MakeSite, kind: str) -> None:
    site = make_site(kind)
    lake = site.lake()
    lake.create_table("t", table_schema("id INTEGER"))
    before = lake.current_snapshot()
    for type_ in _REFUSED:
        with pytest.raises(QuacklakeError):
            lake.table("t").add_column("more", type_)
    assert lake.current_snapshot() == before
    if kind != "mysql":
        for type_ in _REFUSED:
            with pytest.raises(duckdb.Error):
                site.stock().execute(f"ALTER TABLE t ADD COLUMN more {type_}")
        assert site.metadata("SELECT max(snapshot_id) FROM {m}.ducklake_snapshot") == [(before,)]


def test_f2_7_a_default_for_old_rows_and_one_for_new_ones(books: Books) -> None:
    where = "column_name IN ('added', 'large') AND table_id = (SELECT max(table_id) FROM ducklake_table WHERE table_name = 'fields')"
    found = books.same(
        "column", "column_name, initial_default, default_value, default_value_type, default_value_dialect", where
    )
    assert set(found) == {
        ("added", "7", "7", "literal", "duckdb"),
        ("added", "7", "9", "literal", "duckdb"),
        ("large", None, "NULL", "literal", "duckdb"),
    }
    for book in books.books:
        rows = {row["id"]: row["added"] for row in book.site.lake().table("fields").to_pylist(["id", "added"])}
        assert (rows[0], rows[20], rows[30], rows[40]) == (7, 7, 9, 40)
    books.check("evolution")
