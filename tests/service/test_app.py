"""The shell of every request: health, tokens, limits, problems, headers and figures."""

from __future__ import annotations

import gzip
import json
import socket
import threading
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest

from quacklake.errors import ConfigError
from quacklake.service.app import create_app
from quacklake.service.identity import Role, TokenGate
from quacklake.service.listening import check_place, roles_of
from quacklake.service.problems import status_of
from quacklake.service.settings import ServiceSettings
from tests.service.serving import Served, away, client, is_problem, sample_lake, served


def test_health_needs_no_token_and_tells_nothing_else(service: Served) -> None:
    assert service.anonymous.get("/health/live").json() == {"status": "live"}
    assert service.anonymous.get("/health/ready").json() == {"status": "ready"}


def test_a_service_is_not_ready_while_its_catalog_is_away_and_ready_again_after(
    tmp_path: Path, postgres_url: str
) -> None:
    with served(sample_lake(tmp_path, postgres_url)) as found:
        assert found.anonymous.get("/health/ready").json() == {"status": "ready"}
        with away(postgres_url):
            answer = found.anonymous.get("/health/ready")
            assert (answer.status_code, answer.json()["status"]) == (503, "unavailable")
            problem = is_problem(found.reader.post("/api/v1/sql", json={"sql": "FROM t"}), 503, answer.json()["code"])
            assert problem["transient"] and "postgres" not in problem["detail"]
            assert found.anonymous.get("/health/live").status_code == 200
        assert found.anonymous.get("/health/ready").json() == {"status": "ready"}
        assert found.rows("SELECT count(*) AS n FROM t") == [{"n": 90}]


@pytest.mark.parametrize(
    "header", [None, "", "Bearer", "Bearer wrong", "Basic cmVhZGVy", "reader-token", "Bearer reader-token x"]
)
def test_a_request_without_a_valid_token_is_refused_alike(service: Served, header: str | None) -> None:
    headers = {} if header is None else {"Authorization": header}
    answer = service.anonymous.post("/api/v1/sql", json={"sql": "SELECT 1"}, headers=headers)
    problem = is_problem(answer, 401, "unauthenticated")
    assert problem["detail"] == "the request has no valid token"
    assert answer.headers["www-authenticate"].startswith("Bearer")


def test_a_lake_that_a_principal_cannot_see_does_not_exist(service: Served) -> None:
    is_problem(service.reader.get("/api/v1/sql", params={"lake": "other"}), 404, "not_found")
    assert service.reader.get("/api/v1/sql", params={"lake": "lake"}).json() == {"statements": []}


def test_a_request_keeps_its_id_if_that_is_harmless(service: Served) -> None:
    kept = service.anonymous.get("/health/live", headers={"X-Request-Id": "abc-1.2_3"})
    assert kept.headers["x-request-id"] == "abc-1.2_3"
    for odd in ("a b", "x" * 65, "<script>"):
        assert service.anonymous.get("/health/live", headers={"X-Request-Id": odd}).headers["x-request-id"] != odd


def test_every_answer_closes_what_browsers_leave_open(service: Served) -> None:
    for answer in (
        service.anonymous.get("/health/live"),
        service.anonymous.get("/no"),
        service.reader.get("/api/v1/sql"),
    ):
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["content-security-policy"].startswith("default-src 'none'")
        assert answer.headers["cache-control"] == "no-store"
        assert "server" not in answer.headers
        assert "access-control-allow-origin" not in answer.headers


def test_only_named_origins_may_call_from_a_browser(tmp_path: Path) -> None:
    with served(sample_lake(tmp_path), cors_origins=("https://app.example",)) as found:
        good, bad = (
            found.anonymous.get("/health/live", headers={"Origin": origin})
            for origin in ("https://app.example", "https://evil.example")
        )
    assert good.headers["access-control-allow-origin"] == "https://app.example"
    assert "access-control-allow-origin" not in bad.headers
    with pytest.raises(ConfigError):
        ServiceSettings(cors_origins=("*",))


@pytest.mark.parametrize(
    ("method", "path", "status", "code"),
    [("GET", "/nowhere", 404, "not_found.route"), ("PUT", "/health/live", 405, "input.method")],
)
def test_what_does_not_exist_is_a_problem_too(service: Served, method: str, path: str, status: int, code: str) -> None:
    is_problem(service.reader.request(method, path), status, code)


@pytest.mark.parametrize(
    "body",
    [b"", b"{", b"[]", b"null", b'{"sql": 1}', b'{"sql": ""}', b'{"sql": "SELECT 1", "more": 1}', b"\xff\xfe",
     b'{"sql": "SELECT 1", "version": -1}', b'{"sql": "SELECT 1", "version": 99999999999999999999}'],
)  # fmt: skip
def test_a_body_that_is_not_understood_is_a_problem_of_the_client(service: Served, body: bytes) -> None:
    answer = service.reader.post("/api/v1/sql", content=body, headers={"Content-Type": "application/json"})
    assert 400 <= answer.status_code < 500
    assert answer.headers["content-type"] == "application/problem+json"


def test_a_giant_body_is_refused_before_it_is_read(tmp_path: Path) -> None:
    with served(sample_lake(tmp_path), max_body=10_000) as found:
        announced = found.reader.post("/api/v1/sql", content=b" " * 20_000)
        is_problem(announced, 413, "limit.result")

        def chunks() -> object:
            for _ in range(20):
                yield b" " * 1_000

        is_problem(found.reader.post("/api/v1/sql", content=chunks()), 413, "limit.result")
        # a client that announces much and sends little is answered, too
        address = urlsplit(found.url)
        with socket.create_connection((address.hostname, address.port), timeout=10) as raw:
            raw.sendall(
                b"POST /api/v1/sql HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer reader-token\r\nContent-Length: 99999999\r\n\r\n{"
            )
            assert raw.recv(1000).startswith(b"HTTP/1.1 413")
        assert found.rows("SELECT 1 AS x") == [{"x": 1}]


def test_a_body_that_does_not_come_is_given_up(tmp_path: Path) -> None:
    with served(sample_lake(tmp_path), body_seconds=0.2) as found:
        address = urlsplit(found.url)
        with socket.create_connection((address.hostname, address.port), timeout=10) as raw:
            raw.sendall(
                b"POST /api/v1/sql HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer reader-token\r\nContent-Length: 100\r\n\r\n{"
            )
            assert raw.recv(1000).startswith(b"HTTP/1.1 408")


def test_a_principal_that_asks_too_often_is_told_when_to_come_again(tmp_path: Path) -> None:
    with served(sample_lake(tmp_path), rate=0.01, burst=3) as found:
        statuses = [found.reader.get("/api/v1/sql").status_code for _ in range(5)]
        assert statuses == [200, 200, 200, 429, 429]
        refused = found.reader.get("/api/v1/sql")
        is_problem(refused, 429, "limit.busy")
        assert int(refused.headers["retry-after"]) > 1
        assert found.writer.get("/api/v1/sql").status_code == 200


def test_figures_are_for_administrators(service: Served) -> None:
    is_problem(service.anonymous.get("/metrics"), 401, "unauthenticated")
    is_problem(service.writer.get("/metrics"), 403, "not_permitted")
    text = service.admin.get("/metrics").text
    for name in ("quacklake_http_requests_total", "quacklake_commit_runs_total", "quacklake_lake_snapshots ", "quacklake_lake_up 1.0",
                 "quacklake_lake_catalog_bytes", "quacklake_lake_inlined_rows", "quacklake_lake_small_files"):  # fmt: skip
        assert name in text, name
    assert "/nowhere" not in text and "token" not in text


def test_a_stopping_service_answers_what_it_has_taken(tmp_path: Path) -> None:
    answers: list[httpx.Response] = []
    with served(sample_lake(tmp_path)) as found:
        begun = threading.Event()

        def ask() -> None:
            with client(found.url, "reader-token") as own:
                begun.set()
                answers.append(own.post("/api/v1/sql", json={"sql": "SELECT sum(a.id * b.id) AS s FROM t a, t b, t c"}))

        thread = threading.Thread(target=ask)
        thread.start()
        begun.wait()
        while not found.reader.get("/api/v1/sql").json()["statements"] and not answers:
            pass
    thread.join()
    assert [answer.status_code for answer in answers] == [200]


@pytest.mark.parametrize("host", ["0.0.0.0", "192.0.2.1", "::", "example.org"])
def test_nobody_listens_elsewhere_without_tokens(host: str) -> None:
    with pytest.raises(ConfigError):
        check_place(host, authenticated=False)
    check_place(host, authenticated=True)
    check_place("127.0.0.1", authenticated=False)


def test_a_token_file_has_roles_and_tokens() -> None:
    assert roles_of(["reader a # of Ann", "", "# none", "ADMIN b"]) == {"a": Role.READER, "b": Role.ADMIN}
    for wrong in ("a", "owner a", "reader a b"):
        with pytest.raises(ConfigError):
            roles_of([wrong])


@pytest.mark.parametrize(
    "wrong", [{"max_body": 0}, {"max_rows": -1}, {"prefix": "lake"}, {"prefix": "/lake/"}, {"body_seconds": 0}]
)
def test_limits_that_make_no_sense_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ConfigError):
        ServiceSettings(**wrong)  # type: ignore[arg-type]


def test_every_error_has_a_status_and_none_of_the_users_is_ours() -> None:
    from quacklake import errors

    kinds = [each for each in vars(errors).values() if isinstance(each, type) and issubclass(each, errors.InputError)]
    assert len(kinds) > 5
    for kind in kinds:
        made = kind() if kind is errors.ClosedError else kind("x")
        assert status_of(made) < 500 or kind is errors.ClosedError
    assert status_of(errors.InternalError("x")) == 500


def test_the_prefix_is_before_every_route(tmp_path: Path) -> None:
    lake = sample_lake(tmp_path)
    app = create_app(TokenGate(lake, {}), ServiceSettings(prefix="/lake"))
    assert {path.split("/")[1] for path in app.openapi()["paths"]} == {"lake"}
    lake.close()


def test_compressed_answers_are_the_same(service: Served) -> None:
    body = {"sql": "SELECT * FROM t"}
    plain = service.reader.post("/api/v1/sql", json=body, headers={"Accept-Encoding": "identity"})
    for encoding in ("gzip", "zstd", "gzip;q=0.5, zstd;q=0"):
        answer = service.reader.post("/api/v1/sql", json=body, headers={"Accept-Encoding": encoding})
        assert answer.headers["content-encoding"] == ("zstd" if encoding == "zstd" else "gzip")
        assert answer.json() == plain.json()
    assert "content-encoding" not in plain.headers
    assert len(gzip.compress(plain.content)) < len(plain.content)
    assert json.loads(plain.content)["row_count"] == 90
