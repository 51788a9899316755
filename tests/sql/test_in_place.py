"""Queries run as they were written, but for the names in them."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path

import duckdb
import pytest

import quacklake
from quacklake.core.sql.binder import Binder


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[quacklake.Lake]:
    with quacklake.connect(f"sqlite:///{tmp_path}/lake.db", data_path=tmp_path / "data") as lake:
        lake.sql("CREATE TABLE t AS SELECT range AS id, 'n' || range AS name FROM range(3)")
        lake.sql('CREATE SCHEMA s1; CREATE TABLE s1.t AS SELECT 7 AS id; CREATE TABLE "ünï cöde" AS SELECT 1 AS "ä"')
        lake.sql("CREATE VIEW v AS SELECT typeof(1e3) AS kind, 0.1e0 + 0.2e0 AS sum FROM t")
        yield lake


@pytest.mark.parametrize(
    ("query", "title", "value"),
    [
        ("SELECT typeof(1e3) AS x FROM t", "x", "DOUBLE"),
        ("SELECT 0.1e0 + 0.2e0 AS x FROM t", "x", 0.1 + 0.2),
        ("SELECT 2.5e0::INTEGER AS x FROM t", "x", 2),
        ("SELECT 1e10 * 1e10 * 1e10 AS x FROM t", "x", 1e30),
        ("SELECT typeof(1e400) AS x FROM t", "x", "DOUBLE"),
        ("SELECT kind FROM v", "kind", "DOUBLE"),
        ("SELECT sum FROM v", "sum", 0.1 + 0.2),
        ("SELECT typeof(1e3) AS x FROM t AT (VERSION => 1)", "x", "DOUBLE"),
        ("SELECT typeof(1e3) AS x FROM t WHERE now() > '2020-01-01'", "x", "DOUBLE"),
        (
            'WITH q AS (SELECT * FROM main.t) SELECT typeof(1e3) AS x FROM q, "lake" . s1 . t WHERE q.id = 0',
            "x",
            "DOUBLE",
        ),
        ("SELECT 'é' AS x /* ü */ FROM \"ünï cöde\" -- comment", "x", "é"),
        ('SELECT \'é\' || lake.main."ünï cöde"."ä" AS x FROM lake.main."ünï cöde"', "x", "é1"),
    ],
)
def test_numbers_keep_their_types_and_texts_their_letters(
    lake: quacklake.Lake, query: str, title: str, value: object
) -> None:
    result = lake.sql(query)
    assert result.columns == [title]
    assert result.fetchone() == (value,)


def test_numbers_keep_every_digit_on_their_way_into_a_table(lake: quacklake.Lake) -> None:
    lake.sql("CREATE TABLE d (x DOUBLE)")
    lake.sql("INSERT INTO d VALUES (0.00018230687000260782e0), (-0e0), (1e400)")
    rows = [value for (value,) in lake.sql("FROM d").fetchall()]
    assert rows == [0.00018230687000260782, -0.0, math.inf]
    assert math.copysign(1, rows[1]) == -1


def test_columns_without_a_name_are_called_by_what_was_written(lake: quacklake.Lake) -> None:
    assert lake.sql("SELECT max(t.id), count(*), id + 1 FROM t GROUP BY id").columns == [
        "max(t.id)",
        "count_star()",
        "(id + 1)",
    ]


def test_a_query_runs_as_it_was_written(lake: quacklake.Lake) -> None:
    session = lake._sessions.current()
    bound = Binder(session).bind(
        "SELECT lower( name ), lake.main.t.id FROM lake.main.t WHERE id>1e0 /* many */ LIMIT 5"
    )
    (scan,) = bound.scans
    assert bound.sql == (
        f'SELECT lower( name ), "t"."id" FROM "temp"."main"."{scan.name}" AS "t" WHERE id>1e0 /* many */ LIMIT 5'
    )
    given = Binder(session, {"1": 1, "2": 2, "3": 3}).bind("SELECT $2::INT + id FROM t x WHERE id < $3")
    assert given.sql.endswith("x WHERE id < $3")
    assert given.values == {"2": 2, "3": 3}


def test_what_cannot_stay_as_it_is_is_written_anew(lake: quacklake.Lake) -> None:
    for query in (
        "TABLE t",
        "FROM t AT (VERSION => 1) SELECT id",
        "DESCRIBE t",
        "SELECT id, rowid, * FROM t",
        "SELECT * FROM ducklake_snapshots('lake')",
        "SELECT count(*) FROM t",
        "SELECT stats(id) FROM t",
        "SELECT id FROM t WHERE id < $2::INT + $1::INT",
    ):
        values = [1, 2] if "$1" in query else None
        assert lake.sql(query, values).fetchall()


def test_a_value_may_say_distinct_from(lake: quacklake.Lake) -> None:
    lake.sql("CREATE TABLE m (id INTEGER, a BOOLEAN); INSERT INTO m VALUES (1, NULL), (2, NULL)")
    lake.sql("UPDATE m SET a = id IS DISTINCT FROM 1, id = id + 10 WHERE id IS NOT DISTINCT FROM id")
    assert lake.sql("SELECT * FROM m ORDER BY id").fetchall() == [(11, False), (12, True)]


_LITERALS = (
    "1e3",
    "0.1e0 + 0.2e0",
    "-0e0",
    "1e400",
    "5.",
    ".5",
    "1.10",
    "2.5e0::INTEGER",
    "12345678901234567890.5",
    "[1e0, 5.]",
    "CAST(1e0 AS DOUBLE) + 5.",
)


@pytest.fixture(scope="module")
def plain() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect() as found:
        found.execute("CREATE TABLE t (id INT); INSERT INTO t VALUES (1)")
        yield found


@pytest.mark.parametrize("literal", _LITERALS)
def test_literals_are_what_they_are_in_duckdb_wherever_they_stand(
    tmp_path: Path, plain: duckdb.DuckDBPyConnection, literal: str
) -> None:
    plain.execute(f"SELECT {literal}, typeof({literal}) FROM t")
    titles, expected = [found[0] for found in plain.description or []], plain.fetchall()

    with quacklake.connect(f"sqlite:///{tmp_path}/l.db", data_path=f"{tmp_path}/data/") as lake:
        lake.sql("CREATE TABLE t (id INT); INSERT INTO t VALUES (1)")
        now = lake.sql("FROM lake.current_snapshot()").fetchall()[0][0]
        query = f"SELECT {literal}, typeof({literal}) FROM t"
        for text in (query, f"{query} AT (VERSION => {now})", f"{query} AS x AT (VERSION => {now}) WHERE x.id = 1"):
            result = lake.sql(text)
            assert result.columns == titles, text
            assert repr(result.fetchall()) == repr(expected), text
        with quacklake.session(safety=quacklake.Safety()) as safe:
            safe.attach(lake)
            safe.use("lake")
            result = safe.sql(query)
            assert result.columns == titles
            assert repr(result.fetchall()) == repr(expected)
        lake.sql(f"CREATE VIEW v AS {query}")
        lake.sql(f"CREATE MACRO m() AS {literal}")
        lake.sql(f"CREATE MACRO r() AS TABLE SELECT {literal} AS x, typeof({literal}) AS y")
        assert repr(lake.sql("FROM v").fetchall()) == repr(expected)
        assert repr(lake.sql("SELECT m(), typeof(m()) FROM t").fetchall()) == repr(expected)
        assert repr(lake.sql("FROM r()").fetchall()) == repr(expected)
        assert repr(lake.sql(f"VALUES ({literal}, typeof({literal}))").fetchall()) == repr(expected)
