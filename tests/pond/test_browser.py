"""A site in a real browser: what it asks for, how it zooms, and how it looks on light and dark screens and on paper."""

from __future__ import annotations

import datetime as dt
import threading
from pathlib import Path

import pyarrow as pa
import pytest

from quacklake.pond import Pond
from quacklake.pond.series import append_series
from quacklake.pond.site.export import export_site, store_site
from quacklake.pond.site.serving import server
from quacklake_demo.week import build_site, collect_week
from services.browser import Browser
from tests.pond.conftest import START

MINUTES = 60_000


@pytest.fixture(autouse=True)
def sized(browser: Browser) -> None:
    browser.size(1000, 700)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Six weeks of two columns, one reading a minute, with a day that is missing and a peak of one reading."""
    minutes = [n for n in range(MINUTES) if not 30_000 <= n < 31_440]
    columns = {
        "timestamp": pa.array([START + dt.timedelta(minutes=n) for n in minutes], pa.timestamp("us", "UTC")),
        "temp": pa.array([500.0 if n == 12_345 else n % 1440 / 10 for n in minutes]),
        "depth": pa.array([float(n % 7) for n in minutes]),
    }
    chart = {"name": "temp", "series": "/dock.series", "title": "Dock"}
    pages = [
        {"name": "index", "content": "# Dock", "charts": [chart]},
        {"name": "more", "content": "[home](index.html)"},
    ]
    folder = tmp_path_factory.mktemp("site")
    with Pond.memory() as pond:
        pond.run(["test"], lambda fs: append_series(fs, "/dock.series", pa.table(columns)))
        pond.run(["test"], lambda fs: store_site(fs, "/sites/dock.yaml", {"title": "Dock", "pages": pages}))
        export_site(pond, "dock", folder)
    return folder


def tiles(browser: Browser) -> list[str]:
    return [url for url in browser.requests() if "/charts/" in url]


def test_a_page_works_as_a_file_and_asks_for_nothing_else(browser: Browser, site: Path) -> None:
    browser.open(f"{site.as_uri()}/index.html")
    assert browser.problems() == []
    assert 1 <= len(tiles(browser)) <= 2
    assert all(url.startswith(("file:", "data:")) for url in browser.requests())
    assert browser.run("pondCharts[0].drawn.map(line => Math.max(...line.v.filter(v => v === v)))") == [500, 6]
    assert browser.run("pondCharts[0].drawn[0].v.filter(v => v !== v).length") == 1  # the missing day
    assert "2024-01-01" in browser.run("document.querySelector('.caption').textContent")


def test_zooming_refines_and_reads_two_files_at_most(browser: Browser, site: Path) -> None:
    browser.open(f"{site.as_uri()}/index.html")
    for share in (0.2, 0.2, 0.2, 0.7, 0.5):
        browser.events.clear()
        browser.run(f"pondCharts[0].zoom(0.3, {share})")
        assert len(tiles(browser)) <= 2
        assert browser.run("Number(document.querySelector('.chart').dataset.files)") <= 2
    start, end = browser.run("pondCharts[0].view")
    shown = browser.run(
        "(() => {const {t} = pondCharts[0].drawn[0], [a, b] = pondCharts[0].view; return [...t].filter(x => x >= a && x <= b)})()"
    )
    first = -(-int(start) // 60_000) * 60_000
    assert [round(t) for t in shown] == list(range(first, int(end) + 1, 60_000))  # every reading
    for _ in range(4):
        browser.events.clear()
        browser.run("pondCharts[0].pan(0.8)")
        assert len(tiles(browser)) <= 2
    browser.run("pondCharts[0].go(...pondCharts[0].full)")
    assert browser.problems() == []


def test_the_keyboard_the_wheel_and_the_legend_work(browser: Browser, site: Path) -> None:
    browser.open(f"{site.as_uri()}/index.html")
    width = "pondCharts[0].view[1] - pondCharts[0].view[0]"
    before = browser.run(width)
    browser.run("document.querySelector('canvas').focus()")
    for kind in ("keyDown", "keyUp"):
        browser.call("Input.dispatchKeyEvent", type=kind, key="+", text="+" if kind == "keyDown" else "")
    assert browser.run(width) == pytest.approx(before / 2)
    box = browser.run(
        "(() => {const r = document.querySelector('canvas').getBoundingClientRect(); return [r.x, r.y]})()"
    )
    browser.call("Input.dispatchMouseEvent", type="mouseWheel", x=box[0] + 300, y=box[1] + 100, deltaX=0, deltaY=-200)
    browser.until(f"{width} < {before / 3}")
    browser.run("document.querySelector('.series').click()")
    assert browser.run("document.querySelector('.series').getAttribute('aria-pressed')") == "false"
    assert browser.run("pondCharts[0].scale()[1]") < 10  # the peak is hidden with its line
    browser.call("Input.dispatchMouseEvent", type="mouseMoved", x=box[0] + 300, y=box[1] + 100)
    browser.until("!document.querySelector('.tip').hidden")
    assert browser.run("document.querySelector('.tip').textContent").startswith("depth: ")


def test_pages_follow_the_colours_of_the_screen_and_can_be_printed(browser: Browser, site: Path) -> None:
    browser.open(f"{site.as_uri()}/index.html")
    colour = "getComputedStyle(document.body).backgroundColor"
    assert browser.run(colour) == "rgb(255, 255, 255)"
    light = browser.screenshot()
    try:
        browser.size(1000, 700, "dark")
        assert browser.run(colour) == "rgb(21, 25, 30)"
        assert browser.screenshot() != light
        browser.size(1000, 700, "dark", "print")
        assert browser.run(colour) == "rgb(255, 255, 255)"
        assert browser.run("getComputedStyle(document.querySelector('nav')).display") == "none"
        assert len(browser.call("Page.printToPDF")["data"]) > 5_000
        browser.size(360, 700)
        assert browser.run("document.documentElement.scrollWidth") <= 360
    finally:
        browser.size(1000, 700)


def test_a_page_works_from_a_server(browser: Browser, site: Path) -> None:
    with server(site) as running:
        thread = threading.Thread(target=running.serve_forever)
        thread.start()
        try:
            browser.open(f"http://127.0.0.1:{running.server_port}/")
            assert browser.problems() == []
            assert 1 <= len(tiles(browser)) <= 2
            browser.run("pondCharts[0].zoom(0.01, 0.3)")
            assert browser.run("pondCharts[0].drawn[0].t.length") > 100
        finally:
            browser.call("Page.navigate", url="about:blank")
            running.shutdown()
            thread.join()


def test_a_plot_is_one_page(browser: Browser, tmp_path: Path) -> None:
    from quacklake.pond.site.export import viewport_page
    from quacklake.pond.viewports import viewport

    rows = [{"timestamp": START + dt.timedelta(minutes=n), "</script>": float(n)} for n in range(50)]
    with Pond.memory() as pond:
        pond.run(["test"], lambda fs: append_series(fs, "/dock.series", rows))
        seen = viewport(pond, "/dock.series")
    (tmp_path / "x.html").write_text(viewport_page("Dock </title>", {"all": seen}))
    browser.open(f"{tmp_path.as_uri()}/x.html")
    assert browser.problems() == [] and len(browser.requests()) == 1
    assert browser.run("[document.title, pondCharts[0].drawn[0].t.length]") == ["Dock </title>", 50]


def test_the_site_of_the_demo_is_painted_and_a_second_run_changes_no_file(browser: Browser, tmp_path: Path) -> None:
    with Pond.memory() as pond:
        collect_week(pond, tmp_path, days=1)
        folder = build_site(pond, tmp_path / "site").folder
        before = {path: path.stat().st_mtime_ns for path in folder.rglob("*") if path.is_file()}
        assert collect_week(pond, tmp_path, days=1).rows == 0
        build_site(pond, folder)
        assert {path: path.stat().st_mtime_ns for path in folder.rglob("*") if path.is_file()} == before
    for page, charts in (("index.html", 2), ("hours.html", 1)):
        browser.open(f"{folder.as_uri()}/{page}")
        painted = browser.run("[...document.querySelectorAll('.chart')].map(each => Number(each.dataset.painted) > 0)")
        assert painted == [True] * charts
