"""Quacklake and the reference implementation see the same lake, whoever wrote it, at every snapshot."""

from __future__ import annotations

import pytest

from .conftest import MakeSite
from .history import DIRECTIONS, History, compare, compare_ours
from .scenarios import SCENARIOS

INLINING = {"inlining": 10, "files": 0}


@pytest.mark.parametrize("scenario", SCENARIOS)
@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("inlining", INLINING)
@pytest.mark.parametrize("kind", ["sqlite", "duckdb", "postgres"])
def test_both_clients_see_the_same_lake_at_every_snapshot(
    kind: str, inlining: str, direction: str, scenario: str, make_site: MakeSite
) -> None:
    history = History(make_site(kind, INLINING[inlining]))
    history.play(SCENARIOS[scenario], DIRECTIONS[direction])
    compare(history)
