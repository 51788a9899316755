"""The pages of streams in a real browser, over a real service and a real NATS server."""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import quacklake
from quacklake.connectors.nats.connection import NatsConnection
from quacklake.lake import Lake
from quacklake.pipelines.definitions import Definitions
from quacklake.service.app import create_app
from quacklake.service.identity import TokenGate
from quacklake.service.serving import BackgroundService
from quacklake.service.settings import ServiceSettings
from services import NatsServer
from services.browser import Browser, find_browser
from tests.service.pages import Page, shift, tabbed
from tests.service.serving import TOKENS, Served, served
from tests.service.test_pages import HOSTILE, clean, picture

pytestmark = pytest.mark.skipif(
    find_browser() is None, reason="no browser: `make setup` installs chromium-headless-shell where it can"
)
NAME = "orders"


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    program = find_browser()
    assert program is not None
    opened = Browser(program, tmp_path_factory.mktemp("profile"))
    opened.size(1280, 800)
    yield opened
    opened.close()


@dataclass
class Flow:
    """A service with a pipeline from NATS."""

    served: Served
    nats: NatsConnection
    stream: str

    def publish(self, *bodies: bytes, subject: str = "eu") -> None:
        self.nats.publish([(f"{self.stream}.{subject}", body, None) for body in bodies])

    def describe(self) -> dict[str, Any]:
        found: dict[str, Any] = self.served.reader.get(f"/api/v1/pipelines/{NAME}").json()
        return found


def definition(server: str, stream: str, folder: Path, **options: Any) -> dict[str, Any]:
    return {
        "pipeline": NAME,
        "source": {"type": "nats", "servers": server, "stream": stream, "schema": "id BIGINT, price DOUBLE"},
        "query": "SELECT id, price, price * 1.2 AS gross, _subject, _sequence FROM source",
        "sinks": [
            {"name": "lake", "type": "lake", "table": "orders"},
            {"name": "delta", "type": "delta", "location": str(folder / "delta"), "where": "price > 100"},
        ],
        "dead_letters": "bad_orders",
        "every": "50 ms",
        "lease": "2 seconds",
        **options,
    }


@pytest.fixture(scope="module")
def flow(tmp_path_factory: pytest.TempPathFactory, nats_server: NatsServer) -> Iterator[Flow]:
    folder: Path = tmp_path_factory.mktemp("flow")
    lake: Lake = quacklake.connect(f"sqlite:///{folder}/lake.db", folder / "data", create=True)
    stream = f"orders_{secrets.token_hex(3)}"
    with NatsConnection(nats_server.url) as nats:
        nats.jetstream(f"STREAM.CREATE.{stream}", {"name": stream, "subjects": [f"{stream}.>"], "storage": "memory"})
        definitions = Definitions(lake)
        definitions.apply(definition(nats_server.url, stream, folder))
        bodies = [order(number, 30.0 * (number % 20)) for number in range(200)]
        bodies += [b"no order", HOSTILE.encode(), b"\xff\x00", b"again"]
        nats.publish([(f"{stream}.eu", body, None) for body in bodies])
        definitions.pipeline(NAME).run(until_caught_up=True)
        with served(lake, poll_seconds=0.1, prefix="/deep/lake") as found:
            yield Flow(found, nats, stream)


@pytest.fixture
def page(browser: Browser, flow: Flow) -> Iterator[Page]:
    browser.size(1280, 800)
    yield Page(browser, flow.served.url)
    assert browser.problems() == []


def order(number: int, price: float = 9.5) -> bytes:
    return json.dumps({"id": number, "price": price}).encode()


def test_a_pipeline_is_started_watched_and_stopped_from_its_page(page: Page, flow: Flow, tmp_path: Path) -> None:
    page.enter("admin-token", "streams")
    page.see(".pipeline .state", "Stopped")
    page.see(".flow .source", flow.stream)
    assert len(page.texts(".flow .sink")) == 2 and page.texts(".flow .letters .note") == ["4 dead letters"]
    page.click(".start")
    page.see(".pipeline .state", "Running")
    for number in range(10, 20):
        flow.publish(*(order(20 * number + each, 30.0 * each) for each in range(20)))
        end = time.monotonic() + 30
        while flow.describe()["lag"] != 0:  # so that each is a batch of its own
            assert time.monotonic() < end
    page.wait("document.querySelectorAll('.durations i').length >= 3")
    page.see(".figure", "404of the stream")
    page.see(".figure", "caught up")
    page.shows("Behind", "0")
    assert flow.served.lake.sql("SELECT count(*), count(DISTINCT id) FROM orders").fetchone() == (400, 400)
    flow.publish(b"another")
    page.see(".flow .letters", "5 dead letters")
    clean(page)
    picture(page, "streams", tmp_path)
    page.browser.size(360, 740)
    page.see(".pipeline .figure")
    assert page.run("document.documentElement.scrollWidth") <= 360
    page.browser.size(1280, 800)
    page.click(".stop")
    page.see(".pipeline .state", "Stopped")
    assert flow.describe()["running"] is False


def test_the_overview_tells_how_far_streams_are_behind(page: Page, flow: Flow) -> None:
    page.enter("reader-token", "overview")
    page.see(".lags li", NAME)
    lag = flow.describe()["lag"]
    page.see(".lags li", f"{lag} behind" if lag else "caught up")
    page.see(".lags .state", "stopped")
    clean(page)
    page.click(".lags a", NAME)
    page.see(".streams h1", NAME)


def test_nodes_of_the_graph_lead_to_tables_by_the_keyboard(page: Page, flow: Flow) -> None:
    page.enter("reader-token", "streams")
    page.see(".flow a.sink")
    page.run("document.querySelector('.flow a.sink').focus()")
    assert page.run("document.activeElement.getAttribute('aria-label')") == "orders, lake, append"
    page.press("Enter")
    page.wait("location.hash.startsWith('#/tables/main.orders')")
    page.see(".grid .line", "36")


def test_pages_of_streams_stand_still_and_everything_is_reached_by_tab(page: Page, flow: Flow) -> None:
    page.enter("admin-token")
    moved: dict[str, float] = {}
    for route, sign in {
        "streams": ".flow a.sink",
        f"streams/{NAME}": ".letters li",
        "row/main.orders/2": ".steps-back .sequence",
    }.items():
        moved[route] = shift(page, route, sign)
        assert tabbed(page) == [], route
    assert all(value < 0.05 for value in moved.values()), moved


def test_a_reader_sees_streams_and_letters_but_no_buttons(page: Page, flow: Flow) -> None:
    page.enter("reader-token", f"streams/{NAME}")
    page.see(".letters li", "no order")
    page.see(".letters li", HOSTILE)
    assert page.run("document.querySelector('.letters img')") is None
    assert page.run("document.querySelectorAll('.start, .stop, .replay, .replay-all, .letters input').length") == 0
    page.see(".letters .small", "base64")
    page.see(".positions li", "up to sequence")
    clean(page)
    answer = flow.served.reader.post(f"/api/v1/pipelines/{NAME}/dead-letters/replay", json={"rows": [0]})
    assert answer.status_code == 403


def test_an_admin_replays_a_dead_letter_after_a_question(page: Page, flow: Flow, tmp_path: Path) -> None:
    before = flow.describe()
    page.enter("admin-token", f"streams/{NAME}")
    page.see(".letters li", "again")
    page.run(
        "[...document.querySelectorAll('.letters li')].find(each => each.textContent.includes('again')).querySelector('input').click()"
    )
    page.click(".replay:not(:disabled)")
    page.see("dialog", "Replay 1 dead letter")
    clean(page)
    picture(page, "letters", tmp_path)
    page.click("dialog .buttons button", "Cancel")
    page.gone("dialog")
    assert flow.describe()["letters"] == before["letters"], "a question changes nothing"
    page.click(".replay:not(:disabled)")
    page.click("dialog .primary")
    page.gone("dialog")
    page.wait(f"document.querySelectorAll('.letters li').length === {before['letters'] - 1}")
    last = flow.nats.jetstream(f"STREAM.INFO.{flow.stream}")["state"]["last_seq"]
    [part] = flow.nats.read_range(flow.stream, last, last + 1)
    assert part.data.to_pylist() == [b"again"]
    assert flow.describe()["lag"] == before["lag"] + 1


# -- from pixel to packet ----------------------------------------------------------------------------------------------


def test_a_row_of_the_preview_leads_to_its_message(page: Page, flow: Flow, tmp_path: Path) -> None:
    page.enter("admin-token", "tables/main.orders?tab=preview")
    page.see(".grid .line")
    assert "rowid" not in page.texts(".grid [role=columnheader] b")
    third = page.cells()[2]
    page.click(".grid .line a.origin", "3")
    page.wait("location.hash.startsWith('#/row/main.orders/2')")
    page.see(".steps-back .body", json.dumps({"id": int(third[0]), "price": float(third[1])}))
    assert page.texts(".steps-back .sequence") == [third[4]]
    page.see(".steps-back li", f"pipeline {NAME}")
    clean(page)
    picture(page, "packet", tmp_path)
    page.browser.size(360, 740)
    assert page.run("document.documentElement.scrollWidth") <= 360
    page.browser.size(1280, 800)
    page.click(".steps-back a", NAME)
    page.see(".streams h1", NAME)


def test_the_keyboard_walks_through_rows_and_leads_to_their_messages(page: Page, flow: Flow) -> None:
    page.enter("reader-token", "tables/main.orders?tab=preview")
    page.see(".grid .line")
    last = int(page.run("document.querySelector('.grid').focus(), document.querySelector('.grid').dataset.rows"))
    for key, row in (
        ("ArrowDown", 1),
        ("ArrowDown", 2),
        ("End", last),
        ("ArrowUp", last - 1),
        ("Home", 1),
        ("ArrowDown", 2),
    ):
        page.press(key)
        page.wait(f"document.activeElement.closest('.line.current')?.getAttribute('aria-rowindex') === '{row + 1}'")
        box = "(one => { const box = one.getBoundingClientRect(); return [box.top, box.bottom]; })"
        top, bottom = page.run(f"{box}(document.activeElement)")
        above, below = page.run(f"{box}(document.querySelector('.grid'))")
        assert above <= top and bottom <= below, "it is in sight"
    page.browser.call(
        "Input.dispatchKeyEvent", type="keyDown", key="Enter", code="Enter", windowsVirtualKeyCode=13, text="\r"
    )
    page.wait("location.hash.startsWith('#/row/main.orders/1')")


def test_a_reader_is_told_that_messages_are_for_administrators(page: Page, flow: Flow) -> None:
    page.enter("reader-token", "row/main.orders/0")
    page.see(".steps-back .why", "Messages are for administrators.")
    page.see(".steps-back .sequence", "1")
    assert page.run("document.querySelector('.steps-back .body')") is None
    page.go("row/main.orders/evil")
    page.see(".empty", "There is no such row.")


def test_rows_and_points_of_a_statement_lead_to_their_messages(page: Page, flow: Flow) -> None:
    page.enter("admin-token", "sql")
    page.ask("SELECT rowid, id, price, _sequence FROM orders WHERE price > 500 ORDER BY id DESC")
    chosen = page.cells()[1]
    page.click(".grid .line a.origin", "2")
    page.see(".steps-back .sequence", chosen[3])
    page.go("sql")
    page.ask("SELECT rowid + 1 AS rowid, id FROM orders")
    assert page.run("document.querySelector('.grid a.origin')") is None, "that is not the id of a row"
    page.ask("SELECT rowid, id, price FROM orders WHERE id < 20 ORDER BY id")
    page.click("#tab-chart")
    page.see(".plot canvas")
    page.choose(".chart-page select[name=x]", "id")
    page.choose(".chart-page select[name=y]", "price")
    page.wait("document.querySelector('.plot').getAttribute('aria-label').includes('across id')")
    x, y, width = page.run(
        "(() => { const box = document.querySelector('.plot .u-over').getBoundingClientRect();"
        " return [box.x, box.y + box.height / 2, box.width]; })()"
    )
    for kind in ("mouseMoved", "mousePressed", "mouseReleased"):
        page.browser.call("Input.dispatchMouseEvent", type=kind, x=x + width - 2, y=y, button="left", clickCount=1)
    page.wait("location.hash.startsWith('#/row/main.orders/')")
    assert page.run("location.hash").endswith("/19"), "the last point is the row with the largest id"
    page.see(".steps-back .body", '"id": 19')
    # Chromium would keep the look of what is typed over in the editor, which the policy of the page forbids
    assert all(each.startswith("Applying inline style") for each in page.browser.problems())
    page.browser.events.clear()


def test_a_stream_whose_server_is_away_says_so_and_one_that_is_not_there_too(page: Page, flow: Flow) -> None:
    Definitions(flow.served.lake).apply(
        {
            "pipeline": "away",
            "source": {"type": "nats", "servers": "nats://127.0.0.1:1", "stream": "x", "schema": "id BIGINT", "max_retries": 1},
            "sinks": [{"type": "lake", "table": "away"}],
            "restart": {"attempts": 0},
        }
    )  # fmt: skip
    page.enter("admin-token", "streams/nothing")
    page.see(".empty", "There is no such pipeline.")
    page.go("streams/away")
    page.see(".positions, .pipeline", "There are none yet")
    page.click(".start")
    page.see(".failure", "NATS")
    page.see(".pipeline .state", "Failed")
    clean(page)


def test_a_lake_without_pipelines_says_how_to_make_one(browser: Browser, tmp_path: Path) -> None:
    lake = quacklake.connect(f"sqlite:///{tmp_path}/lake.db", tmp_path / "data", create=True)
    with served(lake) as found:
        page = Page(browser, found.url)
        page.enter("reader-token", "streams")
        page.see(".empty", "quacklake pipeline apply")
        clean(page)
        browser.call("Page.navigate", url="about:blank")


def test_the_page_finds_its_service_and_the_pipeline_again(
    browser: Browser, tmp_path: Path, nats_server: NatsServer
) -> None:
    url, stream = f"sqlite:///{tmp_path}/lake.db", f"again_{secrets.token_hex(3)}"

    def start(port: int) -> BackgroundService:
        lake = quacklake.connect(url, tmp_path / "data", create=True)
        if not port:
            Definitions(lake).apply(definition(nats_server.url, stream, tmp_path))
        settings = ServiceSettings(port=port, shutdown_seconds=2)
        return BackgroundService(create_app(TokenGate(lake, TOKENS), settings), settings)

    with NatsConnection(nats_server.url) as nats:
        nats.jetstream(f"STREAM.CREATE.{stream}", {"name": stream, "subjects": [f"{stream}.>"], "storage": "memory"})
        with start(0) as address:
            page = Page(browser, address)
            page.enter("admin-token", "streams")
            page.click(".start")
            page.see(".pipeline .state", "Running")
            nats.publish([(f"{stream}.a", order(1), None)])
            page.see(".figure", "1of the stream")
        page.see(".live.lost", "Reconnecting")
        nats.publish([(f"{stream}.a", order(2), None)])
        with start(int(address.rpartition(":")[2])):
            page.see(".live.live")
            page.see(".pipeline .state", "Stopped")
            page.see(".figure", "the first for")
            page.click(".start")
            page.see(".figure", "2of the stream")
            page.gone(".failure")
            browser.call("Page.navigate", url="about:blank")
