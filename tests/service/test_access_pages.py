"""The pages for administrators in a real browser: access and the audit log, over a service with users."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest

import quacklake
from quacklake.lake import Lake
from quacklake.service.access_gate import AccessGate
from quacklake.service.app import create_app
from quacklake.service.serving import BackgroundService
from quacklake.service.settings import ServiceSettings
from services.browser import Browser
from tests.service.pages import Page, clean, picture
from tests.service.serving import OpenLakes, client

HOSTILE = '"><img src=x onerror=alert(1)>'
PAGES = ("access", "audit", "maintenance", "backups")


@dataclass
class Office:
    """A lake with users, its service, and a token and a client for each user."""

    lake: Lake
    url: str
    tokens: dict[str, str]
    clients: dict[str, httpx.Client]

    def rows(self, user: str, sql: str) -> list[dict[str, object]]:
        answer = self.clients[user].post("/api/v1/sql", json={"sql": sql})
        assert answer.status_code == 200, answer.text
        found: list[dict[str, object]] = answer.json()["rows"]
        return found


def fill(folder: Path) -> Lake:
    lake = quacklake.connect(
        f"sqlite:///{folder}/lake.db", folder / "data", create=True, access_audit=True, token_cache_ms=0
    )
    lake.sql("CREATE TABLE orders (id BIGINT, region VARCHAR, email VARCHAR)")
    lake.sql("INSERT INTO orders VALUES (1, 'EU', 'a@x.org'), (2, 'US', 'b@x.org'), (3, 'EU', 'c@x.org')")
    lake.sql("CREATE SCHEMA odd")
    lake.sql(f'CREATE TABLE odd."{HOSTILE.replace(chr(34), chr(34) * 2)}" AS SELECT 1 AS "a.b"')
    for name, role in (("root", "admin"), ("wil", "writer"), ("rea", "reader")):
        lake.access.create_user(name, [role])
    return lake


@pytest.fixture(scope="module")
def office(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Office]:
    lake = fill(tmp_path_factory.mktemp("office"))
    tokens = {name: lake.access.tokens.create(name) for name in ("root", "wil", "rea")}
    settings = ServiceSettings(port=0, poll_seconds=0.05)
    with BackgroundService(create_app(AccessGate(lake), settings), settings) as url:
        clients = {name: client(url, token) for name, token in tokens.items()}
        yield Office(lake, url, tokens, clients)
        for each in clients.values():
            each.close()


@pytest.fixture
def page(browser: Browser, office: Office) -> Iterator[Page]:
    browser.size(1280, 800)
    opened = Page(browser, office.url)
    yield opened
    assert browser.problems() == []


def shown(page: Page, label: str) -> list[list[str]]:
    """Return the texts of a list, without its buttons."""
    found: list[list[str]] = page.run(
        f"[...document.querySelectorAll('[aria-label={json.dumps(label)}] tbody tr')].map(row =>"
        " [...row.children].slice(0, -1).map(cell => cell.innerText.trim()))"
    )
    return found


def pick(page: Page, selector: str, value: str) -> None:
    """Choose an option, once it is there."""
    page.wait(f"[...(document.querySelector({json.dumps(selector)})?.options ?? [])].some(each => each.value === {json.dumps(value)})")  # fmt: skip
    page.choose(selector, value)


def type_enter(page: Page) -> None:
    """Press Enter as a keyboard does, with the character that buttons and forms wait for."""
    key = {"key": "Enter", "code": "Enter", "windowsVirtualKeyCode": 13}
    page.browser.call("Input.dispatchKeyEvent", type="keyDown", text="\r", **key)
    page.browser.call("Input.dispatchKeyEvent", type="keyUp", **key)


def confirm(page: Page, button: str, said: str) -> None:
    """Read what will happen in a dialog, change one's mind, and do it then."""
    page.click(button)
    page.see("dialog[open] .happens", said)
    page.click("dialog[open] .buttons button", "Cancel")
    page.gone("dialog")
    page.click(button)
    page.see("dialog[open] .happens", said)
    page.click("dialog[open] .primary")
    page.gone("dialog")


# -- access ------------------------------------------------------------------------------------------------------------


def test_a_token_is_shown_once_and_kept_nowhere(page: Page, office: Office) -> None:
    page.enter(office.tokens["root"], "access")
    page.browser.call("Browser.grantPermissions", permissions=["clipboardReadWrite", "clipboardSanitizedWrite"])
    page.click(".new")
    page.fill("dialog[open] input[name=name]", "Ann")
    page.click("dialog[open] input[value=reader]")
    pick(page, "dialog[open] select[name=lasts]", "30 days")
    page.see("dialog[open] .happens", "ann may do what the role reader allows, and comes in by a new token for 30 days")
    page.click("dialog[open] button[type=submit]")
    page.see("dialog[open] .secret", "qk_")
    token = page.texts("dialog[open] .secret")[0]
    assert office.lake.access.tokens.verify(token) == "ann"
    assert office.lake.access.roles()["reader"] == ["ann", "rea"]
    page.click("dialog[open] .copy")
    page.see("dialog[open] [role=status]", "Copied.")
    assert page.run("navigator.clipboard.readText()") == token
    page.click("dialog[open] .primary", "I have it")
    page.gone("dialog")
    page.see(".list th", "ann")
    kept = "document.documentElement.outerHTML + JSON.stringify(localStorage) + JSON.stringify(sessionStorage) + location.href + document.cookie + JSON.stringify(history.state)"
    history = json.dumps(page.browser.call("Page.getNavigationHistory"))
    assert token not in page.run(kept) and token.rpartition("_")[2] not in history
    page.go("access?tab=tokens")
    page.see("[aria-label=Tokens] tr", "ann")
    assert token not in page.run("document.documentElement.outerHTML")
    answer = client(office.url, token).get("/api/v1/lake")
    assert answer.json()["principal"] == "ann"

    # the token ends with its confirmation, and the user with the next
    mine = f"button[aria-label='Revoke the token {token.split('_')[1]} of ann']"
    confirm(page, mine, f"Programs that use the token {token.split('_')[1]} are refused")
    page.gone(mine)
    assert client(office.url, token).get("/api/v1/lake").status_code == 401
    page.go("access")
    confirm(page, "button[aria-label='Disable ann']", "ann may do nothing any more")
    page.see("button[aria-label='Enable ann']")
    assert not office.lake.access.is_enabled("ann")
    confirm(page, "button[aria-label='Enable ann']", "may do again")
    page.see("button[aria-label='Disable ann']")
    page.click("button[aria-label='New token of ann']")
    page.see("dialog[open] .happens", "Whoever has the token comes in as ann for 90 days")
    page.click("dialog[open] button[type=submit]")
    page.see("dialog[open] .secret", "qk_")
    second = page.texts("dialog[open] .secret")[0]
    page.press("Escape")
    page.gone("dialog")
    assert office.lake.access.tokens.verify(second) == "ann" and second not in page.run(kept)
    page.see(".list tr", "ann enabledreader1")  # the list is read again when the dialog closes
    confirm(page, "button[aria-label='Drop ann']", "ann is removed with its tokens (1), roles and grants")
    page.gone("button[aria-label='Drop ann']")
    assert "ann" not in [user.name for user in office.lake.access.users()]
    assert client(office.url, second).get("/api/v1/lake").status_code == 401


def test_roles_grants_filters_and_masks_are_made_and_taken_away_by_forms(
    page: Page, office: Office, tmp_path: Path
) -> None:
    access = office.lake.access
    access.create_user("bob")
    token = access.tokens.create("bob")
    office.clients["bob"] = client(office.url, token)
    page.enter(office.tokens["root"], "access?tab=roles")
    page.click(".new")
    page.fill("dialog[open] input[name=name]", "analyst")
    page.see("dialog[open] .happens", "There will be a role analyst without members.")
    page.click("dialog[open] button[type=submit]")
    page.click("button[aria-label='Give the role analyst']")
    pick(page, "dialog[open] select[name=grantee]", "bob")
    page.see("dialog[open] .happens", "bob may do what the role analyst allows")
    page.click("dialog[open] button[type=submit]")
    page.see("[aria-label=Roles] .chip", "bob")
    assert access.roles()["analyst"] == ["bob"]

    page.go("access?tab=grants")
    page.click(".new")
    pick(page, "dialog[open] select[name=grantee]", "analyst")
    pick(page, "dialog[open] select[name=object]", "main.orders")
    page.see("dialog[open] .boxes", "email")
    page.see("dialog[open] .happens", "analyst may SELECT on main.orders")
    picture(page, "grant", tmp_path)
    page.click("dialog[open] button[type=submit]")
    page.see("[aria-label=Grants] tr", "main.orders")
    assert [row["id"] for row in office.rows("bob", "FROM orders ORDER BY id")] == [1, 2, 3]
    page.click(".new")
    pick(page, "dialog[open] select[name=grantee]", "bob")
    pick(page, "dialog[open] select[name=object]", f'odd."{HOSTILE.replace(chr(34), chr(34) * 2)}"')
    page.click("dialog[open] input[value='a.b']")
    page.see("dialog[open] .happens", "bob may SELECT its column a.b on odd.")
    page.click("dialog[open] button[type=submit]")
    page.see("[aria-label=Grants] tr", f"odd.{HOSTILE} (a.b)")
    grants = {(each.grant.grantee, each.object, each.column) for each in access.named_grants()}
    assert grants == {("analyst", "main.orders", None), ("bob", f"odd.{HOSTILE}", "a.b")}

    page.go("access?tab=rules")
    page.see(".empty", "There are no row filters and masks.")
    page.click(".new")
    pick(page, "dialog[open] select[name=table]", "main.orders")
    page.fill("dialog[open] input[name=name]", "europe")
    pick(page, "dialog[open] select[name=to]", "analyst")
    page.fill("dialog[open] textarea", "nothing = 1")
    page.click("dialog[open] button[type=submit]")
    page.see("dialog[open] .failure", "nothing")
    page.fill("dialog[open] textarea", "region = 'EU'")
    page.see("dialog[open] .happens", "members of analyst will see the rows where region = 'EU'")
    page.click("dialog[open] button[type=submit]")
    page.see("[aria-label='Row filters and masks'] tr", "europe")
    assert [row["id"] for row in office.rows("bob", "FROM orders ORDER BY id")] == [1, 3]
    page.click(".new")
    page.click("dialog[open] input[value=mask]")
    pick(page, "dialog[open] select[name=table]", "main.orders")
    page.see("dialog[open] option", "email")
    pick(page, "dialog[open] select[name=column]", "email")
    page.fill("dialog[open] textarea", "'…@' || split_part(email, '@', 2)")
    page.see("dialog[open] .happens", "In place of email of main.orders, everybody will see")
    page.click("dialog[open] button[type=submit]")
    page.see("[aria-label='Row filters and masks'] tr", "mask of email")
    assert office.rows("bob", "SELECT DISTINCT email FROM orders") == [{"email": "…@x.org"}]
    picture(page, "rules", tmp_path)
    confirm(page, "button[aria-label='Drop the mask of email of main.orders']", "will see email as it is")
    page.gone("button[aria-label='Drop the mask of email of main.orders']")
    confirm(page, "button[aria-label='Drop the filter europe of main.orders']", "The filter europe of main.orders is")
    page.see(".empty", "There are no row filters and masks.")
    assert len(office.rows("bob", "FROM orders")) == 3

    page.go("access?tab=grants")
    confirm(page, "button[aria-label='Revoke SELECT on main.orders from analyst']", "analyst may not SELECT")
    page.gone("button[aria-label='Revoke SELECT on main.orders from analyst']")
    assert office.clients["bob"].post("/api/v1/sql", json={"sql": "FROM orders"}).status_code in (403, 404)
    page.go("access?tab=roles")
    confirm(page, "button[aria-label='Take analyst from bob']", "bob loses what the role analyst allows")
    page.gone("button[aria-label='Take analyst from bob']")
    confirm(page, "button[aria-label='Drop analyst']", "The role analyst is removed")
    page.gone("button[aria-label='Drop analyst']")
    assert "analyst" not in access.roles()
    access.drop_user("bob")
    page.browser.events.clear()  # the browser notes the answer 400 as an error


def test_a_list_is_searched_and_comes_in_pages(page: Page, office: Office, tmp_path: Path) -> None:
    names = [f"user{number:03}" for number in range(120)]
    for name in names:
        office.lake.access.create_user(name)
    try:
        page.enter(office.tokens["root"], "access")
        page.see("[aria-label=Users] tr", "user000")
        page.click(".more-entries")
        page.see("[aria-label=Users] tr", "wil")
        assert [row[0].split()[0] for row in shown(page, "Users")] == sorted([*names, "rea", "root", "wil"])
        page.fill("input[type=search]", "USER07")
        page.wait("document.querySelectorAll('[aria-label=Users] tbody tr').length === 10")
        assert "search=USER07" in page.run("location.hash")
        page.fill("input[type=search]", HOSTILE)
        page.see(".empty", f"Nothing matches “{HOSTILE}”.")
    finally:
        for name in names:
            office.lake.access.drop_user(name)
    page.go("access")
    page.see("[aria-label=Users] tr", "wil")
    picture(page, "access", tmp_path)


def test_a_user_is_made_by_keys_alone(page: Page, office: Office) -> None:
    page.enter(office.tokens["root"], "access")
    page.see(".new")
    page.run("document.querySelector('#tab-users').focus()")
    page.press("ArrowRight")
    page.see("[aria-label=Roles]")
    page.press("ArrowLeft")
    page.see("[aria-label=Users]")
    for _ in range(6):
        if page.run("document.activeElement.classList.contains('new')"):
            break
        page.press("Tab")
    type_enter(page)
    page.see("dialog[open] input[name=name]")
    for _ in range(6):
        if page.run("document.activeElement.name === 'name'"):
            break
        page.press("Tab")
    page.browser.call("Input.insertText", text="carl")
    type_enter(page)
    page.see("dialog[open] .secret", "qk_")
    page.press("Escape")
    page.gone("dialog")
    assert [user.name for user in office.lake.access.users()] == ["carl", "rea", "root", "wil"]
    office.lake.access.drop_user("carl")


# -- the audit log -----------------------------------------------------------------------------------------------------


def test_the_audit_log_is_filtered_and_leads_to_snapshots(page: Page, office: Office, tmp_path: Path) -> None:
    office.rows("rea", "SELECT id FROM orders")
    assert office.clients["wil"].post("/api/v1/tables/orders/rows", json=[{"id": 4}]).status_code == 201
    assert office.clients["rea"].post("/api/v1/sql", json={"sql": "DELETE FROM orders"}).status_code == 403
    page.enter(office.tokens["root"], "audit")
    page.see("[aria-label=Records] tr", "not_permitted")
    times = page.run("[...document.querySelectorAll('[aria-label=Records] time')].map(each => each.title)")
    assert times == sorted(times, reverse=True)
    picture(page, "audit", tmp_path)
    page.fill("input[name=principal]", "wil")
    page.press("Enter")
    page.click("button.show")
    page.wait("document.querySelectorAll('[aria-label=Records] tbody tr').length > 0 && [...document.querySelectorAll('[aria-label=Records] tbody th')].every(each => each.textContent === 'wil')")  # fmt: skip
    changed = next(row for row in shown(page, "Records") if row[4] == "main.orders")
    snapshot = int(changed[5].removeprefix("#"))
    assert office.lake.table("orders").history().to_pylist()[0]["snapshot_id"] == snapshot
    page.click("[aria-label=Records] a", f"#{snapshot}")
    page.see(".snapshots li.on .id", f"#{snapshot}")
    page.go("audit?outcome=failed")
    page.wait("[...document.querySelectorAll('[aria-label=Records] .stand')].length > 0 && [...document.querySelectorAll('[aria-label=Records] .stand')].every(each => each.textContent !== 'ok')")  # fmt: skip
    page.go("audit?table=main.orders")
    page.see("[aria-label=Records] a", "main.orders")
    page.go(f"audit?table={HOSTILE}".replace(" ", "%20"))
    page.see(".empty", "No record matches.")
    page.go("audit?since=2100-01-01T00:00")
    page.see(".empty", "No record matches.")


def test_pages_of_the_audit_log_have_every_record_once(office: Office) -> None:
    for number in range(30):
        office.rows("rea", f"SELECT id + {number} FROM orders")
    http = office.clients["root"]
    found, cursor = [], None
    while True:
        given = {"principal": "rea", "limit": 7} | ({} if cursor is None else {"cursor": cursor})
        answer = http.get("/api/v1/audit", params=given).json()
        found += answer["records"]
        cursor = answer["next"]
        if cursor is None:
            break
    rows = office.lake.sql(
        "SELECT statement_hash FROM quacklake_audit.log WHERE principal = 'rea' ORDER BY time DESC, rowid DESC"
    ).fetchall()
    assert [record["statement_hash"] for record in found] == [row[0] for row in rows] and len(found) >= 30
    assert http.get("/api/v1/audit", params={"cursor": "WzEsMl0="}).status_code == 400
    assert http.get("/api/v1/audit", params={"since": "soon"}).status_code == 400


# -- all of them -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("user", ["rea", "wil"])
def test_others_see_neither_the_pages_nor_what_is_behind_them(page: Page, office: Office, user: str) -> None:
    page.enter(office.tokens[user])
    page.see(".role")
    labels = page.texts("nav[aria-label=Pages] a")
    assert "Tables" in labels and not {"Access", "Audit", "Maintenance", "Backups", "Tenants"} & set(labels)
    for route in PAGES:
        page.go(route)
        page.see(".empty", "There is no such page.")
    assert page.hosts() == {office.url.split("/")[2]}
    asked = [url for url in page.browser.requests() if re.search(r"/api/v1/(access|audit|options|backups)", url)]
    assert asked == []
    page.browser.events.clear()  # the overview has asked for the care, which is not for them


def test_the_pages_are_clean_and_fit_a_telephone(page: Page, office: Office) -> None:
    page.enter(office.tokens["root"])
    signs = {f"access?tab={tab}": f"[aria-labelledby=tab-{tab}] .list" for tab in ("users", "roles", "tokens")}
    for route, sign in {**signs, "access?tab=grants": ".empty", "audit": "[aria-label=Records] tr"}.items():
        page.go(route)
        page.see(sign)
        clean(page)
        page.browser.size(360, 740)
        page.see(sign)
        assert page.run("document.documentElement.scrollWidth") <= 360, route
        page.browser.size(1280, 800)
    for tab in ("users", "roles", "grants", "rules"):
        page.go(f"access?tab={tab}")
        page.see(f"[aria-labelledby=tab-{tab}]")
        page.click(".new")
        page.see("dialog[open] .fields")
        clean(page)
        page.browser.size(360, 740)
        assert page.run("document.querySelector('dialog').getBoundingClientRect().right") <= 360, tab
        page.browser.size(1280, 800)
        page.press("Escape")
        page.gone("dialog")


def test_two_tenants_in_two_tabs_never_see_each_other(browser: Browser, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/lakes.db"
    lakes: dict[str, Lake] = {}
    with quacklake.tenants(url, data_path=tmp_path / "data", create=True) as tenants:
        tenants.create_many(["xenon", "argon"])
    for name in ("xenon", "argon"):
        lakes[name] = quacklake.connect(url, catalog=name, access_audit=True)
        lakes[name].sql(f"CREATE TABLE {name}_rows AS SELECT '{name} row' AS text")
        lakes[name].access.create_user(f"{name}_admin", ["admin"])
    tokens = {name: lake.access.tokens.create(f"{name}_admin") for name, lake in lakes.items()}
    settings = ServiceSettings(port=0, prefix="/deep/lake", poll_seconds=0.05)
    app = create_app(AccessGate.of_tenants(OpenLakes(lakes)), settings)
    with BackgroundService(app, settings) as address:
        first = browser.new_tab()
        second = browser.new_tab()
        before = browser.show(first)
        for tab, name in ((first, "xenon"), (second, "argon")):
            browser.show(tab)
            browser.size(1280, 800)
            page = Page(browser, address)
            page.browser.call("Page.navigate", url=f"{address}/health/live")
            browser.until("location.pathname.endsWith('/live')")
            page.run(
                f"sessionStorage.setItem('quacklake.token', {json.dumps(tokens[name])}),"
                f" sessionStorage.setItem('quacklake.lake', '{name}')"
            )
            page.browser.call("Page.navigate", url=f"{address}/ui/")
            page.see(".who .name", name)
        for tab, name, other in ((first, "xenon", "argon"), (second, "argon", "xenon")):
            browser.show(tab)
            page = Page(browser, address)
            page.see(".live.live")
            lakes[other].sql(f"INSERT INTO {other}_rows VALUES ('{other} again')")  # an event for the other tab only
            mine = lakes[name].current_snapshot()
            lakes[name].sql(f"CREATE TABLE {name}_{mine} (x BIGINT)")
            page.wait(f"document.querySelector('.live .dim').textContent === '#{mine + 1}'")
            for route, sign in (
                ("overview", ".figure"),
                ("tables", ".tree li"),
                ("snapshots", ".snapshots li"),
                ("access", ".list"),
                ("access?tab=tokens", "[aria-label=Tokens]"),
                ("audit", ".empty"),
                (f"tables/main.{name}_rows?tab=preview", ".grid .line"),
            ):
                page.go(route)
                page.see(sign)
                assert other not in page.run("document.documentElement.outerHTML"), (name, route)
            page.run(f"sessionStorage.setItem('quacklake.lake', '{other}')")
            page.browser.call("Page.reload")
            page.see(".signin h1")
            assert f"{other} row" not in page.run("document.documentElement.outerHTML")
            assert f"{other}_rows" not in page.run("document.documentElement.outerHTML")
        for tab in (first, second):
            browser.show(tab)
            browser.call("Page.navigate", url="about:blank")
        browser.show(before)
        browser.events.clear()  # the browser notes the answers 401 as errors
