"""The types that DuckDB infers for the parameters of a statement, without running it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import quacklake
from quacklake.core.sql.safety import Safety
from quacklake.errors import NotPermittedError, QuacklakeError, StatementTooLargeError

COLUMNS = {
    "i": "BIGINT",
    "s": "VARCHAR",
    "d": "DATE",
    "ts": "TIMESTAMP",
    "tz": "TIMESTAMP WITH TIME ZONE",
    "n": "DECIMAL(10,2)",
    "b": "BOOLEAN",
    "bl": "BLOB",
    "tm": "TIME",
    "u": "UUID",
    "f": "FLOAT",
    "small": "SMALLINT",
    "big": "UBIGINT",
    "iv": "INTERVAL",
}


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[quacklake.Lake]:
    home: Path = tmp_path_factory.mktemp("types")
    with quacklake.connect(f"sqlite:///{home}/lake.db", data_path=home / "data") as found:
        found.sql(f"CREATE TABLE t ({', '.join(f'{name} {type_}' for name, type_ in COLUMNS.items())}, l INT[])")
        found.sql("CREATE TABLE keyed (i BIGINT PRIMARY KEY, s VARCHAR, n DECIMAL(10, 2))")
        found.sql("CREATE VIEW v AS SELECT i, n FROM t")
        found.sql("CREATE MACRO plus(a, b) AS a + b")
        yield found


@pytest.fixture(scope="module", params=["safe", "free"])
def session(lake: quacklake.Lake, request: pytest.FixtureRequest) -> Iterator[quacklake.Session]:
    safety = Safety(read_only=False) if request.param == "safe" else None
    with quacklake.session(safety=safety) as found:
        found.attach(lake, "lake")
        found.use("lake")
        yield found


def types(session: quacklake.Session, sql: str) -> list[str]:
    found = session.parameter_types(sql)
    return [found[name] for name in sorted(found, key=lambda name: (len(name), name))]


def test_every_column_type_is_found_where_values_are_inserted_and_compared(session: quacklake.Session) -> None:
    names, marks = ", ".join(COLUMNS), ", ".join("?" * len(COLUMNS))
    compared = " AND ".join(f"{name} = ?" for name in COLUMNS)
    assigned = ", ".join(f"{name} = ?" for name in COLUMNS)
    for sql in (
        f"INSERT INTO t ({names}) VALUES ({marks})",
        f"INSERT INTO t ({names}) SELECT {marks}",
        f"INSERT INTO t BY NAME SELECT {', '.join(f'? AS {name}' for name in COLUMNS)}",
        f"SELECT 1 FROM t WHERE {compared}",
        f"UPDATE t SET {assigned}",
        f"DELETE FROM t WHERE {compared}",
    ):
        assert types(session, sql) == list(COLUMNS.values()), sql


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("SELECT 1", []),
        ("SELECT ?", ["VARCHAR"]),
        ("SELECT ? + 1", ["DOUBLE"]),
        ("SELECT abs(?), lower(?)", ["DOUBLE", "VARCHAR"]),
        ("SELECT i + ?, d + ?, ts - ? FROM t", ["BIGINT", "INTEGER", "TIMESTAMP"]),
        ("SELECT s || ? FROM t LIMIT ? OFFSET ?", ["VARCHAR", "BIGINT", "BIGINT"]),
        ("SELECT ?::DATE, CAST(? AS DECIMAL(8, 3))", ["DATE", "DECIMAL(8,3)"]),
        ("SELECT $a FROM t WHERE i = $a OR s = $b", ["BIGINT", "VARCHAR"]),
        ("SELECT $2, $1 FROM t WHERE i = $1", ["BIGINT", "VARCHAR"]),
        ("SELECT 1 FROM t WHERE $1 IS NULL OR n = $1", ["DECIMAL(10,2)"]),
        ("SELECT 1 FROM t WHERE i = $1 AND small = $1", ["BIGINT"]),
        ("SELECT 1 FROM t WHERE (i, s) = (?, ?)", ["VARCHAR", "VARCHAR"]),
        ("SELECT 1 FROM v WHERE n > ? AND plus(i, ?) = ?", ["DECIMAL(10,2)", "BIGINT", "BIGINT"]),
        ("WITH x AS (FROM t WHERE d = ?) FROM x UNION ALL FROM t WHERE b = ?", ["DATE", "BOOLEAN"]),
        ("SELECT 1 FROM t AT (VERSION => 2) WHERE i = ?", ["BIGINT"]),
        ("SELECT 1 FROM t WHERE l = ?", ["LIST"]),
        ("UPDATE t SET i = t.i + ? FROM v WHERE v.i = t.i AND v.n > ?", ["BIGINT", "DECIMAL(10,2)"]),
        ("UPDATE t SET s = DEFAULT, d = ? WHERE i IN (SELECT i FROM v WHERE n = ?)", ["DATE", "DECIMAL(10,2)"]),
        ("DELETE FROM t USING v WHERE v.i = t.i AND v.n = ?", ["DECIMAL(10,2)"]),
        (
            "INSERT INTO keyed VALUES (?, ?, ?) ON CONFLICT (i) DO UPDATE SET s = excluded.s || ?, n = ? WHERE n < ?",
            ["BIGINT", "VARCHAR", "DECIMAL(10,2)", "VARCHAR", "DECIMAL(10,2)", "DECIMAL(10,2)"],
        ),
        (
            "MERGE INTO keyed USING (SELECT ? AS i, ? AS s, ? AS n) x ON keyed.i = x.i WHEN MATCHED AND x.n > ? THEN"
            " UPDATE SET s = x.s, n = ? WHEN NOT MATCHED THEN INSERT (i, s, n) VALUES (x.i, x.s, x.n)",
            ["BIGINT", "VARCHAR", "DECIMAL(10,2)", "DECIMAL(10,2)", "DECIMAL(10,2)"],
        ),
        ("MERGE INTO keyed USING v USING (i) WHEN MATCHED THEN UPDATE SET s = ?", ["VARCHAR"]),
        ("INSERT INTO t DEFAULT VALUES", []),
        ("TRUNCATE t", []),
    ],
    ids=str,
)
def test_a_parameter_has_the_type_of_what_it_meets(session: quacklake.Session, sql: str, expected: list[str]) -> None:
    assert types(session, sql) == expected


def test_nothing_runs(session: quacklake.Session, lake: quacklake.Lake) -> None:
    before = lake.current_snapshot()
    for sql in ("INSERT INTO t (i) VALUES (?)", "DELETE FROM t WHERE true OR i = ?", "SELECT error('no') || ?"):
        session.parameter_types(sql)
    assert lake.current_snapshot() == before
    assert session.sql("SELECT count(*) FROM t").fetchall() == [(0,)]


def test_a_safe_session_tells_no_types_of_what_it_does_not_run(lake: quacklake.Lake) -> None:
    with quacklake.session(safety=Safety(max_nodes=500)) as session:
        session.attach(lake, "lake")
        session.use("lake")
        for sql in (
            "UPDATE t SET i = ?",
            "SELECT ? || getenv('HOME')",
            "SELECT 1 FROM read_text('/etc/passwd') WHERE content = ?",
            "SELECT 1 FROM other WHERE i = ?",
        ):
            with pytest.raises(NotPermittedError):
                session.parameter_types(sql)
        levels = ", ".join(f"x{n} AS (SELECT 1 FROM x{n - 1} a, x{n - 1} b)" for n in range(1, 30))
        with pytest.raises(StatementTooLargeError):
            session.parameter_types(f"WITH x0 AS (SELECT ?), {levels} FROM x29")
        assert session.parameter_types("SELECT 1 FROM t WHERE i = ?") == {"1": "BIGINT"}


def test_many_open_parameters_end_as_texts(session: quacklake.Session) -> None:
    marks = ", ".join("? + 1" for _ in range(50))
    assert set(types(session, f"SELECT {marks}")) <= {"DOUBLE", "VARCHAR"}


def test_a_wrong_statement_is_an_error_and_the_session_goes_on(session: quacklake.Session) -> None:
    for sql in ("SELECT nothing FROM t WHERE i = ?", "SELEC ?", "INSERT INTO missing VALUES (?)", "UPDATE t SET x = ?"):
        try:
            found = session.parameter_types(sql)
        except QuacklakeError:
            continue
        assert set(found.values()) == {"VARCHAR"}
    assert session.sql("SELECT 1").fetchall() == [(1,)]
