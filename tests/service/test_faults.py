"""A service in trouble: its catalog goes, clients break off, stall or never end, and appends come all at once."""

from __future__ import annotations

import asyncio
import resource
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest

import quacklake
from quacklake.core import faults
from quacklake.errors import UnauthenticatedError
from quacklake.service.app import create_app
from quacklake.service.identity import Identity, TokenGate
from quacklake.service.serving import BackgroundService
from quacklake.service.settings import ServiceSettings
from tests.service.serving import TOKENS, Served, away, client, is_problem, sample_lake, served

ROWS = "/api/v1/tables/t/rows"


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("faults")
    with served(sample_lake(folder), body_seconds=0.5, stalled_seconds=0.5, max_statements=1, max_head=10_000) as found:
        yield found


@contextmanager
def connected(service: Served) -> Iterator[socket.socket]:
    address = urlsplit(service.url)
    with socket.create_connection((str(address.hostname), address.port or 0), timeout=20) as found:
        yield found


def head(length: int | None = None, path: str = ROWS) -> bytes:
    more = "Transfer-Encoding: chunked" if length is None else f"Content-Length: {length}"
    lines = (f"POST {path} HTTP/1.1", "Host: x", "Authorization: Bearer writer-token", "Idempotency-Key: broken", more)
    return "\r\n".join(lines).encode() + b"\r\n\r\n"


def read_to_end(sock: socket.socket) -> bytes:
    """Return all that comes until the service closes the connection."""
    found = b""
    while piece := sock.recv(65_536):
        found += piece
    return found


def count(service: Served) -> int:
    return int(service.rows("SELECT count(*) AS n FROM t")[0]["n"])


# -- the catalog goes away -----------------------------------------------------------------------------------------


def test_appends_without_a_catalog_are_told_to_come_again_and_recover_by_themselves(
    tmp_path: Path, postgres_url: str
) -> None:
    sample_lake(tmp_path, postgres_url).close()
    with served(quacklake.connect(postgres_url, ducklake_max_retry_count=2)) as found:
        send = {"json": [{"id": 1000}], "headers": {"Idempotency-Key": "one"}}
        merge: dict[str, Any] = {"json": [{"id": 1000, "name": "m"}], "headers": {"Idempotency-Key": "two"}}
        with away(postgres_url):
            for path, given in ((ROWS, send), ("/api/v1/tables/t/merge?on=id", merge)):
                answer = found.writer.post(path, **given)
                problem = is_problem(answer, 503, "catalog.unavailable")
                assert problem["transient"] is True and int(answer.headers["retry-after"]) >= 1
                assert "postgres" not in answer.text
        first = found.writer.post(ROWS, **send)
        assert first.status_code == 201, first.text
        assert found.writer.post(ROWS, **send).json() == {**first.json(), "repeated": True}
        assert found.writer.post("/api/v1/tables/t/merge?on=id", **merge).json()["updated"] == 1
        assert found.lake.table("t").count("id = 1000") == 1


# -- clients that break off, stall or never end --------------------------------------------------------------------


BROKEN = [
    head(1000)[:-20],
    head(1000),
    head(1000) + b'[{"id": 1}]',
    head(),
    head() + b'b\r\n[{"id": 1}]\r\n',
    head(1000, "/api/v1/tables/t/merge?on=id") + b'[{"id": 1}]',
]


def test_uploads_that_break_off_change_nothing(service: Served) -> None:
    before = service.lake.current_snapshot()
    with ExitStack() as stack:
        for sent in BROKEN:
            with connected(service) as sock:
                sock.sendall(sent)
        kept = [stack.enter_context(connected(service)) for _ in BROKEN]  # these stay, and stop sending
        for sock, sent in zip(kept, BROKEN, strict=True):
            sock.sendall(sent)
        answers = [read_to_end(sock) for sock in kept]
    assert [answer[:12] for answer in answers] == [b"", *[b"HTTP/1.1 408"] * 5]
    assert all(b"limit.stalled" in answer for answer in answers[1:])
    assert service.lake.current_snapshot() == before
    assert count(service) == 90


def test_a_body_in_many_pieces_is_one_append(tmp_path: Path) -> None:
    with served(sample_lake(tmp_path)) as found:
        pieces = [b"[", *(b'{"id": %d},' % number for number in range(200, 250)), b'{"id": 7}]']
        answer = found.writer.post(ROWS, content=iter(pieces))
        assert answer.json()["rows"] == 51
        assert found.lake.table("t").count() == 141


@pytest.mark.parametrize("line", [b"X-Filler: " + b"x" * 1000 + b"\r\n", b"x" * 1000])
def test_a_head_without_end_is_refused(service: Served, line: bytes) -> None:
    with connected(service) as sock:
        sock.sendall(b"POST /api/v1/sql HTTP/1.1\r\nX: ")
        with pytest.raises(OSError):  # noqa: PT011 - broken pipe or reset, as the system likes
            for _ in range(100_000):
                sock.sendall(line)
    assert count(service) == 90


def test_a_head_that_does_not_come_is_given_up(service: Served) -> None:
    for sent in (b"", b"GET /health/live HTTP/1.1\r\n"):
        with connected(service) as sock:
            sock.sendall(sent)
            assert read_to_end(sock) == b""


def test_a_reader_that_stops_reading_gives_its_turn_to_others(service: Served) -> None:
    body = b'{"sql": "SELECT repeat(\'x\', 1000) AS x, i FROM range(40000) r(i)"}'
    with connected(service) as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        sock.sendall(
            b"POST /api/v1/sql HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer reader-token\r\n"
            b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body) + body
        )
        assert sock.recv(4096).startswith(b"HTTP/1.1 200")
        assert count(service) == 90, "there is one turn, and it is free again"


def test_a_thousand_idle_connections_disturb_nobody(tmp_path: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = min(4096, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, wanted), hard))
    if wanted < 2500:
        pytest.skip("this process may not open a thousand connections")
    with served(sample_lake(tmp_path)) as found:
        address = urlsplit(found.url)
        idle = [socket.create_connection((address.hostname, address.port), timeout=10) for _ in range(1000)]
        try:
            for number in range(20):
                assert found.writer.post(ROWS, json=[{"id": 1000 + number}]).status_code == 201
            assert count(found) == 110
        finally:
            for each in idle:
                each.close()


# -- many at once --------------------------------------------------------------------------------------------------


def test_appends_that_wait_without_end_are_told_to_come_again(tmp_path: Path) -> None:
    entered, free = threading.Event(), threading.Event()

    def hold(name: str) -> None:
        if name == "service.append.before":
            entered.set()
            free.wait(30)

    with served(sample_lake(tmp_path), max_appends=3, append_seconds=20) as found, ThreadPoolExecutor(8) as pool:
        with faults._hooked(hold):
            first = pool.submit(found.writer.post, ROWS, json=[{"id": 1000}])
            assert entered.wait(20)
            waiting = [pool.submit(found.writer.post, ROWS, json=[{"id": 1001 + number}]) for number in range(7)]
            refused = _done_before(waiting, 4)
            free.set()
        for answer in refused:
            is_problem(answer, 429, "limit.busy")
            assert int(answer.headers["retry-after"]) >= 1
        statuses = sorted(each.result().status_code for each in (first, *waiting))
        assert statuses == [201] * 4 + [429] * 4
        assert found.lake.table("t").count("id >= 1000") == 4


def _done_before(waiting: list[Any], number: int) -> list[httpx.Response]:
    """Return the first answers."""
    until = time.monotonic() + 20
    while sum(each.done() for each in waiting) < number and time.monotonic() < until:
        threading.Event().wait(0.01)
    return [each.result() for each in waiting if each.done()]


class _Slow(TokenGate):
    """A gate that takes its time."""

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.asked = 0
        self.entered = threading.Event()
        self.free = threading.Event()
        self.closed_to: set[str | None] = set()

    def enter(self, token: str | None, lake: str | None = None) -> Identity:
        self.asked += 1
        refused = token in self.closed_to
        self.entered.set()
        assert self.free.wait(30)
        if refused:
            raise UnauthenticatedError
        return super().enter(token, lake)


def test_the_gate_is_asked_once_for_requests_that_come_while_it_thinks_and_never_before_them(tmp_path: Path) -> None:
    settings = ServiceSettings(port=0)
    gate = _Slow(sample_lake(tmp_path), TOKENS)
    with BackgroundService(create_app(gate, settings), settings) as url, ThreadPoolExecutor(8) as pool:
        with client(url, "writer-token") as own:
            first = pool.submit(own.post, ROWS, json=[{"id": 1000}])
            assert gate.entered.wait(20)
            gate.closed_to.add("writer-token")  # taken away after the first was looked at
            others = [pool.submit(own.post, ROWS, json=[{"id": 1001}]) for _ in range(6)]
            _settled(own)
            gate.free.set()
            assert first.result().status_code == 201
            for each in others:
                is_problem(each.result(), 401, "unauthenticated")
            assert gate.asked <= 7
            gate.closed_to.clear()
            assert own.post(ROWS, json=[{"id": 1002}]).status_code == 201


def _settled(own: httpx.Client) -> None:
    """Wait until the loop of the service has seen what was sent before."""
    for _ in range(5):
        assert own.get("/health/live").status_code == 200


def test_both_ways_of_an_append_give_the_same_answers(tmp_path: Path) -> None:
    with served(sample_lake(tmp_path)) as found:
        for number, more in enumerate(("", "?lake=lake", "?lake=lake&lake=lake", "?&")):
            headers = {"Idempotency-Key": "way", "X-Request-Id": f"way-{number}"}
            answer = found.writer.post(f"{ROWS}{more}", json=[{"id": 1000}], headers=headers)
            assert answer.status_code == 201
            assert answer.json() == {"rows": 1, "snapshot": found.lake.current_snapshot(), "repeated": number > 0}
            assert answer.headers["content-type"] == "application/json"
            assert answer.headers["x-request-id"] == f"way-{number}"
            assert answer.headers["x-content-type-options"] == "nosniff"
            is_problem(found.reader.post(f"{ROWS}{more}", json=[{"id": 1}]), 403, "not_permitted")
            is_problem(found.anonymous.post(f"{ROWS}{more}", json=[{"id": 1}]), 401, "unauthenticated")
            is_problem(found.writer.post(f"{ROWS}{more}", content=b"["), 400, "input")
        is_problem(found.writer.post(f"{ROWS}?more=1", json=[{"id": 1}]), 400, "input")
        is_problem(found.anonymous.post(f"{ROWS}?more=1", json=[{"id": 1}]), 401, "unauthenticated")
        for more in ("?lake=other", "?lake=other&more=1"):
            is_problem(found.writer.post(f"{ROWS}{more}", json=[{"id": 1}]), 404, "not_found")
        text = found.admin.get("/metrics").text
        assert (
            'quacklake_http_requests_total{method="POST",route="/api/v1/tables/{table}/rows",status="201"} 4.0' in text
        )
        assert found.lake.table("t").count() == 91


def test_a_client_that_goes_before_its_answer_leaves_the_others_theirs(tmp_path: Path) -> None:
    async def race(url: str) -> list[int]:
        async with httpx.AsyncClient(base_url=url, headers={"Authorization": "Bearer writer-token"}) as own:
            tasks = [asyncio.create_task(own.post(ROWS, json=[{"id": 1000 + number}])) for number in range(20)]
            await asyncio.sleep(0)
            for task in tasks[::4]:
                task.cancel()
            found = await asyncio.gather(*tasks, return_exceptions=True)
        return [answer.status_code for answer in found if isinstance(answer, httpx.Response)]

    with served(sample_lake(tmp_path)) as found:
        assert asyncio.run(race(found.url)) == [201] * 15
        stored = [row["id"] for row in found.lake.table("t").to_pylist() if row["id"] >= 1000]
    assert len(stored) == len(set(stored))
    assert {1000 + number for number in range(20) if number % 4} <= set(stored)
