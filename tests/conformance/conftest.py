"""The lakes of the conformance tests, and how long the tests may take."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from .clients import LakeSite

pytest.register_assert_rewrite("tests.conformance.history", "tests.conformance.statistics")

LONG = os.environ.get("QUACKLAKE_TEST_PROFILE") == "long"

MakeSite = Callable[..., LakeSite]


@pytest.fixture
def make_site(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[MakeSite]:
    """Makes the place of a lake: ``make_site(kind, inlining=10)``. Closed when the test ends."""
    made: list[LakeSite] = []

    def make(kind: str, inlining: int = 10) -> LakeSite:
        server_url = request.getfixturevalue(f"{kind}_url") if kind in ("postgres", "mysql") else None
        folder = tmp_path / f"lake{len(made)}"
        folder.mkdir()
        site = LakeSite(kind, folder, inlining, server_url)
        made.append(site)
        return site

    yield make
    for site in made:
        site.close()
