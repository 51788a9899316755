"""The chaos of a demo: only there, only for administrators, and counted truly."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

import quacklake
from quacklake.service.app import create_app
from quacklake.service.identity import Role, TokenGate
from quacklake.service.problems import TooBusyError
from quacklake.service.serving import BackgroundService
from quacklake.service.settings import ServiceSettings
from quacklake_demo.chaos import FACTS, Blow, Counts, SinkCount, Step, chaos_router
from quacklake_demo.shop import DemoGate
from services.browser import Browser, find_browser
from tests.service.pages import Page
from tests.service.serving import TOKENS, Served, client, is_problem
from tests.service.test_pages import clean


class Toy:
    """Something to break."""

    def __init__(self) -> None:
        self.struck: list[str] = []
        self.count = 0

    def blows(self) -> Sequence[Blow]:
        return [Blow("driver", "The driver", "kill it", self.struck.count("driver")), Blow("full", "Full", "is full")]

    def steps(self) -> Sequence[Step]:
        return [
            Step("Look", "at tables", "tables"),
            Step("Break something", "and watch", "chaos"),
            Step("Go", "elsewhere", "tables", "other"),
        ]

    def strike(self, id_: str) -> None:
        if id_ == "full":
            raise TooBusyError("too much waits to be broken")
        self.struck.append(id_)

    def counts(self) -> Counts:
        self.count += 7
        return Counts(self.count + 1, [SinkCount("lake", self.count, 0, 0), SinkCount("delta", 3, 2, 1)], True)


@pytest.fixture
def toy() -> Toy:
    return Toy()


@pytest.fixture
def demo(tmp_path: Path, toy: Toy) -> Iterator[Served]:
    lake = quacklake.connect(f"sqlite:///{tmp_path}/lake.db", tmp_path / "data", create=True)
    settings = ServiceSettings(port=0)
    app = create_app(TokenGate(lake, TOKENS), settings, more=[chaos_router(toy)], facts=FACTS)
    with BackgroundService(app, settings) as url:
        clients = [client(url, f"{role}-token") for role in ("reader", "writer", "admin")] + [client(url, None)]
        yield Served(lake, url, *clients)
        for each in clients:
            each.close()


def test_only_administrators_break_a_demo(demo: Served, toy: Toy) -> None:
    assert demo.reader.get("/api/v1/lake").json()["demo"] is True
    found = demo.reader.get("/api/v1/chaos").json()
    assert (found["published"], found["running"], found["sinks"][1]["doubled"]) == (8, True, 2)
    assert demo.anonymous.get("/api/v1/chaos").status_code == 401
    for one in (demo.reader, demo.writer):
        is_problem(one.post("/api/v1/chaos/driver"), 403, "not_permitted")
    assert demo.anonymous.post("/api/v1/chaos/driver").status_code == 401
    assert toy.struck == []
    answer = demo.admin.post("/api/v1/chaos/driver")
    assert (answer.status_code, answer.json()["blows"][0]["struck"]) == (202, 1)
    is_problem(demo.admin.post("/api/v1/chaos/everything"), 404, "not_found")
    is_problem(demo.admin.post("/api/v1/chaos/full"), 429, "limit.busy")
    assert toy.struck == ["driver"]


@pytest.mark.parametrize("kind", ["tokens", "demo"])
def test_no_other_service_can_be_broken(tmp_path: Path, kind: str) -> None:
    if kind == "demo":  # that of `quacklake serve-demo`, which has nothing to break
        gate: TokenGate | DemoGate = DemoGate(tmp_path, TOKENS)
    else:
        lake = quacklake.connect(f"sqlite:///{tmp_path}/lake.db", tmp_path / "data", create=True)
        gate = TokenGate(lake, TOKENS, anonymous=Role.ADMIN)
    settings = ServiceSettings(port=0)
    app = create_app(gate, settings)
    assert not [path for path in app.openapi()["paths"] if "chaos" in path]
    with BackgroundService(app, settings) as url, client(url, "admin-token") as admin:
        assert "demo" not in admin.get("/api/v1/lake").json()
        assert admin.get("/api/v1/chaos").status_code == 404
        assert admin.post("/api/v1/chaos/driver").status_code == 404


@pytest.mark.skipif(find_browser() is None, reason="no browser")
def test_the_page_breaks_things_and_counts_live(demo: Served, toy: Toy, tmp_path: Path) -> None:
    program = find_browser()
    assert program is not None
    browser = Browser(program, tmp_path / "profile")
    try:
        browser.size(1280, 800)
        page = Page(browser, demo.url)
        page.enter("reader-token", "chaos")
        page.see("[data-sink=lake] .committed")
        assert page.run("document.querySelector('[data-blow]')") is None, "a reader has no buttons"
        page.enter("admin-token")
        page.see(".begin li", "Look")
        clean(page)
        assert page.run("[...document.querySelectorAll('.begin a')].map(each => each.getAttribute('href'))") == [
            "#/tables",
            "#/chaos",
            "#/tables",
        ]
        page.click(".begin a", "Break something")
        page.see("[data-sink=delta] .doubled.wrong", "2")
        clean(page)
        before = int(page.texts("[data-sink=lake] .committed")[0])
        page.wait(f"Number(document.querySelector('[data-sink=lake] .committed').textContent) > {before}")
        page.click("[data-blow=driver]")
        page.see(".blow", "1 time")
        assert toy.struck == ["driver"]
        page.browser.size(360, 740)
        assert page.run("document.documentElement.scrollWidth") <= 360
        assert browser.problems() == []
    finally:
        browser.close()


@pytest.mark.skipif(find_browser() is None, reason="no browser")
def test_a_step_in_another_lake_opens_that_lake(browser: Browser, demo: Served) -> None:
    page = Page(browser, demo.url)
    page.enter("admin-token")
    page.click(".begin a", "Go")
    page.see(".signin .failure", "There is no such lake")
    assert page.run("[sessionStorage.getItem('quacklake.lake'), location.hash]") == ["other", "#/tables"]
    page.forgive("404")
    page.enter("admin-token&lake=lake", "tables")
    page.see(".tree .none", "There are no tables yet.")
    assert page.run("sessionStorage.getItem('quacklake.lake')") == "lake"
    assert browser.problems() == []
    browser.call("Page.navigate", url="about:blank")
