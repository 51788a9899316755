"""The dashboard in a real Chromium, over a service on loopback: its first load, a grid of a million rows, and a chart.

Every figure is measured in the page, from what a person does to the first picture that shows what was asked for. The
cache of the browser is off, so that each load is a first one.
"""

from __future__ import annotations

import datetime as dt
import json
from statistics import median
from typing import Any

import duckdb

import quacklake
from benchmarks.common import Bench, Measure, Result, Skip, at_most
from quacklake.lake import Lake
from quacklake.pond import Pond, reduces
from quacklake.pond.series import append_series
from quacklake.service.app import create_app
from quacklake.service.identity import Role, TokenGate
from quacklake.service.serving import BackgroundService
from quacklake.service.settings import ServiceSettings
from services.browser import Browser, find_browser

TITLE = "the dashboard in Chromium: first load, a grid of a million rows, a chart of millions of readings"

_TOKEN = "benchmark"
_SERIES = "/dock.series"
_LOADED = "document.querySelector('.charts')?.dataset.loaded === 'yes'"
_UNTIL = """new Promise((done, failed) => {
    const began = performance.now();
    const look = () => {
        if (CONDITION) requestAnimationFrame(() => done(performance.now() - began));
        else if (performance.now() - began > 60000) failed("it did not show");
        else requestAnimationFrame(look);
    };
    ACTION;
    look();
})"""


def run(bench: Bench, result: Result) -> None:
    """Serve a lake with a pond, and look at it."""
    program = find_browser()
    if program is None:
        raise Skip("a browser: `make setup` installs chromium-headless-shell where it can")
    rows, readings, rounds = bench.pick((20_000, 20_000, 1), (1_000_000, 1_000_000, 3), (1_000_000, 10_000_000, 9))
    with bench.directory() as directory:
        lake = quacklake.connect(f"sqlite:///{directory}/lake.db", directory / "data", create=True)
        with bench.step(f"writing {readings:,} readings"):
            _fill(lake, readings)
        settings = ServiceSettings(port=0)
        app = create_app(TokenGate(lake, {_TOKEN: Role.ADMIN}), settings)
        with BackgroundService(app, settings) as url, bench.step("looking"):
            browser = Browser(program, directory / "profile")
            try:
                browser.size(1280, 800)
                browser.call("Network.setCacheDisabled", cacheDisabled=True)
                _load(browser, url, rounds, result)
                _grid(browser, rows, rounds, result)
                _chart(browser, readings, rounds, result)
            finally:
                browser.close()


def _fill(lake: Lake, readings: int) -> None:
    lake.sql("CREATE TABLE orders AS SELECT range AS id, range % 7 AS kind FROM range(1000)")
    with duckdb.connect() as connection:
        connection.execute("SET timezone = 'UTC'")
        reader = connection.execute(
            "SELECT TIMESTAMPTZ '2021-01-01 00:00:00+00' + to_seconds(i * 10) AS timestamp,"
            " sin(i / 4320.0) * 10 + hash(i) % 1000 / 500.0 AS temperature FROM range(?) r(i)", [readings]
        ).to_arrow_reader(100_000)  # fmt: skip
        pond = Pond.create_in(lake)
        pond.run(["bench"], lambda fs: append_series(fs, _SERIES, reader))
        config = {"in_pattern": _SERIES, "resolutions": ["1m", "1h", "1d"]}
        pond.run(["bench"], lambda fs: fs.make_node("/reduced", "temporal-reduce", config))
        reduces.maintain(pond)


def _until(browser: Browser, condition: str, action: str = "") -> float:
    """Do something in the page; return the milliseconds to the picture in which a condition is true."""
    return float(browser.run(_UNTIL.replace("CONDITION", condition).replace("ACTION", action)))


def _load(browser: Browser, url: str, rounds: int, result: Result) -> None:
    shown = "[...document.querySelectorAll('.figure')].some(each => /^Tables[0-9]/.test(each.textContent))"
    found: list[dict[str, Any]] = []
    for _ in range(rounds + 1):  # the first one also warms the service
        browser.open("about:blank")
        browser.call("Page.navigate", url=f"{url}/ui/#token={_TOKEN}")
        browser.until(f"location.pathname.endsWith('/ui/') && {shown}")
        found.append(
            browser.run("""(() => {
                const files = performance.getEntriesByType('resource').filter(each => each.name.includes('/ui/'));
                const page = performance.getEntriesByType('navigation')[0];
                return {
                    bytes: files.reduce((sum, each) => sum + each.encodedBodySize, page.encodedBodySize),
                    painted: performance.getEntriesByName('first-contentful-paint')[0]?.startTime ?? null,
                    shown: performance.now(),
                };
            })()""")
        )
    counted = found[1:]
    painted = [each["painted"] for each in counted if each["painted"] is not None]
    result.measures.append(
        Measure("first load: compressed", "kB", counted[0]["bytes"] / 1000, target=at_most(200.0, "ours"))
    )
    if painted:
        result.measures.append(Measure("first load: first picture, median", "ms", median(painted)))
    result.measures.append(
        Measure(
            "first load: figures of the lake, median", "ms", median(each["shown"] for each in counted),
            target=at_most(1000.0, "ours"),
        )
    )  # fmt: skip


def _grid(browser: Browser, rows: int, rounds: int, result: Result) -> None:
    text = f"SELECT i AS id, i * 3 AS thrice, 'row ' || i AS name FROM range({rows}) AS r(i)"
    browser.run("location.hash = '#/sql?' + new URLSearchParams({q: " + json.dumps(text) + "})")
    browser.until("!!document.querySelector('.run:not(:disabled)')")
    firsts, wholes, steps = [], [], []
    grid, drawn = "document.querySelector('.grid')", "document.querySelector('.grid .line')"
    for turn in range(rounds + 1):
        browser.run("document.querySelector('button[aria-label=\"New statement\"]').click()")
        browser.run("location.hash = '#/sql?' + new URLSearchParams({q: " + json.dumps(f"{text} -- {turn}") + "})")
        browser.until(f"!!document.querySelector('.run:not(:disabled)') && !{drawn}")
        firsts.append(_until(browser, f"!!{drawn}", "document.querySelector('.run').click()"))
        wholes.append(firsts[-1] + _until(browser, "document.querySelector('.said')?.dataset.done === 'yes'"))
        for share in (0.9, 0.1, 0.5):
            number = f"(Number({drawn}.getAttribute('aria-rowindex')) - 2)"
            there = f"{drawn} && Math.abs({number} / {rows} - {share}) < 0.01"
            move = f"{grid}.scrollTop = ({grid}.scrollHeight - {grid}.clientHeight) * {share}"
            steps.append(_until(browser, there, move))
    result.measures += [
        Measure(f"grid of {rows:,} rows: first rows, median", "ms", median(firsts[1:])),
        Measure(f"grid of {rows:,} rows: all rows, median", "ms", median(wholes[1:])),
        Measure("grid: a long step of the scrollbar, median", "ms", median(steps), target=at_most(100.0, "ours")),
    ]
    result.notes.append("A step of the scrollbar is a tenth of all rows or more, to the picture that shows them.")


def _chart(browser: Browser, readings: int, rounds: int, result: Result) -> None:
    address = f"#/pond/{_SERIES.replace('/', '%2F')}"
    paints, steps = [], []
    for _ in range(rounds + 1):
        browser.run("location.hash = '#/snapshots'")
        browser.until("!document.querySelector('.charts')")
        paints.append(_until(browser, _LOADED, f"location.hash = {json.dumps(address)}"))
        for key in ("ArrowUp", "ArrowRight", "ArrowUp", "ArrowLeft"):
            before = browser.run("document.querySelector('.charts').dataset.from")
            event = f"new KeyboardEvent('keydown', {{key: '{key}', bubbles: true}})"
            press = f"document.querySelector('.series-plot').dispatchEvent({event})"
            steps.append(
                _until(browser, f"{_LOADED} && document.querySelector('.charts').dataset.from !== '{before}'", press)
            )
    result.measures += [
        Measure(f"chart of {readings:,} readings: first picture, median", "ms", median(paints[1:])),
        Measure("chart: a step of zoom or pan, median", "ms", median(steps), target=at_most(250.0, "ours")),
    ]
    days = dt.timedelta(seconds=10 * readings).days
    result.notes.append(f"The readings are of {days:,} days, ten seconds apart, with three resolutions beside them.")
