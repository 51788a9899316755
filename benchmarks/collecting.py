"""Collecting: a collector beside the bare speed of the server that it reads.

The peer asks the simulator for the same pages and drops them. The collector also parses them, makes wide rows, and
commits them to a pond. The simulator runs in a process of its own. It makes each page anew, or has every page ready.
Line protocol goes through the listener beside the parser alone.
"""

from __future__ import annotations

import http.client
import os
import threading
import time
from pathlib import Path

from benchmarks.common import Bench, Result, at_most, slowdown
from quacklake.pond import Pond
from quacklake.pond.collectors.base import Run
from quacklake.pond.collectors.line_protocol import parse
from quacklake.pond.collectors.listener import HttpListener
from quacklake.pond.factories.registry import find
from quacklake_sensors.hydrovu_options import HydroVuOptions
from services import HydroVuServer

TITLE = "readings a second that a collector stores, beside the bare speed of the server"

_DEVICE = {"name": "AT500", "id": 6154708427603968}
_BEGIN = 1_704_067_200


def run(bench: Bench, result: Result) -> None:
    """Collect the history of a device, then write lines."""
    days = bench.pick(4, 30, 365)
    with bench.directory() as directory:
        for ready in (False, True):
            _hydrovu(bench, result, directory, days, ready=ready)
        _lines(bench, result, directory)


def _hydrovu(bench: Bench, result: Result, directory: Path, days: int, *, ready: bool) -> None:
    settings = {"interval": 60, "end": _BEGIN + days * 86_400 - 1, "late_after": 0, "remember": ready}
    os.environ["HYDRO_KEY_VALUE"] = "not-a-secret"
    words = "pages are ready" if ready else "pages are made"
    with HydroVuServer(settings=settings) as server, bench.step(f"{days} days of readings, {words}"):
        config = {"url": server.url, "client_id": "client", "devices": [_DEVICE], "max_points_per_run": 10**9}
        bare: list[float] = []
        ours: list[float] = []
        own: list[float] = []
        for number in range(4):
            begun = time.perf_counter()
            assert _bare(config)
            between = time.perf_counter()
            with Pond.create(directory / f"{ready}-{number}") as pond:
                start, processor = time.perf_counter(), time.process_time()
                report = find("hydrovu").run(Run(pond, "/c"), config)  # type: ignore[attr-defined]
                done, used = time.perf_counter(), time.process_time() - processor
            assert report.rows == days * 1440
            if number:  # the first round fills caches
                bare.append(between - begun)
                ours.append(done - start)
                own.append(used)
    points = days * 1440 * 4
    what = f"{points:,} readings, {words}"
    target = None if ready else at_most(1.5)
    result.measures.append(slowdown(what, min(ours), min(bare), "s", target, "requests alone"))
    rates = f"{points / min(ours):,.0f} readings a second; the server gives {points / min(bare):,.0f}"
    share = f"it uses {min(own):.2f} s of the processor itself, {min(own) / points * 1e6:.1f} µs a reading"
    result.notes.append(f"If {words}, the collector stores {rates}; {share}.")


def _bare(config: dict[str, object]) -> int:
    """Ask for every page, and drop it."""
    options = HydroVuOptions.of(config)
    client = options.client()
    token, following, size = client.token(), "", 0
    while True:
        headers = {"Authorization": f"Bearer {token}", **({"X-ISI-Start-Page": following} if following else {})}
        reply = client.client.get(f"/v1/locations/{_DEVICE['id']}/data", {"startTime": "0"}, headers)
        size += len(reply.body)
        following = reply.headers.get("x-isi-next-page", "")
        if not following:
            client.client.close()
            return size


def _lines(bench: Bench, result: Result, directory: Path) -> None:
    requests, lines = bench.pick(2, 10, 40), bench.pick(100, 5000, 5000)
    bodies = [
        "\n".join(f"cpu,host=h{n % 10} usage={n / 7:.4f},count={n}i {_BEGIN + r * lines + n}" for n in range(lines))
        for r in range(requests)
    ]
    begun = time.perf_counter()
    for body in bodies:
        parse(body, "s", 0, max_rows=lines, max_columns=9)
    parsing = time.perf_counter() - begun
    with bench.step(f"{requests} requests of {lines} lines"), Pond.create(directory / "pond-lines") as pond:
        stop, ready, said = threading.Event(), threading.Event(), list[str]()
        run_ = Run(pond, "/c", stop=stop, say=lambda text: (said.append(text), ready.set())[0])
        thread = threading.Thread(target=HttpListener().run, args=(run_, {"port": 0, "path": "/t", "max_delay": "1ms"}))
        thread.start()
        ready.wait(30)
        connection = http.client.HTTPConnection(said[0].rpartition("//")[2])
        begun = time.perf_counter()
        for body in bodies:
            connection.request("POST", "/write?precision=s", body.encode())
            answer = connection.getresponse()
            answer.read()
            assert answer.status == 204
        seconds = time.perf_counter() - begun
        connection.close()
        stop.set()
        thread.join()
    count = requests * lines
    result.measures.append(slowdown(f"{count:,} lines committed", seconds, parsing, "s", peer_name="parsing alone"))
    result.notes.append(f"The listener commits {count / seconds:,.0f} lines a second, {lines:,} in each transaction.")
