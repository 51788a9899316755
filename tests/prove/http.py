"""An HTTP proxy before an S3 server that makes it a bad one: busy, slow, forgetful, gone."""

from __future__ import annotations

import http.client
import itertools
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType

__all__ = ["BadProxy", "ProxyProcess"]

_REPOSITORY = Path(__file__).resolve().parents[2]

_BUSY = b"<?xml version='1.0'?><Error><Code>SlowDown</Code><Message>Please reduce your request rate.</Message></Error>"
_DELAY = 0.02


class BadProxy:
    """Passes requests on; within :meth:`bad`, every nth has a bad fate.

    ``busy``: 503 SlowDown instead. ``reset``: the connection breaks before the server hears of it. ``lost``: it breaks
    after the server has done it. ``slow``: every request takes longer. ``down``: 503 for all from the nth on.
    """

    def __init__(self, port: int) -> None:
        self.how: str | None = None
        self.every = 1
        self.count = itertools.count(1)
        self.hits = 0
        proxy = self

        class Handler(_Handler):
            target = port
            owner = proxy

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.port: int = self._server.server_port
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05})
        self._thread.start()

    def __enter__(self) -> BadProxy:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    @contextmanager
    def bad(self, how: str, every: int) -> Iterator[None]:
        """Be bad in the block."""
        self.every = every
        self.count = itertools.count(1)
        self.how = how
        try:
            yield
        finally:
            self.how = None

    def fate(self) -> str | None:
        """Return the fault of the next request, or None."""
        if self.how is None:
            return None
        number = next(self.count)
        due = number % self.every == 0
        if self.how == "down":
            return "busy" if number >= self.every else None
        if self.how == "slow" or due:
            self.hits += 1
            return self.how
        return None


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    target: int
    owner: BadProxy

    def log_message(self, *arguments: object) -> None:
        pass

    def _pass_on(self) -> None:
        body = self._body()
        fate = self.owner.fate()
        if fate == "busy":
            self._answer(503, [("Content-Type", "application/xml"), ("Content-Length", str(len(_BUSY)))], _BUSY)
            return
        if fate == "reset":
            self._break()
            return
        if fate == "slow":
            time.sleep(_DELAY)
        server = http.client.HTTPConnection("127.0.0.1", self.target, timeout=60)
        try:
            server.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
            for name, value in self.headers.items():
                if name.lower() not in ("connection", "expect"):
                    server.putheader(name, value)
            server.endheaders(body)
            answer = server.getresponse()
            content = answer.read()
        finally:
            server.close()
        if fate == "lost":
            self._break()
            return
        headers = [(name, value) for name, value in answer.getheaders() if name.lower() not in _HOP]
        if self.command == "HEAD":
            headers.append(("Content-Length", answer.getheader("Content-Length") or "0"))
        else:
            headers.append(("Content-Length", str(len(content))))
        self._answer(answer.status, headers, content)

    def _body(self) -> bytes:
        """Return the bytes after the headers, as they are on the wire."""
        if "chunked" not in (self.headers.get("Transfer-Encoding") or ""):
            return self.rfile.read(int(self.headers.get("Content-Length") or 0))
        raw = b""
        while True:
            size = self.rfile.readline()
            raw += size
            if int(size.split(b";")[0], 16) == 0:
                break
            raw += self.rfile.read(int(size.split(b";")[0], 16) + 2)
        while (line := self.rfile.readline()) != b"\r\n":
            raw += line
        return raw + b"\r\n"

    def _answer(self, status: int, headers: list[tuple[str, str]], content: bytes) -> None:
        with suppress(OSError):
            self.send_response_only(status)
            for name, value in headers:
                self.send_header(name, value)
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(content)

    def _break(self) -> None:
        """A reset, not an orderly end."""
        self.close_connection = True
        with suppress(OSError):
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self.connection.close()

    do_HEAD = do_GET = do_PUT = do_POST = do_DELETE = _pass_on


_HOP = ("connection", "content-length", "transfer-encoding", "keep-alive", "server", "date")


class ProxyProcess:
    """A :class:`BadProxy` in a separate process, for clients that block this one while they wait."""

    def __init__(self, port: int) -> None:
        command = [sys.executable, "-m", "tests.prove.http", str(port)]
        self._process = subprocess.Popen(
            command, cwd=_REPOSITORY, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.port = self._answer()

    def __enter__(self) -> ProxyProcess:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.communicate()

    @contextmanager
    def bad(self, how: str, every: int) -> Iterator[None]:
        """Be bad in the block."""
        self._ask(f"{how} {every}")
        try:
            yield
        finally:
            self._ask("good")

    @property
    def hits(self) -> int:
        """The number of requests that met a fault so far."""
        return self._ask("hits")

    def _ask(self, words: str) -> int:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{words}\n")
        self._process.stdin.flush()
        return self._answer()

    def _answer(self) -> int:
        assert self._process.stdout is not None
        return int(self._process.stdout.readline())


def _serve(port: int) -> None:
    """Say the port, then follow what the input says; each line is answered with the number of hits."""
    with BadProxy(port) as proxy:
        print(proxy.port, flush=True)
        for line in sys.stdin:
            how, *every = line.split()
            if every:
                proxy.every, proxy.count, proxy.how = int(every[0]), itertools.count(1), how
            elif how == "good":
                proxy.how = None
            print(proxy.hits, flush=True)


if __name__ == "__main__":
    _serve(int(sys.argv[1]))
