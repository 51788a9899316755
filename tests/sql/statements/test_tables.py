"""CREATE, ALTER and DROP of what a lake has."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import quacklake
from quacklake.errors import AlreadyExistsError, ConstraintError, InputError, NotFoundError, QuacklakeError, SqlError

Run = Callable[..., list[tuple[Any, ...]]]


def test_columns_have_types_defaults_and_constraints(run: Run) -> None:
    run(
        "CREATE TABLE t (id INTEGER NOT NULL, price DECIMAL(10, 2) DEFAULT 1.5, made TIMESTAMP DEFAULT now(), s STRUCT(a INT[]))"
    )
    described = run("DESCRIBE t")
    assert [row[:3] for row in described] == [
        ("id", "INTEGER", "NO"),
        ("price", "DECIMAL(10,2)", "YES"),
        ("made", "TIMESTAMP", "YES"),
        ("s", "STRUCT(a INTEGER[])", "YES"),
    ]
    run("INSERT INTO t (id) VALUES (1)")
    assert run("SELECT price, made IS NOT NULL FROM t")[0][1] is True
    with pytest.raises(ConstraintError):
        run("INSERT INTO t (price) VALUES (1)")


def test_a_primary_key_is_what_merge_goes_by(run: Run, session: Any) -> None:
    run("CREATE TABLE t (id INTEGER PRIMARY KEY, s VARCHAR)")
    lake = session.attachments.find("lake").lake
    assert quacklake.Lake(lake).table(f"{session.names.schema}.t").primary_key == ("id",)


@pytest.mark.parametrize(
    ("constraint", "kind"),
    [("UNIQUE", "PRIMARY KEY/UNIQUE"), ("CHECK (id > 0)", "CHECK"), ("REFERENCES t (id)", "FOREIGN KEY")],
)
def test_other_constraints_are_refused_in_the_words_of_ducklake(run: Run, constraint: str, kind: str) -> None:
    with pytest.raises(SqlError, match=f"{kind} constraints are not supported in DuckLake"):
        run(f"CREATE TABLE u (id INTEGER {constraint})")


def test_the_statement_that_makes_a_table_is_shown(run: Run, session: Any) -> None:
    schema = session.names.schema
    run(
        "CREATE TABLE t (id INTEGER PRIMARY KEY, \"a b\" VARCHAR DEFAULT 'it''s', n DOUBLE DEFAULT (random()),"
        ' s STRUCT(x INTEGER[]) NOT NULL, d DATE) PARTITIONED BY (year(d), bucket(4, "a b")) SORTED BY (n DESC)'
    )
    (row,) = run("SHOW CREATE TABLE t")
    assert row == (
        "t",
        f'CREATE TABLE "{schema}"."t" (\n  "id" INTEGER NOT NULL,\n  "a b" VARCHAR DEFAULT \'it\'\'s\',\n'
        '  "n" DOUBLE DEFAULT (random()),\n  "s" STRUCT("x" INTEGER[]) NOT NULL,\n  "d" DATE,\n  PRIMARY KEY ("id")\n)\n'
        'PARTITIONED BY (year(d), bucket(4, "a b"))\nSORTED BY (n DESC NULLS LAST);',
    )
    run("DROP TABLE t")
    run(row[1])
    assert run(f"SHOW CREATE TABLE lake.{schema}.t") == [row]
    run("CREATE VIEW v (k) AS SELECT id FROM t")
    (view,) = run("SHOW CREATE VIEW v")
    run("DROP VIEW v")
    run(view[1])
    assert run("SELECT count(k) FROM v") == [(0,)]
    run("CREATE TEMP TABLE mine (i INTEGER)")
    assert run("SHOW CREATE TABLE mine") == [("mine", "CREATE TEMP TABLE mine(i INTEGER);")]
    run("DROP TABLE mine")
    with pytest.raises(SqlError, match="does not exist"):
        run("SHOW CREATE TABLE nowhere")


def test_a_table_is_made_from_a_query(run: Run) -> None:
    run("CREATE TABLE t AS SELECT i AS id, 'n' || i AS name FROM range(20) r(i)")
    assert run("SELECT count(*), max(name) FROM t") == [(20, "n9")]
    run("CREATE OR REPLACE TABLE t AS SELECT id FROM t WHERE id < 3")
    assert run("FROM t ORDER BY 1") == [(0,), (1,), (2,)]
    run("CREATE TABLE IF NOT EXISTS t AS SELECT 1 AS other")
    assert run("SELECT count(*) FROM t") == [(3,)]
    with pytest.raises(AlreadyExistsError):
        run("CREATE TABLE t (id INTEGER)")


@pytest.mark.parametrize("clause", ["PARTITION BY", "PARTITIONED BY"])
def test_a_table_is_partitioned_and_sorted_from_the_beginning(run: Run, session: Any, clause: str) -> None:
    run(f"CREATE TABLE t (d DATE, v INTEGER) {clause} (year(d), month(d)) SORTED BY (v DESC)")
    lake = session.attachments.find("lake").lake
    table = quacklake.Lake(lake).table(f"{session.names.schema}.t")
    assert table.partitioned_by == ["year(d)", "month(d)"]
    assert table.sorted_by == ["v DESC NULLS LAST"]
    run("ALTER TABLE t RESET PARTITIONED BY; ALTER TABLE t RESET SORTED BY")
    assert (table.partitioned_by, table.sorted_by) == ([], [])
    run("ALTER TABLE t SET PARTITIONED BY (bucket(4, v)); ALTER TABLE t SET SORTED BY (d ASC)")
    assert table.partitioned_by == ["bucket(4, v)"]


def test_columns_change_and_rows_follow(run: Run) -> None:
    run("CREATE TABLE t (a INTEGER, s STRUCT(x INTEGER)); INSERT INTO t VALUES (1, {'x': 1})")
    run("ALTER TABLE t ADD COLUMN c VARCHAR DEFAULT 'new'")
    run("ALTER TABLE t ADD COLUMN s.y INTEGER")
    run("ALTER TABLE t RENAME COLUMN a TO b")
    run("ALTER TABLE t ALTER COLUMN b SET DATA TYPE BIGINT")
    assert run("SELECT * FROM t") == [(1, {"x": 1, "y": None}, "new")]
    with pytest.raises(InputError):
        run("ALTER TABLE t ALTER b TYPE INTEGER")
    run("ALTER TABLE t DROP COLUMN s.x; ALTER TABLE t DROP COLUMN IF EXISTS nope")
    run("ALTER TABLE t ALTER c SET DEFAULT 'other'; ALTER TABLE t ALTER b SET NOT NULL; INSERT INTO t (b) VALUES (2)")
    assert run("SELECT b, c FROM t ORDER BY b") == [(1, "new"), (2, "other")]
    with pytest.raises(ConstraintError):
        run("INSERT INTO t (c) VALUES ('x')")
    run("ALTER TABLE t ALTER b DROP NOT NULL; ALTER TABLE t ALTER c DROP DEFAULT; INSERT INTO t (b) VALUES (NULL)")
    assert run("SELECT c FROM t WHERE b IS NULL") == [(None,)]
    run("ALTER TABLE t RENAME TO u")
    assert run("SELECT count(*) FROM u") == [(3,)]


def test_dropped_tables_leave_their_files(run: Run, home: Path) -> None:
    run("CREATE TABLE t AS SELECT * FROM range(100)")
    files = set(home.rglob("*.parquet"))
    run("DROP TABLE t; DROP TABLE IF EXISTS t")
    assert set(home.rglob("*.parquet")) == files
    with pytest.raises(NotFoundError):
        run("DROP TABLE t")


def test_schemas_are_made_and_dropped(run: Run) -> None:
    run("CREATE SCHEMA lake.extra; CREATE SCHEMA IF NOT EXISTS lake.extra; CREATE TABLE lake.extra.t (i INTEGER)")
    with pytest.raises(QuacklakeError):
        run("DROP SCHEMA lake.extra")
    run("DROP SCHEMA lake.extra CASCADE; DROP SCHEMA IF EXISTS lake.extra")
    assert run("SELECT count(*) FROM information_schema.schemata WHERE schema_name = 'extra'") == [(0,)]


def test_views_macros_and_comments(run: Run, session: Any) -> None:
    run("CREATE TABLE t AS SELECT i AS id FROM range(5) r(i)")
    schema = session.names.schema
    run(f"CREATE VIEW v (n) AS SELECT id FROM lake.{schema}.t WHERE id > 2")
    assert run("SELECT n FROM v ORDER BY n") == [(3,), (4,)]
    run("CREATE OR REPLACE VIEW v AS SELECT max(id) AS m FROM t; ALTER VIEW v RENAME TO w")
    assert run("FROM w") == [(4,)]
    run("CREATE MACRO plus(a, b := 1) AS a + b; CREATE MACRO above(x) AS TABLE SELECT id FROM t WHERE id > x")
    assert run("SELECT plus(1), plus(1, b := 5)") == [(2, 6)]
    assert run("SELECT count(*) FROM above(1)") == [(3,)]
    run("COMMENT ON TABLE t IS 'five'; COMMENT ON COLUMN t.id IS 'a number'; COMMENT ON VIEW w IS 'the most'")
    query = "SELECT comment FROM {} WHERE schema_name = ? AND {} = ?"
    assert run(query.format("duckdb_tables()", "table_name"), [schema, "t"]) == [("five",)]
    assert run(query.format("duckdb_columns()", "column_name"), [schema, "id"]) == [("a number",)]
    run("DROP VIEW w; DROP MACRO plus; DROP MACRO TABLE above")
    assert run("SHOW TABLES") == [("t",)]


def test_intervals_and_zoned_times_are_defaults(run: Run) -> None:
    run("CREATE TABLE t (id INTEGER, span INTERVAL DEFAULT INTERVAL 3 DAY); INSERT INTO t (id) VALUES (1)")
    run("ALTER TABLE t ADD COLUMN z TIMETZ DEFAULT '12:34:56+02'; ALTER TABLE t ALTER span SET DEFAULT INTERVAL 1 HOUR")
    run("INSERT INTO t (id) VALUES (2)")
    assert run("SELECT id, span::VARCHAR, z = '12:34:56+02'::TIMETZ FROM t ORDER BY id") == [
        (1, "3 days", True),
        (2, "01:00:00", True),
    ]
