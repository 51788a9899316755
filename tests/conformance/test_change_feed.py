"""The reference implementation's change feed tells what our commits changed."""

from __future__ import annotations

from collections import Counter

import pytest

from .conftest import LONG, MakeSite
from .history import DIRECTIONS, History
from .scenarios import SCENARIOS

KEY = ("main", "things")


def feed(history: History, function: str, version: int) -> Counter[tuple[str | None, ...]]:
    """The rows that one snapshot inserted or deleted, as text."""
    rows = history.site.stock().execute(
        f"SELECT id::VARCHAR, name, amount::VARCHAR FROM {function}('l', 'main', 'things', {version:d}, {version:d})"
    )
    return Counter(rows.fetchall())


@pytest.mark.parametrize("direction", DIRECTIONS if LONG else ["we-write", "alternating"])
@pytest.mark.parametrize("scenario", ["deletes", "updates"])
@pytest.mark.parametrize("inlining", [10, 0] if LONG else [10])
def test_the_change_feed_is_the_difference_of_snapshots(
    direction: str, scenario: str, inlining: int, make_site: MakeSite
) -> None:
    history = History(make_site("sqlite", inlining))
    history.play(SCENARIOS[scenario], DIRECTIONS[direction])
    for version in sorted(history.expected)[2:]:
        before, after = (Counter(history.expected[v][KEY].rows) for v in (version - 1, version))
        inserted = feed(history, "ducklake_table_insertions", version)
        deleted = feed(history, "ducklake_table_deletions", version)
        # an update that changes nothing is told as both
        assert inserted - deleted == after - before, f"inserted by {version}"
        assert deleted - inserted == before - after, f"deleted by {version}"
