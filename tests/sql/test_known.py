"""Queries that metadata answers alone, statistics, repairs of metadata by hand, and the order and types of rows."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import quacklake
from quacklake.errors import NotFoundError, QuacklakeError, ReadOnlyError, SqlError
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


@pytest.mark.parametrize("database", ["sqlite", "duckdb"])
def test_a_change_of_metadata_tells_how_many_rows_it_changed(tmp_path: Path, database: str) -> None:
    plain_only("a statement in the database's own SQL could reach other catalogs")
    url = f"sqlite:{tmp_path}/l.db" if database == "sqlite" else f"{tmp_path}/l.duckdb"
    with quacklake.session() as session:
        session.sql(f"ATTACH 'ducklake:{url}' AS l (DATA_PATH '{tmp_path}/d', METADATA_CATALOG 'm'); USE l")
        session.sql("CREATE TABLE t AS SELECT 1 AS i")
        for statement, count in (
            ("INSERT INTO m.ducklake_tag VALUES (1, 0, NULL, 'a', 'x'), (1, 0, NULL, 'b', 'x')", 2),
            ("UPDATE m.ducklake_tag SET value = 'y' WHERE key = 'a'", 1),
            ("UPDATE m.ducklake_tag SET value = 'y'", 2),
            ("UPDATE m.ducklake_tag SET value = 'z' WHERE key = 'b' RETURNING key", 1),
            ("WITH one AS (SELECT 'a' AS k) DELETE FROM m.ducklake_tag WHERE key IN (SELECT k FROM one)", 1),
            ("DELETE FROM m.ducklake_tag WHERE false", 0),
            ("DELETE FROM m.ducklake_tag", 1),
        ):
            assert session.sql(statement).fetchall() == [(count,)], statement


@pytest.mark.parametrize(
    ("query", "shown"),
    [
        ("SELECT stats(u.i) FROM numbers, u LIMIT 1", "[Min: 7, Max: 7]"),
        ("SELECT stats(numbers.i) FROM u, numbers LIMIT 1", "[Min: -5, Max: 999]"),
        ("SELECT stats(n.i) FROM u JOIN numbers AS n ON true LIMIT 1", "[Min: -5, Max: 999]"),
        ("SELECT stats(s.i) FROM u LIMIT 1", "[Min: 70, Max: 70]"),
        ("SELECT stats(u.s.i) FROM u LIMIT 1", "[Min: 70, Max: 70]"),
        ("SELECT stats(s.i) FROM u AS s LIMIT 1", "[Min: 7, Max: 7]"),
    ],
)
def test_statistics_are_those_of_the_column_that_is_named(run: Run, numbers: str, query: str, shown: str) -> None:
    run("CREATE TABLE u AS SELECT 7 AS i, {'i': 70} AS s")
    assert run(query)[0][0].startswith(shown)


@pytest.mark.parametrize("pragma", ["enable_verification", "verify_external", "disable_verification"])
def test_statements_run_when_duckdb_is_to_check_itself(run: Run, numbers: str, pragma: str) -> None:
    run(f"PRAGMA {pragma}")
    assert run("SELECT count(*) FROM numbers WHERE i < 3") == [(4,)]
    assert run("UPDATE numbers SET s = 'x' WHERE i = 1") == [(1,)]


@pytest.mark.parametrize(
    "at",
    [
        "TIMESTAMP => [1]",
        "TIMESTAMP => {'a': 1}",
        "TIMESTAMP => MAP {1: 2}",
        "TIMESTAMP => 'infinity'::TIMESTAMP",
        "TIMESTAMP => 'infinity'::TIMESTAMPTZ",
        "TIMESTAMP => 'infinity'::DATE",
        "VERSION => [1]",
        "VERSION => 99999999999999999999999",
        "VERSION => 1e300",
        "VERSION => 'infinity'::DOUBLE",
    ],
)
def test_at_takes_only_versions_and_times(run: Run, numbers: str, at: str) -> None:
    with pytest.raises(QuacklakeError):
        run(f"FROM numbers AT ({at})")


def test_values_that_python_lacks_are_texts(run: Run, session: quacklake.Session) -> None:
    query = """
        SELECT 'infinity'::TIMESTAMPTZ, '-infinity'::TIMESTAMP, 'infinity'::DATE, TIME '24:00:00',
            ['-infinity'::TIMESTAMPTZ], {'a': TIME '24:00:00', 'b': 'infinity'::DATE}, '290000-01-01'::TIMESTAMPTZ,
            '0044-03-15 (BC)'::DATE, TIME '23:59:59.999999'
    """
    expected = (
        *("infinity", "-infinity", "infinity", "24:00:00", ["-infinity"], {"a": "24:00:00", "b": "infinity"}),
        *("290000-01-01 00:00:00+00", "0044-03-15 (BC)", dt.time(23, 59, 59, 999999)),
    )
    assert run(query) == [expected]
    assert [tuple(row.values()) for row in session.sql(query).to_pylist()] == [expected]
    run("CREATE TABLE t (t TIMESTAMPTZ, o TIME); INSERT INTO t VALUES ('infinity', '24:00:00'), (NULL, NULL)")
    assert run("FROM t") == [("infinity", "24:00:00"), (None, None)]
