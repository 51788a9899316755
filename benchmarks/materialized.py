"""Materialized views: what a refresh costs when a large table changes a little.

A table of sensor readings over a year, in the order of time, has two views: sums and counts by device and hour, and by
device and day. New rows arrive at its end, late rows anywhere in the year, rows are corrected, and then nothing is new.
The peer of the new rows is the time in which DuckDB aggregates these rows alone, for both views; that of the others is
DuckDB computing both views in full, over the files of the table. Both views were refreshed once before.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import quacklake
from benchmarks.common import Bench, Measure, Result, Target, at_most, open_duckdb, slowdown
from quacklake.core.materialized.definition import RefreshReport

TITLE = "refreshing hourly and daily aggregates of a table that changes a little"

_DEVICES = 100
_YEAR = 365 * 24 * 3600
_VIEWS = {
    "hourly": "SELECT device, date_trunc('hour', ts) AS hour, sum(value) AS total, count(*) AS n, max(value) AS top"
    " FROM readings GROUP BY ALL",
    "daily": "SELECT device, date_trunc('day', ts) AS day, sum(value) AS total, count(*) AS n, max(value) AS top"
    " FROM readings GROUP BY ALL",
}


def run(bench: Bench, result: Result) -> None:
    """Fill the table, create the views, and refresh them after each kind of change."""
    rows, new = bench.pick((200_000, 5_000), (10_000_000, 200_000), (50_000_000, 1_000_000))
    with bench.directory() as directory:
        url, data = f"sqlite:///{directory}/lake.db", directory / "data"
        with quacklake.connect(url, data_path=data) as lake:
            _fill(bench, lake, rows)
            with bench.step("creating the views", len(_VIEWS)) as done:
                for name, query in _VIEWS.items():
                    lake.create_materialized_view(name, query, partition_by="month(hour)" if name == "hourly" else ())
                    done(1)
            # as in a process that refreshes all the time: the first refresh also loads libraries and opens a session
            lake.sql(_insert(rows + new + 1_000, 20, str(_YEAR - 1)))
            _refresh(bench, lake)
            full = _full(data)
            before = _bytes(lake)
            lake.sql(_insert(rows, new, f"{_YEAR} + i * {_YEAR // 365} // {new}"))
            fresh = _aggregate_alone(directory, rows, new)
            seconds, _ = _refresh(bench, lake)
            result.measures.append(
                slowdown(f"{new:,} new rows", seconds * 1e3, fresh * 1e3, "ms", at_most(2.0), "aggregating them alone")
            )
            lake.sql(_insert(rows + new, 1_000, f"hash(i) % {_YEAR}"))
            seconds, reports = _refresh(bench, lake)
            _late(result, "1,000 late rows over the year", seconds, reports, full, before)
            lake.sql(f"UPDATE readings SET value = value + 1 WHERE device = 7 AND ts < {_time(3600 * 10)}")
            seconds, reports = _refresh(bench, lake)
            _late(result, "ten hours of a device corrected", seconds, reports, full, before)
            idle = min(_timed(lambda: lake.refresh("hourly")) for _ in range(20))
            result.measures.append(Measure("nothing new", "ms", idle * 1e3, target=at_most(5.0, "ours")))
            with bench.step("verifying the views"):
                for found in lake.materialized_views.verify():
                    if not found.ok:
                        raise RuntimeError(f"{found.view} is not the answer of its query")
    result.notes.append(
        f"{rows:,} rows of {_DEVICES} devices over a year; both views verified at the end. Sums are of BIGINT, which"
        " are merged; sums of DOUBLE would be computed again by group."
    )


def _time(seconds: object) -> str:
    return f"TIMESTAMP '2024-01-01' + to_seconds({seconds})"


def _insert(first: int, count: int, at: str) -> str:
    """Return the statement that inserts readings; ``at`` says when, in seconds from the beginning."""
    return (
        f"INSERT INTO readings SELECT ({first} + i) AS id, (hash(i) % {_DEVICES})::INTEGER AS device,"
        f" {_time(at)} AS ts, (hash(i + 1) % 1000)::BIGINT AS value FROM range({count}) r(i)"
    )


def _fill(bench: Bench, lake: quacklake.Lake, rows: int) -> None:
    lake.sql("CREATE TABLE readings (id BIGINT, device INTEGER, ts TIMESTAMP, value BIGINT)")
    parts = 120
    with bench.step(f"writing {rows} rows", parts) as done:
        for part in range(parts):
            first, count = part * rows // parts, rows // parts
            lake.sql(_insert(first, count, f"{part} * {_YEAR // parts} + i * {_YEAR // parts} // {count}"))
            done(1)


def _full(data: Path) -> float:
    """Return the seconds in which DuckDB computes both views over the files of the table."""
    files = f"read_parquet('{data}/main/readings/*.parquet')"
    with closing(open_duckdb()) as peer:
        return _timed(
            lambda: [
                peer.execute(f"CREATE OR REPLACE TABLE v AS {q.replace('readings', files)}") for q in _VIEWS.values()
            ]
        )


def _aggregate_alone(directory: Path, rows: int, new: int) -> float:
    """Return the seconds in which DuckDB aggregates the new rows for both views and writes the result."""
    with closing(open_duckdb()) as peer:
        peer.execute("CREATE TABLE readings (id BIGINT, device INTEGER, ts TIMESTAMP, value BIGINT)")
        peer.execute(_insert(rows, new, f"{_YEAR} + i * {_YEAR // 365} // {new}"))
        target = directory / "new.parquet"
        peer.execute(f"COPY readings TO '{target}'")
        query = f"read_parquet('{target}')"
        return min(
            _timed(
                lambda: [
                    peer.execute(f"COPY ({q.replace('readings', query)}) TO '{directory}/alone.parquet'")
                    for q in _VIEWS.values()
                ]
            )
            for _ in range(3)
        )


def _refresh(bench: Bench, lake: quacklake.Lake) -> tuple[float, list[RefreshReport]]:
    with bench.step("refreshing", len(_VIEWS)) as done:
        began, reports = time.perf_counter(), []
        for name in _VIEWS:
            reports.append(lake.refresh(name))
            done(1)
        return time.perf_counter() - began, reports


def _late(result: Result, what: str, seconds: float, reports: list[RefreshReport], full: float, stored: int) -> None:
    ways = ", ".join(dict.fromkeys(report.way for report in reports))
    result.measures.append(
        slowdown(f"{what} ({ways})", seconds * 1e3, full * 1e3, "ms", Target("≤", 1_000, "ours"), "in full, in DuckDB")
    )
    share = max(report.bytes for report in reports) / stored
    result.measures.append(Measure(f"{what}: bytes read of the table", "%", share * 100, target=at_most(5.0, "ours")))


def _bytes(lake: quacklake.Lake) -> int:
    return sum(lake.table("readings").files().column("file_size_bytes").to_pylist())


def _timed(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began
