"""The pages of the dashboard beside the first ones, in a real browser: the pond, transactions, views and jobs."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from quacklake.service.demo import demo_lake
from quacklake.service.samples import fill_chains, fill_pond
from services.browser import Browser
from tests.service.pages import Page, clean, picture
from tests.service.serving import Served, served

NOW = dt.datetime(2026, 11, 17, 12, 34, 56, tzinfo=dt.UTC)
SILVER = "pond/%2Fdocks%2Fsilver.series"
LOADED = "document.querySelector('.charts')?.dataset.loaded === 'yes'"


@pytest.fixture(scope="module")
def rich(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """The lake of the demo, with all that is in it after a while."""
    folder = tmp_path_factory.mktemp("rich")
    lake = demo_lake(folder)
    fill_chains(lake, NOW)
    fill_pond(lake, folder, NOW)
    with served(lake) as found:
        yield found


@pytest.fixture
def page(browser: Browser, rich: Served) -> Iterator[Page]:
    browser.size(1280, 800)
    opened = Page(browser, rich.url)
    yield opened
    assert browser.problems() == []


def narrow(page: Page, sign: str) -> None:
    """Assert that a page fits a telephone."""
    page.browser.size(360, 740)
    page.see(sign)
    wide = "[...document.querySelectorAll('main *, .side *')].filter(each => each.getBoundingClientRect().right > 361 && !each.closest('.grid, .scroll, .sheets ul, .tabs, nav')).map(each => each.className || each.tagName).slice(0, 20)"
    assert page.run("document.documentElement.scrollWidth") <= 360, page.run(wide)
    page.browser.size(1280, 800)


# -- the pond ----------------------------------------------------------------------------------------------------------


def drawn(page: Page) -> tuple[int, int, int]:
    """Return the range of the charts in milliseconds, and the number of their points, once they are there."""
    page.wait(LOADED)
    found = page.run("(d => [+d.from, +d.to, +d.points])(document.querySelector('.charts').dataset)")
    return (found[0], found[1], found[2])


def test_a_year_of_readings_is_zoomed_to_an_hour_and_every_reading_is_there(
    page: Page, rich: Served, tmp_path: Path
) -> None:
    page.enter("reader-token", SILVER)
    first, last, points = drawn(page)
    low, high, rows = rich.lake.sql(
        "SELECT epoch_ms(min(timestamp)), epoch_ms(max(timestamp)), count(*) FROM pond_data.\"/docks/silver.series\""
    ).fetchone() or (0, 0, 0)  # fmt: skip
    assert (first, last) == (low, high) and rows > 500_000
    assert 1_000 < points < 10_000, "as many as there are pixels, not as there are readings"
    page.see(".chart-foot", "from 1h")
    for width in ("month", "day", "hour"):
        page.click(".chart-tools .width", width)
        page.wait(f"document.querySelector('.width[aria-pressed=true]')?.textContent === '{width}'")
        first, last, points = drawn(page)
    assert last - first == 3_600_000
    page.see(".chart-foot", "from readings")
    inside = rich.lake.sql(
        "SELECT count(*) FROM pond_data.\"/docks/silver.series\" WHERE epoch_ms(timestamp) BETWEEN ? AND ?", [first, last]
    ).fetchone()  # fmt: skip
    assert inside is not None and inside[0] > 50 and points == 2 * inside[0]
    assert f"from={first}" in page.run("location.hash")
    page.click(".chart-tools .width", "all")
    page.wait("!location.hash.includes('from=')")


def test_charts_of_two_series_are_moved_by_keys_and_by_the_mouse(page: Page, tmp_path: Path) -> None:
    page.enter("reader-token", SILVER)
    first, last, _ = drawn(page)
    page.click(".beside", "")
    page.see(".series-plot .u-legend", "/docks/b-dock.series")
    drawn(page)
    page.choose("select[name=notes]", "main.notes")
    page.see(".notes li", "silver: Sensor cleaned")
    assert len(page.texts(".notes li")) == 4
    clean(page)
    narrow(page, ".series-plot canvas")
    drawn(page)
    picture(page, "pond", tmp_path)
    page.run("document.querySelector('.series-plot').focus()")
    page.press("ArrowUp")
    page.wait("document.querySelector('.charts').dataset.from !== '" + str(first) + "'")
    nearer, later, _ = drawn(page)
    assert later - nearer == pytest.approx((last - first) / 2, abs=2)
    page.press("ArrowLeft")
    page.wait(f"document.querySelector('.charts').dataset.from !== '{nearer}'")
    moved, end, _ = drawn(page)
    assert nearer - moved == pytest.approx((later - nearer) / 5, abs=2) and end - moved == later - nearer
    page.press("Home")
    page.wait("!location.hash.includes('from=')")
    drawn(page)
    x, y, width = page.run("(b => [b.x, b.y + 60, b.width])(document.querySelector('.u-over').getBoundingClientRect())")
    for kind, share in (("mousePressed", 0.25), ("mouseMoved", 0.4), ("mouseMoved", 0.5), ("mouseReleased", 0.5)):
        page.browser.call("Input.dispatchMouseEvent", type=kind, x=x + width * share, y=y, button="left", buttons=1, clickCount=1)  # fmt: skip
    page.wait("location.hash.includes('from=')")
    chosen, until, _ = drawn(page)
    assert (until - chosen) / (last - first) == pytest.approx(0.25, abs=0.01)
    page.click(".notes li button, .notes-none", "")
    page.wait(f"document.querySelector('.charts').dataset.from !== '{chosen}'")


def test_files_of_a_pond_have_versions_and_sites_say_where_they_are(page: Page, rich: Served) -> None:
    page.enter("reader-token", "pond")
    page.click(".pond-tree a", "docks.yaml")
    page.see(".site", "The docks")
    page.see(".site", "It has no address yet")
    page.click(".pond-tree a", "readme.md")
    page.see(".title h1", "readme.md")
    page.see(".facts td", "35 B")
    page.go("pond/%2Fnowhere")
    page.see(".failure", "nowhere")
    page.browser.events.clear()  # the browser notes the answer 404 as an error


def test_a_lake_that_is_no_pond_has_no_page_for_it(browser: Browser, service: Served) -> None:
    page = Page(browser, service.url)
    page.enter("reader-token", "tables")
    page.see(".tree li", "t")
    assert "Pond" not in page.texts(".side nav a")
    browser.call("Page.navigate", url="about:blank")


def facts(served: Served, path: str, /, **params: Any) -> Any:
    answer = served.reader.get(f"/api/v1{path}", params=params)
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_only_the_definition_of_a_site_is_told_as_a_site(rich: Served) -> None:
    site = facts(rich, "/pond/node", path="/sites/docks.yaml")["site"]
    assert site == {"title": "The docks", "pages": ["This year"], "url": None}
    assert "site" not in facts(rich, "/pond/node", path="/readme.md")
