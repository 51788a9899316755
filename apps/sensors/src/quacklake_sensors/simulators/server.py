"""The base of the simulators: an HTTP server on 127.0.0.1 in threads of this process, or in a process of its own."""

from __future__ import annotations

import argparse
import json
import signal
import sys
import threading
from collections.abc import Mapping
from dataclasses import fields, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar, Generic, Self, TypeVar
from urllib.parse import parse_qsl, urlsplit

_MAX_REQUEST = 1 << 16

S = TypeVar("S")


class Answer(Exception):
    """The answer to a request; a handler returns it, or raises it from anywhere."""

    def __init__(
        self,
        status: int,
        body: object = b"",
        headers: Mapping[str, str] | None = None,
        kind: str = "application/json",
    ) -> None:
        super().__init__(status)
        self.status = status
        if not isinstance(body, bytes):
            body = (body if isinstance(body, str) else json.dumps(body)).encode()
        self.body = body
        self.headers = {"Content-Type": kind, **(headers or {})}


class Request:
    """A request: its method, path, query, headers and body."""

    def __init__(self, method: str, target: str, headers: Mapping[str, str], body: bytes) -> None:
        split = urlsplit(target)
        self.method, self.path = method, split.path
        self.query = dict(parse_qsl(split.query))
        self.headers = {name.lower(): value for name, value in headers.items()}
        self.body = body


class Simulator(Generic[S]):
    """A server in threads of this process; a context manager. ``settings`` may be replaced while it runs."""

    Settings: ClassVar[type[Any]]

    def __init__(self, settings: S | None = None, *, port: int = 0) -> None:
        self.settings: S = settings if settings is not None else self.Settings()
        self.requests: list[str] = []
        self.lock = threading.Lock()
        self._port = port
        self._server: ThreadingHTTPServer | None = None

    def answer(self, request: Request) -> Answer:
        """Return the answer to a request."""
        raise NotImplementedError

    @property
    def port(self) -> int:
        """The port it listens on."""
        assert self._server is not None, "not started"
        return int(self._server.server_address[1])

    @property
    def url(self) -> str:
        """The address."""
        return f"http://127.0.0.1:{self.port}"

    def change(self, **values: Any) -> None:
        """Change settings while the server runs."""
        self.settings = replace(self.settings, **values)  # type: ignore[type-var]

    def start(self) -> Self:
        """Begin to listen."""
        simulator = self

        class Handler(_SimulatorHandler):
            home = simulator

        self._server = ThreadingHTTPServer(("127.0.0.1", self._port), Handler)
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()
        return self

    def stop(self) -> None:
        """Stop listening. Harmless when done twice."""
        server, self._server = self._server, None
        if server is not None:
            self._port = int(server.server_address[1])
            server.shutdown()
            server.server_close()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()


class _SimulatorHandler(BaseHTTPRequestHandler):
    """Passes requests to a simulator."""

    home: ClassVar[Any]
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def do_GET(self) -> None:
        self._pass()

    def do_POST(self) -> None:
        self._pass()

    def _pass(self) -> None:
        size = int(self.headers.get("Content-Length") or 0)
        body = self.rfile.read(min(size, _MAX_REQUEST))
        request = Request(self.command, self.path, dict(self.headers), body)
        with self.home.lock:
            self.home.requests.append(f"{self.command} {request.path}")
        try:
            answer = self.home.answer(request)
        except Answer as early:
            answer = early
        self.send_response(answer.status)
        for name, value in answer.headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(answer.body)))
        self.end_headers()
        try:
            self.wfile.write(answer.body)
        except OSError:  # the client has had enough
            self.close_connection = True

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing: the simulator counts its requests."""


def main(kind: type[Simulator[Any]], words: list[str] | None = None) -> int:
    """Run a simulator in this process until SIGTERM; ``--settings`` is JSON."""
    parser = argparse.ArgumentParser(description=kind.__doc__)
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--settings", default="{}", help="settings as JSON")
    given = parser.parse_args(words)
    known = {each.name for each in fields(kind.Settings)}
    values = json.loads(given.settings)
    if unknown := sorted(set(values) - known):
        parser.error(f"there is no setting {unknown[0]}; one of {', '.join(sorted(known))}")
    ends = {signal.SIGTERM, signal.SIGINT}
    # blocked, a signal stays pending until it is waited for: a handler could come just before the wait, and wake nobody
    signal.pthread_sigmask(signal.SIG_BLOCK, ends)
    with kind(kind.Settings(**values), port=given.port) as server:
        sys.stdout.write(f"{server.url}\n")
        sys.stdout.flush()
        signal.sigwait(ends)
    return 0
