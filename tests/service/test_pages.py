"""The pages of the dashboard in a real browser, over a real service."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.csv as pcsv
import pyarrow.parquet as pq
import pytest

import quacklake
from quacklake.lake import Lake
from quacklake.service.app import create_app
from quacklake.service.identity import Role, TokenGate
from quacklake.service.serving import BackgroundService
from quacklake.service.settings import ServiceSettings
from quacklake_demo.shop import demo_lake, incoming_orders
from services.browser import Browser
from tests.service.pages import CONTROL, Page, clean, picture
from tests.service.serving import Served, served

HOSTILE = "<img src=x onerror=alert(1)>"


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """The lake of the demo."""
    with served(demo_lake(tmp_path_factory.mktemp("shop"))) as found:
        yield found


@pytest.fixture
def odd(tmp_path: Path) -> Iterator[Served]:
    """A lake with a table whose name and rows want to be code."""
    lake = quacklake.connect(f"sqlite:///{tmp_path}/lake.db", tmp_path / "data", create=True)
    lake.sql("CREATE SCHEMA odd")
    lake.sql(f'CREATE TABLE odd."<b>.""x" AS SELECT \'{HOSTILE}\' AS "<i>", 9223372036854775807 AS large, NULL AS none')
    with served(lake) as found:
        yield found


@pytest.fixture
def page(browser: Browser, shop: Served) -> Iterator[Page]:
    browser.size(1280, 800)
    opened = Page(browser, shop.url)
    yield opened
    assert browser.problems() == []


# -- signing in --------------------------------------------------------------------------------------------------------


def test_a_person_signs_in_with_a_token_and_out_again(page: Page, tmp_path: Path) -> None:
    page.enter(None)
    page.see(".signin h1", "Quacklake")
    assert page.run("document.querySelector('.signin .failure') === null"), "nobody has done anything wrong yet"
    clean(page)
    picture(page, "sign-in", tmp_path)
    page.fill("input[name=token]", "wrong")
    page.click("button[type=submit]")
    page.see(".failure", "no valid token")
    assert page.run("sessionStorage.length") == 0
    page.fill("input[name=token]", "reader-token")
    page.press("Enter")
    page.click(".signin .primary")
    page.see(".role", "reader")
    assert page.run("sessionStorage.getItem('quacklake.token')") == "reader-token"
    assert "reader-token" not in page.run("JSON.stringify(localStorage) + location.href + document.cookie")
    page.click("button[aria-label='Sign out']")
    page.see(".signin h1")
    assert page.run("sessionStorage.getItem('quacklake.token')") is None
    page.forgive("401", 2)  # without a token, and with a wrong one


def test_the_address_that_the_service_prints_signs_in_and_hides_its_token(page: Page) -> None:
    page.enter("admin-token")
    page.see(".role", "admin")
    assert page.run("location.hash") == "#/"
    assert page.run("history.length") > 0 and "admin-token" not in page.run("location.href")


def test_a_service_for_everyone_asks_for_no_token(browser: Browser, tmp_path: Path) -> None:
    lake = quacklake.connect(f"sqlite:///{tmp_path}/lake.db", tmp_path / "data", create=True)
    settings = ServiceSettings(port=0, prefix="/deep/lake")
    gate = TokenGate(lake, {}, anonymous=Role.READER)
    with BackgroundService(create_app(gate, settings), settings) as url:
        page = Page(browser, url)
        browser.open("about:blank")
        browser.events.clear()  # what the page of the test before has asked for until it went
        page.browser.call("Page.navigate", url=url)  # without a slash: it leads to the page, under its prefix
        page.see(".role", "reader")
        assert page.run("location.pathname") == "/deep/lake/ui/"
        page.see(".figure", "Snapshots")
        page.go("tables")
        page.see(".tree .none", "There are no tables yet.")
        page.go("nowhere")
        page.see(".empty", "There is no such page.")
        assert page.hosts() == {url.split("/")[2]} and browser.problems() == []
        browser.call("Page.navigate", url="about:blank")


# -- all pages ---------------------------------------------------------------------------------------------------------

ROUTES = {
    "overview": ".sizes li",
    "tables": ".tree li",
    "tables/main.orders": ".range",
    "tables/main.orders?tab=preview": ".grid .line",
    "tables/main.orders?tab=files": ".treemap rect",
    "tables/main.orders?tab=history": ".panel .snapshots li",
    "tables/main.sales": ".grid .line",
    "snapshots": ".narrow .snapshots li",
    "sql": ".code-host[data-names=known]",
}


def test_every_page_is_clean_asks_no_other_host_and_fits_a_telephone(page: Page, shop: Served, tmp_path: Path) -> None:
    page.enter("admin-token")
    for route, sign in ROUTES.items():
        page.go(route)
        page.see(sign)
        clean(page)
        page.browser.size(360, 740)
        page.see(sign)
        wide = "[...document.querySelectorAll('main *, .side *')].filter(each => each.getBoundingClientRect().right > 361 && !each.closest('.grid, .scroll, .sheets ul, .tabs')).map(each => each.className || each.tagName)"
        assert page.run("document.documentElement.scrollWidth") <= 360, (route, page.run(wide))
        page.browser.size(1280, 800)
    assert page.hosts() == {shop.url.split("/")[2]}


def test_names_and_rows_that_want_to_be_code_are_texts(browser: Browser, odd: Served) -> None:
    page = Page(browser, odd.url)
    page.enter("reader-token", "tables")
    page.click(".tree li a", "<b>")
    page.click("#tab-preview")
    page.see(".title h1", '<b>."x')
    page.see(".grid .line", HOSTILE)
    assert page.cells() == [[HOSTILE, "9223372036854775807", "NULL"]]
    assert page.run("document.querySelectorAll('img').length") == 0
    page.click(".actions .button", "Query")
    page.see(".code-host")
    page.wait("!!document.querySelector('.run:not(:disabled)')")
    page.click(".run")
    page.see(".grid .line", HOSTILE)
    assert page.cells() == [[HOSTILE, "9223372036854775807", "NULL"]] and browser.problems() == []
    browser.call("Page.navigate", url="about:blank")


# -- tables ------------------------------------------------------------------------------------------------------------


def test_the_tree_is_searched(page: Page) -> None:
    page.enter("reader-token", "tables")
    page.see(".tree li", "orders")
    assert page.texts(".tree li a span:not(.tag)") == ["orders", "products", "sales"]
    page.fill(".search input", "ORD")
    page.wait("document.querySelectorAll('.tree li').length === 1")
    page.press("Enter")
    page.see(".title h1", "orders")
    page.fill(".search input", "nothing")
    page.see(".tree .none", "No table matches")
    page.press("Escape")
    page.see(".tree li", "products")


def test_the_slider_shows_each_snapshot_as_sql_does(page: Page, shop: Served, tmp_path: Path) -> None:
    lake = shop.lake
    history = lake.table("orders").history().to_pylist()[::-1]
    page.enter("admin-token", "tables/main.orders?tab=preview")
    page.see(".grid .line")
    for index, snapshot in enumerate(history):
        at, newest = snapshot["snapshot_id"], index == len(history) - 1
        page.choose(".timeline input", str(index))
        shown = lake.current_snapshot() if newest else at
        page.wait(f"document.querySelector('.figures').dataset.snapshot === '{shown}'")
        page.wait(f"document.querySelector('.grid')?.dataset.version === '{shown}'")
        past = lake.at(version=at)
        rows = past.sql("SELECT count(*) FROM orders").fetchone()
        assert rows is not None
        page.shows("Rows", f"{rows[0]:,}")
        columns = past.table("orders").columns
        assert page.texts(".grid .head b") == columns
        first = past.sql("SELECT * FROM orders ORDER BY rowid LIMIT 5").to_arrow().to_pylist()
        assert page.cells()[:5] == [[str(row[name]) for name in columns] for row in first]
        assert ("at=" in page.run("location.hash")) != newest
        assert snapshot["commit_message"] in page.texts(".timeline .what")[0]
    page.go("tables/main.orders?at=5")
    page.see(".ghost .tag", "added later")
    page.wait("document.querySelector('.figures').dataset.snapshot === '5' && !!document.querySelector('.range')")
    picture(page, "history", tmp_path)


def test_the_keyboard_moves_the_slider_and_the_tabs(page: Page) -> None:
    page.enter("reader-token", "tables/main.products")
    page.see(".timeline input")
    page.run("document.querySelector('.timeline input').focus()")
    page.press("ArrowLeft")
    page.wait("document.querySelector('.figures').dataset.at === '1'")
    page.press("End")
    page.wait("document.querySelector('.figures').dataset.at === 'newest'")
    page.run("document.querySelector('[role=tab][aria-selected=true]').focus()")
    page.press("ArrowRight")
    page.see(".grid .line", "coffee")
    assert page.run("document.activeElement.textContent") == "Preview"
    page.click(".steps button", "Earlier")
    page.see(".grid .line", "400")
    page.click(".steps button", "Newest")
    page.see(".grid .line", "350")


def test_statistics_are_those_of_the_rows(page: Page, shop: Served) -> None:
    page.enter("reader-token", "tables/main.orders")
    page.see(".range")
    low, high, nulls = shop.lake.sql("SELECT min(quantity), max(quantity), count(*) FILTER (channel IS NULL) FROM orders").fetchone() or ()  # fmt: skip
    row = page.run("[...document.querySelectorAll('.columns tbody tr')].find(row => row.querySelector('.name').textContent === 'quantity').textContent")  # fmt: skip
    assert f"{low}{high}" in row and nulls == 0 and "100 %" in row


def test_files_are_drawn_for_writers_only(page: Page, shop: Served) -> None:
    page.enter("writer-token", "tables/main.orders?tab=files")
    page.see(".treemap rect")
    files = shop.lake.table("orders").files().num_rows
    assert page.run("document.querySelectorAll('.treemap rect').length") == files
    for colour in ("size", "deletes", "age"):
        page.choose(".panel select", colour)
        page.see(f".treemap svg.{colour} rect")
    assert ".parquet" in page.texts(".treemap title")[0]
    page.enter("reader-token", "tables/main.orders?tab=files")
    page.see(".empty", "Files are for writers.")


def test_a_reader_sees_no_button_that_changes_something(page: Page) -> None:
    page.enter("reader-token", "tables/main.orders?at=5")
    page.wait("document.querySelector('.figures')?.dataset.snapshot === '5'")
    assert page.run("document.querySelector('.restore')") is None
    page.go("snapshots")
    page.see(".narrow .snapshots li")
    assert page.run("document.querySelector('.rollback')") is None
    page.go("overview")
    page.see(".commits")
    assert page.run("document.querySelectorAll('.maintain, .expire, .cleanup').length") == 0


def test_an_admin_sees_what_a_restore_would_do_and_then_does_it(page: Page, shop: Served) -> None:
    before = shop.lake.current_snapshot()
    page.enter("admin-token", "tables/main.products?at=1&tab=preview")
    page.click(".restore")
    page.see("dialog .report", "main.products")
    assert shop.lake.current_snapshot() == before, "a look changes nothing"
    clean(page)
    page.press("Escape")
    page.gone("dialog")
    page.click(".restore")
    page.click("dialog .primary:not(:disabled)")
    page.see("dialog .good", "Done")
    assert shop.lake.current_snapshot() == before + 1
    assert shop.lake.sql("SELECT stock FROM products WHERE id = 1").fetchone() == (400,)
    page.click("dialog .buttons button", "Close")
    page.see(".grid .line", "400")
    page.go("snapshots")
    page.click(".rollback")  # of the one before: it takes the restore back
    page.click("dialog .primary:not(:disabled)")
    page.see("dialog .good", "Done")
    assert shop.lake.sql("SELECT stock FROM products WHERE id = 1").fetchone() == (350,)


# -- SQL ---------------------------------------------------------------------------------------------------------------


def test_statements_run_with_parameters_at_a_snapshot_in_tabs(page: Page, shop: Served, tmp_path: Path) -> None:
    page.enter("reader-token", "sql")
    page.ask("SELECT name, stock FROM products ORDER BY id")
    assert page.cells()[0] == ["coffee", "350"]
    page.choose(".travel select", "1")
    page.click(".run")
    page.see(".grid .line", "400")
    page.choose(".travel select", "")
    page.write("SELECT name, $price + 1 AS more FROM products WHERE name = $name")
    page.see(".parameters label", "$name")
    page.run("document.querySelectorAll('.parameters input')[0].focus()")
    page.browser.call("Input.insertText", text="1.5")
    page.run("document.querySelectorAll('.parameters input')[1].focus()")
    page.browser.call("Input.insertText", text="tea' OR true --")
    page.press("Enter")
    page.see(".empty", "returned no rows")
    page.run("document.querySelectorAll('.parameters input')[1].select()")
    page.browser.call("Input.insertText", text="tea")
    page.press("Enter")
    page.see(".grid .line", "tea")
    assert page.cells() == [["tea", "2.5"]]
    page.click("button[aria-label='New statement']")
    page.ask("SELEC 1")
    page.see(".failure", "SELEC")
    page.click(".sheets .pick", "SELECT name")
    page.see(".grid .line", "tea")
    page.click(".past")
    page.see("dialog code", "SELEC 1")
    clean(page)
    page.click("dialog .past-list button", "SELECT name, stock")
    page.gone("dialog")
    assert len(page.texts(".sheets li")) == 3
    page.run("document.querySelector('.sheets li.on .quiet').click()")
    page.forgive("400")  # it is no statement
    page.wait("document.querySelectorAll('.sheets li').length === 2")


_UNDER_CARET = """(() => {
    const text = document.querySelector('.failure .place').firstChild;
    const box = (at) => {
        const range = document.createRange();
        range.setStart(text, at);
        range.setEnd(text, at + 1);
        return range.getBoundingClientRect();
    };
    const caret = box(text.data.indexOf('^'));
    for (let at = 0; at < text.data.indexOf('\\n'); at += 1)
        if (Math.abs(box(at).x - caret.x) < 1 && box(at).bottom <= caret.y + 1) return text.data.slice(at).split(' ')[0];
})()"""
"""The word that begins above the caret on the screen."""


def test_a_mistake_in_sql_is_shown_at_its_place(page: Page) -> None:
    page.enter("reader-token", "sql")
    page.ask("SELECT 'ü',\n\tname extra words FROM products")
    page.see(".failure strong", 'Parser Error: syntax error at or near "words"')
    assert page.texts(".failure .place")[0].startswith("LINE 2: ")
    assert page.run(_UNDER_CARET) == "words"
    page.forgive("400")


def test_a_snapshot_that_does_not_exist_is_told(page: Page) -> None:
    page.enter("admin-token", "tables/main.products?at=99999")
    page.see(".failure strong", "No snapshot found at version 99999")
    assert page.run("document.querySelector('.restore, .figures')") is None
    page.forgive("404")
    page.click(".content a, main a", "Show the newest snapshot")
    page.see(".figures")
    page.go("snapshots?at=99999")
    page.see(".failure strong", "There is no snapshot 99999")
    assert page.run("document.querySelector('.snapshots, .rollback')") is None
    page.go("snapshots?at=1")
    page.see(".snapshots .on", "#1")


def test_a_reader_may_not_write_and_a_writer_may(page: Page, shop: Served) -> None:
    page.enter("reader-token", "sql")
    page.ask("UPDATE products SET price = 7 WHERE id = 3")
    page.see(".result .failure")
    page.forgive("403")
    page.enter("writer-token", "sql")
    page.ask("UPDATE products SET price = 7 WHERE id = 3")
    page.see(".said", "1 row changed")
    assert shop.lake.sql("SELECT price FROM products WHERE id = 3").fetchone() == (7.0,)


def test_names_of_the_catalog_complete_themselves(page: Page) -> None:
    page.enter("reader-token", "sql")
    page.see(".code-host[data-names=known]")
    inside = "document.querySelector('.code-host').shadowRoot"
    page.write("SELECT * FROM ")
    page.browser.call("Input.insertText", text="prod")
    page.wait(f"{inside}.querySelector('.cm-tooltip-autocomplete li')?.textContent.includes('products')")
    for _ in range(200):  # what has just appeared is not taken at once, lest somebody chooses it unseen
        page.press("Tab")
        if "products" in page.run(f"{inside}.querySelector('.cm-content').textContent"):
            break
    page.press("Enter", CONTROL)
    page.see(".grid .line", "coffee")


def test_a_million_rows_scroll_from_the_first_to_the_last(page: Page) -> None:
    page.enter("reader-token", "sql")
    page.ask("SELECT i AS id, i * 3 AS thrice, 'row ' || i AS name FROM range(1000000) AS r(i)")
    assert page.texts(".said strong") == ["1,000,000 rows"]
    grid = "document.querySelector('.grid')"
    drawn = "[...document.querySelectorAll('.grid .line')].map(row => Number(row.getAttribute('aria-rowindex')) - 2)"
    for share in (0.0, 0.25, 0.5, 0.99, 1.0):
        page.run(f"{grid}.scrollTop = ({grid}.scrollHeight - {grid}.clientHeight) * {share}")
        page.wait(f"Math.abs(({drawn})[3] / 1e6 - {share}) < 0.002")
        numbers = page.run(drawn)
        assert len(numbers) < 60 and numbers == list(range(numbers[0], numbers[0] + len(numbers)))
        assert page.cells() == [[str(n), str(3 * n), f"row {n}"] for n in numbers]
    assert page.run(drawn)[-1] == 999_999
    last = page.run("[...document.querySelectorAll('.grid .line')].at(-1).getBoundingClientRect().bottom")
    assert last <= page.run(f"{grid}.getBoundingClientRect().bottom") + 1, "the last row is in sight"
    page.run(f"{grid}.scrollTop -= 300")
    page.wait(f"({drawn}).at(-1) < 999999")
    assert 999_980 < page.run(drawn)[-1] < 999_995, "a small step is small"
    page.click(".sheets .pick")
    page.ask("SELECT 1 AS one")
    assert page.cells() == [["1"]], "another result begins at its first row"
    # Chromium would keep the look of what is typed over in the editor, which the policy of the page forbids
    assert all(each.startswith("Applying inline style") for each in page.browser.problems())
    page.browser.events.clear()


def test_a_statement_is_cancelled(page: Page, shop: Served) -> None:
    page.enter("reader-token", "sql")
    page.write("SELECT count(*) FROM range(100000000) a, range(1000) b WHERE a.range * b.range % 7 = 3")
    page.press("Enter", CONTROL)
    page.click(".cancel")
    page.see(".failure", "You cancelled the statement.")
    page.wait("!!document.querySelector('.run')")
    for _ in range(200):
        if shop.reader.get("/api/v1/sql").json()["statements"] == []:
            break
        threading.Event().wait(0.05)
    assert shop.reader.get("/api/v1/sql").json()["statements"] == []
    page.browser.events.clear()  # the browser notes a request that was given up


def test_a_shared_address_opens_the_statement_and_runs_nothing(page: Page, shop: Served) -> None:
    page.enter("writer-token", "sql")
    page.write("DELETE FROM products")
    page.choose(".travel select", "2")
    page.click(".share-link")
    address = page.run("location.href")
    before = shop.lake.current_snapshot()
    page.enter("writer-token")
    page.run(f"location.href = {json.dumps(address)}")
    inside = "document.querySelector('.code-host')?.shadowRoot"
    page.wait(f"{inside}?.querySelector('.cm-content')?.textContent === 'DELETE FROM products'")
    assert page.run("document.querySelector('.travel select').value") == "2"
    page.see(".empty", "Nothing was run yet.")
    assert shop.lake.current_snapshot() == before


def test_results_are_drawn_and_downloaded(page: Page, shop: Served, tmp_path: Path) -> None:
    page.browser.call("Browser.setDownloadBehavior", behavior="allow", downloadPath=str(tmp_path))
    page.enter("reader-token", "sql")
    page.ask("FROM sales ORDER BY day")
    picture(page, "sql", tmp_path)
    page.click("#tab-chart")
    page.see(".plot canvas")
    assert page.run("document.querySelector('.plot').dataset.points") == "120"
    assert page.run("document.querySelector('.chart-page select').value") == "line"
    clean(page)
    picture(page, "chart", tmp_path)
    for kind in ("bar", "scatter", "histogram", "line"):
        page.choose(".chart-page select[name=kind]", kind)
        page.wait(f"document.querySelector('.plot').getAttribute('aria-label').startsWith('A {kind}')")
    expected = shop.lake.sql("FROM sales ORDER BY day").to_arrow()
    readers = {"csv": pcsv.read_csv, "parquet": pq.read_table, "arrow": lambda path: pa.ipc.open_stream(path.read_bytes()).read_all()}  # fmt: skip
    for name, read in readers.items():
        page.choose(".download select", name)
        path = tmp_path / f"result.{name}"
        for _ in range(400):
            if path.exists():
                break
            page.run("new Promise(done => setTimeout(done, 25))")
        assert read(path).column("sold").to_pylist() == [int(n) for n in expected.column("sold").to_pylist()]


# -- the overview, and what happens meanwhile --------------------------------------------------------------------------


def test_an_admin_maintains_the_lake_from_the_overview(page: Page, shop: Served, tmp_path: Path) -> None:
    page.enter("admin-token", "overview")
    page.see(".due li", "Rewrite data files")
    rows = shop.lake.sql("SELECT count(*), sum(quantity) FROM orders").fetchone()
    page.shows("Tables", str(len(shop.lake.tables())))
    page.click(".expire")
    page.see("dialog", "This would happen")
    page.click("dialog .buttons button", "Cancel")
    page.click(".maintain")
    page.see("dialog .report", "rewrite data files")
    page.click("dialog .primary")
    page.see("dialog .good", "Done")
    page.click("dialog .buttons button", "Close")
    page.wait("![...document.querySelectorAll('.due li')].some(each => each.textContent.includes('Rewrite'))")
    assert shop.lake.sql("SELECT count(*), sum(quantity) FROM orders").fetchone() == rows
    page.click(".cleanup")
    page.see("dialog", "This would happen")
    page.click("dialog .buttons button", "Cancel")


def test_commits_show_at_once(page: Page, shop: Served, tmp_path: Path) -> None:
    page.enter("admin-token", "tables/main.orders")
    page.see(".live.live")
    page.see(".range")
    before = int(page.figure("Rows").replace(",", ""))
    with incoming_orders(shop.lake, every=0.05):
        page.wait(f"Number(document.querySelector('.figure .value').textContent.replaceAll(',', '')) > {before + 3}")
        page.go("overview")
        page.wait("Number([...document.querySelectorAll('.figure')].at(-1).querySelector('.value').textContent) > 3")
        page.see(".sizes li", "main.orders")
        picture(page, "overview", tmp_path)
        picture(page, "overview-dark", tmp_path, "dark")
        picture(page, "overview-phone", tmp_path, width=360)
        page.go("snapshots")
        page.see(".snapshots li", "An order came in")
        picture(page, "snapshots", tmp_path)
    page.wait(f"document.querySelector('.live .dim').textContent === '#{shop.lake.current_snapshot()}'")


def test_a_page_finds_its_service_again(browser: Browser, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/lake.db"
    quacklake.connect(url, tmp_path / "data", create=True).close()

    def start(port: int) -> tuple[BackgroundService, Lake]:
        lake = quacklake.connect(url)
        settings = ServiceSettings(port=port, shutdown_seconds=2)
        return BackgroundService(create_app(TokenGate(lake, {"a": Role.ADMIN}), settings), settings), lake

    service, lake = start(0)
    with service as address:
        lake.sql("CREATE TABLE t AS SELECT 1 AS x")
        page = Page(browser, address)
        page.enter("a", "tables/main.t?tab=preview")
        page.see(".live.live")
        page.see(".grid .line", "1")
    page.see(".live.lost", "Reconnecting")
    page.go("snapshots")
    page.see(".failure", "does not answer")
    page.go("tables/main.t?tab=preview")
    with quacklake.connect(url) as other:
        other.sql("INSERT INTO t VALUES (2)")
    service, _ = start(int(address.rpartition(":")[2]))
    with service:
        page.see(".live.live")
        page.see(".grid .line", "2")
        page.gone(".failure")
        browser.call("Page.navigate", url="about:blank")


def test_the_first_load_is_quick(page: Page) -> None:
    page.enter("reader-token")
    page.see(".figure", "Tables")
    shown, sent = page.run(
        "[performance.now(), performance.getEntriesByType('resource').filter(each => each.name.includes('/ui/')).reduce((sum, each) => sum + each.encodedBodySize, 0)]"
    )
    assert shown < 5_000, "a second on an idle machine"
    assert 0 < sent < 200_000
