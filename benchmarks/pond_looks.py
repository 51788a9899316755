"""The pond's pictures: reductions of a series, the points of a range, and a site in a browser.

The peer of a reduction is DuckDB, which computes the same queries over the files of the series and writes Parquet.
"""

from __future__ import annotations

import datetime as dt
import shutil
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import duckdb
import pyarrow as pa

from benchmarks.common import Bench, Measure, Result, at_most, open_duckdb, slowdown
from quacklake.core.format.names import quote
from quacklake.pond import Pond, reduces
from quacklake.pond.factories.temporal_reduce import ReducedOptions
from quacklake.pond.paths import table_of
from quacklake.pond.series import append_series
from quacklake.pond.site.export import export_site, store_site
from quacklake.pond.viewports import viewport
from services.browser import Browser, find_browser

TITLE = "pictures of the pond: reductions, the points of a range, and a site in a browser"

_RESOLUTIONS = ("1m", "15m", "1h", "6h", "1d")
_BEGIN = dt.datetime(2021, 1, 1, tzinfo=dt.UTC)
_WIDTH = 1000
_SERIES = "/dock.series"


def run(bench: Bench, result: Result) -> None:
    """Measure each in a pond of its own."""
    with bench.directory() as directory:
        _reduce(bench, result, directory)
    with bench.directory() as directory:
        _range(bench, result, directory)
    with bench.directory() as directory:
        _site(bench, result, directory)


def _readings(count: int, seconds: int, seed: int = 0) -> pa.RecordBatchReader:
    connection = duckdb.connect()
    connection.execute("SET timezone = 'UTC'")
    return connection.execute(
        f"SELECT TIMESTAMPTZ '2021-01-01 00:00:00+00' + to_seconds(i * {seconds}) AS timestamp,"
        f" sin(i * {seconds} / 43200.0) * 10 + hash(i + {seed}) % 1000 / 500.0 AS temp FROM range({count}) r(i)"
    ).to_arrow_reader(100_000)


def _timed(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def _reduce(bench: Bench, result: Result, directory: Path) -> None:
    count = bench.pick(50_000, 5_000_000, 100_000_000)
    with Pond.create(directory / "pond") as pond:
        with bench.step(f"writing {count:,} readings"):
            pond.run(["bench"], lambda fs: append_series(fs, _SERIES, _readings(count, 1)))
        config = {"in_pattern": _SERIES, "resolutions": list(_RESOLUTIONS)}
        pond.run(["bench"], lambda fs: fs.make_node("/reduced", "temporal-reduce", config))
        with bench.step("reducing"):
            ours = _timed(lambda: reduces.maintain(pond))
        place = Path(pond.lake.data_path)
        files = [str(place / name) for name in pond.lake.table(table_of(_SERIES)).files().column("path").to_pylist()]
        with bench.step("reducing with DuckDB"), closing(open_duckdb()) as peer:
            theirs = _timed(lambda: _peer(pond, peer, files, directory))
        result.measures.append(
            slowdown(f"{count:,} readings to 5 resolutions", ours, theirs, "s", at_most(1.2), "DuckDB, to Parquet")
        )
        late = [{"timestamp": _BEGIN + dt.timedelta(seconds=count / 2, milliseconds=500), "temp": 99.0}]
        pond.run(["bench"], lambda fs: append_series(fs, _SERIES, late))
        again = _timed(lambda: reduces.maintain(pond))
        result.measures.append(Measure("one late reading: 5 resolutions up to date", "s", again))


def _peer(pond: Pond, peer: duckdb.DuckDBPyConnection, files: list[str], directory: Path) -> None:
    peer.execute("SET timezone = 'UTC'")
    names = ", ".join(f"'{name}'" for name in files)
    for resolution in _RESOLUTIONS:
        options = ReducedOptions.of({"source": _SERIES, "resolution": resolution})
        known = reduces.kept(pond.fs(), options)
        assert known is not None
        query = known.query.replace(table_of(_SERIES), f"read_parquet([{names}])")
        peer.execute(f"COPY ({query}) TO '{directory}/{resolution}.parquet'")


def _range(bench: Bench, result: Result, directory: Path) -> None:
    """Three years of a hundred series; a page shows a week of one, then all of it."""
    number, minutes = bench.pick((4, 240), (100, 60), (100, 5))
    count = 3 * 365 * 1440 // minutes
    with Pond.create(directory / "pond") as pond:
        with bench.step(f"writing {number} series of {count:,} readings", number) as done:
            for each in range(number):
                path, rows = f"/s{each}.series", _readings(count, minutes * 60, each)
                pond.run(["bench"], lambda fs, path=path, rows=rows: append_series(fs, path, rows))
                done(1)
        config = {"in_pattern": "/s7.series" if number > 7 else "/s1.series", "resolutions": ["6h", "1d"]}
        pond.run(["bench"], lambda fs: fs.make_node("/reduced", "temporal-reduce", config))
        reduces.maintain(pond)
        shown = config["in_pattern"]
        stored = sum(
            sum(pond.lake.table(f"pond_data.{quote(f'/s{each}.series')}").files().column("file_size_bytes").to_pylist())
            for each in range(number)
        )
        middle = _BEGIN + dt.timedelta(days=500)
        for what, start, end in (
            ("a week of one series", middle, middle + dt.timedelta(days=7)),
            ("three years of one series", None, None),
        ):
            viewport(pond, shown, start, end, _WIDTH)
            before = _bytes_read()
            seconds = _timed(lambda start=start, end=end: viewport(pond, shown, start, end, _WIDTH))
            share = (_bytes_read() - before) / stored * 100
            result.measures.append(Measure(f"{what}: points for {_WIDTH} pixels", "ms", seconds * 1e3))
            result.measures.append(
                Measure(f"{what}: bytes read of {number} series", "%", share, target=at_most(2.0, "ours"))
            )
        result.notes.append(f"The {number} series have {count:,} readings each. Bytes are those that the process read.")


def _bytes_read() -> int:
    """Return the bytes that this process has read from files; 0 where the system does not say."""
    counters = Path("/proc/self/io")
    if not counters.exists():
        return 0
    return int(counters.read_text().split("rchar: ")[1].split()[0])


def _site(bench: Bench, result: Result, directory: Path) -> None:
    program = find_browser()
    if program is None:
        result.notes.append("No browser: the site was not measured.")
        return
    count = bench.pick(50_000, 1_000_000, 10_000_000)
    chart = {"name": "temp", "series": _SERIES}
    definition = {"title": "Dock", "pages": [{"name": "index", "content": "# Dock", "charts": [chart]}]}
    folder = directory / "site"
    with Pond.create(directory / "pond") as pond:
        pond.run(["bench"], lambda fs: append_series(fs, _SERIES, _readings(count, 1)))
        pond.run(["bench"], lambda fs: store_site(fs, "/sites/dock.yaml", definition))
        with bench.step("writing the site"):
            seconds = _timed(lambda: export_site(pond, "dock", folder))
    shutil.rmtree(directory / "pond")
    result.measures.append(Measure(f"site of {count:,} readings: export", "s", seconds))
    browser = Browser(program, directory / "profile")
    try:
        browser.size(1000, 700)
        paints, steps = [], []
        for _ in range(5):
            browser.open(f"{folder.as_uri()}/index.html")
            paints.append(float(browser.run("document.querySelector('.chart').dataset.painted")))
            for share in (0.3, 0.6, 0.4, 0.5, 0.7):
                browser.run(f"pondCharts[0].zoom(0.35, {share})")
                steps.append(float(browser.run("document.querySelector('.chart').dataset.step")))
    finally:
        browser.close()
    paints, steps = sorted(paints), sorted(steps)
    result.measures += [
        Measure("in Chromium: first paint, median", "ms", paints[len(paints) // 2], target=at_most(200.0, "ours")),
        Measure("in Chromium: zoom step, median", "ms", steps[len(steps) // 2], target=at_most(100.0, "ours")),
        Measure("in Chromium: zoom step, slowest", "ms", steps[-1]),
    ]
