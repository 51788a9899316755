"""Names that tables, aliases, columns and fields share mean what they mean in DuckDB, however deep they stand."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.prove.twins import Twins
from tests.seeds import LONG, SEED
from tests.sql.scopes import difference, round_of_queries


def test_random_names_mean_what_they_mean_in_duckdb(tmp_path: Path) -> None:
    tally = round_of_queries(tmp_path, f"{SEED}", 400 if LONG else 25)
    assert tally.differences == []
    assert tally.queries - tally.refused >= 5


_SETUP = (
    "CREATE TABLE t (x INTEGER)",
    "INSERT INTO t VALUES (1), (2)",
    "CREATE TABLE o (t STRUCT(x INTEGER), y INTEGER, x INTEGER)",
    "INSERT INTO o VALUES ({'x': 100}, 5, 7)",
    "CREATE SCHEMA s1",
    "CREATE TABLE s1.t (x INTEGER, t STRUCT(x INTEGER))",
    "INSERT INTO s1.t VALUES (50, {'x': 60})",
    "CREATE MACRO add_y(a) AS (SELECT max(a + o.y) FROM o)",
    "CREATE MACRO largest(a) AS (SELECT max(a) FROM o)",
    "CREATE MACRO of_t(a) AS (SELECT max(t.x + a) FROM s1.t)",
    "CREATE MACRO of_main_t(a) AS (SELECT max(a) FROM t)",
    "CREATE MACRO below(a) AS (SELECT min(z) FROM (SELECT a AS z FROM o))",
)


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT max(t.x), min(o.t.x), max(o.x), max(x) FROM o",
        "SELECT max(t.x) FROM o AS t",
        "SELECT max(nope.x) FROM o",
        "SELECT (SELECT max(o.x) FROM t), (SELECT max(x) FROM t) FROM o",
        "SELECT (SELECT max(t.x) FROM o), (SELECT max(main.t.x) FROM o), (SELECT lake.main.t.x FROM o) FROM t",
        "SELECT (SELECT s1.t.t FROM o), (SELECT s1.t.t.x FROM o) FROM s1.t",
        "SELECT add_y(t.x), add_y(x), add_y(main.t.x), largest(t.x + 0) FROM t",
        "SELECT of_t(t.x), of_t(main.t.x), of_main_t(t.x) FROM t",
        "SELECT largest(s1.t.x), largest(main.t.x) FROM t, s1.t",
        "SELECT below(t.x), below(main.t.x) FROM t",
        "SELECT t, t.t.x, s1.t.t.x FROM s1.t",
        "SELECT t FROM t",
        "SELECT s1.t FROM s1.t",
        "SELECT s1.t.*, t.* FROM s1.t",
        "SELECT list_transform([{'x': 5}], lambda t: t.x), t.x FROM o",
        "SELECT t.x FROM o, t",
        "SELECT main.t.x FROM o, t",
        "SELECT x FROM t GROUP BY main.t.x ORDER BY main.t.x",
    ],
)
def test_a_field_is_not_taken_for_a_column(twins: Twins, sql: str) -> None:
    found = difference(*twins.both(sql))
    assert found is None, found


@pytest.fixture(scope="module")
def twins(tmp_path_factory: pytest.TempPathFactory) -> Twins:
    found = Twins(tmp_path_factory.mktemp("scopes"))
    found.prepare(*_SETUP)
    return found
