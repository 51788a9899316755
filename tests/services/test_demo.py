"""The whole demo: what it publishes, what it counts, and that nothing is lost whatever its page breaks."""

from __future__ import annotations

import io
import itertools
import json
import random
import re
import time
from pathlib import Path

import pyarrow as pa
import pytest
from rich.console import Console

import quacklake
from quacklake.errors import NotFoundError, UnauthenticatedError
from quacklake.service.identity import Role, TokenGate
from quacklake_demo.chaos import SinkCount
from quacklake_demo.stage import Stage
from quacklake_ekko.table import TABLE
from quacklake_ekko.transactions import NodeConfig, transaction_row
from services.browser import Browser, find_browser
from services.demo import __main__ as demo
from services.demo.blocks import BAD_EVERY, _messages, good_up_to
from services.demo.readers import count
from services.demo.world import TenantGate, World
from tests.layout import plain_only
from tests.seeds import SEED
from tests.service.pages import Page
from tests.service.test_pages import clean, picture


def test_one_message_in_so_many_is_no_transaction_and_their_count_is_known() -> None:
    bodies = [body for _, body in itertools.islice(_messages(), 2 * BAD_EVERY + 10)]
    bad = [place for place, body in enumerate(bodies, 1) if not body.startswith(b"{")]
    assert bad == [BAD_EVERY, 2 * BAD_EVERY]
    for sequence in (0, 1, BAD_EVERY - 1, BAD_EVERY, BAD_EVERY + 1, len(bodies)):
        assert good_up_to(sequence) == sum(body.startswith(b"{") for body in bodies[:sequence])
    assert len({json.loads(body)["hash"] for body in bodies if body.startswith(b"{")}) == good_up_to(len(bodies))


def test_rows_are_counted_as_a_plain_loop_counts_them() -> None:
    dice = random.Random(SEED)
    for _ in range(200):
        found = [dice.randint(1, 30) for _ in range(dice.randint(0, 40))]
        position = dice.randint(0, 30)
        different = set(found)
        missing = sum(1 for sequence in range(1, position + 1) if sequence not in different)
        sequences = pa.chunked_array([pa.array(found, pa.int64())])
        assert count("x", sequences, position) == SinkCount("x", len(different), len(found) - len(different), missing)


def test_without_events_it_is_the_short_demo(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    monkeypatch.setattr(demo, "short", lambda: asked.append(0) or 0)
    assert demo.main(["--events", "0"]) == 0 and asked == [0]
    with pytest.raises(SystemExit):
        demo.main(["--events", "many"])


def test_a_token_opens_the_lakes_that_it_is_for_and_no_others(tmp_path: Path) -> None:
    lakes = {
        name: quacklake.connect(f"sqlite:///{tmp_path}/{name}.db", tmp_path / name, create=True)
        for name in ("ekko", "noyo")
    }
    gates = {
        name: TokenGate(lake, {name: Role.ADMIN, "visitor": Role.READER}, name=name) for name, lake in lakes.items()
    }
    gate = TenantGate(gates)
    for name in lakes:
        assert gate.enter(name).name == gate.enter(name, name).name == gate.enter("visitor", name).name == name
    assert gate.enter("visitor").name == "ekko", "the first, where none is named"
    for token, lake in (("noyo", "ekko"), ("ekko", "noyo"), ("visitor", "other"), ("noyo", "NOYO")):
        with pytest.raises(NotFoundError):
            gate.enter(token, lake)
    for token in (None, "", "other"):
        with pytest.raises(UnauthenticatedError):
            gate.enter(token, "ekko")
    gate.close()


@pytest.mark.daily(0.22)
@pytest.mark.skipif(find_browser() is None, reason="no browser")
def test_nothing_is_lost_whatever_the_page_breaks(tmp_path: Path) -> None:
    plain_only("the demo has a shared lake of its own")
    events, program = 6_000, find_browser()
    assert program is not None
    with World(tmp_path, events, spark=False, stays=False, seconds=3) as world:
        browser = Browser(program, tmp_path / "profile")
        try:
            browser.size(1280, 800)
            page = Page(browser, world.service_url)
            page.enter(world.tokens["ekko"], "chaos")
            page.wait(
                "Number(document.querySelector('[data-sink=iceberg] .committed')?.textContent.replace(',', '')) > 0", 90
            )
            world.publisher.go_on()
            for blow in [each.id for each in world.breaker.blows()]:
                page.click(f"[data-blow={blow}]:not(:disabled)")
                page.see(".blow", "1 time")
            clean(page)
            end = time.monotonic() + 150
            while not world.publisher.done.is_set() or world.position() < events:
                assert world.publisher.error is None and time.monotonic() < end, world.driver.said()
                time.sleep(0.1)
            said = f"{good_up_to(events):,}"
            for sink in ("lake", "delta", "iceberg"):
                page.see(f"[data-sink={sink}] .committed", said)
                assert page.texts(f"[data-sink={sink}] .doubled, [data-sink={sink}] .lost") == ["0", "0"]
            assert sum(each.struck for each in world.breaker.blows()) == len(world.breaker.blows())
            picture(page, "chaos", tmp_path)
            page.go("overview")
            page.see(".begin li", "Break something")
            page.see(".lags li", "blocks")
            picture(page, "demo", tmp_path)
            page.go("streams")
            page.see(".flow .source", "blocks")
            browser.events.clear()  # the browser notes what failed while the catalog was away
            page.enter(world.tokens["noyo"], "streams")
            page.see(".empty", "There are no pipelines yet.")
        finally:
            browser.close()
        _as_ekko_would_have_them(world, events)
        assert world.driver.starts >= 2


def _as_ekko_would_have_them(world: World, events: int) -> None:
    """Compare the rows of the lake with those that Ekko's own writer makes of the messages."""
    names = ["network", "block_time", "hour", "block_number", "tx_index", "to_address", "value", "gas_price", "gas_limit",
             "nonce", "input_data", "success"]  # fmt: skip
    found = world.ekko.sql(f"SELECT tx_hash, {', '.join(names)} FROM {TABLE}").to_arrow().to_pylist()
    rows = {row.pop("tx_hash"): row for row in found}
    assert len(rows) == len(found) == good_up_to(events)
    for _, body in itertools.islice(_messages(), events):
        if body.startswith(b"{"):
            message = json.loads(body)
            expected = transaction_row(message, NodeConfig.of(message))
            assert rows[message["hash"]] == {name: expected[name] for name in names}


@pytest.mark.daily(0.2)
def test_the_story_ends_with_what_foreign_readers_count(tmp_path: Path) -> None:
    plain_only("the demo has a shared lake of its own")
    told = io.StringIO()
    stage = Stage(Console(file=told, width=110))
    assert demo.whole(stage, tmp_path, 2_000, spark=False, seconds=1) == 0
    text = told.getvalue()
    for sink in ("lake", "delta", "iceberg"):
        line = next(line for line in text.splitlines() if line.startswith(f"│ {sink} "))
        assert [cell.strip() for cell in line.split("│")[3:7]] == ["2000", "2000", "0", "0"], text
    for tenant in ("ekko", "noyo"):
        assert re.search(rf"http://127\.0\.0\.1:\d+/ui/#token=[\w-]{{30,}}&lake={tenant}\n", text), "in one line"
    assert "Left out: Spark" in text and "kill -9" in text and "readings in" in text
