"""Quacklake and the reference implementation see the same lake, whoever wrote it, at every snapshot."""

from __future__ import annotations

import pytest

from .conftest import LONG, MakeSite
from .history import DIRECTIONS, History, compare, compare_ours
from .scenarios import SCENARIOS
from .steps import Stock

KINDS = ("sqlite", "duckdb", "postgres")
INLINING = {"inlining": 10, "files": 0}


def combinations() -> list[tuple[str, str, str]]:
    """Catalog, direction and inlining: all of them, or enough for every pair of two to occur."""
    return [
        (kind, direction, inlining)
        for x, kind in enumerate(KINDS)
        for y, direction in enumerate(DIRECTIONS)
        for z, inlining in enumerate(INLINING)
        if LONG or (x + y) % 2 == z
    ]


@pytest.mark.parametrize("scenario", SCENARIOS)
@pytest.mark.parametrize(("kind", "direction", "inlining"), combinations())
def test_both_clients_see_the_same_lake_at_every_snapshot(
    kind: str, inlining: str, direction: str, scenario: str, make_site: MakeSite
) -> None:
    history = History(make_site(kind, INLINING[inlining]))
    history.play(SCENARIOS[scenario], DIRECTIONS[direction])
    compare(history)


@pytest.mark.parametrize(
    "scenario", [name for name, steps in SCENARIOS.items() if not any(isinstance(step, Stock) for step in steps)]
)
@pytest.mark.parametrize("inlining", INLINING)
def test_a_lake_in_mysql_holds_what_was_written_at_every_snapshot(
    inlining: str, scenario: str, make_site: MakeSite
) -> None:
    history = History(make_site("mysql", INLINING[inlining]))
    history.play(SCENARIOS[scenario], DIRECTIONS["we-write"])
    history.site.close_lake()
    compare_ours(history)
