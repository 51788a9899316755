"""``http-listener``: takes line protocol, as Telegraf sends it, and metrics of OpenTelemetry as JSON.

``POST /api/v2/write`` and ``/write`` take line protocol, ``POST /v1/metrics`` takes OTLP. A request is answered when
its rows are committed, so that a sender which repeats what was not confirmed loses and doubles nothing.
"""

from __future__ import annotations

import base64
import hmac
import json
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar
from urllib.parse import parse_qsl, urlsplit

import pyarrow as pa

from quacklake import telemetry
from quacklake.config.mappings import Options
from quacklake.config.values import Secret
from quacklake.connectors.options import resolved
from quacklake.errors import (
    AlreadyExistsError,
    ConfigError,
    ConnectorError,
    InputError,
    LimitError,
    NotFoundError,
    QuacklakeError,
    ReadOnlyError,
)
from quacklake.pond.collectors import line_protocol, otlp
from quacklake.pond.collectors.base import Report, Run, Runnable
from quacklake.pond.collectors.group_commit import SeriesWriter
from quacklake.pond.collectors.request_bodies import read_body
from quacklake.pond.factories.registry import register
from quacklake.pond.inputs import ImportOptions
from quacklake.pond.paths import check_name, parts

_LOOPBACK = ("127.0.0.1", "localhost", "::1")
_RETRY_SECONDS = "1"
_LOOK = 0.05
_WRONG = (InputError, AlreadyExistsError, NotFoundError, ReadOnlyError)
"""Errors that sending the same again would not cure."""


@dataclass(frozen=True, slots=True)
class ListenerOptions:
    """The options of a listener."""

    host: str
    port: int
    path: str
    token: str | None
    max_body: int
    max_rows: int
    max_columns: int
    max_waiting: int
    max_connections: int
    max_delay: float
    timeout: float
    allow_future: bool
    keep_conflicts: bool

    @classmethod
    def of(cls, config: Mapping[str, Any]) -> ListenerOptions:
        """Return the options of a mapping. Raise ``ConfigError``."""
        options = Options("http-listener", config)
        made = cls(
            host=options.text("host", "127.0.0.1"),
            port=options.number("port", 8086, least=0),
            path="/" + "/".join(parts(options.text("path", "/metrics"))),
            token=options.text("token", "") or None,
            max_body=options.size("max_body", "16MiB"),
            max_rows=options.number("max_rows", 200_000),
            max_columns=options.number("max_columns", 500),
            max_waiting=options.number("max_waiting", 256),
            max_connections=options.number("max_connections", 64),
            max_delay=options.seconds("max_delay", "200ms"),
            timeout=options.seconds("timeout", "30s"),
            allow_future=options.boolean("allow_future"),
            keep_conflicts=options.boolean("keep_conflicts", True),
        )
        options.finish()
        if made.port > 65_535:
            raise ConfigError(f"http-listener: there is no port {made.port}")
        if made.host not in _LOOPBACK and made.token is None:
            raise ConfigError(
                f"http-listener: everybody who reaches {made.host} could write to the pond",
                hint="token: ${env:POND_TOKEN}, or host: 127.0.0.1",
            )
        return made


@register
class HttpListener(Runnable):
    """Listens until it is told to stop. Each measurement, or service, is a series."""

    name = "http-listener"
    description = "Takes line protocol (Telegraf) and OTLP metrics over HTTP"
    every = "every 5s"
    serves = True

    def check(self, config: Mapping[str, Any]) -> None:
        ListenerOptions.of(config)

    def run(self, run: Run, config: Mapping[str, Any]) -> Report:
        options = ListenerOptions.of(config)
        with_token = options.token and Secret(resolved(options.token, "http-listener.token"))
        given = ImportOptions("timestamp", None, options.allow_future, options.keep_conflicts)
        commits = SeriesWriter(
            run,
            options.path,
            given,
            max_waiting=options.max_waiting,
            max_delay=options.max_delay,
            max_rows=options.max_rows,
        )
        try:
            server = _server(options, commits, with_token or None)
            thread = threading.Thread(target=server.serve_forever, args=(_LOOK,), name="pond-listener", daemon=True)
            thread.start()
            run.say(f"listening on http://{options.host}:{server.server_address[1]}")
            try:
                run.stop.wait()
            finally:
                server.shutdown()
                server.server_close()
        finally:
            commits.close()
        return Report(notes=(f"took {commits.rows} rows in {commits.commits} transactions",))


def _server(options: ListenerOptions, commits: SeriesWriter, token: Secret | None) -> ThreadingHTTPServer:
    room = threading.BoundedSemaphore(options.max_connections)

    class Handler(_ListenerHandler):
        timeout = options.timeout

    Handler.options, Handler.commits, Handler.token = options, commits, token

    class Server(ThreadingHTTPServer):
        daemon_threads = True
        request_queue_size = 128

        def process_request(self, request: Any, client_address: Any) -> None:
            if not room.acquire(blocking=False):
                telemetry.count("pond.listener.full")
                self.shutdown_request(request)
                return
            super().process_request(request, client_address)

        def process_request_thread(self, request: Any, client_address: Any) -> None:
            try:
                super().process_request_thread(request, client_address)
            finally:
                room.release()

        def handle_error(self, request: Any, client_address: Any) -> None:
            telemetry.count("pond.listener.broken")

    try:
        return Server((options.host, options.port), Handler)
    except OSError as error:
        raise ConnectorError(
            f"cannot listen on {options.host}:{options.port}: {error.strerror}", hint="choose another port"
        ) from None


class _ListenerHandler(BaseHTTPRequestHandler):
    """Answers requests. Errors tell what is wrong with the request, and nothing of the pond."""

    options: ClassVar[ListenerOptions]
    commits: ClassVar[SeriesWriter]
    token: ClassVar[Secret | None]
    protocol_version = "HTTP/1.1"
    server_version, sys_version = "pond", ""
    disable_nagle_algorithm = True

    def do_GET(self) -> None:
        path = urlsplit(self.path).path
        if path == "/ping":
            self._answer(204)
        elif path == "/health":
            self._answer(200, {"name": "pond", "status": "pass"})
        else:
            self._refuse(404, "not found", f"there is no {path[:80]}")

    do_HEAD = do_GET

    def do_POST(self) -> None:
        split = urlsplit(self.path)
        query = dict(parse_qsl(split.query))
        posts: dict[str, Callable[[dict[str, str]], None]] = {
            "/api/v2/write": self._lines,
            "/write": self._lines,
            "/v1/metrics": self._metrics,
            "/query": self._query,
        }
        try:
            if not self._is_allowed(query):
                self._refuse(401, "unauthorized", "the token is wrong or missing")
            elif split.path not in posts:
                self._refuse(404, "not found", f"there is no {split.path[:80]}")
            else:
                posts[split.path](query)
        except LimitError as error:
            self._refuse(413, "request too large", error.message)
        except _WRONG as error:
            self._refuse(400, "invalid", error.message)
        except QuacklakeError as error:  # a sender tries again after 503, and gives up after any other
            self._refuse(503, "unavailable", error.message)

    def _lines(self, query: dict[str, str]) -> None:
        text = self._body()
        try:
            lines = text.decode()
        except UnicodeDecodeError:
            raise InputError("the body is not UTF-8 text") from None
        tables = line_protocol.parse(
            lines,
            query.get("precision", "ns"),
            time.time_ns(),
            max_rows=self.options.max_rows,
            max_columns=self.options.max_columns,
        )
        self._write({_node_name(name): table for name, table in tables.items()})
        self._answer(204)

    def _metrics(self, _: dict[str, str]) -> None:
        if "json" not in self.headers.get("Content-Type", "application/json"):
            self._refuse(415, "invalid", "metrics are taken as JSON: set encoding to json")
            return
        try:
            document = json.loads(self._body())
        except (ValueError, RecursionError):
            raise InputError("the body is not valid JSON") from None
        metrics = otlp.parse(document, max_rows=self.options.max_rows, max_columns=self.options.max_columns)
        self._write({_node_name(name): table for name, table in metrics.tables.items()})
        partial = {"rejectedDataPoints": str(metrics.rejected), "errorMessage": "only gauges and sums are taken"}
        self._answer(200, {"partialSuccess": partial} if metrics.rejected else {})

    def _query(self, _: dict[str, str]) -> None:
        """Answer a client that makes its database first: a pond needs none."""
        self._body()
        self._answer(200, {"results": [{"statement_id": 0}]})

    def _write(self, tables: Mapping[str, pa.Table]) -> None:
        if tables:
            self.commits.write(tables, self.options.timeout)

    def _body(self) -> bytes:
        return read_body(self.rfile, self.headers, self.options.max_body)  # type: ignore[arg-type]

    def _is_allowed(self, query: Mapping[str, str]) -> bool:
        if self.token is None:
            return True
        kind, _, sent = self.headers.get("Authorization", "").partition(" ")
        if kind.lower() == "basic":
            try:
                sent = base64.b64decode(sent, validate=True).decode().partition(":")[2]
            except ValueError:
                sent = ""
        sent = sent or query.get("p", "")
        return hmac.compare_digest(sent.encode(), self.token.reveal().encode())

    def _refuse(self, status: int, code: str, message: str) -> None:
        self.close_connection = True  # the rest of the body may not have been read
        self._answer(status, {"code": code, "message": message, "error": message})

    def _answer(self, status: int, document: object = None) -> None:
        body = b"" if document is None else json.dumps(document).encode()
        self.send_response(status)
        if status == 503:
            self.send_header("Retry-After", _RETRY_SECONDS)
        if self.close_connection:
            self.send_header("Connection", "close")
        if status != 204:
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Count instead of printing: an address may have a token in its query."""
        telemetry.count("pond.listener.requests")


def _node_name(name: str) -> str:
    """Return the name of a series for a measurement. Raise ``InvalidNameError`` for one that no node can have."""
    return check_name(name.replace("/", "_"))
