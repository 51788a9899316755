"""The snapshot of the last change of each field in nested columns, computed from the rows of ``ducklake_column``."""

from __future__ import annotations

import pytest

from quacklake.core.catalog.reading.history import HistoryRow, Reshaped, last_reshape

BASE: list[HistoryRow] = [(1, None, "s", 1, None), (2, 1, "a", 1, None)]


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ([(1, None, "i", 1, None)], Reshaped()),
        (BASE, Reshaped(1, False)),
        ([(1, None, "s", 1, 4), (1, None, "t", 4, None), (2, 1, "a", 1, None)], Reshaped(1, False)),
        ([*BASE, (3, 1, "b", 5, None)], Reshaped(5, True)),
        ([*BASE, (3, 1, "b", 1, 6)], Reshaped(6, True)),
        ([(1, None, "s", 1, None), (2, 1, "a", 1, 3), (2, 1, "b", 3, None)], Reshaped(3, True)),
        # a wider type needs nothing
        ([(1, None, "s", 1, None), (2, 1, "a", 1, 3), (2, 1, "a", 3, None)], Reshaped(1, False)),
        # what comes later does not count yet, nor what is gone as a whole
        ([*BASE, (3, 1, "b", 1, 50)], Reshaped(1, False)),
        ([(1, None, "s", 1, 5), (2, 1, "a", 1, 5), (3, 1, "b", 2, 5)], Reshaped()),
        ([(1, None, "l", 1, None), (2, 1, "element", 1, None), (3, 2, "x", 7, None)], Reshaped(7, True)),
        # a catalog whose parents go round in a circle, or are missing
        ([(1, 2, "a", 1, None), (2, 1, "b", 1, None)], Reshaped()),
        ([(2, 9, "a", 1, None)], Reshaped()),
    ],
)
def test_the_last_change_of_a_field(rows: list[HistoryRow], expected: Reshaped) -> None:
    assert last_reshape(rows, 20) == expected
