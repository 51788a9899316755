"""A catalog of a shared lake holds what was written at every snapshot, as a plain lake does.

``QUACKLAKE_TEST_LAYOUT=shared`` runs every other test on this layout; this is what each run takes of them.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conformance.clients import LakeSite
from tests.conformance.history import DIRECTIONS, History, compare_ours
from tests.conformance.scenarios import SCENARIOS
from tests.conformance.test_scenarios import INLINING, our_scenarios


@pytest.mark.daily(0.2)
@pytest.mark.parametrize(("scenario", "inlining"), our_scenarios())
def test_a_catalog_holds_what_was_written_at_every_snapshot(
    scenario: str, inlining: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("QUACKLAKE_CATALOG", "acme")
    site = LakeSite("sqlite", tmp_path, INLINING[inlining])
    try:
        history = History(site)
        history.play(SCENARIOS[scenario], DIRECTIONS["we-write"])
        site.close_lake()
        compare_ours(history)
        assert not site.lake().verify(deep=True).errors
    finally:
        site.close()
