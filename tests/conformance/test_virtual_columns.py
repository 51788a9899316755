"""Virtual columns have the values that the reference implementation gives them."""

from __future__ import annotations

import pytest

from .clients import LakeSite
from .conftest import MakeSite, kinds
from .history import DIRECTIONS, History
from .scenarios import SCENARIOS

pytestmark = pytest.mark.daily(0.25)

#: The last one counts the files of a scan in an order that is each client's own.
NAMES = ("rowid", "snapshot_id", "filename", "file_row_number", "file_index")


def of_stock(site: LakeSite, version: int) -> list[tuple[object, ...]]:
    found: list[tuple[object, ...]] = (
        site.stock().execute(f"SELECT {', '.join(NAMES)}, id FROM things AT (VERSION => {version:d})").fetchall()
    )
    return sorted(found, key=str)


def of_ours(site: LakeSite, version: int) -> list[tuple[object, ...]]:
    table = site.lake().at(version=version).table("things").to_arrow([*NAMES, "id"])
    assert table.column_names == [*NAMES, "id"]
    return sorted(zip(*(column.to_pylist() for column in table.columns), strict=True), key=str)


@pytest.mark.parametrize("kind", kinds("sqlite", "duckdb", "postgres"))
@pytest.mark.parametrize("scenario", ["maintenance", "evolution"])
def test_f12_1_virtual_columns_are_those_of_stock_ducklake_at_every_snapshot(
    kind: str, scenario: str, make_site: MakeSite
) -> None:
    history = History(make_site(kind))
    history.play(SCENARIOS[scenario], DIRECTIONS["alternating"])
    versions = [version for version, tables in history.expected.items() if ("main", "things") in tables]
    theirs = {version: of_stock(history.site, version) for version in versions}
    for version in versions:
        ours = of_ours(history.site, version)
        assert _without_index(ours) == _without_index(theirs[version]), version
        places = {(row[2], row[4]) for row in ours}
        assert len(places) == len({name for name, _ in places}) == len({index for _, index in places})
        assert len(places) == len({row[4] for row in theirs[version]})


def _without_index(rows: list[tuple[object, ...]]) -> list[tuple[object, ...]]:
    return sorted(((*row[:4], row[5]) for row in rows), key=str)
