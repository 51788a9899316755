"""Quacklake and the reference implementation see the same lake at every snapshot, no matter who wrote it."""

from __future__ import annotations

import itertools

import pytest
from _pytest.mark.structures import ParameterSet

from .conftest import LONG, MakeSite, kinds
from .history import DIRECTIONS, History, compare, compare_ours
from .scenarios import SCENARIOS
from .steps import Stock

pytestmark = pytest.mark.daily(0.15)

KINDS = ("sqlite", "duckdb", "postgres")
INLINING = {"inlining": 10, "files": 0}


def combinations() -> list[ParameterSet]:
    """Catalog, inlining, direction and scenario: all of them, or every scenario in every direction.

    Catalogs and inlining then take turns, so that every combination of them meets every direction.
    """
    found = []
    for i, scenario in enumerate(SCENARIOS):
        for j, direction in enumerate(DIRECTIONS):
            for k, (kind, inlining) in enumerate(itertools.product(KINDS, INLINING)):
                if LONG or (i + j) % 6 == k:
                    (parameter,) = kinds(kind)
                    found.append(pytest.param(kind, inlining, direction, scenario, marks=parameter.marks))
    return found


@pytest.mark.parametrize(("kind", "inlining", "direction", "scenario"), combinations())
def test_both_clients_see_the_same_lake_at_every_snapshot(
    kind: str, inlining: str, direction: str, scenario: str, make_site: MakeSite
) -> None:
    history = History(make_site(kind, INLINING[inlining]))
    history.play(SCENARIOS[scenario], DIRECTIONS[direction])
    compare(history)


def our_scenarios() -> list[tuple[str, str]]:
    """The scenarios that need nothing of the reference implementation: it speaks neither to MySQL nor to shared lakes."""
    own = [name for name, steps in SCENARIOS.items() if not any(isinstance(step, Stock) for step in steps)]
    settings = list(INLINING)
    return [
        (name, inlining)
        for number, name in enumerate(own)
        for inlining in (settings if LONG else [settings[number % len(settings)]])
    ]


@pytest.mark.mysql
@pytest.mark.parametrize(("scenario", "inlining"), our_scenarios())
def test_a_lake_in_mysql_holds_what_was_written_at_every_snapshot(
    inlining: str, scenario: str, make_site: MakeSite
) -> None:
    history = History(make_site("mysql", INLINING[inlining]))
    history.play(SCENARIOS[scenario], DIRECTIONS["we-write"])
    history.site.close_lake()
    compare_ours(history)
