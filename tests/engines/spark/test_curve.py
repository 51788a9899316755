"""The z-order curve of Spark, as the expression that it is."""

from __future__ import annotations

import bisect
import re

import duckdb

from quacklake.spark.write.writer import _spread, _tree


def test_a_value_finds_its_place_among_bounds() -> None:
    bounds = [3, 5, 8, 13, 21, 34, 55]
    leaves = [number * 10 for number in range(len(bounds) + 1)]
    sql = re.sub(r"(\d+)L", r"\1", _tree("v", [str(bound) for bound in bounds], leaves))
    found = duckdb.sql(f"SELECT v, {sql} FROM range(60) r(v) ORDER BY v").fetchall()
    assert found == [(value, 10 * bisect.bisect_right(bounds, value)) for value in range(60)]
    assert _tree("v", [], [7]) == "7L"


def test_the_bits_of_columns_alternate() -> None:
    assert [_spread(number, 3, 0, 2) for number in range(8)] == [0, 2, 8, 10, 32, 34, 40, 42]
    assert [_spread(number, 3, 1, 2) for number in range(8)] == [0, 1, 4, 5, 16, 17, 20, 21]
    every = {
        _spread(a, 4, 0, 3) | _spread(b, 4, 1, 3) | _spread(c, 4, 2, 3)
        for a in range(16)
        for b in range(16)
        for c in range(16)
    }
    assert every == set(range(16**3))
