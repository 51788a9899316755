"""The benchmark of growth: its lakes are sound, its work is what it says, and its pictures show the figures."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections.abc import Iterator
from pathlib import Path

import pytest

import quacklake
from benchmarks import growth
from benchmarks import growth_maintenance as maintenance
from benchmarks.common import Bench, Place, Result
from benchmarks.curves import draw
from benchmarks.report import PICTURES
from quacklake.core.storage import Store
from tests.layout import plain_only

_SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture
def bench() -> Iterator[Bench]:
    with Bench("quick") as opened:
        yield opened


@pytest.fixture
def place(tmp_path: Path) -> Place:
    plain_only("metadata is written into the tables of a plain lake")
    return Place(f"sqlite:///{tmp_path / 'lake.db'}", "", tmp_path / "data")


def test_a_lake_with_many_snapshots_is_sound_and_takes_commits(bench: Bench, place: Place) -> None:
    growth._with_snapshots(place, 200, bench)
    assert growth._commits(place, 200, 3)["a commit"] > 0
    with quacklake.connect(place.url) as lake:
        assert lake.current_snapshot() == 1 + 200 + 8
        assert lake.table("t").count() == 10 + 8 * 10
        assert lake.verify().ok


def test_a_plan_over_many_files_finds_ten(bench: Bench, place: Place) -> None:
    growth._with_files(place, 100, bench)
    assert growth._plans(place, 100, 3)["a plan that finds 10 files"] > 0


def test_expiry_leaves_the_newest_snapshot(bench: Bench, place: Place) -> None:
    maintenance.with_history(place, 20, bench)
    cost = maintenance.expires(place, 20, 1)
    assert cost["expiry, for each snapshot"] == pytest.approx(cost["expiry"] / 20)
    with quacklake.connect(place.url) as lake:
        assert lake.snapshots().num_rows == 1


@pytest.mark.daily(0.3)
def test_a_merge_loses_no_row_of_the_writer_beside_it(bench: Bench, place: Place) -> None:
    maintenance.with_small_files(place, 20, bench)
    cost = maintenance.merges(place, 20, 3)
    assert cost["an append beside the merge, p99"] > 0
    with quacklake.connect(place.url) as lake:
        rows = lake.table("t").count()
        assert rows >= 20 * 10 + 3 * 10
        assert rows % 10 == 0
        assert lake.verify().ok


def test_orphans_are_told_from_files_that_the_lake_knows(
    bench: Bench, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Store, "stream", Store.stream)  # the search replaces it
    maintenance.with_objects(place, 50, bench)
    assert maintenance.searches(place, 50, 1)["search for orphans, for each object"] > 0


def test_a_lake_with_many_tables_opens_and_lists_them_all(bench: Bench, place: Place) -> None:
    growth._with_tables(place, 30, bench)
    cost = growth._open(place, 30)
    assert cost["listing, for each table"] == pytest.approx(cost["listing"] / 30)
    with quacklake.connect(place.url) as lake:
        assert len(lake.tables()) == 30
        assert {len(lake.table(name).info.schema.columns) for name in lake.tables()} == {5}
        lake.table("t7").append({"c0": [1], "c1": [2], "c2": [3], "c3": [4], "c4": [5]})
        assert lake.table("t7").to_arrow().to_pylist() == [{"c0": 1, "c1": 2, "c2": 3, "c3": 4, "c4": 5}]


def test_each_curve_goes_through_its_points() -> None:
    picture = draw("a <b>", "files", "ms", {"flat": [(10, 5.0), (1000, 5.0)], "steep": [(10, 1.0), (1000, 100.0)]})
    root = ET.fromstring(picture)
    lines = [line.attrib["points"].split() for line in root.iter(f"{_SVG}polyline")]
    (flat, steep) = [[tuple(map(float, point.split(","))) for point in line] for line in lines]
    assert flat[0][1] == flat[1][1]
    assert flat[0][0] < flat[1][0]
    assert steep[0][1] > steep[1][1]
    assert root.findtext(f"{_SVG}title") == "a <b>"


def test_every_curve_is_drawn_for_the_page_that_shows_it() -> None:
    page = (PICTURES.parent / "growth.md").read_text()
    result = Result("growth", growth.TITLE)
    points = [growth._Point(size, {"a commit": 2.0}, 100.0) for size in (10, 100)]
    growth._report(result, "SQLite, snapshots", points, {"a commit": 1.2})
    assert result.measures[0].met
    assert list(result.pictures) == ["growth-sqlite-snapshots"]
    shown = {path.name for path in PICTURES.glob("growth-*.svg")}
    assert shown
    assert all(f"images/{name}" in page for name in shown)
