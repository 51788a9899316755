"""The files of the dashboard: how they are served, and that they are those of their sources."""

from __future__ import annotations

import gzip
import json
import re
from pathlib import Path

import httpx
import pytest

from quacklake.service.dashboard import FOLDER, web_files
from services import web
from tests.service.serving import Served, is_problem, sample_lake, served


def test_the_files_were_built_from_their_sources() -> None:
    assert json.loads(web.NOTE.read_text()) == web.note(), "run `make web`, and commit what it makes"


def test_the_first_load_is_small_and_the_editor_comes_later() -> None:
    files = web_files()
    index = files["index.html"].content.decode()
    first = [name for name in files if name.rpartition("/")[2] in index]
    assert sum(len(files[name].packed) for name in ["index.html", *first]) < 60_000
    editor = next(name for name in files if name.startswith("assets/editor-"))
    assert editor not in first and len(files[editor].packed) < 140_000
    assert sum(len(file.content) for file in files.values()) < 700_000


def test_the_page_names_no_other_host_and_has_nothing_inline() -> None:
    index = web_files()["index.html"].content.decode()
    assert re.findall(r"(?:src|href)=\"(?!\./)", index) == []
    assert "<style" not in index and re.findall(r"<script(?![^>]*src=)", index) == []


def test_files_with_a_hash_are_kept_and_the_page_is_asked_for_again(service: Served) -> None:
    page = service.anonymous.get("/ui/")
    assert page.status_code == 200 and page.headers["content-type"] == "text/html; charset=utf-8"
    assert page.headers["cache-control"] == "no-cache"
    policy = page.headers["content-security-policy"]
    assert (
        "script-src 'self'" in policy
        and "unsafe" not in policy
        and page.headers.get_list("content-security-policy") == [policy]
    )
    again = service.anonymous.get("/ui/", headers={"If-None-Match": page.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")
    for name in re.findall(r"\./(assets/[^\"]+)", page.text):
        kept = service.anonymous.get(f"/ui/{name}")
        assert kept.status_code == 200 and kept.headers["cache-control"] == "public, max-age=31536000, immutable"
        assert kept.content == (FOLDER / name).read_bytes()


def test_files_are_packed_for_those_who_take_it(service: Served) -> None:
    name = next(name for name in web_files() if name.endswith(".js"))
    with service.anonymous.stream("GET", f"/ui/{name}", headers={"Accept-Encoding": "gzip"}) as answer:
        packed = b"".join(answer.iter_raw())
        assert answer.headers["content-encoding"] == "gzip" and answer.headers["vary"] == "Accept-Encoding"
    assert gzip.decompress(packed) == (FOLDER / name).read_bytes() and len(packed) < len(gzip.decompress(packed)) / 2
    plain = service.anonymous.get(f"/ui/{name}", headers={"Accept-Encoding": "identity"})
    assert "content-encoding" not in plain.headers and plain.content == (FOLDER / name).read_bytes()


@pytest.mark.parametrize("prefix", ["", "/lake", "/a/b"])
def test_every_other_address_leads_to_the_page(tmp_path: Path, prefix: str) -> None:
    with served(sample_lake(tmp_path), prefix=prefix) as found:
        page = httpx.URL(found.url + "/ui/")
        host = str(page).removesuffix(f"{prefix}/ui/")
        ways = ["/", "/ui", "/ui/tables", "/ui/a/b/c", "/ui/index", *([""] if prefix else [])]
        for path in (prefix + way for way in ways):
            answer = httpx.get(host + path)
            assert answer.status_code == 307
            assert not answer.headers["location"].startswith(("/", "http")), "a proxy may have taken a prefix away"
            assert httpx.URL(host + path).join(answer.headers["location"]) == page


def test_nothing_outside_of_the_files_is_served(service: Served) -> None:
    for path in ("/ui/assets/nothing.js", "/ui/assets/..%2f..%2fapp.py", "/ui/assets/"):
        is_problem(service.anonymous.get(path), 404, "not_found.route")
    for path in (
        "/ui/..%2fapp.py",
        "/ui/%2e%2e/app.py",
        "/ui/assets/%2e%2e/%2e%2e/app.py",
        "/ui//etc/passwd",
        "/ui/%2fetc%2fpasswd",
        "/ui/index.html%00",
    ):
        answer = service.anonymous.get(path)
        assert answer.status_code in (307, 404) and b"import" not in answer.content
    is_problem(service.anonymous.post("/ui/"), 405, "input.method")
    is_problem(service.anonymous.get("/api/v1/nothing"), 404, "not_found.route")
    is_problem(service.anonymous.get("/nothing"), 404, "not_found.route")


def test_the_dashboard_can_be_left_out_and_is_no_part_of_the_api(tmp_path: Path, service: Served) -> None:
    assert not [path for path in service.reader.get("/api/v1/openapi.json").json()["paths"] if "/ui" in path]
    with served(sample_lake(tmp_path), web=False) as found:
        is_problem(found.anonymous.get("/ui/"), 404, "not_found.route")
        is_problem(found.anonymous.get("/"), 404, "not_found.route")
