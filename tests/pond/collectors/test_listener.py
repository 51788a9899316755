"""Line protocol and OTLP over HTTP: an answer of success means that the rows are in the pond."""

from __future__ import annotations

import datetime as dt
import gzip
import http.client
import json
import logging
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from quacklake import telemetry
from quacklake.errors import CatalogUnavailableError, ConfigError, ConnectorError
from quacklake.pond import Pond
from quacklake.pond.collectors.base import Report, Run
from quacklake.pond.collectors.listener import HttpListener, ListenerOptions
from tests.pond.collectors.conftest import rows

TOKEN = "let-me-in"


class Client:
    """A listener in a thread, and requests to it."""

    def __init__(self, pond: Pond, options: dict[str, Any]) -> None:
        self.pond = pond
        self._said: list[str] = []
        self._stop = threading.Event()
        ready = threading.Event()

        def say(text: str) -> None:
            self._said.append(text)
            ready.set()

        run = Run(pond, "/collectors/l", stop=self._stop, say=say)
        self._pool = ThreadPoolExecutor(1)
        self._future = self._pool.submit(HttpListener().run, run, options)
        assert ready.wait(10)
        self.port = int(self._said[0].rpartition(":")[2])

    def close(self) -> Report:
        self._stop.set()
        report = self._future.result(30)
        self._pool.shutdown()
        return report

    def post(
        self, path: str, body: bytes, headers: dict[str, str] | None = None, *, chunked: bool = False
    ) -> tuple[int, Any]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        given = {"Authorization": f"Token {TOKEN}", **(headers or {})}
        content: Any = iter([body[:7], body[7:]]) if chunked else body
        connection.request("POST", path, content, given, encode_chunked=chunked)
        answer = connection.getresponse()
        text = answer.read()
        connection.close()
        return answer.status, json.loads(text) if text else None


@pytest.fixture(scope="module")
def listener(shared: Pond) -> Iterator[Client]:
    monkeypatch = pytest.MonkeyPatch()
    monkeypatch.setenv("POND_TOKEN", TOKEN)
    options = {
        "port": 0,
        "path": "/t",
        "token": "${env:POND_TOKEN}",
        "max_body": "100kB",
        "max_delay": "20ms",
        "max_rows": 500,
    }
    client = Client(shared, options)
    yield client
    assert "transactions" in client.close().notes[0]
    monkeypatch.undo()


NOON = 1_704_110_400


def test_telegraf_writes_gzip_in_chunks(listener: Client, shared: Pond) -> None:
    lines = (
        f"cpu,host=a,cpu=cpu0 usage=1.5,count=3i,up=t {NOON}\n"
        f"cpu,host=b,cpu=cpu0 usage=2.5,count=4i,up=f {NOON}\n"
        f'note text="rain, \\"heavy\\"" {NOON}\n'
    )
    headers = {"Content-Encoding": "gzip", "Transfer-Encoding": "chunked"}
    packed = gzip.compress(lines.encode())
    assert listener.post("/api/v2/write?org=o&bucket=b&precision=s", packed, headers, chunked=True) == (204, None)
    moment = dt.datetime(2024, 1, 1, 12, tzinfo=dt.UTC)
    assert rows(shared, "/t/cpu.series").sort_by("host").to_pylist() == [
        {"timestamp": moment, "host": "a", "cpu": "cpu0", "usage": 1.5, "count": 3, "up": True},
        {"timestamp": moment, "host": "b", "cpu": "cpu0", "usage": 2.5, "count": 4, "up": False},
    ]
    assert rows(shared, "/t/note.series").column("text").to_pylist() == ['rain, "heavy"']
    # it is sent again, as after a lost answer
    assert listener.post("/write?db=x&precision=s", lines.encode()) == (204, None)
    assert rows(shared, "/t/cpu.series").num_rows == 2


def test_many_writers_share_transactions_and_lose_nothing(listener: Client, shared: Pond) -> None:
    before = shared.lake.current_snapshot()

    def send(number: int) -> int:
        return listener.post("/write?precision=s", f"many,w={number} v={number} {NOON + number}".encode())[0]

    with ThreadPoolExecutor(8) as pool:
        assert set(pool.map(send, range(24))) == {204}
    assert sorted(rows(shared, "/t/many.series").column("v").to_pylist()) == list(map(float, range(24)))
    assert shared.lake.current_snapshot() - before < 12


def test_a_bad_request_is_refused_and_the_good_one_beside_it_is_taken(listener: Client, shared: Pond) -> None:
    listener.post("/write?precision=s", f"typed v=1.5 {NOON}".encode())
    with ThreadPoolExecutor(2) as pool:
        bad = pool.submit(listener.post, "/write?precision=s", f'typed v="x" {NOON + 1}'.encode())
        good = pool.submit(listener.post, "/write?precision=s", f"typed v=2.5 {NOON + 2}".encode())
        assert (bad.result()[0], good.result()[0]) == (400, 204)
    assert "v" in bad.result()[1]["message"]
    assert rows(shared, "/t/typed.series").column("v").to_pylist() == [1.5, 2.5]


@pytest.mark.parametrize(
    ("path", "body", "headers", "status", "words"),
    [
        ("/write", b"cpu usage=1.5 1", {"Authorization": "Token wrong"}, 401, "token"),
        ("/write?precision=weeks", b"cpu usage=1.5 1", {}, 400, "no precision 'weeks'"),
        ("/write", b"cpu usage=1.5 1\ncpu usage=\n", {}, 400, "line 2"),
        ("/write", b"\xff\xfe", {}, 400, "UTF-8"),
        ("/write", b"plain text", {"Content-Encoding": "gzip"}, 400, "not gzip"),
        ("/write", b"x", {"Content-Encoding": "br"}, 400, "encoding 'br'"),
        ("/write", gzip.compress(b" " * 200_000), {"Content-Encoding": "gzip"}, 413, "more than 100000 bytes"),
        ("/write", b" " * 200_000, {}, 413, "more than 100000 bytes"),
        ("/write?precision=s", b"late v=1 4102444800", {}, 400, "in the future"),
        ("/write", b"..\nx", {}, 400, "line 1"),
        ("/write", b"cpu a=1i\n" * 501, {}, 413, "more than 500 lines"),
        ("/elsewhere", b"", {}, 404, "there is no /elsewhere"),
        ("/v1/metrics", b"{", {"Content-Type": "application/json"}, 400, "not valid JSON"),
        ("/v1/metrics", b"x", {"Content-Type": "application/x-protobuf"}, 415, "JSON"),
        ("/v1/metrics", b"[]", {"Content-Type": "application/json"}, 400, "is not an object"),
    ],
)
def test_bad_requests_change_nothing(
    listener: Client, shared: Pond, path: str, body: bytes, headers: dict[str, str], status: int, words: str
) -> None:
    before = shared.commits()
    code, answer = listener.post(path, body, headers)
    assert (code, words in answer["message"]) == (status, True), answer
    assert TOKEN not in str(answer)
    assert shared.commits() == before


@pytest.mark.parametrize(
    ("error", "code"), [(CatalogUnavailableError("away"), "catalog.unavailable"), (ZeroDivisionError(), "internal")]
)
def test_a_commit_that_fails_is_in_the_log_and_the_sender_tries_again(
    listener: Client, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], error: Exception, code: str
) -> None:
    """P53: what the sender is told, the operator reads too."""

    def fail(*_: object, **__: object) -> None:
        raise error

    logger = logging.getLogger("quacklake")
    before = (list(logger.handlers), logger.level, logger.propagate)
    telemetry.configure_logging("warning", "json")
    try:
        with monkeypatch.context() as broken:
            broken.setattr("quacklake.pond.collectors.base.Run.transact", fail)
            status, _ = listener.post("/api/v2/write", f"lost temp=1 {NOON}000000000".encode())
    finally:
        logger.handlers, logger.level, logger.propagate = before
    assert status == 503
    (line,) = map(json.loads, capsys.readouterr().err.splitlines())
    assert (line["logger"], line["code"]) == ("quacklake.pond", code)
    assert line["message"].startswith("rows could not be committed")
    assert listener.post("/api/v2/write", f"lost temp=1 {NOON}000000000".encode())[0] == 204


def test_metrics_of_opentelemetry_become_rows_by_service(listener: Client, shared: Pond) -> None:
    nanos = str(NOON * 10**9)
    point = {"timeUnixNano": nanos, "asDouble": 4.5, "attributes": [{"key": "site", "value": {"stringValue": "dock"}}]}
    whole = {"timeUnixNano": nanos, "asInt": "7", "attributes": point["attributes"]}
    metrics = [
        {"name": "temp", "gauge": {"dataPoints": [point]}},
        {"name": "rain", "sum": {"dataPoints": [whole], "isMonotonic": True}},
        {"name": "latency", "histogram": {"dataPoints": [{}, {}]}},
    ]
    resource = {"attributes": [{"key": "service.name", "value": {"stringValue": "buoy"}}]}
    document = {"resourceMetrics": [{"resource": resource, "scopeMetrics": [{"metrics": metrics}]}]}
    status, answer = listener.post("/v1/metrics", json.dumps(document).encode(), {"Content-Type": "application/json"})
    assert (status, answer["partialSuccess"]["rejectedDataPoints"]) == (200, "2")
    assert rows(shared, "/t/buoy.series").to_pylist() == [
        {"timestamp": dt.datetime(2024, 1, 1, 12, tzinfo=dt.UTC), "site": "dock", "temp": 4.5, "rain": 7.0}
    ]


def test_clients_that_look_first_are_answered(listener: Client) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", listener.port, timeout=10)
    for path, status in (("/ping", 204), ("/health", 200), ("/x", 404)):
        connection.request("GET", path)
        answer = connection.getresponse()
        answer.read()
        assert answer.status == status
        if status == 404:
            connection.close()
    assert listener.post("/query?q=CREATE+DATABASE+telegraf", b"")[0] == 200


def test_a_port_that_is_taken_and_an_open_door_are_refused(listener: Client, shared: Pond) -> None:
    with pytest.raises(ConnectorError, match="cannot listen"):
        HttpListener().run(Run(shared, "/collectors/l"), {"port": listener.port})
    with pytest.raises(ConfigError, match=r"everybody who reaches 0\.0\.0\.0"):
        ListenerOptions.of({"host": "0.0.0.0"})
