"""The same statements here and in stock DuckDB, on one lake, by turns."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import quacklake
from tests.catalog.stock import Stock
from tests.layout import NAMED

_STATEMENTS = (
    "CREATE TABLE t (id INTEGER, name VARCHAR DEFAULT 'none', d DATE)",
    "INSERT INTO t SELECT i, 'n' || i, DATE '2024-01-01' + i::INTEGER FROM range(40) r(i)",
    "INSERT INTO t (id) VALUES (100), (101)",
    "ALTER TABLE t ADD COLUMN s STRUCT(a INTEGER, b VARCHAR)",
    "UPDATE t SET s = {'a': id, 'b': name}, name = upper(name) WHERE id % 3 = 0",
    "DELETE FROM t WHERE id BETWEEN 10 AND 20",
    "ALTER TABLE t ADD COLUMN s.c INTEGER",
    "ALTER TABLE t ALTER id SET DATA TYPE BIGINT",
    "ALTER TABLE t SET PARTITIONED BY (year(d))",
    "MERGE INTO t USING (SELECT i AS id FROM range(35, 45) r(i)) n ON t.id = n.id"
    " WHEN MATCHED THEN UPDATE SET name = 'merged' WHEN NOT MATCHED THEN INSERT (id, d) VALUES (n.id, DATE '2025-01-01')",
    "ALTER TABLE t RENAME COLUMN name TO label",
    "CREATE VIEW v AS SELECT label, count(*) AS n FROM t GROUP BY label",
    "CREATE SCHEMA extra",
    "CREATE TABLE extra.u AS SELECT * FROM t WHERE id < 5",
    "COMMENT ON TABLE extra.u IS 'a few'",
    "CREATE MACRO twice(x) AS x * 2",
    "DROP VIEW v",
)
_QUESTIONS = (
    "SELECT id, label, d, s::VARCHAR FROM t ORDER BY ALL",
    "SELECT id, label FROM extra.u ORDER BY ALL",
    "SELECT count(*), sum(id) FROM t AT (VERSION => 6)",
    "SELECT twice(21)",
    "SELECT rowid, id FROM t WHERE id IN (0, 9, 36) ORDER BY id",
    "SELECT column_name, data_type FROM duckdb_columns() WHERE table_name = 't' ORDER BY column_index",
    "SELECT comment FROM duckdb_tables() WHERE table_name = 'u'",
)


@pytest.fixture(scope="module")
def expected(stock: Stock, tmp_path_factory: pytest.TempPathFactory) -> list[list[tuple[Any, ...]]]:
    """The answers of stock DuckDB alone."""
    home = tmp_path_factory.mktemp("alone")
    url = f"sqlite:///{home}/lake.db"
    stock.run(url, *_STATEMENTS, options=[f"DATA_PATH '{home}/data'"])
    return [stock.run(url, question) for question in _QUESTIONS]


@pytest.mark.parametrize("first", ["ours", "stock"])
def test_statements_by_turns_give_one_lake(
    stock: Stock, tmp_path: Path, expected: list[list[tuple[Any, ...]]], first: str
) -> None:
    url = f"sqlite:///{tmp_path}/lake.db"
    stock.run(url, "SELECT 1", options=[f"DATA_PATH '{tmp_path}/data'"])
    with quacklake.session() as session:
        session.sql(f"ATTACH 'ducklake:sqlite:{tmp_path}/lake.db' AS l; USE l")
        for number, statement in enumerate(_STATEMENTS):
            if (number % 2 == 0) == (first == "ours"):
                session.sql(statement)
            else:
                stock.run(url, statement)
        for question, rows in zip(_QUESTIONS, expected, strict=True):
            assert stock.run(url, question) == rows, question
            assert session.sql(question).fetchall() == rows, question


@pytest.mark.parametrize(
    "database",
    ["duckdb", "postgres", "mysql"],
)
def test_every_catalog_database_speaks_sql(request: pytest.FixtureRequest, tmp_path: Path, database: str) -> None:
    url = f"duckdb:///{tmp_path}/lake.duckdb" if database == "duckdb" else request.getfixturevalue(f"{database}_url")
    with quacklake.session() as session:
        session.sql(f"ATTACH 'ducklake:{url}' AS l ({NAMED}DATA_PATH '{tmp_path}/data'); USE l")
        for statement in _STATEMENTS:
            session.sql(statement)
        assert session.sql("SELECT count(*), sum(id) FROM t").fetchone() == (36, 1026)
        assert session.sql("SELECT count(*) FROM t AT (VERSION => 2)").fetchone() == (40,)
        assert session.sql("SELECT twice(3), count(*) FROM extra.u").fetchone() == (6, 5)
        newest = session.sql("FROM l.current_snapshot()").fetchone()
        assert session.sql("SELECT max(snapshot_id) FROM __ducklake_metadata_l.ducklake_snapshot").fetchone() == newest
        assert ("t",) in session.sql("SHOW TABLES").fetchall()


def test_stock_reads_what_a_transaction_has_flushed(stock: Stock, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/lake.db"
    with quacklake.connect(url, data_path=tmp_path / "data") as lake, quacklake.session() as session:
        session.attach(lake)
        session.sql("USE lake; CREATE TABLE t (i INTEGER)")
        session.sql("INSERT INTO t VALUES (1); INSERT INTO t VALUES (2), (3); DELETE FROM t WHERE i = 2")
        session.sql("BEGIN; ALTER TABLE t ADD COLUMN j INTEGER DEFAULT 7; ALTER TABLE t SET SORTED BY (i DESC)")
        session.sql("CALL lake.flush_inlined_data(); COMMIT")
        last = session.sql("FROM lake.current_snapshot()").fetchall()[0][0]
        questions = ["SELECT rowid, snapshot_id, * FROM t ORDER BY rowid"]
        questions += [f"SELECT i FROM t AT (VERSION => {version}) ORDER BY i" for version in range(1, last + 1)]
        ours = [session.sql(question).fetchall() for question in questions]
    assert [stock.run(url, question) for question in questions] == ours
    assert ours[0] == [(0, 2, 1, 7), (2, 3, 3, 7)]


@pytest.mark.parametrize(
    ("type_", "value"),
    [
        ("INTEGER[]", "[i, i + 1]"),
        ("STRUCT(a INTEGER, b VARCHAR)", "{'a': i, 'b': 'x''' || i}"),
        ("MAP(VARCHAR, INTEGER)", "MAP {'k': i}"),
        ("STRUCT(a INTEGER[], t TIMESTAMPTZ)", "{'a': [i], 't': '2020-01-01 00:00:00+02'::TIMESTAMPTZ}"),
    ],
)
def test_nested_values_are_in_the_buckets_of_the_extension(
    stock: Stock, tmp_path: Path, type_: str, value: str
) -> None:
    url = f"sqlite:///{tmp_path}/lake.db"
    make = "CREATE TABLE {t} (id INTEGER, v {type_}); ALTER TABLE {t} SET PARTITIONED BY (bucket(8, v))"
    fill = "INSERT INTO {t} SELECT i, {value} FROM range(20) r(i)"
    texts = [text for form in (make, fill) for text in form.format(t="theirs", type_=type_, value=value).split("; ")]
    stock.run(url, "CALL l.set_option('data_inlining_row_limit', 0)", *texts, options=[f"DATA_PATH '{tmp_path}/data'"])
    with quacklake.connect(url) as lake:
        for form in (make, fill):
            lake.sql(form.format(t="ours", type_=type_, value=value))
        lake.table("ours").append(lake.table("ours").to_arrow())
        placed = "SELECT DISTINCT id, regexp_extract(filename, '=(\\d+)/', 1) FROM {t} ORDER BY ALL"
        theirs, ours = (lake.sql(placed.format(t=t)).fetchall() for t in ("theirs", "ours"))
        assert ours == theirs and len({bucket for _, bucket in ours}) > 3
        found = lake.sql("SELECT count(*) FROM ours WHERE v = (SELECT v FROM theirs WHERE id = 3)").fetchall()
        assert found == [(2,)]
