"""The lake as an Iceberg catalog: how long a reader waits for a table with many files.

The catalog gets the metadata rows of files that do not exist, as for planning. The first load makes the manifests, a
second one finds them in memory, a third one in the cache of another process; after a commit only what changed is made.
Then pyiceberg, over HTTP, plans a selective read.
"""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import quacklake
from benchmarks.common import Bench, Measure, Result, Skip, at_most
from benchmarks.planning import fill
from quacklake.service.iceberg import IcebergSettings, LakeTables, iceberg_router
from quacklake.service.identity import Role, TokenGate

TITLE = "tables with many files as tables of an Iceberg catalog"

_TARGETS = {1_000: 0.25, 20_000: 5.3}
"""Seconds of a first prototype, for a table with ten columns."""


def run(bench: Bench, result: Result) -> None:
    """Load tables of both sizes, then plan in pyiceberg."""
    sizes = {f"t{files}": files for files in bench.pick((50,), (1_000, 20_000), (1_000, 20_000, 100_000))}
    with bench.directory() as directory:
        place = bench.place(directory, "sqlite", "lake")
        with quacklake.connect(place.url, data_path=place.data) as lake:
            fill(bench, place, lake, "SQLite", sizes)
            for name, files in sizes.items():
                _load(result, lake, name, files, directory / "cache")
            _plan(result, lake, list(sizes.items())[-1])
    result.notes.append("Five columns with bounds; SQLite; generated files on the disk of the lake.")


def _load(result: Result, lake: quacklake.Lake, name: str, files: int, folder: Path) -> None:
    settings = IcebergSettings(cache_path=str(folder))
    tables = LakeTables(lake, settings)
    first = _timed(lambda: tables.load("main", name))
    again = _timed(lambda: tables.load("main", name))
    other = _timed(lambda: LakeTables(lake, settings).load("main", name))
    lake.table(name).append([dict.fromkeys(lake.table(name).schema.names)])
    after = _timed(lambda: tables.load("main", name))
    shutil.rmtree(folder)
    target = _TARGETS.get(files)
    limit = None if target is None else at_most(target, of="ours")
    result.measures.append(Measure(f"{files:,} files, first load", "s", first, target=limit))
    for what, seconds in (("second load", again), ("another process", other), ("after a commit", after)):
        result.measures.append(Measure(f"{files:,} files, {what}", "s", seconds))


def _plan(result: Result, lake: quacklake.Lake, largest: tuple[str, int]) -> None:
    try:
        from pyiceberg.catalog import load_catalog
    except ImportError:
        raise Skip("the package pyiceberg is not installed") from None
    name, files = largest
    with _serving(lake) as uri:
        catalog = load_catalog("bench", type="rest", uri=uri)
        table = catalog.load_table(f"main.{name}")
        seconds = _timed(lambda: list(table.scan(row_filter="id = 5").plan_files()))
        result.measures.append(Measure(f"{files:,} files, pyiceberg plans a selective read", "s", seconds))


@contextmanager
def _serving(lake: quacklake.Lake) -> Iterator[str]:
    import uvicorn
    from fastapi import FastAPI

    app = FastAPI()
    app.include_router(iceberg_router(TokenGate(lake, {}, anonymous=Role.READER)))
    server = uvicorn.Server(uvicorn.Config(app, host="127.0.0.1", port=0, log_level="error", lifespan="off"))
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        while not server.started:
            time.sleep(0.01)
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join()


def _timed(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start
