"""The published inlining benchmark: batches of 10 rows × 23 columns into a lake on PostgreSQL, then an aggregation.

DuckLake's authors publish 375 s for 30,000 such batches and 1.7 s for the aggregation, far less than formats need that
keep their metadata in files. Both sides insert in turn here, and the time is scaled to 30,000 batches. For the
aggregation both read one and the same lake, ours, with all of its rows inline; planning counts, because that is when
inlined rows are fetched. What was read before is remembered, so another line has one more batch committed before each
query, another a lake that remembers nothing, and each the same rows in a tenant of a shared lake: there they are JSON,
which the extension cannot read.
"""

from __future__ import annotations

import datetime as dt
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, closing
from pathlib import Path

import duckdb
import pyarrow as pa

import quacklake
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
    at_most,
    attach,
    chunks,
    faster,
    open_duckdb,
    percentile,
    same_rows,
)

TITLE = "the published inlining benchmark: 10 rows × 23 columns a batch, on PostgreSQL"

_PUBLISHED = 30_000
_ROWS = 10
_START = dt.datetime(2025, 1, 1)
_PROFILE = (
    "From 5,000 rows on, those that were read within 30 seconds are remembered: of a new snapshot only what is new or"
    " ended is read, and the rest is counted. Most of that time is then the copy of all rows into the user's"
    " connection.",
    "Where the time of 300,000 rows goes that were not read before (about, processor milliseconds of 250; 240 for the"
    " extension, which reads PostgreSQL's binary form in C++): 75 to make columns of the blocks, 50 to decode what"
    " needs a cast, 90 to make a table of them in the user's connection. The server takes 320 to make the blocks, 37"
    " nanoseconds a value, and 220 for the binary COPY of rows that the extension reads; they are most of the wall"
    " time. In a tenant 540: the server joins 100 MB of JSON in 170, and DuckDB takes it apart in 90, casts it in 190,"
    " and tells in 60 that all of it is lists of texts. The extension reads the rows of a plain lake here too.",
)
_KINDS = {"i": 9, "f": 6, "s": 4, "t": 2, "b": 2}  # integers, floats, strings, times, booleans: 23 columns


def run(bench: Bench, result: Result) -> None:
    """Insert on both sides, then aggregate."""
    with bench.directory() as directory:
        place, measures, batches = _insert(bench, directory)
        result.measures += measures
        result.measures += _aggregate(bench, place, bench.place(directory, "postgres", "shared"), batches)
    result.notes += ["Published: 375 s of inserts and 1.7 s of aggregation for 30,000 batches.", *_PROFILE]


def _insert(bench: Bench, directory: Path) -> tuple[Place, list[Measure], int]:
    count, peer_count, rounds = bench.pick((30, 30, 3), (300, 300, 12), (30_000, 1_500, 50))
    place, schema = bench.place(directory, "postgres", "ours"), _batch(0).schema
    ours_seconds = peer_seconds = ours_cpu = peer_cpu = 0.0
    with (
        closing(Ours(place, schema)) as ours,
        closing(Extension(bench.place(directory, "postgres", "peer"), schema)) as peer,
        bench.step(f"{count} batches, {peer_count} of the peer", count + peer_count) as done,
    ):
        for side in (ours, peer):
            side.append(_batch(0))
        for ours_part, peer_part in zip(chunks(count, rounds), chunks(peer_count, rounds), strict=True):
            (wall, cpu), (peer_wall, other) = _timed(ours, ours_part), _timed(peer, peer_part)
            ours_seconds, ours_cpu = ours_seconds + wall, ours_cpu + cpu
            peer_seconds, peer_cpu = peer_seconds + peer_wall, peer_cpu + other
            done(len(ours_part) + len(peer_part))
    per_batch = (ours_seconds / count, peer_seconds / peer_count)
    scaled = (per_batch[0] * _PUBLISHED, per_batch[1] * _PUBLISHED)
    return (
        place,
        [
            faster("insert one batch, mean", per_batch[0] * 1e3, per_batch[1] * 1e3, "ms", at_least(5)),
            faster(f"insert, scaled to {_PUBLISHED:,} batches", *scaled, "s", at_least(5)),
            faster(
                "insert one batch, processor time of the client",
                ours_cpu / count * 1e3,
                peer_cpu / peer_count * 1e3,
                "ms",
                at_most(1.5, "ours"),
            ),
        ],
        count + 1,
    )


def _timed(side: Side, numbers: range) -> tuple[float, float]:
    """Return the wall time and the processor time of this process for some batches."""
    batches = [_batch(number) for number in numbers]
    start, cpu = time.perf_counter(), time.process_time()
    for rows in batches:
        side.append(rows)
    return time.perf_counter() - start, time.process_time() - cpu


def _aggregate(bench: Bench, place: Place, shared: Place, batches: int) -> list[Measure]:
    query = f"SELECT {', '.join(_aggregates())} FROM t"
    with (
        closing(attach(place)) as peer,
        closing(Ours(place, _batch(0).schema)) as ours,
        closing(_tenant(bench, shared, batches)) as tenant,
        quacklake.connect(place.url, plan_cache_bytes=0) as first,
        quacklake.connect(shared.url, catalog="one", plan_cache_bytes=0) as first_tenant,
        ExitStack() as stack,
    ):
        plain, theirs, others = (stack.enter_context(closing(open_duckdb())) for _ in range(3))
        works: dict[str, Callable[[], object]] = {
            "ours": lambda: _asked(ours.lake, plain, query),
            "tenant": lambda: _asked(tenant.lake, theirs, query),
            "peer": lambda: peer.execute(query).fetchall(),
        }
        with bench.step("aggregating"):
            again = alternate(bench.pick(2, 7, 7), works)
        with bench.step("aggregating new snapshots"):
            new = _new_snapshots(bench.pick(2, 9, 9), works, (ours, tenant), batches)
        works |= {
            "ours": lambda: _asked(first, others, query),
            "tenant": lambda: _asked(first_tenant, others, query),
        }
        with bench.step("aggregating for the first time"):
            once = alternate(bench.pick(2, 7, 5), works)
    for found in (again, once):
        if not all(same_rows(found[name].answer, found["peer"].answer) for name in works):
            raise RuntimeError("the two sides read different rows")
    what = f"aggregate all columns of {batches * _ROWS:,} rows, planning included"
    return [
        faster(f"{what}{words}", times[name] * 1e3, times["peer"] * 1e3, "ms", at_least(1))
        for times, words in (
            ({name: again[name].median for name in works}, ""),
            (new, ", of a new snapshot"),
            ({name: once[name].median for name in works}, ", by who has not read them before"),
        )
        for name, words in (("ours", words), ("tenant", f"{words}, in a tenant"))
    ]


def _tenant(bench: Bench, place: Place, batches: int) -> Ours:
    """Return the table in a tenant of a shared lake, with the same rows."""
    with quacklake.tenants(place.url, place.data) as tenants:
        tenants.create("one")
    tenant = Ours(place, _batch(0).schema, catalog="one")
    with bench.step("batches of a tenant", batches) as done:
        for number in (0, *range(batches - 1)):  # as those of the insert, whose first one is not timed
            tenant.append(_batch(number))
            done(1)
    return tenant


def _asked(lake: quacklake.Lake, connection: duckdb.DuckDBPyConnection, query: str) -> object:
    lake.register(connection)
    return connection.execute(query).fetchall()


def _new_snapshots(
    rounds: int, works: Mapping[str, Callable[[], object]], tables: Sequence[Ours], batches: int
) -> dict[str, float]:
    """Return the median seconds of each work when a batch was committed before."""
    seconds: dict[str, list[float]] = {name: [] for name in works}
    for number in range(rounds):
        for table in tables:
            table.append(_batch(batches + number))
        for name in works if number % 2 == 0 else reversed(list(works)):
            start = time.perf_counter()
            works[name]()
            seconds[name].append(time.perf_counter() - start)
    return {name: percentile(each, 50) for name, each in seconds.items()}


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
