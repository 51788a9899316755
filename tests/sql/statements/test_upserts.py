"""INSERT … ON CONFLICT does what it does in plain DuckDB, by the primary key of a table."""

from __future__ import annotations

from typing import Any

import duckdb
import pytest

import quacklake
from quacklake.errors import CommitConflict, ConstraintError, SqlError
from tests.seeds import chance
from tests.sql.conftest import Run

TABLE = "CREATE TABLE t (k INTEGER PRIMARY KEY, a INTEGER DEFAULT 7, b VARCHAR)"
PAIR = "CREATE TABLE p (k INTEGER, j VARCHAR, a INTEGER, PRIMARY KEY (k, j))"
START = "INSERT INTO t VALUES (1, 1, 'one'), (2, 2, 'two')"

STATEMENTS = [
    "INSERT INTO t VALUES (2, 20, 'x'), (3, 30, 'y') ON CONFLICT DO NOTHING",
    "INSERT INTO t VALUES (3, 30, 'first'), (3, 31, 'second') ON CONFLICT (k) DO NOTHING",
    "INSERT INTO t VALUES (2, 20, 'x'), (3, 30, 'y') ON CONFLICT (k) DO UPDATE SET a = excluded.a",
    "INSERT INTO t VALUES (2, 20, 'x'), (2, 21, 'y') ON CONFLICT (k) DO UPDATE SET a = a + excluded.a, b = excluded.b",
    "INSERT INTO t VALUES (5, 1, 'x'), (5, 2, 'y'), (5, 3, 'z') ON CONFLICT DO UPDATE SET a = t.a + excluded.a",
    "INSERT INTO t VALUES (1, 9, 'x'), (2, 9, 'y') ON CONFLICT (k) DO UPDATE SET a = -1 WHERE excluded.b = 'y'",
    "INSERT INTO t VALUES (1, 9, 'x'), (2, 9, 'y') ON CONFLICT (K) DO UPDATE SET a = -1 WHERE a = 1",
    "INSERT INTO t AS x VALUES (1, 9, 'x') ON CONFLICT (k) DO UPDATE SET a = x.a + 1, b = DEFAULT",
    "INSERT INTO t VALUES (1, 9, 'x') ON CONFLICT (k) DO UPDATE SET (a, b) = (excluded.a, 'z')",
    "INSERT INTO t BY NAME SELECT 'n' AS b, 1 AS k ON CONFLICT DO UPDATE SET b = excluded.b",
    "INSERT INTO t (k, b) SELECT k + 1, b FROM t ON CONFLICT DO UPDATE SET b = excluded.b, a = excluded.a",
    "INSERT OR REPLACE INTO t VALUES (1, 10, 'x'), (6, 1, 'y'), (6, 2, 'z')",
    "INSERT OR REPLACE INTO t (b, k) VALUES ('x', 1), ('y', 7)",
    "INSERT OR REPLACE INTO t (k) VALUES (1), (8)",
    "INSERT OR IGNORE INTO t (k, b) VALUES (1, 'x'), (9, 'y'), (9, 'z')",
    "WITH s AS (SELECT 2 AS k, 5 AS a, 's' AS b) INSERT INTO t SELECT * FROM s ON CONFLICT DO UPDATE SET a = excluded.a",
    "INSERT INTO t VALUES (1, 5, 'r'), (4, 5, 'r') ON CONFLICT DO UPDATE SET a = excluded.a RETURNING k, a + 1, b",
    "INSERT INTO t VALUES (1, 5, 'r'), (4, 5, 'r') ON CONFLICT DO NOTHING RETURNING *",
]


@pytest.mark.parametrize("inlined", [True, False])
@pytest.mark.parametrize("statement", STATEMENTS)
def test_a_statement_does_what_it_does_in_duckdb(run: Run, statement: str, inlined: bool) -> None:
    run(TABLE)
    if not inlined:
        run("ALTER TABLE t SET (data_inlining_row_limit = 0)")
    run(START)
    with duckdb.connect() as plain:
        plain.execute(f"{TABLE}; {START}")
        expected = sorted(plain.execute(statement).fetchall())
        rows = plain.execute("FROM t ORDER BY k").fetchall()
    assert sorted(run(statement)) == expected
    assert run("FROM t ORDER BY k") == rows


@pytest.mark.parametrize("number", range(6))
def test_random_rows_end_as_they_do_in_duckdb(run: Run, number: int) -> None:
    random = chance("upserts", number)
    actions = (
        "ON CONFLICT DO NOTHING",
        "ON CONFLICT (j, k) DO NOTHING",
        "ON CONFLICT DO UPDATE SET a = excluded.a",
        "ON CONFLICT (k, j) DO UPDATE SET a = a + excluded.a WHERE excluded.a % 2 = 0",
    )
    run(PAIR)
    with duckdb.connect() as plain:
        plain.execute(PAIR)
        for _ in range(6):
            rows = [
                (random.randrange(6), random.choice("xyz"), random.randrange(100))
                for _ in range(random.randrange(1, 30))
            ]
            values = ", ".join(f"({k}, '{j}', {a})" for k, j, a in rows)
            begin, end = "INSERT", random.choice(actions)
            if random.random() < 0.3:
                begin, end = random.choice(("INSERT OR REPLACE", "INSERT OR IGNORE")), ""
            statement = f"{begin} INTO p VALUES {values} {end}"
            assert run(statement) == plain.execute(statement).fetchall(), statement
            assert run("FROM p ORDER BY k, j") == plain.execute("FROM p ORDER BY k, j").fetchall(), statement


@pytest.mark.parametrize(
    ("statement", "words"),
    [
        ("INSERT INTO n VALUES (1) ON CONFLICT DO NOTHING", "There are no UNIQUE/PRIMARY KEY constraints"),
        ("INSERT OR REPLACE INTO n VALUES (1)", "There are no UNIQUE/PRIMARY KEY constraints"),
        ("INSERT INTO n VALUES (1) ON CONFLICT (k) DO NOTHING", "not referenced by a UNIQUE/PRIMARY KEY CONSTRAINT"),
        ("INSERT INTO t VALUES (1) ON CONFLICT (a) DO NOTHING", "not referenced by a UNIQUE/PRIMARY KEY CONSTRAINT"),
        ("INSERT INTO t VALUES (1, 1, '') ON CONFLICT DO UPDATE SET k = 5", "a column of the primary key"),
        ("INSERT INTO t VALUES (1, 1, '') ON CONFLICT (k) WHERE k > 1 DO NOTHING", "ON CONFLICT WHERE clause"),
        ("INSERT OR IGNORE INTO t VALUES (1, 1, '') ON CONFLICT DO NOTHING", "You can not provide both"),
        ("INSERT INTO t VALUES (1, 1, '') ON CONFLICT DO UPDATE SET a = excluded.zz", "zz"),
    ],
)
def test_what_has_no_meaning_is_refused(run: Run, statement: str, words: str) -> None:
    run(f"{TABLE}; {START}; CREATE TABLE n (k INTEGER)")
    with pytest.raises(SqlError) as caught:
        run(statement)
    assert words in str(caught.value)
    assert run("SELECT count(*) FROM t") == [(2,)]


def test_a_key_is_not_null(run: Run) -> None:
    run(TABLE)
    with pytest.raises(ConstraintError, match="NOT NULL constraint failed"):
        run("INSERT INTO t VALUES (NULL, 1, '') ON CONFLICT DO NOTHING")


def test_an_open_transaction_sees_its_own_rows(run: Run) -> None:
    run(f"{TABLE}; BEGIN; {START}")
    run("INSERT INTO t VALUES (1, 5, 'x') ON CONFLICT DO UPDATE SET a = excluded.a; COMMIT")
    assert run("SELECT k, a FROM t ORDER BY k") == [(1, 5), (2, 2)]


def test_two_that_insert_one_key_conflict(run: Run, session: quacklake.Session) -> None:
    run(TABLE)
    insert = "INSERT INTO t VALUES (1, 5, 'x') ON CONFLICT DO NOTHING"
    with session.cursor() as other:
        run(f"BEGIN; {insert}")
        found: list[tuple[Any, ...]] = other.sql(insert).fetchall()
        assert found == [(1,)]
        with pytest.raises(CommitConflict):
            run("COMMIT")
    assert run(insert) == [(0,)]
