"""The pages of maintenance and of backups in a real browser, and the routes behind them."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import quacklake
from quacklake.core.maintenance.backup.checking import check_backup
from quacklake.core.operations.stores import open_backups
from quacklake.lake import Lake
from quacklake.service.access_gate import AccessGate
from quacklake.service.app import create_app
from quacklake.service.serving import BackgroundService
from quacklake.service.settings import ServiceSettings
from quacklake_demo.shop import demo_lake
from services.browser import Browser
from tests.service.pages import Page, clean, picture
from tests.service.serving import OpenLakes, Served, client, is_problem, sample_lake, served


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("place")


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory, place: Path) -> Iterator[Served]:
    """The lake of the demo, with a place for backups."""
    with served(demo_lake(tmp_path_factory.mktemp("shop")), backups=str(place)) as found:
        yield found


@pytest.fixture
def page(browser: Browser, shop: Served) -> Iterator[Page]:
    browser.size(1280, 800)
    opened = Page(browser, shop.url)
    yield opened
    assert browser.problems() == []


def done(http: Any, job: dict[str, Any]) -> dict[str, Any]:
    """Return a job that has ended."""
    until = time.monotonic() + 60
    while True:
        found: dict[str, Any] = http.get(f"/api/v1/jobs/{job['id']}").json()
        if found["state"] in ("done", "failed"):
            return found
        assert time.monotonic() < until


def narrow(page: Page, sign: str) -> None:
    page.browser.size(360, 740)
    page.see(sign)
    wide = "[...document.querySelectorAll('main *')].filter(each => each.getBoundingClientRect().right > 361 && !each.closest('.scroll')).map(each => each.className || each.tagName).slice(0, 9)"
    assert page.run("document.documentElement.scrollWidth") <= 360, page.run(wide)
    page.browser.size(1280, 800)


def look(page: Page, button: str, said: str) -> None:
    """See what would happen, and do it."""
    page.click(button)
    page.see("dialog[open]", said)
    page.see("dialog[open] h3", "This would happen")
    page.click("dialog[open] .primary")
    page.see("dialog[open] .good", "Done")
    page.click("dialog[open] .buttons button", "Close")
    page.gone("dialog")


# -- maintenance -------------------------------------------------------------------------------------------------------


def test_each_kind_of_maintenance_is_looked_at_and_done(page: Page, shop: Served, tmp_path: Path) -> None:
    lake = shop.lake
    rows = lake.sql("SELECT count(*), sum(quantity) FROM orders").fetchone()
    page.enter("admin-token", "maintenance")
    page.see(".due li", "Rewrite data files")
    page.see("[aria-label='Options of the lake'] tr", "expire_older_than")
    values = dict(page.run("[...document.querySelectorAll('[aria-label=\"Options of the lake\"] tbody tr')].map(row => [row.children[0].innerText, row.children[1].innerText.trim()])"))  # fmt: skip
    assert values["data_inlining_row_limit"].split()[0] == str(lake.options.get("data_inlining_row_limit"))
    assert values["expire_older_than"] == "not set"
    clean(page)
    narrow(page, ".works")
    picture(page, "maintenance", tmp_path)
    look(page, ".works .verify", "every rule of the format")
    look(page, "button.rewrite:not(:disabled)", "Readers see the same rows")
    look(page, "button.flush:not(:disabled)", "written into files")
    page.see("button.flush:disabled")
    page.fill("input[name=keep]", "3")
    page.click(".works .expire")
    page.see("dialog[open]", "except the last 3 and those with a name")
    page.see("dialog[open] h3", "This would happen")
    page.press("Escape")
    page.gone("dialog")
    before = lake.snapshots().num_rows
    page.fill("input[name=expire-age]", "1")
    page.choose("select[name=expire-age-unit]", "hours")
    look(page, ".works .expire", "Snapshots older than 1 hour go")
    assert lake.snapshots().num_rows == before, "all are younger"
    look(page, ".works .cleanup", "no snapshot has needed for 2 days")
    look(page, ".works .orphans", "written more than 7 days ago")
    assert lake.sql("SELECT count(*), sum(quantity) FROM orders").fetchone() == rows
    assert lake.verify().ok


def test_an_age_out_of_bounds_is_not_sent(page: Page, shop: Served) -> None:
    page.enter("admin-token", "maintenance")
    page.fill("input[name=orphans-age]", "0")
    page.click(".works .orphans")
    assert page.run("document.querySelector('input[name=orphans-age]').validity.rangeUnderflow")
    assert page.run("document.querySelector('dialog') === null")
    refused = shop.admin.post("/api/v1/jobs", json={"kind": "orphans", "arguments": {"cleanup_all": True}})
    is_problem(refused, 400, "input")


# -- backups -----------------------------------------------------------------------------------------------------------


def test_a_backup_is_made_verified_and_restored(page: Page, shop: Served, place: Path, tmp_path: Path) -> None:
    page.enter("admin-token", "backups")
    page.see(".empty", "There are no backups yet.")
    look(page, ".make", "The catalog is written down as it is now")
    shop.lake.sql("INSERT INTO products (id, name) VALUES (99, 'last')")
    look(page, ".make", "The catalog is written down as it is now")
    page.wait("document.querySelectorAll('[aria-label=Backups] tbody tr').length === 2")
    newest = quacklake.backups(place)[-1]
    assert newest.snapshot == shop.lake.current_snapshot()
    clean(page)
    narrow(page, "[aria-label=Backups]")
    picture(page, "backups", tmp_path)
    button = f"button[aria-label='Verify the backup of snapshot {newest.snapshot}']"
    page.click(button)
    page.see("dialog[open] h3", "This would happen")
    page.click("dialog[open] .primary")
    page.see("dialog[open] .good", "Done")
    page.see("dialog[open] .report", "all of it is there, and as it was")
    page.press("Escape")
    page.gone("dialog")
    page.click(f"button[aria-label='Restore the backup of snapshot {newest.snapshot}']")
    page.see("dialog[open] .secret", f"--backup {newest.id}")
    assert str(place) not in page.run("document.documentElement.outerHTML"), "the page names no folder of the service"
    restored = quacklake.restore_backup(place, f"sqlite:///{tmp_path}/r.db", tmp_path / "r", backup=newest.id)
    assert restored.sql("SELECT name FROM products WHERE id = 99").fetchall() == [("last",)]
    restored.close()


def test_a_damaged_backup_is_told_of_and_not_called_whole(shop: Served, place: Path) -> None:
    made = done(shop.admin, shop.admin.post("/api/v1/backups").json())
    assert made["state"] == "done" and str(place) not in str(made)
    id_ = made["result"]["id"]
    whole = done(shop.admin, shop.admin.post(f"/api/v1/backups/{id_}/verify").json())["result"]
    assert (whole["ok"], whole["damaged"]) == (True, 0) and whole["files"] == made["result"]["files"]
    file = next(path for path in (place / "data").rglob("*.parquet") if path.stat().st_size > 200)
    content = file.read_bytes()
    try:
        file.write_bytes(content[:100] + bytes([content[100] ^ 1]) + content[101:])
        found = done(shop.admin, shop.admin.post(f"/api/v1/backups/{id_}/verify").json())["result"]
        assert (found["ok"], found["damaged"]) == (False, 1) and found["verdict"].startswith("damaged")
        file.unlink()
        found = done(shop.admin, shop.admin.post(f"/api/v1/backups/{id_}/verify").json())["result"]
        assert (found["ok"], found["damaged"]) == (False, 1)
    finally:
        file.write_bytes(content)
    image = next((place / "backups" / id_).glob("*.arrow"))
    kept = image.read_bytes()
    try:
        image.write_bytes(kept[:-1] + bytes([kept[-1] ^ 1]))
        store = open_backups(str(place), shop.lake.handle.context.config)
        info = next(each for each in quacklake.backups(place) if each.id == id_)
        assert not check_backup(store, info).ok
    finally:
        image.write_bytes(kept)


@pytest.mark.parametrize("id_", ["nothing", "..", "%2e%2e%2fdata", "..%2F..%2Fetc", "*"])
def test_a_backup_is_named_by_its_id_and_by_nothing_else(shop: Served, id_: str) -> None:
    answer = shop.admin.post(f"/api/v1/backups/{id_}/verify")
    assert answer.status_code in (404, 405) and "place" not in answer.text
    assert shop.admin.post("/api/v1/backups", json={"to": "/etc"}).status_code in (202, 400)
    for kind in ("backup", "verify_backup"):
        is_problem(shop.admin.post("/api/v1/jobs", json={"kind": kind, "arguments": {"to": "/tmp"}}), 400, "input")
    for other in (shop.reader, shop.writer):
        assert other.get("/api/v1/backups").status_code == 403 == other.post("/api/v1/backups").status_code


def test_a_service_without_a_place_says_how_to_have_one(browser: Browser, tmp_path: Path) -> None:
    with served(sample_lake(tmp_path)) as found:
        page = Page(browser, found.url)
        page.enter("admin-token", "backups")
        page.see(".empty", "quacklake serve --backups PLACE")
        assert page.run("document.querySelector('.make') === null") and browser.problems() == []
        is_problem(found.admin.post("/api/v1/backups"), 400, "input")
        browser.call("Page.navigate", url="about:blank")


def test_a_place_among_the_files_of_the_lake_is_refused_without_its_name(tmp_path: Path) -> None:
    with served(sample_lake(tmp_path), backups=str(tmp_path / "data" / "inside")) as found:
        job = done(found.admin, found.admin.post("/api/v1/backups").json())
    assert job["state"] == "failed" and job["error"]["code"] == "input" and str(tmp_path) not in str(job)


def test_tenants_see_their_own_backups_only(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/lakes.db"
    lakes: dict[str, Lake] = {}
    for name in ("xenon", "argon"):
        lakes[name] = quacklake.connect(url, tmp_path / "data", catalog=name, create=True)
        lakes[name].create_table("t", [{"who": name}])
        lakes[name].access.create_user("root", ["admin"])
    tokens = {name: lake.access.tokens.create("root") for name, lake in lakes.items()}
    settings = ServiceSettings(port=0, backups=str(tmp_path / "place"))
    app = create_app(AccessGate.of_tenants(OpenLakes(lakes)), settings)
    with BackgroundService(app, settings) as address:
        http = {name: client(address, token) for name, token in tokens.items()}
        for name in lakes:
            http[name].params = {"lake": name}
            assert done(http[name], http[name].post("/api/v1/backups").json())["state"] == "done"
        listed = {name: http[name].get("/api/v1/backups").json()["backups"] for name in lakes}
        assert [len(each) for each in listed.values()] == [1, 1] and listed["xenon"] != listed["argon"]
        id_ = listed["xenon"][0]["id"]
        assert http["argon"].post(f"/api/v1/backups/{id_}/verify").status_code == 404
        assert http["xenon"].post(f"/api/v1/backups/{id_}/verify").status_code == 202
        assert sorted(path.name for path in (tmp_path / "place").iterdir()) == ["argon", "xenon"]
