"""The published inlining benchmark: batches of 10 rows × 23 columns into a lake on PostgreSQL, then an aggregation.

DuckLake's authors publish 375 s for 30,000 such batches and 1.7 s for the aggregation, far less than formats need that
keep their metadata in files. Both sides insert in turn here, and the time is scaled to 30,000 batches. For the
aggregation both read one and the same lake, ours, with all of its rows inline; planning counts, because that is when
inlined rows are fetched.
"""

from __future__ import annotations

import datetime as dt
import time
from contextlib import closing
from pathlib import Path

import pyarrow as pa

from benchmarks.common import (
    Bench,
    Extension,
    Measure,
    Ours,
    Place,
    Result,
    Side,
    alternate,
    at_least,
    attach,
    chunks,
    faster,
    open_duckdb,
    same_rows,
)

TITLE = "the published inlining benchmark: 10 rows × 23 columns a batch, on PostgreSQL"

_PUBLISHED = 30_000
_ROWS = 10
_START = dt.datetime(2025, 1, 1)
_KINDS = {"i": 9, "f": 6, "s": 4, "t": 2, "b": 2}  # integers, floats, strings, times, booleans: 23 columns


def run(bench: Bench, result: Result) -> None:
    """Insert on both sides, then aggregate."""
    with bench.directory() as directory:
        place, measures, batches = _insert(bench, directory)
        result.measures += measures
        result.measures.append(_aggregate(bench, place, batches))
    result.notes.append("Published: 375 s of inserts and 1.7 s of aggregation for 30,000 batches.")


def _insert(bench: Bench, directory: Path) -> tuple[Place, list[Measure], int]:
    count, peer_count, rounds = bench.pick((30, 30, 3), (300, 300, 12), (30_000, 1_500, 50))
    place, schema = bench.place(directory, "postgres", "ours"), _batch(0).schema
    ours_seconds = peer_seconds = 0.0
    with (
        closing(Ours(place, schema)) as ours,
        closing(Extension(bench.place(directory, "postgres", "peer"), schema)) as peer,
        bench.step(f"{count} batches, {peer_count} of the peer", count + peer_count) as done,
    ):
        for side in (ours, peer):
            side.append(_batch(0))
        for ours_part, peer_part in zip(chunks(count, rounds), chunks(peer_count, rounds), strict=True):
            ours_seconds += _timed(ours, ours_part)
            peer_seconds += _timed(peer, peer_part)
            done(len(ours_part) + len(peer_part))
    per_batch = (ours_seconds / count, peer_seconds / peer_count)
    scaled = (per_batch[0] * _PUBLISHED, per_batch[1] * _PUBLISHED)
    return (
        place,
        [
            faster("insert one batch, mean", per_batch[0] * 1e3, per_batch[1] * 1e3, "ms", at_least(5)),
            faster(f"insert, scaled to {_PUBLISHED:,} batches", *scaled, "s", at_least(5)),
        ],
        count + 1,
    )


def _timed(side: Side, numbers: range) -> float:
    batches = [_batch(number) for number in numbers]
    start = time.perf_counter()
    for rows in batches:
        side.append(rows)
    return time.perf_counter() - start


def _aggregate(bench: Bench, place: Place, batches: int) -> Measure:
    query = f"SELECT {', '.join(_aggregates())} FROM t"
    with (
        closing(attach(place)) as peer,
        closing(open_duckdb()) as connection,
        closing(Ours(place, _batch(0).schema)) as ours,
        bench.step("aggregating"),
    ):

        def ours_query() -> object:
            ours.lake.register(connection)
            return connection.execute(query).fetchall()

        timings = alternate(bench.pick(2, 7, 7), {"ours": ours_query, "peer": lambda: peer.execute(query).fetchall()})
    if not same_rows(timings["ours"].answer, timings["peer"].answer):
        raise RuntimeError("the two sides read different rows")
    what = f"aggregate all columns of {batches * _ROWS:,} rows, planning included"
    return faster(what, timings["ours"].median * 1e3, timings["peer"].median * 1e3, "ms")


def _aggregates() -> list[str]:
    words = {"i": "sum({0})", "f": "avg({0})", "s": "max({0})", "t": "min({0})", "b": "count_if({0})"}
    return ["count(*)", *(words[name[0]].format(name) for name in _names())]


def _names() -> list[str]:
    return [f"{kind}{number}" for kind, count in _KINDS.items() for number in range(count)]


def _batch(number: int) -> pa.Table:
    ids = range(number * _ROWS, number * _ROWS + _ROWS)
    values = {
        "i": lambda column: pa.array([i * (column + 1) for i in ids], pa.int64()),
        "f": lambda column: pa.array([i / (column + 2) for i in ids], pa.float64()),
        "s": lambda column: pa.array([f"text {column} of {i}" for i in ids], pa.string()),
        "t": lambda column: pa.array([_START + dt.timedelta(seconds=i + column) for i in ids], pa.timestamp("us")),
        "b": lambda column: pa.array([i % (column + 2) == 0 for i in ids], pa.bool_()),
    }
    return pa.table({name: values[name[0]](int(name[1:])) for name in _names()})
