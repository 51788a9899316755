"""Parts of the service that other packages bring: routes and pages of the dashboard."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import quacklake
from quacklake.errors import ConfigError
from quacklake.service.app import create_app
from quacklake.service.identity import Role, TokenGate
from quacklake.service.plugins import Page, ServicePlugin
from quacklake.service.serving import BackgroundService
from quacklake.service.settings import ServiceSettings
from services.browser import Browser
from tests.packages import install_package
from tests.service.pages import Page as BrowserPage
from tests.service.serving import TOKENS, client, is_problem, sample_lake

SERVICE = '''
from pathlib import Path

from fastapi import APIRouter, Request

from quacklake.service.plugins import Page, ServicePlugin
from quacklake.service.state import service_of

router = APIRouter(tags=["herd"])


@router.get("/herd/{name:part}", summary="Count animals", operation_id="count_herd")
async def count_herd(request: Request, name: str) -> dict[str, object]:
    """Return how many there are."""
    identity = await service_of(request).enter(request)
    return {"name": name, "tables": len(identity.lake.tables()), "role": identity.role.name}


PLUGIN = ServicePlugin(
    name="herd",
    routers=(router,),
    prefix="/api",
    pages=(
        Page(id="herd", title="Herd", module="page.js", style="looks/page.css", icon="M4 4h16v16H4z"),
        Page(id="sheep", title="Sheep", module="page.js", table="main.sheep"),
    ),
    folder=Path(__file__).with_name("web"),
)
'''
MODULE = """
export function show(element, session, route) {
  element.innerHTML = "<h1>Herd</h1><p class='herd'></p>";
  element.querySelector("p").textContent = `${session.facts.role} at ${route.path.join("/")} ${route.query.at ?? ""}`;
}
export function hide(element) {
  document.documentElement.dataset.hidden = element.textContent;
}
"""


@pytest.fixture
def neighbour(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A package with a part of the service, installed beside Quacklake."""
    files = {
        "service.py": SERVICE,
        "web/page.js": MODULE,
        "web/looks/page.css": ".herd { color: rgb(1, 2, 3); }",
    }
    points = "[quacklake.services]\nherd = neighbour.service:PLUGIN\n"
    with install_package(tmp_path / "site", monkeypatch, "neighbour", files, points):
        yield tmp_path / "site"


@pytest.fixture
def url(neighbour: Path, tmp_path: Path) -> Iterator[str]:
    """A service with the part of the neighbour, under a prefix."""
    settings = ServiceSettings(port=0, prefix="/deep")
    with (
        sample_lake(tmp_path) as lake,
        BackgroundService(create_app(TokenGate(lake, TOKENS), settings), settings) as at,
    ):
        yield at


def test_routes_of_an_installed_package_are_part_of_the_service(url: str) -> None:
    with client(url, "reader-token") as http, client(url, None) as stranger:
        assert http.get("/api/herd/a%2Fb").json() == {"name": "a/b", "tables": 1, "role": "READER"}
        is_problem(stranger.get("/api/herd/a"), 401, "unauthenticated")
        operation = http.get("/api/v1/openapi.json").json()["paths"]["/deep/api/herd/{name}"]["get"]
        assert (operation["operationId"], operation["security"]) == ("count_herd", [{"token": []}])


def test_the_dashboard_is_told_of_pages_and_their_files_are_beside_its_own(url: str) -> None:
    with client(url, "reader-token") as http:
        told = http.get("/api/v1/lake").json()["pages"]
        assert [page for page in told if page["module"].startswith("plugins/herd/")] == [
            {"id": "herd", "title": "Herd", "module": "plugins/herd/page.js", "style": "plugins/herd/looks/page.css",
             "icon": "M4 4h16v16H4z", "table": None},
            {"id": "sheep", "title": "Sheep", "module": "plugins/herd/page.js", "style": None, "icon": "",
             "table": "main.sheep"},
        ]  # fmt: skip
        module = http.get("/ui/plugins/herd/page.js")
        assert module.text == MODULE and module.headers["content-type"].startswith("text/javascript")
        assert "script-src 'self'" in module.headers["content-security-policy"]
        assert module.headers["cache-control"] == "no-cache"
        assert http.get("/ui/plugins/herd/looks/page.css").headers["content-type"].startswith("text/css")
        for path in ("herd/other.js", "herd/../../service.py", "herd/%2e%2e/service.py", "nobody/page.js", "herd", ""):
            assert http.get(f"/ui/plugins/{path}").status_code in (307, 404), path
        is_problem(http.get("/ui/plugins/herd/other.js"), 404, "not_found.route")


def test_a_page_of_a_package_is_shown_and_hidden(url: str, browser: Browser) -> None:
    browser.size(1280, 800)
    page = BrowserPage(browser, url)
    page.enter("writer-token", "herd")
    page.see(".herd", "writer at herd")
    assert page.run("getComputedStyle(document.querySelector('.herd')).color") == "rgb(1, 2, 3)"
    assert page.texts("nav[aria-label=Pages] a[aria-current=page]") == ["Herd"]
    assert "Sheep" not in page.texts("nav[aria-label=Pages] a"), "there is no such table"
    page.go("herd/dolly?at=3")
    page.see(".herd", "writer at herd/dolly 3")
    page.go("tables")
    page.wait("document.documentElement.dataset.hidden?.includes('dolly')")
    assert browser.problems() == []


def test_a_service_without_packages_has_only_its_own_parts(tmp_path: Path) -> None:
    with sample_lake(tmp_path) as lake:
        app = create_app(TokenGate(lake, TOKENS), ServiceSettings(port=0), plugins=())
        assert app.state.facts == {"pages": []}
        with BackgroundService(app) as url, client(url, "admin-token") as http:
            assert http.get("/api/v1/lake").json()["pages"] == []
            description = http.get("/api/v1/openapi.json")
            others = {path for path in description.json()["paths"] if not path.startswith("/api/v1/")}
            assert others == {"/health/live", "/health/ready", "/metrics"}
            assert "ekko" not in description.text.lower()
            is_problem(http.get("/api/transactions/"), 404, "not_found.route")


@pytest.mark.parametrize(
    ("module", "told"),
    [
        ("PLUGIN = 3", "it must be a ServicePlugin, not 3"),
        ("import nowhere_at_all", "No module named 'nowhere_at_all'"),
        ("from quacklake.service.plugins import ServicePlugin\nPLUGIN = ServicePlugin(name='../x')", "needs a name of"),
    ],
)
def test_a_broken_package_is_named(neighbour: Path, tmp_path: Path, module: str, told: str) -> None:
    (neighbour / "neighbour" / "service.py").write_text(module)
    with sample_lake(tmp_path) as lake, pytest.raises(ConfigError) as error:
        create_app(TokenGate(lake, {"a": Role.READER}))
    assert "cannot load 'herd' of the package neighbour: " in error.value.message and told in error.value.message
    assert error.value.hint is not None and "uninstall it" in error.value.hint


def test_a_plugin_that_cannot_work_is_refused_at_once(tmp_path: Path) -> None:
    (tmp_path / "page.js").touch()
    page = Page(id="herd", title="Herd", module="page.js", style="page.css")
    with pytest.raises(ConfigError, match=r"the page 'herd' of the plugin 'herd' has no file 'page\.css'"):
        ServicePlugin(name="herd", pages=(page,), folder=tmp_path)
    with pytest.raises(ConfigError, match=r"has no file 'page\.js'"):
        ServicePlugin(name="herd", pages=(page,))
    for prefix in ("api", "/api/", "/"):
        with pytest.raises(ConfigError, match="must be like '/api'"):
            ServicePlugin(name="herd", prefix=prefix)
    for name in ("", "Herd", "a b", "tables/x", "x" * 65):
        with pytest.raises(ConfigError, match="lower-case letters"):
            Page(id=name, title="Herd", module="page.js")


def test_the_tag_of_the_facts_is_another_one_when_pages_come(neighbour: Path, tmp_path: Path) -> None:
    """A browser that has the facts of a service without a package must not keep them once it is installed."""
    sample_lake(tmp_path).close()
    tags: list[str] = []
    for plugins, names in (((), set()), (None, {"herd", "sheep"})):
        lake = quacklake.connect(f"sqlite:///{tmp_path}/lake.db")
        app = create_app(TokenGate(lake, TOKENS), plugins=plugins)
        with BackgroundService(app) as url, client(url, "reader-token") as http:
            answer = http.get("/api/v1/lake", headers={"If-None-Match": ", ".join(tags)})
            assert answer.status_code == 200 and {page["id"] for page in answer.json()["pages"]} >= names
            tags.append(answer.headers["etag"])
    assert len(set(tags)) == 2
