"""Measure a service beside the same work in this process: ``python -m benchmarks.service [--url postgresql://…]``."""

from __future__ import annotations

import argparse
import http.client
import json
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from urllib.parse import urlsplit

import quacklake
from quacklake.service.app import create_app
from quacklake.service.identity import Role, TokenGate
from quacklake.service.serving import BackgroundService
from quacklake.service.settings import ServiceSettings

TOKEN = {"Authorization": "Bearer bench", "Content-Type": "application/json"}


def ask(connection: http.client.HTTPConnection, path: str, body: object, **headers: str) -> bytes:
    """Send JSON and return the answer."""
    connection.request("POST", path, json.dumps(body), {**TOKEN, **headers})
    answer = connection.getresponse()
    data = answer.read()
    if answer.status >= 300:
        raise RuntimeError(data)
    return data


def seconds(work: Callable[[], object], times: int) -> list[float]:
    """Return the seconds of each run, after one that does not count."""
    work()
    found = []
    for _ in range(times):
        start = time.perf_counter()
        work()
        found.append(time.perf_counter() - start)
    return found


def together(clients: int, work: Callable[[int], Sequence[float]]) -> tuple[list[float], float]:
    """Run clients at once; return the seconds of their requests, and of all."""
    found: list[float] = []
    threads = [threading.Thread(target=lambda number=each: found.extend(work(number))) for each in range(clients)]
    start = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sorted(found), time.perf_counter() - start


def main() -> None:
    """Print one line for each measure."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--url", help="the catalog; by default SQLite")
    parser.add_argument("--appends", type=int, default=50, help="appends of each of 32 clients")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        lake = quacklake.connect(given.url or f"sqlite:///{folder}/lake.db", Path(folder) / "data", create=True)
        lake.create_table("t", {"id": "BIGINT", "name": "VARCHAR"})
        lake.create_table("w", {"id": "BIGINT", "name": "VARCHAR"})
        lake.sql("INSERT INTO t SELECT i, 'name ' || i FROM range(2000000) r(i)")
        settings = ServiceSettings(port=0, max_rows=10_000_000)
        with BackgroundService(create_app(TokenGate(lake, {"bench": Role.ADMIN}), settings), settings) as url:
            measure(lake, url, given.appends)


def measure(lake: quacklake.Lake, url: str, appends: int) -> None:
    """Print the measures of a service."""
    address = urlsplit(url)

    def connect() -> http.client.HTTPConnection:
        return http.client.HTTPConnection(str(address.hostname), address.port, timeout=120)

    point = "SELECT * FROM t WHERE id = ?"
    own = statistics.median(seconds(lambda: lake.sql(point, [77_777]).fetchall(), 50))
    one = connect()
    far = statistics.median(seconds(lambda: ask(one, "/api/v1/sql", {"sql": point, "parameters": [77_777]}), 50))
    print(f"point query: {own * 1e3:.1f} ms in process, {far * 1e3:.1f} ms over HTTP, {far / own:.2f} times")
    arrow = {"Accept": "application/vnd.apache.arrow.stream"}
    size = 0

    def whole() -> None:
        nonlocal size
        size = len(ask(one, "/api/v1/sql", {"sql": "FROM t"}, **arrow))

    took = min(seconds(whole, 3))
    print(f"Arrow result: {size / 1e6:.0f} MB at {size / 1e6 / took:.0f} MB/s")

    def read(_: int) -> list[float]:
        connection = connect()
        return seconds(lambda: ask(connection, "/api/v1/sql", {"sql": "SELECT 42 AS x"}), 5)

    each, all_ = together(200, read)
    p50, p99 = each[len(each) // 2], each[int(len(each) * 0.99)]
    print(f"200 readers: {len(each) / all_:.0f} answers/s, p50 {p50 * 1e3:.0f} ms, p99 {p99 * 1e3:.0f} ms")
    before = lake.current_snapshot()

    def write(client: int) -> list[float]:
        connection, found = connect(), []
        for number in range(appends):
            rows = [{"id": number * 10 + row, "name": "x"} for row in range(10)]
            start = time.perf_counter()
            ask(connection, "/api/v1/tables/w/rows", rows, **{"Idempotency-Key": f"{client}-{number}"})
            found.append(time.perf_counter() - start)
        return found

    processor = time.process_time()
    each, all_ = together(32, write)
    processor = (time.process_time() - processor) / len(each)
    snapshots, p50 = lake.current_snapshot() - before, each[len(each) // 2]
    print(f"32 writers: {len(each) / all_:.0f} appends/s of 10 rows, {snapshots} snapshots, p50 {p50 * 1e3:.0f} ms")
    print(f"an append costs {processor * 1e3:.2f} ms of processor, that of its client included")


if __name__ == "__main__":
    main()
