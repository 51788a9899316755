"""The service over HTTP: appends of many clients, point queries, large results and many readers.

The service and the clients run in processes of their own. Appends are of 10 rows with an idempotency key each, on
PostgreSQL: appends that come at once share a snapshot. The peer commits each append for itself. A point query stands
beside the same in a process that has the lake open, a large result beside the same query in the process, which decodes
the same Parquet files and sends nothing, beside our own Flight server, which runs the same query, and beside a bare
Flight server with the table in RAM. All of them take the batches as they come and count their rows.
"""

from __future__ import annotations

import http.client
import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from urllib.parse import urlsplit

import pyarrow as pa

import quacklake
from benchmarks.common import Bench, Measure, Result, Target, alternate, at_least, at_most, percentile, slowdown
from benchmarks.service_load import TOKEN, Load, Taken, running

TITLE = "The service over HTTP: group commit of appends, point queries, large results, many readers"

_ARROW = "application/vnd.apache.arrow.stream"
_POINT = "SELECT * FROM t WHERE id = ?"
_CLIENTS, _READERS = 32, 200
_ALONE = "one commit for each append"


@dataclass(frozen=True)
class _Server:
    """A service in a process of its own."""

    url: str
    process: subprocess.Popen[str]

    def processor(self) -> float:
        """Return the processor seconds that it has taken."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        print("processor", file=self.process.stdin, flush=True)
        return float(self.process.stdout.readline())


@dataclass(frozen=True)
class _Appended:
    taken: Taken
    processor: float
    snapshots: int


def run(bench: Bench, result: Result) -> None:
    """Serve a lake in PostgreSQL and one of a large table; send what is measured."""
    appends, rows, rounds = bench.pick((3, 100_000, 1), (100, 5_000_000, 5), (300, 5_000_000, 9))
    with bench.directory() as directory:
        place = bench.place(directory, "postgres", "service")
        with quacklake.connect(place.url, data_path=place.data, create=True) as lake:
            lake.create_table("w", {"id": "BIGINT", "name": "VARCHAR"})
            with bench.step(f"{_CLIENTS} clients, {appends} appends each, in groups"):
                group = _append(lake, 0, appends, alone=False)
            with bench.step(f"{_CLIENTS} clients, {max(appends // 5, 1)} appends each, one commit for each"):
                alone = _append(lake, 1 << 40, max(appends // 5, 1), alone=True)
            _check(lake, (appends + max(appends // 5, 1)) * _CLIENTS * 10)
        _tell_appends(result, group, alone)
        with bench.step("reads"):
            _read(f"sqlite:///{directory}/lake.db", str(directory / "data"), rows, rounds, result)


def _append(lake: quacklake.Lake, first: int, appends: int, *, alone: bool) -> _Appended:
    """Let the clients append through a service of their own."""
    with _serving(str(lake.url), "alone" if alone else "groups") as server:
        with running(Load(server.url, _CLIENTS, 3, "w", first=-1 - first - 10_000_000)) as begin:
            begin()  # what is made once is made
        lake.sql("DELETE FROM w WHERE id < 0")
        before = lake.current_snapshot()
        with running(Load(server.url, _CLIENTS, appends, "w", first=first)) as begin:
            start = server.processor()
            taken = begin()
            processor = server.processor() - start
    return _Appended(taken, processor / len(taken.each), lake.current_snapshot() - before)


def _check(lake: quacklake.Lake, rows: int) -> None:
    found = lake.sql("SELECT count(*), count(DISTINCT id) FROM w").fetchall()
    if found != [(rows, rows)]:
        raise RuntimeError(f"not every row is there once: {found}, not {rows}")


def _tell_appends(result: Result, group: _Appended, alone: _Appended) -> None:
    rate, each = group.taken.rate, group.taken.each
    result.measures += [
        Measure(
            f"appends of 10 rows by {_CLIENTS} clients", "/s", rate, alone.taken.rate, _ALONE,
            rate / alone.taken.rate, "the rate", Target("≥", 1_000, "ours"),
        ),
        Measure("an append, p50", "ms", percentile(each, 50) * 1e3, percentile(alone.taken.each, 50) * 1e3, _ALONE),
        Measure("an append, p99", "ms", percentile(each, 99) * 1e3, percentile(alone.taken.each, 99) * 1e3, _ALONE),
        Measure("processor of the service for an append", "ms", group.processor * 1e3, alone.processor * 1e3, _ALONE),
    ]  # fmt: skip
    size = len(each) / max(group.snapshots, 1)
    result.notes.append(f"{len(each):,} appends became {group.snapshots:,} snapshots: {size:.1f} appends in each.")


def _read(url: str, data: str, rows: int, rounds: int, result: Result) -> None:
    """Measure point queries, a large result and many readers."""
    from benchmarks.flight import bare_server, own_server, query_all, read_all

    with quacklake.connect(url, data_path=data, create=True) as lake:
        lake.sql(f"CREATE TABLE t AS SELECT range AS id, range * 7 AS other, random() AS share FROM range({rows})")
        size = lake.table("t").to_arrow().nbytes
        with _serving(url, "groups") as server, bare_server(url) as bare, own_server(url) as flight:
            far = _Caller(server.url)
            works: dict[str, Callable[[], object]] = {
                "own": lambda: lake.sql(_POINT, [77]).fetchall(),
                "point": lambda: far.ask({"sql": _POINT, "parameters": [77]}),
            }
            points = alternate(rounds * 20, works)
            wholes = alternate(
                rounds,
                {
                    "http": lambda: far.count({"sql": "FROM t"}),
                    "flight": lambda: query_all(flight, "FROM t"),
                    "process": lambda: sum(batch.num_rows for batch in lake.sql("FROM t").to_batches()),
                    "bare": lambda: read_all(bare),
                },
            )
            with running(Load(server.url, _READERS, 5)) as begin:
                readers = begin()
    point, own = points["point"].median * 1e3, points["own"].median * 1e3
    wrong = {name: timing.answer for name, timing in wholes.items() if timing.answer != rows}
    if wrong:
        raise RuntimeError(f"not all rows came: {wrong}")
    http, query, process, raw = (size / 1e6 / wholes[name].wall for name in ("http", "flight", "process", "bare"))
    p50, p99 = percentile(readers.each, 50) * 1e3, percentile(readers.each, 99) * 1e3
    result.measures += [
        slowdown("a point query, median", point, own, "ms", at_most(1.5), "in the process"),
        Measure(f"{size / 1e6:,.0f} MB of Arrow data", "MB/s", http, raw, "bare pyarrow.flight", http / raw, "the rate",
                at_least(0.7)),
        Measure("the same, beside the query in the process", "MB/s", http, process, "in the process", http / process,
                "the rate"),
        Measure("the same, beside our Flight", "MB/s", http, query, "the same query by our Flight", http / query,
                "the rate", at_least(0.7)),
        Measure(f"{_READERS} readers at once, p50", "ms", p50),
        Measure(f"{_READERS} readers at once, p99", "ms", p99, p50, "p50", p99 / p50, "the time", at_most(10)),
    ]  # fmt: skip
    result.notes.append(f"{_READERS} readers: {readers.rate:,.0f} answers a second, 5 to each, none failed.")


class _Caller:
    """A client with one connection."""

    def __init__(self, url: str) -> None:
        address = urlsplit(url)
        self._connection = http.client.HTTPConnection(str(address.hostname), address.port, timeout=120)

    def ask(self, body: object) -> int:
        """Run a statement, and return the bytes of the answer."""
        return len(self._send(body).read())

    def count(self, body: object) -> int:
        """Run a statement, take its rows as they come, and return their number."""
        answer = self._send(body, Accept=_ARROW)
        rows = sum(int(batch.num_rows) for batch in pa.ipc.open_stream(answer))
        answer.read()
        return rows

    def _send(self, body: object, **headers: str) -> http.client.HTTPResponse:
        more = {"Authorization": f"Bearer {TOKEN}", "Content-Type": "application/json", **headers}
        self._connection.request("POST", "/api/v1/sql", json.dumps(body), more)
        answer = self._connection.getresponse()
        if answer.status != 200:
            raise RuntimeError(f"the answer was {answer.status}")
        return answer


@contextmanager
def _serving(url: str, kind: str) -> Iterator[_Server]:
    line = [sys.executable, "-m", "benchmarks.service", kind, url]
    with subprocess.Popen(line, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield _Server(process.stdout.readline().strip(), process)
        finally:
            process.communicate()  # the end of its input ends it


def _serve(kind: str, url: str) -> None:
    from quacklake.service.app import create_app
    from quacklake.service.identity import Role, TokenGate
    from quacklake.service.serving import BackgroundService
    from quacklake.service.settings import ServiceSettings

    more = {"group_appends": 1} if kind == "alone" else {}
    settings = ServiceSettings(port=0, max_rows=100_000_000, **more)  # type: ignore[arg-type]
    app = create_app(TokenGate(quacklake.connect(url), {TOKEN: Role.ADMIN}), settings)
    with BackgroundService(app, settings) as place:
        print(place, flush=True)
        for _ in sys.stdin:
            print(time.process_time(), flush=True)


if __name__ == "__main__":
    _serve(*sys.argv[1:])
