"""Filters reach the planner of files through everything that DuckDB's optimizer sees through."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

from quacklake.core.format.bounds import ANYTHING
from quacklake.core.format.schema import TableSchema
from quacklake.core.format.texts import parse_column
from quacklake.core.sql.scans import filters_of

Run = Callable[..., list[tuple[Any, ...]]]


@pytest.fixture(scope="module")
def table(shared: Any) -> str:
    """A table of ten files with ten rows each."""
    shared.sql("CREATE TABLE lake.main.files (id INTEGER, name VARCHAR)")
    shared.sql("SET ducklake_default_data_inlining_row_limit = 0")
    for start in range(0, 100, 10):
        shared.sql("INSERT INTO lake.main.files SELECT i, 'n' || i FROM range($a, $a + 10) r(i)", {"a": start})
    shared.sql("RESET ducklake_default_data_inlining_row_limit")
    shared.sql("CREATE VIEW lake.main.twice AS SELECT id * 2 AS double, id FROM files")
    return "lake.main.files"


@pytest.mark.parametrize(
    ("query", "read"),
    [
        ("SELECT * FROM {t} WHERE id = 42", [1]),
        ("SELECT * FROM {t} WHERE id BETWEEN 15 AND 25", [2]),
        ("WITH x AS (SELECT id AS k FROM {t}) SELECT * FROM x WHERE k < 5", [1]),
        ("SELECT * FROM (SELECT id + 0 AS j, id FROM {t}) WHERE id >= 95", [1]),
        ("SELECT * FROM lake.main.twice WHERE id = 7", [1]),
        ("SELECT * FROM {t} a JOIN {t} b USING (id) WHERE a.id = 3", [1, 1]),
        ("SELECT * FROM {t} a LEFT JOIN {t} b ON a.id = b.id AND b.id < 9", [10, 1]),
        ("SELECT * FROM {t} WHERE id < 9 UNION ALL SELECT * FROM {t} WHERE id >= 90", [1, 1]),
        ("SELECT * FROM {t} WHERE id % 2 = 0", [10]),
        ("SELECT count(*) FROM {t}", []),
        ("SELECT * FROM {t} WHERE id IN (1, 55)", [2]),
        ("SELECT * FROM {t} WHERE id = 42 ORDER BY name LIMIT 1", [1]),
        ("SELECT * FROM {t} WHERE id = 42 LIMIT 1 OFFSET 0", [1]),
    ],
)
def test_files_that_cannot_match_are_left_out(run: Run, table: str, query: str, read: list[int]) -> None:
    text = run(f"EXPLAIN {query.format(t=table)}")[-1][1]
    assert sorted(int(n) for n in re.findall(r"10 files, \d+ pruned, (\d+) read", text)) == sorted(read)


def test_the_filter_may_be_a_parameter(run: Run, table: str) -> None:
    text = run(f"EXPLAIN ANALYZE SELECT * FROM {table} WHERE id = ?", [42])[-1][1]
    assert "10 files, 9 pruned, 1 read" in text
    assert run(f"SELECT name FROM {table} WHERE id = $id", {"id": 42}) == [("n42",)]


def test_what_cannot_be_read_back_means_anything() -> None:
    schema = TableSchema((parse_column("id", "INTEGER"),))
    assert filters_of([["optional: Dynamic Filter (id)"]], schema) is ANYTHING
    assert filters_of(None, schema) is ANYTHING
    assert filters_of([["id=1"], []], schema) is ANYTHING
    odd = TableSchema((parse_column("id OR x", "INTEGER"),))
    assert filters_of([["id OR x=1"]], odd) is ANYTHING


def test_the_time_is_the_same_for_planning_and_running(run: Run, shared: Any) -> None:
    run("CREATE TABLE events (at_ TIMESTAMPTZ); SET ducklake_default_data_inlining_row_limit = 0")
    run("INSERT INTO events SELECT now() - INTERVAL 3 DAY; INSERT INTO events SELECT now() + INTERVAL 1 DAY")
    run("RESET ducklake_default_data_inlining_row_limit")
    text = run("EXPLAIN SELECT * FROM events WHERE at_ > now() - INTERVAL 1 HOUR")[-1][1]
    assert "2 files, 1 pruned, 1 read" in text
    assert run("SELECT count(*) FROM events WHERE at_ > now()") == [(1,)]
    run("BEGIN")
    assert run("SELECT count(*) FROM events WHERE at_ < now()") == [(1,)]
    run("ROLLBACK")


def test_what_differs_between_connections_leaves_out_nothing_wrong(run: Run, table: str) -> None:
    run("SET VARIABLE wanted = 42")
    assert run(f"SELECT id FROM {table} WHERE id = getvariable('wanted')") == [(42,)]
    assert run(f"SELECT id FROM {table} WHERE id IS NOT DISTINCT FROM getvariable('wanted')") == [(42,)]
    assert "9 pruned" in run(f"EXPLAIN SELECT id FROM {table} WHERE id = getvariable('wanted')")[-1][1]
    query = f"WITH x AS (SELECT getvariable('wanted') AS n) SELECT id FROM {table}, x WHERE id = n"
    assert run(query) == [(42,)]
    assert "0 pruned" in run(f"EXPLAIN {query}")[-1][1]


def test_the_time_zone_of_the_session_counts(run: Run) -> None:
    run("CREATE TABLE moments (at_ TIMESTAMPTZ); SET ducklake_default_data_inlining_row_limit = 0")
    run("INSERT INTO moments VALUES ('2024-01-01 04:00:00+00')")
    run("RESET ducklake_default_data_inlining_row_limit; SET TimeZone = 'America/New_York'")
    assert run("SELECT count(*) FROM moments WHERE at_ = '2023-12-31 23:00:00'") == [(1,)]
    run("SET TimeZone = 'UTC'")
    assert run("SELECT count(*) FROM moments WHERE at_ = '2023-12-31 23:00:00'") == [(0,)]
