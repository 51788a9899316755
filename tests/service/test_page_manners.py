"""Manners of all pages: they stand still while they load, follow the keyboard, tell the truth of any snapshot, and come back."""

from __future__ import annotations

import datetime as dt
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import quacklake
from quacklake.lake import Lake
from quacklake.service.app import create_app
from quacklake.service.identity import Role, TokenGate
from quacklake.service.serving import BackgroundService
from quacklake.service.settings import ServiceSettings
from quacklake_demo.samples import add_block
from quacklake_demo.shop import demo_lake
from quacklake_ekko.transactions import create_table
from services.browser import Browser, find_browser
from services.demo.world import TenantGate
from tests.seeds import SEED
from tests.service.pages import Page, clean, picture, shift, tabbed
from tests.service.serving import TOKENS, Served, served
from tests.service.test_pages import ROUTES


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """The lake of the demo, and a table with partitions."""
    lake = demo_lake(tmp_path_factory.mktemp("manners"))
    lake.sql("CREATE TABLE visits (day DATE, page VARCHAR)")
    lake.sql("ALTER TABLE visits SET PARTITIONED BY (page)")
    lake.sql(
        "INSERT INTO visits SELECT DATE '2026-01-01', CASE WHEN i % 3 = 0 THEN 'a' ELSE 'b' END FROM range(90) r(i)"
    )
    with served(lake) as found:
        yield found


@pytest.fixture
def page(browser: Browser, shop: Served) -> Iterator[Page]:
    browser.size(1280, 800)
    opened = Page(browser, shop.url)
    yield opened
    assert browser.problems() == []


def test_pages_stand_still_while_they_load(page: Page) -> None:
    page.enter("admin-token")
    found = {route: shift(page, route, sign) for route, sign in ROUTES.items()}
    assert all(value < 0.05 for value in found.values()), found


def test_everything_is_reached_by_tab_and_shows_that_it_is(page: Page) -> None:
    page.enter("admin-token")
    for route, sign in ROUTES.items():
        page.go(route)
        page.see(sign)
        assert tabbed(page) == [], route


def test_files_are_coloured_by_their_partition(page: Page, shop: Served, tmp_path: Path) -> None:
    page.enter("writer-token", "tables/main.visits?tab=files")
    page.see(".treemap rect")
    page.choose(".panel select", "partition")
    page.see(".legend.partition li", "a")
    files = shop.lake.table("visits").files().num_rows
    assert files == 2 and sorted(page.texts(".legend.partition li")) == ["a", "b"]
    assert (
        page.run("new Set([...document.querySelectorAll('.treemap rect')].map(e => getComputedStyle(e).fill)).size")
        == 2
    )
    clean(page)
    picture(page, "files", tmp_path)
    page.go("tables/main.orders?tab=files")
    page.see(".title h1", "orders")
    page.see(".treemap rect")
    assert "partition" not in page.texts(".panel option"), "the table has none"


# -- time travel -------------------------------------------------------------------------------------------------------


def _history(lake: Lake, dice: random.Random) -> dict[int, tuple[list[str], list[dict[str, Any]]]]:
    """Change a table at random; return the columns and rows of each snapshot, as plain Python has them."""
    columns, rows, defaults = ["id", "value"], list[dict[str, Any]](), dict[str, int]()
    lake.sql("CREATE TABLE changing (id BIGINT, value BIGINT)")
    known = {lake.current_snapshot(): (columns, rows)}
    for number in range(25):
        kind = dice.choice(["insert", "insert", "update", "delete", "column"])
        rows = [dict(row) for row in rows]
        if kind == "insert":
            more = [{"id": 10 * number + each, "value": dice.randrange(100)} for each in range(dice.randint(1, 6))]
            values = ", ".join(f"({row['id']}, {row['value']})" for row in more)
            lake.sql(f"INSERT INTO changing (id, value) VALUES {values}")
            rows += [{**defaults, **row} for row in more]
        elif kind == "column" and len(columns) < 5:
            name = f"more_{number}"
            lake.sql(f"ALTER TABLE changing ADD COLUMN {name} BIGINT DEFAULT {number}")
            columns, rows = [*columns, name], [{**row, name: number} for row in rows]
            defaults[name] = number
        else:
            half = dice.randrange(2)
            chosen = [row for row in rows if row["id"] % 2 == half]
            if not chosen:
                continue
            if kind == "delete":
                lake.sql(f"DELETE FROM changing WHERE id % 2 = {half}")
                rows = [row for row in rows if row not in chosen]
            else:
                lake.sql(f"UPDATE changing SET value = value + 1000 WHERE id % 2 = {half}")
                rows = [{**row, "value": row["value"] + 1000} if row in chosen else row for row in rows]
        known[lake.current_snapshot()] = (columns, rows)
    return known


def test_the_slider_shows_any_snapshot_of_a_random_history_as_it_was(browser: Browser, tmp_path: Path) -> None:
    dice = random.Random(SEED)
    lake = quacklake.connect(f"sqlite:///{tmp_path}/lake.db", tmp_path / "data", create=True)
    known = _history(lake, dice)
    snapshots = sorted(known)
    with served(lake) as found:
        page = Page(browser, found.url)
        page.enter("reader-token", "tables/main.changing?tab=preview")
        page.see(".timeline")
        for at in dice.sample(snapshots, 8):
            index, newest = snapshots.index(at), at == snapshots[-1]
            columns, rows = known[at]
            page.choose(".timeline input", str(index))
            page.wait(f"document.querySelector('.figures').dataset.snapshot === '{at}'")
            page.shows("Rows", str(len(rows)))
            page.shows("Columns", str(len(columns)))
            assert ("at=" in page.run("location.hash")) != newest
            if rows:
                page.wait(f"document.querySelector('.grid')?.dataset.version === '{at}'")
                assert page.texts(".grid .head b") == columns
                texts = [[str(row[name]) for name in columns] for row in rows]
                page.wait(f"document.querySelectorAll('.grid .line').length >= {min(len(rows), 10)}")
                shown = page.cells()
                assert all(row in texts for row in shown) and len(shown) >= min(len(rows), 10)
            else:
                page.see(".empty", "no rows at this snapshot")
        assert browser.problems() == []
        browser.call("Page.navigate", url="about:blank")


# -- tenants -----------------------------------------------------------------------------------------------------------


def test_two_tenants_in_two_tabs_see_their_own_only(tmp_path: Path) -> None:
    program = find_browser()
    if program is None:
        pytest.skip("no browser")
    lakes = {
        name: quacklake.connect(f"sqlite:///{tmp_path}/{name}.db", tmp_path / name, create=True)
        for name in ("red", "blue")
    }
    for name, lake in lakes.items():
        lake.sql(f"CREATE TABLE of_{name} AS SELECT '{name}' AS owner, range AS id FROM range(3)")
    gate = TenantGate(
        {name: TokenGate(lake, {f"{name}-token": Role.WRITER}, name=name) for name, lake in lakes.items()}
    )
    settings = ServiceSettings(port=0)
    browser = Browser(program, tmp_path / "profile")
    try:
        with BackgroundService(create_app(gate, settings), settings) as url:
            page, tabs = Page(browser, url), {name: browser.tab() for name in lakes}
            for name, tab in tabs.items():
                browser.switch(tab)
                page.enter(f"{name}-token", "sql")
                page.ask(f"SELECT owner, id FROM of_{name} ORDER BY id")
                assert page.cells() == [[name, str(each)] for each in range(3)]
                page.go("tables")
                page.see(".tree li", f"of_{name}")
            lakes["red"].sql("CREATE TABLE more AS SELECT 1 AS one")
            for name, expected in (("red", ["more", "of_red"]), ("blue", ["of_blue"])):
                browser.switch(tabs[name])
                page.wait(f"document.querySelectorAll('.tree li').length === {len(expected)}")
                assert sorted(page.texts(".tree li a span:not(.tag)")) == expected
                assert page.run("sessionStorage.getItem('quacklake.token')") == f"{name}-token"
                page.go("sql")
                page.click(".past")
                page.see("dialog")
                other = "blue" if name == "red" else "red"
                assert all(f"of_{other}" not in text for text in page.texts("dialog code")), "the browser is shared"
                page.press("Escape")
                page.gone("dialog")
    finally:
        browser.close()


# -- coming back -------------------------------------------------------------------------------------------------------


def test_transactions_come_back_after_the_service_and_show_what_came_meanwhile(
    browser: Browser, tmp_path: Path
) -> None:
    url, now = f"sqlite:///{tmp_path}/lake.db", dt.datetime(2026, 11, 17, 12, tzinfo=dt.UTC)
    with quacklake.connect(url, tmp_path / "data", create=True) as lake:
        create_table(lake)
        empty = lake.current_snapshot()
        add_block(lake, 0, now)

    def start(port: int) -> BackgroundService:
        settings = ServiceSettings(port=port, shutdown_seconds=2)
        return BackgroundService(create_app(TokenGate(quacklake.connect(url), TOKENS), settings), settings)

    with start(0) as address:
        page = Page(browser, address)
        page.enter("reader-token", "transactions")
        page.see(".live-note.on", "live")
        page.wait("document.querySelector('.pager')?.dataset.total === '5'")
        page.choose("select[name=at]", str(empty))
        page.see(".empty", "There were no transactions yet.")
        page.choose("select[name=at]", "")
        page.wait("document.querySelector('.pager')?.dataset.total === '5'")
    page.see(".live.lost", "Reconnecting")
    page.see(".live-note", "reconnecting")
    with quacklake.connect(url) as lake:
        add_block(lake, 1, now + dt.timedelta(minutes=1))
    with start(int(address.rpartition(":")[2])):
        page.see(".live-note.on", "live")
        page.wait("document.querySelector('.pager')?.dataset.total === '10'")
        page.gone(".failure")
        browser.call("Page.navigate", url="about:blank")
