"""The page of those who manage tenants, in a real browser."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

import quacklake
from quacklake.lake.tenants import Tenants
from quacklake.service.access_gate import AccessGate
from quacklake.service.app import create_app
from quacklake.service.operators import Operator
from quacklake.service.serving import BackgroundService
from quacklake.service.settings import ServiceSettings
from services.browser import Browser
from tests.service.pages import Page, clean, picture
from tests.service.test_care_pages import narrow

TOKEN = "operator-secret"


@pytest.fixture
def tenants(tmp_path: Path) -> Iterator[Tenants]:
    with quacklake.tenants(f"sqlite:///{tmp_path}/lakes.db", data_path=tmp_path / "data", create=True) as found:
        yield found


@pytest.fixture
def page(browser: Browser, tenants: Tenants) -> Iterator[Page]:
    gate = AccessGate.of_tenants(tenants)
    settings = ServiceSettings(port=0, prefix="/deep/lake")
    app = create_app(gate, settings, operator=Operator(tenants, [TOKEN]))
    with BackgroundService(app, settings) as address:
        browser.size(1280, 800)
        opened = Page(browser, address)
        yield opened
        assert browser.problems() == []
        browser.call("Page.navigate", url="about:blank")


def sign_in(page: Page) -> None:
    page.browser.call("Page.navigate", url=f"{page.url}/health/live")
    page.wait("location.pathname.endsWith('/live')")
    page.run("sessionStorage.clear()")
    page.browser.call("Page.navigate", url=f"{page.url}/ui/#operator={TOKEN}")
    page.see("h1", "Tenants")
    assert TOKEN not in page.run("location.href")


def test_an_operator_makes_limits_renames_and_drops_tenants(page: Page, tenants: Tenants, tmp_path: Path) -> None:
    for name, rows in (("harbour", 1_000), ("observatory", 20)):
        tenants.create(name)
        with tenants.open(name) as lake:
            lake.sql(f"CREATE TABLE secrets AS SELECT range AS x FROM range({rows})")
    sign_in(page)
    page.see("[aria-label=Tenants] tr", "harbour")
    assert "secrets" not in page.run("document.documentElement.outerHTML")
    page.click("button.primary", "New tenant")
    page.fill("dialog[open] input[name=name]", "acme")
    page.see("dialog[open] .happens", "acme gets a lake of its own")
    page.click("dialog[open] .primary")
    page.see("dialog[open] h2", "An administrator of acme")
    page.fill("dialog[open] input[name=name]", "ann")
    page.click("dialog[open] .primary")
    page.see("dialog[open] .secret")
    token = page.run("document.querySelector('dialog[open] .secret').textContent")
    page.click("dialog[open] .primary", "I have it")
    page.gone("dialog")
    assert token not in page.run(
        "document.documentElement.outerHTML + JSON.stringify({...sessionStorage, ...localStorage}) + location.href"
    )
    with tenants.open("acme") as lake:
        assert lake.access.tokens.verify(token) == "ann"
    clean(page)
    narrow(page, "[aria-label=Tenants]")
    picture(page, "tenants", tmp_path)
    page.click("[aria-label='Limits of acme']")
    page.fill("dialog[open] input[name=tables]", "5")
    page.see("dialog[open] .happens", "tables: at most 5")
    page.click("dialog[open] .primary")
    page.gone("dialog")
    assert tenants.limits("acme").tables == 5
    page.click("[aria-label='Rename acme']")
    page.fill("dialog[open] input[name=name]", "ajax")
    page.click("dialog[open] .primary")
    page.gone("dialog")
    page.see("[aria-label=Tenants] th", "ajax")
    page.click("[aria-label='Drop ajax']")
    page.see("dialog[open]", "Nobody can enter ajax")
    page.click("dialog[open] .primary", "Drop tenant")
    page.gone("dialog")
    page.gone("[aria-label='Drop ajax']")
    assert [tenant.name for tenant in tenants.list()] == ["harbour", "observatory"]
    page.fill(".search input", "obs")
    page.gone("[aria-label='Drop harbour']")
    page.see("[aria-label=Tenants] th", "observatory")
    page.click("[aria-label='Sign out']")
    page.see(".signin h1")
    assert page.run("sessionStorage.length") == 0


def test_a_wrong_token_is_refused_and_the_form_signs_an_operator_in(page: Page) -> None:
    page.browser.call("Page.navigate", url=f"{page.url}/health/live")
    page.wait("location.pathname.endsWith('/live')")
    page.run("sessionStorage.clear()")
    page.browser.call("Page.navigate", url=f"{page.url}/ui/")
    page.see(".signin h1")
    page.fill("input[name=token]", "wrong")
    page.click("input[name=operator]")
    page.click(".signin .primary")
    page.see(".signin [role=alert]")
    page.fill("input[name=token]", TOKEN)
    page.click(".signin .primary")
    page.see(".empty", "There are no tenants yet.")
    page.forgive("401", 2)
    assert json.loads(page.run("JSON.stringify([sessionStorage.getItem('quacklake.lake')])")) == [None]
