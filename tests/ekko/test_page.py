"""Ekko's page of the dashboard: there with the package and its table, and not without."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import quacklake
from quacklake.service.app import create_app
from quacklake.service.identity import TokenGate
from quacklake.service.serving import BackgroundService
from quacklake.service.settings import ServiceSettings
from quacklake_ekko.plugin import SERVICE
from quacklake_ekko.simulator import Simulation
from quacklake_ekko.transactions import DuckLakeWriter
from services.browser import Browser
from tests.service.pages import Page
from tests.service.serving import TOKENS

NAVIGATION = "nav[aria-label=Pages] a"


@pytest.fixture(scope="module")
def lake_url(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The URL of a lake with thirty transactions of three blocks."""
    folder = tmp_path_factory.mktemp("ekko")
    simulation = Simulation(transactions=10)
    with quacklake.connect(f"sqlite:///{folder}/lake.db", folder / "data", create=True) as lake:
        with DuckLakeWriter(lake) as writer:
            for block in simulation.blocks(3):
                writer.write_block(block, simulation.node)
        return lake.url


@pytest.fixture
def page(browser: Browser, lake_url: str, request: pytest.FixtureRequest) -> Iterator[Page]:
    """The dashboard of a service under a prefix, with Ekko's part unless the test says that there is none."""
    settings = ServiceSettings(port=0, prefix="/deep/lake")
    plugins = [SERVICE] if getattr(request, "param", True) else []
    app = create_app(TokenGate(quacklake.connect(lake_url), TOKENS), settings, plugins=plugins)
    browser.size(1280, 800)
    with BackgroundService(app, settings) as url:
        yield Page(browser, url)
        assert browser.problems() == []


def test_the_page_lists_transactions_and_their_networks(page: Page) -> None:
    page.enter("reader-token")
    page.see(NAVIGATION, "Transactions")
    page.go("transactions")
    page.see("[role=status]", "30 transactions")
    assert page.run("document.title") == "Transactions · Quacklake"
    assert len(page.texts(".chain .list tbody tr")) == 20
    assert page.run("getComputedStyle(document.querySelector('.chain .list tbody td')).verticalAlign") == "middle"
    page.click("button", "Older")
    page.wait("document.querySelectorAll('.chain .list tbody tr').length === 10 && location.hash.includes('page=1')")
    page.click("[role=tab]", "Networks")
    page.see(".networks li", "Avalanche/Mainnet")
    page.go("tables")
    page.see("main", "Choose one")
    page.go("transactions/statistics")
    page.see(".figures", "30")


@pytest.mark.parametrize("page", [False], indirect=True, ids=["without"])
def test_without_the_package_the_dashboard_has_no_such_page(page: Page) -> None:
    page.enter("reader-token", "transactions")
    page.see("main", "There is no such page.")
    page.wait(f"document.querySelectorAll('{NAVIGATION}').length > 4")
    assert "Transactions" not in page.texts(NAVIGATION)
