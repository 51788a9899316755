"""Queries that metadata answers alone, statistics, repairs of metadata by hand, and the order and types of rows."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import quacklake
from quacklake.errors import NotFoundError, ReadOnlyError, SqlError
from tests.layout import NAMED, plain_only

Run = Callable[..., list[tuple[Any, ...]]]


@pytest.fixture
def numbers(run: Run) -> str:
    run("CREATE TABLE numbers (i INTEGER, d DATE, s VARCHAR)")
    run("INSERT INTO numbers SELECT i, DATE '2024-01-01' + i::INTEGER, 'n' || i FROM range(1000) r(i)")
    run("INSERT INTO numbers VALUES (-5, NULL, 'short'), (NULL, '2030-01-01', NULL)")
    return "numbers"


def _plan(run: Run, query: str) -> str:
    return str(run(f"EXPLAIN {query}")[-1][1])


def test_counts_and_bounds_of_a_whole_table_need_no_file(run: Run, numbers: str) -> None:
    query = "SELECT count(*), min(i) AS least, max(d) FROM numbers"
    assert "its metadata answers" in _plan(run, query)
    assert [[str(value) for value in row] for row in run(query)] == [["1002", "-5", "2030-01-01"]]


@pytest.mark.parametrize(
    "query",
    [
        "SELECT min(i) FROM numbers WHERE i > 3",
        "SELECT min(s) FROM numbers",
        "SELECT count(i) FROM numbers",
        "SELECT min(i) FROM numbers GROUP BY d",
        "SELECT min(i + 1) FROM numbers",
        "SELECT count(*) FILTER (i > 1) FROM numbers",
    ],
)
def test_other_questions_look_at_the_rows(run: Run, numbers: str, query: str) -> None:
    assert "its metadata answers" not in _plan(run, query)


def test_deleted_rows_do_not_count(run: Run, numbers: str) -> None:
    run("DELETE FROM numbers WHERE i = 999 OR i = -5")
    assert run("SELECT count(*), min(i), max(i) FROM numbers") == [(1000, 0, 998)]
    run("BEGIN; INSERT INTO numbers (i) VALUES (5000)")
    assert run("SELECT count(*), max(i) FROM numbers") == [(1001, 5000)]
    run("ROLLBACK")
    assert run("SELECT count(*), max(i) FROM numbers") == [(1000, 998)]


def test_statistics_are_told(run: Run, numbers: str) -> None:
    assert run("SELECT stats(i) FROM numbers LIMIT 1") == [("[Min: -5, Max: 999][Has Null: true, Has No Null: true]",)]
    assert "Min: n0, Max: short" in run("SELECT stats(s) FROM numbers LIMIT 1")[0][0]
    run("CREATE TABLE nested AS SELECT {'a': 1, 'b': [2, 3]} AS s")
    assert "Min: 1, Max: 1" in run("SELECT stats(s.a) FROM nested")[0][0]
    assert "Min: 2, Max: 3" in run("SELECT stats(s.b[1]) FROM nested")[0][0]


def test_rows_come_in_the_order_of_the_files(run: Run, session: quacklake.Session) -> None:
    run("CALL lake.set_option('data_inlining_row_limit', 0, schema => ?)", [session.names.schema])
    run("CREATE TABLE t (i INTEGER)")
    for first in (0, 10, 20):
        run("INSERT INTO t FROM range($a, $a + 10)", {"a": first})
    run("DELETE FROM t WHERE i = 15")
    assert [row[0] for row in run("FROM t")] == [i for i in range(30) if i != 15]


def test_metadata_is_repaired_by_hand(run: Run, session: quacklake.Session, numbers: str) -> None:
    plain_only("a statement in the database's own SQL could reach other catalogs")
    schema = session.names.schema
    meta = "__ducklake_metadata_lake"
    named = f"SELECT table_id FROM {meta}.ducklake_table t JOIN {meta}.ducklake_schema s USING (schema_id)"
    table_id = run(f"{named} WHERE table_name = 'numbers' AND schema_name = ?", [schema])[0][0]
    run(f"INSERT INTO {meta}.ducklake_tag VALUES ({table_id}, 0, NULL, 'owner', 'Ann')")
    run(f"UPDATE {meta}.ducklake_tag SET value = 'Bob' WHERE object_id = {table_id} AND key = 'owner'")
    found = f"SELECT value FROM {meta}.ducklake_tag WHERE object_id = {table_id} AND key = 'owner'"
    assert run(found) == [("Bob",)]
    run(f"DELETE FROM {meta}.ducklake_tag WHERE object_id = {table_id}")
    assert run(found) == []
    with pytest.raises(SqlError, match="in a transaction"):
        run(f"BEGIN; DELETE FROM {meta}.ducklake_tag")


def test_metadata_of_a_read_only_lake_stays(tmp_path: Path) -> None:
    with quacklake.session() as session:
        session.sql(f"ATTACH 'ducklake:sqlite:{tmp_path}/l.db' AS l ({NAMED}DATA_PATH '{tmp_path}/d'); DETACH l")
        session.sql(f"ATTACH 'ducklake:sqlite:{tmp_path}/l.db' AS l ({NAMED}READ_ONLY)")
        with pytest.raises(ReadOnlyError):
            session.sql("DELETE FROM __ducklake_metadata_l.ducklake_snapshot")


def test_a_lake_is_opened_by_a_secret(tmp_path: Path) -> None:
    with quacklake.session() as session:
        with pytest.raises(NotFoundError, match="Default secret"):
            session.sql("ATTACH 'ducklake:' AS a")
        session.sql(f"""
            CREATE SECRET shop (
                TYPE DUCKLAKE, METADATA_PATH '{tmp_path}/s.db', DATA_PATH '{tmp_path}/d',
                METADATA_PARAMETERS MAP {{'TYPE': 'sqlite'}}
            )
        """)
        session.sql("ATTACH 'ducklake:shop' AS a; CREATE TABLE a.t AS SELECT 1 AS i")
        assert session.sql("FROM a.settings()").fetchall()[0][0] == "sqlite"
        with pytest.raises(NotFoundError, match='did you mean "shop"'):
            session.sql("ATTACH 'ducklake:shap' AS b")
        session.sql("DROP SECRET shop")
        with pytest.raises(NotFoundError, match="was not found"):
            session.sql("ATTACH 'ducklake:shop' AS b")


def test_an_order_may_call_a_macro(run: Run, session: quacklake.Session) -> None:
    run("CALL lake.set_option('data_inlining_row_limit', 0, schema => ?)", [session.names.schema])
    run("CREATE MACRO upside_down(x) AS -x; CREATE TABLE t (i INTEGER)")
    run("ALTER TABLE t SET SORTED BY (upside_down(i))")
    run("INSERT INTO t FROM range(5)")
    assert [row[0] for row in run("FROM t")] == [4, 3, 2, 1, 0]


def test_names_that_inlined_rows_need_are_refused_while_rows_are_inlined(run: Run, session: quacklake.Session) -> None:
    with pytest.raises(SqlError, match="reserved"):
        run("CREATE TABLE t (row_id INTEGER)")
    run("CREATE TABLE t (i INTEGER)")
    with pytest.raises(SqlError, match="reserved"):
        run("ALTER TABLE t RENAME i TO begin_snapshot")
    run("CALL lake.set_option('data_inlining_row_limit', 0, table_name => 't', schema => ?)", [session.names.schema])
    run("ALTER TABLE t ADD COLUMN end_snapshot INTEGER; INSERT INTO t VALUES (1, 2)")
    assert run("FROM t") == [(1, 2)]
    with pytest.raises(SqlError, match="Cannot enable"):
        run(
            "CALL lake.set_option('data_inlining_row_limit', 9, table_name => 't', schema => ?)", [session.names.schema]
        )


def test_variants_keep_what_they_are(run: Run) -> None:
    run("CREATE TABLE v (v VARIANT); INSERT INTO v VALUES (42), ('42'), (DATE '2024-01-01')")
    assert sorted(row[0] for row in run("SELECT variant_typeof(v) FROM v")) == ["DATE", "INT32", "VARCHAR"]
