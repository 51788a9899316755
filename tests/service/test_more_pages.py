"""The pages of the dashboard beside the first ones, in a real browser: the pond, transactions, views and jobs."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv as pcsv
import pytest

from quacklake_demo.samples import add_block, fill_chains, fill_pond
from quacklake_demo.shop import demo_lake
from services.browser import Browser
from tests.service.pages import Page, clean, picture, shift, tabbed
from tests.service.serving import Served, served

NOW = dt.datetime(2026, 11, 17, 12, 34, 56, tzinfo=dt.UTC)
SILVER = "pond/%2Fdocks%2Fsilver.series"
LOADED = "document.querySelector('.charts')?.dataset.loaded === 'yes'"


@pytest.fixture(scope="module")
def rich(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """The lake of the demo, with all that is in it after a while, served under a prefix."""
    folder = tmp_path_factory.mktemp("rich")
    lake = demo_lake(folder)
    fill_chains(lake, NOW)
    fill_pond(lake, NOW)
    with served(lake, prefix="/deep/lake") as found:
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


ROUTES = {
    SILVER: ".charts[data-loaded=yes]",
    "transactions": ".list tbody tr",
    "transactions/wallets": ".list tbody tr",
    "transactions/networks": ".networks li",
    "transactions/statistics": ".days li",
    "views": ".views tbody th",
    "views/blockchain.wallets": ".query-text",
    "jobs": "main h1",
    "tables/main.products?tab=compare": ".rows-differ",
}


def test_pages_stand_still_and_everything_is_reached_by_tab(page: Page) -> None:
    page.enter("admin-token")
    moved: dict[str, float] = {}
    for route, sign in ROUTES.items():
        moved[route] = shift(page, route, sign)
        assert tabbed(page) == [], route
    assert all(value < 0.05 for value in moved.values()), moved
    assert page.hosts() == {page.url.split("/")[2]}


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
    first, last, alone = drawn(page)
    page.click(".beside", "")
    page.see(".series-plot .u-legend", "/docks/b-dock.series")
    _, _, points = drawn(page)
    assert points > 1.5 * alone, "both are drawn"
    page.choose("select[name=notes]", "main.notes")
    page.see(".notes li", "silver: Sensor cleaned")
    assert len(page.texts(".notes li")) == 4
    clean(page)
    narrow(page, ".series-plot canvas")
    drawn(page)
    picture(page, "pond", tmp_path)
    picture(page, "pond-dark", tmp_path, "dark")
    page.wait(LOADED)
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
    page.forgive("404")


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


# -- transactions ------------------------------------------------------------------------------------------------------

TABLE = "blockchain.transactions"


def total(page: Page, expected: object) -> None:
    page.wait(f"document.querySelector('.pager')?.dataset.total === '{expected}'")


def counted(rich: Served, where: str = "true", version: int | None = None) -> int:
    state = rich.lake if version is None else rich.lake.at(version=version)
    row = state.sql(f"SELECT count(*) FROM {TABLE} WHERE {where}").fetchone()
    assert row is not None
    return int(row[0])


def test_transactions_are_filtered_as_sql_does_and_saved_as_csv(page: Page, rich: Served, tmp_path: Path) -> None:
    page.browser.call("Browser.setDownloadBehavior", behavior="allow", downloadPath=str(tmp_path))
    page.enter("reader-token", "transactions")
    total(page, counted(rich))
    clean(page)
    narrow(page, ".list tbody tr")
    picture(page, "transactions", tmp_path)
    picture(page, "transactions-phone", tmp_path, width=360)
    page.click("#kind-failed")
    total(page, counted(rich, "NOT success"))
    page.choose("select[name=network]", "Avalanche/Fuji")
    where = "NOT success AND network = 'Avalanche' AND subnet = 'Fuji'"
    total(page, counted(rich, where))
    assert page.texts(".list tbody td:nth-child(2)") == ["Failed"] * 20
    page.click(".export")
    path = tmp_path / "transactions.csv"
    for _ in range(400):
        if path.exists():
            break
        page.run("new Promise(done => setTimeout(done, 25))")
    saved = pcsv.read_csv(path, convert_options=pcsv.ConvertOptions(column_types={"tx_hash": pa.string()}))
    wanted = rich.lake.sql(f"SELECT tx_hash FROM {TABLE} WHERE {where} ORDER BY block_time DESC, tx_hash")
    assert saved.column("tx_hash").to_pylist() == wanted.to_arrow().column("tx_hash").to_pylist()
    page.choose("select[name=size]", "100")
    page.wait("document.querySelectorAll('.list tbody tr').length > 20")
    page.click("#kind-all")
    page.choose("select[name=network]", "")
    hashes = rich.lake.sql(
        f"SELECT tx_hash, from_address FROM {TABLE} ORDER BY block_number, tx_hash LIMIT 1"
    ).fetchone()
    assert hashes is not None
    page.fill("input[name=search]", hashes[0][10:40].upper())
    total(page, 1)
    page.click(".list .hash", "0x")
    page.see("dialog .pairs", hashes[0])
    page.click("dialog button[aria-label=Close]")
    page.gone("dialog")
    page.fill("input[name=search]", "")
    total(page, counted(rich))
    page.fill("input[name=search]", "' OR true --")
    total(page, 0)
    page.see(".empty", "No transaction is like this.")


def test_transactions_travel_in_time_turn_pages_and_show_a_wallet(page: Page, rich: Served, tmp_path: Path) -> None:
    page.enter("reader-token", "transactions")
    total(page, counted(rich))
    first = page.texts(".list tbody td:first-child")
    page.click("nav.pager button", "Older")
    page.wait("location.hash.includes('page=1')")
    page.wait(f"document.querySelector('.list .hash').textContent !== '{first[0]}'")
    page.see(".live-note", "stands still")
    history = rich.lake.table(TABLE).history().to_pylist()
    old = next(each["snapshot_id"] for each in history if each["commit_message"] == "Load old blocks")
    page.choose("select[name=at]", str(old))
    total(page, counted(rich, version=old))
    assert counted(rich, version=old) < counted(rich)
    page.choose("select[name=at]", "")
    page.see(".live-note.on", "live")
    wallet = rich.lake.sql(f"SELECT from_address FROM {TABLE} GROUP BY 1 ORDER BY count(*) DESC, 1 LIMIT 1").fetchone()
    assert wallet is not None
    page.click("#tab-wallets")
    page.see(".list tbody th", wallet[0])
    picture(page, "wallets", tmp_path)
    clean(page)
    page.click(".list tbody th a", wallet[0])
    total(page, counted(rich, f"'{wallet[0]}' IN (from_address, to_address)"))
    page.go(f"transactions/networks?at={old}")
    past = rich.lake.at(version=old)
    for network, subnet, rows in past.sql(f"SELECT network, subnet, count(*) FROM {TABLE} GROUP BY ALL").fetchall():
        page.see(".networks li", f"{network}/{subnet}{rows:,}")
    page.click("#tab-statistics")
    page.shows("Total transactions", f"{counted(rich, version=old):,}")
    page.see(".under", f"at snapshot {old}")
    page.click("#tab-wallets")
    [(wallet_then, sent)] = past.sql(
        f"SELECT from_address, count(*) FROM {TABLE} GROUP BY 1 ORDER BY 2 DESC, 1 LIMIT 1"
    ).fetchall()
    page.wait("location.hash.includes('at=')")
    page.see(".list tbody tr:first-child", f"{wallet_then}{sent:,}")
    page.choose("select[name=at]", "")
    page.click("#tab-networks")
    page.see(".networks li", "Ethereum/Mainnet")
    picture(page, "networks", tmp_path)
    clean(page)
    page.click("#tab-statistics")
    page.see(".days li", "2026-11-16")
    page.shows("Total transactions", f"{counted(rich):,}")
    day = counted(rich, "block_time >= '2026-11-16 00:00:00+00' AND block_time < '2026-11-17 00:00:00+00'")
    assert any(text.startswith("2026-11-16") and text.endswith(str(day)) for text in page.texts(".days li"))
    picture(page, "statistics", tmp_path)
    clean(page)


def test_a_new_block_shows_at_once(page: Page, rich: Served) -> None:
    page.enter("reader-token", "transactions")
    page.see(".live.live")
    before = counted(rich)
    total(page, before)
    add_block(rich.lake, 0, NOW + dt.timedelta(minutes=1))
    total(page, before + 5)


# -- views and jobs ----------------------------------------------------------------------------------------------------


def test_a_view_is_refreshed_and_proved_as_a_job(page: Page, rich: Served, tmp_path: Path) -> None:
    add_block(rich.lake, 7, NOW + dt.timedelta(minutes=2))
    page.enter("admin-token", "views")
    page.see(".views tbody th", "blockchain.wallets")
    clean(page)
    narrow(page, ".views tbody tr")
    picture(page, "views", tmp_path)
    page.click(".views th a", "blockchain.wallets")
    page.see(".query-text", "from_address")
    page.wait(
        "[...document.querySelectorAll('.figure')].some(each => /^Changed rows waiting[1-9]/.test(each.textContent))"
    )
    page.click("button.refresh")
    page.see("dialog", "This would happen")
    page.click("dialog .primary")
    page.see("dialog .good", "Done")
    page.click("dialog .buttons button", "Close")
    page.wait(
        "[...document.querySelectorAll('.figure')].some(each => each.textContent.startsWith('Changed rows waiting0'))"
    )
    page.see(".stand.good", "up to date")
    page.click("button.verify")
    page.click("dialog .primary")
    page.see("dialog .good", "Done")
    page.see("dialog .report", "true")
    page.click("dialog .buttons button", "Close")
    page.go("jobs")
    page.see(".jobs tbody th", "Verify view")
    assert page.texts(".jobs tbody th")[:3] == ["Verify view", "Refresh", "Refresh dry run"]
    clean(page)
    narrow(page, ".jobs tbody tr")
    picture(page, "jobs", tmp_path)
    page.click(".look")
    page.see("dialog .report", "blockchain.wallets")
    page.click("dialog button[aria-label=Close]")


def test_a_reader_has_no_buttons_that_change_something(page: Page) -> None:
    page.enter("reader-token", "views")
    page.see(".views tbody th", "blockchain.wallets")
    assert page.texts("main button") == []
    page.click(".views th a", "blockchain.wallets")
    page.see(".query-text", "from_address")
    assert page.texts("main button") == [] and "Jobs" not in page.texts(".side nav a")


# -- tables and plans --------------------------------------------------------------------------------------------------


def test_snapshots_of_a_table_are_compared_tagged_and_undone(page: Page, rich: Served, tmp_path: Path) -> None:
    page.enter("admin-token", "tables/main.products?tab=compare")
    page.see(".rows-differ td", "400 350")
    clean(page)
    narrow(page, ".rows-differ")
    page.click(".set-tag:not(:disabled)")
    page.fill("input[name=tag]", "counted")
    page.click("dialog .primary")
    page.see(".timeline .named", "counted")
    picture(page, "compare", tmp_path)
    assert [each["tag"] for each in rich.lake.history.tags().to_pylist()] == ["counted"]
    page.go("tables/main.orders?tab=compare")
    known = [each["snapshot_id"] for each in rich.lake.table("orders").history().to_pylist()]
    page.wait(f"document.querySelector('.difference')?.dataset.to === '{known[0]}'")
    first, last = known[::-1][1:5:3]
    page.choose("select[name=from]", str(first))
    page.choose("select[name=to]", str(last))
    page.wait(f"document.querySelector('.difference')?.dataset.to === '{last}'")
    changes = rich.reader.get("/api/v1/tables/orders/diff", params={"from": first, "to": last}).json()["counts"]
    for name, count in changes.items():
        page.shows(name.capitalize(), f"{count:,}")
    page.see(".column-changes", "channel")
    page.click(".pager button", "Next")
    page.see(".pager", "rows 51 to 100")
    page.go("tables/main.products")
    page.click(".undo:not(:disabled)")
    page.see("dialog", "This would happen")
    page.click("dialog .primary")
    page.see("dialog .good", "Done")
    assert rich.lake.sql("SELECT stock FROM products WHERE id = 1").fetchone() == (400,)
    page.enter("reader-token", "tables/main.products?tab=compare")
    page.see(".rows-differ td", "350 400")
    assert page.texts(".actions button") == []


def test_a_plan_says_which_files_are_left_out_and_runs_nothing(page: Page, rich: Served, tmp_path: Path) -> None:
    page.enter("writer-token", "sql")
    page.write("FROM blockchain.transactions WHERE block_time > $day::TIMESTAMPTZ")
    page.fill(".parameters input", "2026-11-15")
    page.click(".tools .plan")
    page.see(".reads", "pruned")
    page.see(".steps", "read parquet")
    clean(page)
    files = rich.lake.table(TABLE).files().num_rows
    read = int(page.texts(".reads")[0].split("reads ")[1].split()[0])
    assert f"of {files} files, {files - read} pruned" in page.texts(".reads")[0] and 0 < read < files / 2
    picture(page, "plan", tmp_path)
    page.click("dialog button[aria-label=Close]")
    before = rich.lake.current_snapshot()
    page.write("SELECT 1; DELETE FROM orders")
    page.click(".tools .plan")
    page.see("dialog .empty", "Only one statement has a plan.")
    page.click("dialog button[aria-label=Close]")
    page.write("DELETE FROM orders")
    page.click(".tools .plan")
    page.wait("!!document.querySelector('dialog .failure, dialog .plan')")
    assert rich.lake.current_snapshot() == before
    page.forgive("403", 2)  # a plan is asked for in two forms


def test_a_table_whose_name_has_a_slash_shows_its_rows(page: Page) -> None:
    page.enter("reader-token", "tables")
    page.click(".tree li a", "/docks/silver.series")
    page.see(".grid .line")
    page.see(".title h1", "/docks/silver.series")
