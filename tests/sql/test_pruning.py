"""Filters reach the planner of files through everything that DuckDB's optimizer sees through."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

from quacklake.format.predicate import ANYTHING
from quacklake.format.schema import TableSchema
from quacklake.format.type_text import parse_column
from quacklake.sql.pruning import filters_of

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
        ("SELECT count(*) FROM {t}", [10]),
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
