"""The clients of the benchmark of the service, in a process of their own: ``python -m benchmarks.service_load``.

One loop serves many connections. Each has one request under way, and sends the next when it has the answer. Requests
are made before the clock starts, so that the clients take little of the processor that the service needs.
"""

from __future__ import annotations

import json
import selectors
import socket
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from urllib.parse import urlsplit

__all__ = ["TOKEN", "Load", "Taken", "request", "run", "running"]

TOKEN = "benchmark"
_PIECE = 1 << 16


@dataclass(frozen=True)
class Load:
    """Requests of many clients: ``appends`` of rows, or statements."""

    url: str
    clients: int
    requests: int
    table: str | None = None
    first: int = 0
    rows: int = 10


@dataclass(frozen=True)
class Taken:
    """The seconds of every request, and from the first to the last."""

    each: list[float]
    all: float

    @property
    def rate(self) -> float:
        """Answers a second."""
        return len(self.each) / self.all


def request(url: str, path: str, body: object, **headers: str) -> bytes:
    """Return a request as it goes over the wire."""
    data = json.dumps(body).encode()
    lines = [
        f"POST {path} HTTP/1.1",
        f"Host: {urlsplit(url).netloc}",
        f"Authorization: Bearer {TOKEN}",
        "Content-Type: application/json",
        f"Content-Length: {len(data)}",
        *(f"{name}: {value}" for name, value in headers.items()),
    ]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + data


def _appends(load: Load, client: int) -> Iterator[bytes]:
    for number in range(load.requests):
        start = load.first + (client * load.requests + number) * load.rows
        rows = [{"id": start + each, "name": f"name {each}"} for each in range(load.rows)]
        yield request(load.url, f"/api/v1/tables/{load.table}/rows", rows, **{"Idempotency-Key": f"k{start}"})


def _reads(load: Load, client: int) -> Iterator[bytes]:
    for number in range(load.requests):
        yield request(load.url, "/api/v1/sql", {"sql": f"SELECT {client * load.requests + number} AS x"})


@dataclass
class _Client:
    socket: socket.socket
    requests: list[bytes]
    sent: float = 0.0
    answer: bytearray = field(default_factory=bytearray)

    def send(self) -> bool:
        """Send the next request; False when there is none."""
        if not self.requests:
            return False
        self.sent = time.perf_counter()
        self.socket.sendall(self.requests.pop())
        return True

    def read(self) -> bool:
        """Read what has come; True when that is the whole answer. Raise ``RuntimeError`` for one that is an error."""
        piece = self.socket.recv(_PIECE)
        self.answer += piece
        head = self.answer.find(b"\r\n\r\n")
        if not piece:
            raise RuntimeError("the service closed the connection")
        if head < 0 or not _whole(self.answer, head):
            return False
        if self.answer[9:10] != b"2":
            raise RuntimeError(self.answer.decode())
        self.answer.clear()
        return True


def _whole(answer: bytearray, head: int) -> bool:
    at = answer.lower().find(b"content-length:", 0, head)
    if at < 0:
        return answer.endswith(b"0\r\n\r\n")  # in chunks
    length = int(answer[at + 15 : answer.find(b"\r\n", at)])
    return len(answer) >= head + 4 + length


def run(load: Load, begin: Callable[[], object] = lambda: None) -> Taken:
    """Connect all clients, call ``begin``, and let each send one request after the other."""
    address = urlsplit(load.url)
    made = _reads if load.table is None else _appends
    clients = [
        _Client(socket.create_connection((str(address.hostname), int(address.port or 0))), list(made(load, number)))
        for number in range(load.clients)
    ]
    found: list[float] = []
    with selectors.DefaultSelector() as selector:
        for client in clients:
            client.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            selector.register(client.socket, selectors.EVENT_READ, client)
        begin()
        start, left = time.perf_counter(), sum(client.send() for client in clients)
        while left:
            for key, _ in selector.select():
                client = key.data
                if client.read():
                    found.append(time.perf_counter() - client.sent)
                    left -= not client.send()
        took = time.perf_counter() - start
    for client in clients:
        client.socket.close()
    return Taken(sorted(found), took)


@contextmanager
def running(load: Load) -> Iterator[Callable[[], Taken]]:
    """Start clients in another process; the yielded function lets them begin, and returns what they took."""
    import subprocess
    from dataclasses import asdict

    line = [sys.executable, "-m", "benchmarks.service_load", json.dumps(asdict(load))]
    with subprocess.Popen(line, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        process.stdout.readline()

        def go() -> Taken:
            found = json.loads(process.communicate("go\n")[0])
            return Taken(found["each"], found["all"])

        yield go


def _main(text: str) -> None:
    def begin() -> None:
        print("ready", flush=True)
        sys.stdin.readline()

    taken = run(Load(**json.loads(text)), begin)
    print(json.dumps({"each": taken.each, "all": taken.all}))


if __name__ == "__main__":
    _main(sys.argv[1])
