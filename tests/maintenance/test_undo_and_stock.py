"""Undo: what stock DuckDB did is taken back, and it reads the new snapshot and every old one as before."""

from __future__ import annotations

import pytest

from tests.conformance.clients import LONG
from tests.conformance.conftest import MakeSite, kinds, make_site  # noqa: F401
from tests.maintenance.undoing import HISTORIES, both_see, play, same_rows

pytestmark = pytest.mark.usefixtures("make_site")


def chosen(last: int) -> list[int]:
    """The versions to go back to: all of them when there is time."""
    return list(range(1, last)) if LONG else sorted({1, last // 3, 2 * last // 3, last - 1} - {0})


@pytest.mark.parametrize(
    ("history", "kind"),
    [
        *((history, "sqlite" if history in ("rows", "evolved") else "duckdb") for history in HISTORIES),
        pytest.param("evolved", "postgres", marks=pytest.mark.postgres),
    ],
)
def test_a_table_goes_back_to_what_stock_made(make_site: MakeSite, history: str, kind: str) -> None:  # noqa: F811
    site = make_site(kind, 5)
    play(site, HISTORIES[history])
    states = both_see(site)
    lake, made = site.lake(), {}
    for version in chosen(max(states)):
        report = lake.table("t").restore(to=version)
        assert report.snapshot == lake.current_snapshot()
        made[report.snapshot] = version
    seen = both_see(site)
    for newest, version in made.items():
        same_rows(seen[newest], states[version])
    for older, state in states.items():
        assert seen[older] == state, older
