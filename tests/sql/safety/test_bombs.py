"""Short texts that would take minutes or gigabytes end within the limits of a safe session, with a typed error."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

import quacklake
from quacklake import Safety
from quacklake.errors import (
    LimitError,
    MemoryLimitError,
    NotPermittedError,
    QuacklakeError,
    SqlError,
    StatementTimeoutError,
    StatementTooLargeError,
)


def _chain(levels: int, select: str) -> str:
    tables = [f"c{i} AS ({select.format(below=f'c{i - 1}')})" for i in range(1, levels + 1)]
    return f"WITH c0 AS (SELECT 1 AS x), {', '.join(tables)} SELECT count(*) FROM c{levels}"


def _nested(begin: str, middle: str, end: str, levels: int) -> str:
    return begin * levels + middle + end * levels


TOO_LARGE = {
    "columns that double": _chain(18, "SELECT * FROM {below} a, {below} b"),
    "columns that double in subqueries": "SELECT * FROM " + _nested("(SELECT a.*, a.* FROM ", "t", " a)", 20),
    "tables that double": _chain(20, "SELECT a.x FROM {below} a, {below} b"),
    "unions that double": _chain(22, "SELECT x FROM {below} UNION ALL SELECT x FROM {below}"),
    "subqueries that double": _chain(22, "SELECT (SELECT max(x) FROM {below}) + (SELECT min(x) FROM {below}) AS x"),
    "many conditions": "SELECT 1 FROM t WHERE " + " OR ".join(f"id={i}" for i in range(8000)),
    "many columns": f"SELECT {', '.join(['*'] * 12000)} FROM t",
    "many tables": f"SELECT count(*) FROM {', '.join(f't a{i}' for i in range(300))}",
    "a list of lists of lists": "SELECT list_transform(range(3000), x -> list_transform(range(3000), y -> range(3000)))",
    "a long list": "SELECT sum(len(range(100000000))) FROM range(100)",
    "a long text": "SELECT length(repeat('x', 4000000000))",
    "a text that is repeated twice": "SELECT length(repeat(repeat('x', 100000), 100000))",
    "a text that is repeated by way of a table": "WITH a AS (SELECT repeat('x', 99999) s) SELECT repeat(s, 99999) FROM a",
    "a wide number": "SELECT format('{:>2000000000}', 1)",
    "a wide number of C": "SELECT printf('%2000000000d', 1)",
    "a padded text": "SELECT lpad('x', 2000000000, 'y')",
    "many bits": "SELECT bitstring('1', 2000000000)",
    "texts that are compared": "SELECT levenshtein(repeat('a', 1000000), repeat('b', 1000000))",
    "a macro in itself": "SELECT " + _nested("dup(", "1", ")", 40),
    "views on views": "FROM v12",
    "deep queries": "SELECT * FROM " + _nested("(SELECT * FROM ", "t", ")", 300),
}
REFUSED = {
    "a text of any length": "SELECT max(length(repeat('x', 100000000 + i))) FROM range(1000) r(i)",
    "a width of any size": "SELECT format('{:>{}}', 1, 2000000000)",
    "a long statement": "SELECT " + "1," * 60_000 + "1",
}
NONSENSE = {
    "deep parentheses": "SELECT " + _nested("(", "1", ")", 20_000),
    "a long sum": "SELECT " + "1+" * 30_000 + "1",
    "many negations": "SELECT " + "NOT " * 20_000 + "true",
    "deep cases": "SELECT " + _nested("CASE WHEN true THEN ", "1", " END", 2_000),
    "deep calls": "SELECT " + _nested("abs(", "1", ")", 3_000),
    "deep lists": "SELECT " + _nested("[", "1", "]", 3_000),
    "deep structs": "SELECT " + _nested("{'a': ", "1", "}", 2_000),
    "deep types": "SELECT NULL::INT" + "[]" * 5_000,
    "many groups": f"SELECT 1 FROM t GROUP BY CUBE({', '.join(f'id + {i}' for i in range(20))})",
    "an expression of nothing but repetitions": "SELECT regexp_matches('a', '((a{1,100}){1,100}){1,100}')",
}
SLOW = {
    "endless recursion": "WITH RECURSIVE r AS (SELECT 1 AS x UNION ALL SELECT x + 1 FROM r) SELECT count(*) FROM r",
    "a long series": "SELECT sum(i) FROM range(1000000000000) r(i)",
    "a long series of another name": "SELECT count(*) FROM generate_series(1::BIGINT, 1000000000000)",
    "a large product": "SELECT count(*) FROM " + ", ".join(f"range(1000) r{i}" for i in range(12)),
    "lists in rows": "SELECT count(*) FROM (SELECT unnest(range(1000000)) FROM range(1000000))",
    "a long list of rows": "SELECT len(list(i)) FROM range(10000000000) r(i)",
    "a text of many rows": "SELECT length(string_agg(repeat('x', 1000000), '')) FROM range(100000)",
    "a large sort": "SELECT * FROM (SELECT i, md5(i::VARCHAR) m FROM range(10000000000) r(i)) ORDER BY m LIMIT 100000",
}
_SECONDS = 1.0


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[quacklake.Session]:
    home = tmp_path_factory.mktemp("bombs")
    limits = Safety(timeout=_SECONDS, max_memory="256MB", max_spill="256MB", threads=2)
    with (
        quacklake.connect(f"sqlite:///{home}/lake.db", data_path=home / "files") as lake,
        quacklake.session(safety=limits) as found,
    ):
        lake.sql("CREATE TABLE t AS SELECT range AS id FROM range(1000); CREATE VIEW v0 AS FROM t")
        for i in range(1, 13):
            lake.sql(f"CREATE VIEW v{i} AS SELECT a.id FROM v{i - 1} a, v{i - 1} b")
        lake.sql("CREATE MACRO dup(x) AS x + x")
        found.attach(lake, "lake")
        found.use("lake")
        yield found


@pytest.fixture(scope="module")
def patient(session: quacklake.Session) -> Iterator[quacklake.Session]:
    """The same with more time: what is refused must be so for its size."""
    with quacklake.session(safety=Safety(max_memory="256MB", max_spill="256MB", threads=2)) as found:
        found.attach(session.attachments.lakes["lake"].handle, "lake")
        found.use("lake")
        yield found


def _ends(
    session: quacklake.Session, statement: str, expected: type[QuacklakeError] | tuple[type[QuacklakeError], ...]
) -> None:
    start = time.monotonic()
    with pytest.raises(expected):
        session.sql(statement).fetchall()
    # far from the minutes that they took; the machine may be busy
    assert time.monotonic() - start < 30 * _SECONDS
    assert session.sql("SELECT 1").fetchall() == [(1,)]


@pytest.mark.parametrize("what", TOO_LARGE)
def test_a_statement_that_grows_when_it_is_bound_is_refused(patient: quacklake.Session, what: str) -> None:
    _ends(patient, TOO_LARGE[what], StatementTooLargeError)


@pytest.mark.parametrize("what", REFUSED)
def test_what_only_the_rows_would_tell_the_size_of_is_refused(patient: quacklake.Session, what: str) -> None:
    _ends(patient, REFUSED[what], NotPermittedError)


@pytest.mark.parametrize("what", NONSENSE)
def test_what_the_parser_cannot_take_is_refused(session: quacklake.Session, what: str) -> None:
    _ends(session, NONSENSE[what], (SqlError, LimitError))


@pytest.mark.parametrize("what", SLOW)
def test_a_statement_that_would_never_end_is_stopped(session: quacklake.Session, what: str) -> None:
    _ends(session, SLOW[what], (StatementTimeoutError, MemoryLimitError))


@pytest.mark.parametrize(
    "statement",
    [
        "SELECT lpad(id::VARCHAR, 10, '0'), rpad('x', 20, '.'), repeat('-', 40), format('{:>8}', id) FROM t LIMIT 1",
        "SELECT list_transform(range(least(id, 100)), x -> x * 2) FROM t LIMIT 1",
        _chain(6, "SELECT a.x FROM {below} a, {below} b"),
        f"SELECT count(*) FROM t WHERE id IN ({', '.join(map(str, range(5000)))})",
        "SELECT dup(dup(dup(id))) FROM t LIMIT 1",
        "FROM v1 LIMIT 1",
        "SELECT " + _nested("abs(", "1", ")", 50),
        "SELECT unnest(range(1000)) LIMIT 1",
    ],
)
def test_what_honest_queries_do_is_within_the_limits(patient: quacklake.Session, statement: str) -> None:
    assert patient.sql(statement).fetchall()


def test_the_limits_are_settings(lake: quacklake.Lake) -> None:
    for limits, statement in (
        ({"max_depth": 20}, "SELECT " + _nested("abs(", "1", ")", 30)),
        ({"max_nodes": 10}, "SELECT 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11"),
        ({"max_tables": 2}, "FROM t a, t b, t c"),
        ({"max_columns": 5}, "FROM t a, t b, t c"),
        ({"max_repeats": 5}, "SELECT repeat('x', 6)"),
    ):
        with quacklake.session(safety=Safety(**limits)) as session:
            session.attach(lake, "lake")
            session.use("lake")
            with pytest.raises(StatementTooLargeError):
                session.sql(statement)
