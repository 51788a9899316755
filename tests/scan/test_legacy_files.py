"""Files without field ids and without a mapping, as the first versions of the format added them."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import duckdb
import pytest

import quacklake
from tests.catalog.stock import Stock
from tests.layout import LAYOUT

pytestmark = pytest.mark.skipif(LAYOUT == "shared", reason="stock DuckDB adds the file")


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[quacklake.Lake]:
    url, data, file = f"sqlite:///{tmp_path}/l.db", tmp_path / "data", tmp_path / "other" / "f.parquet"
    file.parent.mkdir()
    with quacklake.connect(url, data_path=data) as lake:
        lake.sql("CREATE TABLE t (id INTEGER, name VARCHAR, s STRUCT(a INTEGER, b VARCHAR), l INTEGER[])")
    rows = "SELECT i::INTEGER AS id, 'n' || i AS name, {'a': i::INTEGER, 'b': 'y'} AS s, [i::INTEGER] AS l FROM range(3) r(i)"
    with closing(duckdb.connect()) as connection:
        connection.execute(f"COPY ({rows}) TO '{file}'")
    with Stock() as stock:
        stock.run(url, f"CALL ducklake_add_data_files('l', 't', '{file}')")
    with closing(sqlite3.connect(tmp_path / "l.db")) as database, database:
        database.execute("UPDATE ducklake_data_file SET mapping_id = NULL")
    with quacklake.connect(url, data_path=data, foreign_paths=[file.parent]) as lake:
        yield lake


def test_columns_are_found_by_the_names_that_they_had_when_the_file_came(lake: quacklake.Lake) -> None:
    table = lake.table("t")
    table.rename_column("id", "number")
    lake.sql("ALTER TABLE t RENAME COLUMN s.a TO z")
    lake.sql("ALTER TABLE t ADD COLUMN id INTEGER")
    expected = [(i, f"n{i}", {"z": i, "b": "y"}, [i], None) for i in range(3)]
    assert lake.sql("FROM t ORDER BY number").fetchall() == expected
    assert lake.sql("SELECT name, rowid FROM t WHERE number = 2").fetchall() == [("n2", 2)]
    assert table.changes(since=0).to_arrow().column("number").to_pylist() == [0, 1, 2]
    assert not lake.verify(deep=True).errors
    assert table.delete("number = 1") == 1
    table.rewrite_data_files(delete_threshold=0.0)
    assert lake.sql("FROM t ORDER BY number").fetchall() == [expected[0], expected[2]]
    assert lake.at(version=2).sql("SELECT id, s FROM t ORDER BY id").fetchall() == [
        (i, {"a": i, "b": "y"}) for i in range(3)
    ]


def test_the_reference_reads_them_alike(lake: quacklake.Lake, tmp_path: Path) -> None:
    lake.table("t").rename_column("id", "number")
    rows = lake.sql("SELECT number, name FROM t ORDER BY number").fetchall()
    url = lake.url
    lake.close()
    with Stock() as stock:
        assert stock.run(url, "SELECT number, name FROM t ORDER BY number") == rows
