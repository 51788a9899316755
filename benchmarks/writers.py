"""Many writers: 32 of them append small batches to one table of a lake on PostgreSQL at the same time.

Ingestion has many hands, and a catalog that lets one commit in at a time must still let each in quickly. Eight
processes of four threads are both our writers and the peer's, in turn, several rounds after one that does not count;
they start together, and every append is a commit of 10 rows. An append that raises an error is counted and tried again,
as an application would have to. Threads of one process may share a snapshot with us. Attempts that the database rolled
back are read from its own statistics.
"""

from __future__ import annotations

import multiprocessing
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, field
from multiprocessing.context import SpawnContext
from queue import Empty, Queue
from typing import Any

import duckdb
import psycopg
import pyarrow as pa

import quacklake
from benchmarks.common import (
    EXTENSION,
    Bench,
    Detail,
    Extension,
    Measure,
    Ours,
    Place,
    Result,
    at_least,
    attach,
    mixed_rows,
    percentile,
)
from quacklake import telemetry

TITLE = "32 concurrent writers, each append a commit, on PostgreSQL"

_SIDES = ("ours", "peer")
_START_SECONDS = 120.0


@dataclass(frozen=True, slots=True)
class _Job:
    """The work of every process."""

    places: dict[str, Place]
    processes: int
    threads: int
    appends: int
    rounds: int
    deadline: float
    """Seconds after which a round ends, whether all appends are done or not."""


@dataclass(slots=True)
class _Tally:
    """The counts and times of the writers of one side."""

    commits: int = 0
    elapsed: float = 0.0
    rolled_back: int = 0
    retries: int = 0
    joined: int = 0
    """Appends that shared the commit of another."""
    warm_up: int = 0
    """Commits before the measurement."""
    latencies: list[float] = field(default_factory=list)
    errors: Counter[str] = field(default_factory=Counter)

    def add(self, other: _Tally) -> None:
        """Take in what others did."""
        self.commits += other.commits
        self.elapsed += other.elapsed
        self.latencies += other.latencies
        self.errors += other.errors

    @property
    def rate(self) -> float:
        """Commits a second."""
        return self.commits / self.elapsed if self.elapsed else 0.0


def run(bench: Bench, result: Result) -> None:
    """Start the processes, let both sides write in turn, count."""
    processes, threads, appends, rounds = bench.pick((2, 2, 3, 1), (8, 4, 10, 2), (8, 4, 50, 3))
    with bench.directory() as directory:
        places = {side: bench.place(directory, "postgres", side) for side in _SIDES}
        _create(places)
        job = _Job(places, processes, threads, appends, rounds, bench.pick(20.0, 45.0, 240.0))
        tallies = _measure(bench, job)
        _check(job, tallies)
    _summarise(result, job, tallies)


def _create(places: dict[str, Place]) -> None:
    schema = mixed_rows(0).schema
    Ours(places["ours"], schema).close()
    Extension(places["peer"], schema).close()


# -- the conductor -----------------------------------------------------------------------------------------------------


def _measure(bench: Bench, job: _Job) -> dict[str, _Tally]:
    context = multiprocessing.get_context("spawn")
    tallies = {side: _Tally() for side in _SIDES}
    gate = context.Barrier(job.processes + 1)
    results: Any = context.Queue()
    before = {side: _rolled_back(job.places[side]) for side in _SIDES}
    workers = _start(context, job, gate, results)
    try:
        with bench.step(f"starting {job.processes} processes"):
            for _ in workers:
                _receive(results, workers, _START_SECONDS)
        for side in _SIDES:
            with bench.step(f"{side}, first connections"):
                tallies[side].warm_up = _round(job, workers, gate, results).commits
        for number in range(job.rounds):
            for side in _SIDES:
                with bench.step(f"{side}, {job.processes * job.threads} writers, round {number + 1} of {job.rounds}"):
                    tallies[side].add(_round(job, workers, gate, results))
        gate.wait(_START_SECONDS)
        for _ in workers:
            retries, joined = _receive(results, workers, _START_SECONDS)
            tallies["ours"].retries += retries
            tallies["ours"].joined += joined
        for worker in workers:
            worker.join()
    finally:
        for worker in workers:
            worker.kill()
    for side, tally in tallies.items():
        tally.rolled_back = _rolled_back(job.places[side]) - before[side]
    return tallies


def _start(context: SpawnContext, job: _Job, gate: Any, results: Any) -> list[Any]:
    workers = [
        context.Process(target=_work, args=(number, job, gate, results), daemon=True) for number in range(job.processes)
    ]
    for worker in workers:
        worker.start()
    return workers


def _round(job: _Job, workers: list[Any], gate: Any, results: Any) -> _Tally:
    tally = _Tally()
    limit = job.deadline * 2 + _START_SECONDS
    gate.wait(limit)
    start = time.perf_counter()
    for _ in range(job.processes * job.threads):
        latencies, errors = _receive(results, workers, limit)
        tally.add(_Tally(len(latencies), latencies=latencies, errors=errors))
    tally.elapsed = time.perf_counter() - start
    return tally


def _receive(results: Any, workers: list[Any], seconds: float) -> Any:
    """Return the next report of a process. Raise ``RuntimeError`` when one has failed or none reports in time."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        try:
            return results.get(timeout=0.5)
        except Empty:
            if any(worker.exitcode for worker in workers):
                break
    raise RuntimeError("a writing process failed")


def _rolled_back(place: Place) -> int:
    """Return the number of transactions that the database has rolled back; exact once the connections are closed."""
    with psycopg.connect(place.url) as connection:
        row = connection.execute(
            "SELECT xact_rollback FROM pg_stat_database WHERE datname = current_database()"
        ).fetchone()
    return int(row[0]) if row else 0


# -- the processes -----------------------------------------------------------------------------------------------------

Append = Callable[[pa.Table], object]


def _work(number: int, job: _Job, gate: Any, results: Any) -> None:
    """One process: its threads write through our lake, then through the extension, round after round."""
    with (
        closing(quacklake.connect(job.places["ours"].url)) as lake,
        closing(attach(job.places["peer"], threads=1)) as connection,
    ):
        writers: dict[str, list[Append]] = {
            "ours": [lake.table("t").append for _ in range(job.threads)],
            "peer": [_extension_writer(connection) for _ in range(job.threads)],
        }
        results.put("ready")
        for turn in range(job.rounds + 1):
            for side in _SIDES:
                batches = [_batches(job, number, thread, turn) for thread in range(job.threads)]
                gate.wait()
                _write(writers[side], batches, job.deadline, results)
    gate.wait()
    counters = telemetry.snapshot().counters
    retries = counters.get("commit.retries", 0) + counters.get("commit.replans", 0)
    results.put((retries, counters.get("commit.joined", 0)))


def _extension_writer(connection: duckdb.DuckDBPyConnection) -> Append:
    """A separate connection to the same DuckDB, because each thread needs one."""
    cursor = connection.cursor()
    cursor.execute("USE lake")

    def append(rows: pa.Table) -> None:
        cursor.register("batch", rows)
        cursor.execute("INSERT INTO t SELECT * FROM batch")

    return append


def _batches(job: _Job, process: int, thread: int, turn: int) -> list[pa.Table]:
    writer = (turn * job.processes + process) * job.threads + thread
    appends = job.appends if turn else 1  # the first turn only opens connections
    return [mixed_rows(writer * job.appends + number) for number in range(appends)]


def _write(appends: list[Append], batches: list[list[pa.Table]], deadline: float, results: Any) -> None:
    threads = [
        threading.Thread(target=_append_all, args=(append, rows, deadline, results))
        for append, rows in zip(appends, batches, strict=True)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def _append_all(append: Append, batches: list[pa.Table], deadline: float, results: Queue[Any]) -> None:
    latencies: list[float] = []
    errors: Counter[str] = Counter()
    end = time.perf_counter() + deadline
    for rows in batches:
        start = time.perf_counter()
        while time.perf_counter() < end:
            try:
                append(rows)
            except (duckdb.Error, quacklake.QuacklakeError) as error:
                errors[type(error).__name__] += 1
            else:
                latencies.append(time.perf_counter() - start)
                break
    results.put((latencies, errors))


# -- the count ---------------------------------------------------------------------------------------------------------


def _check(job: _Job, tallies: dict[str, _Tally]) -> None:
    """Every commit that was reported is in its lake, once."""
    with quacklake.connect(job.places["ours"].url) as lake, closing(attach(job.places["peer"])) as connection:
        row = connection.execute("SELECT count(*) FROM t").fetchone()
        found = {"ours": lake.table("t").count(), "peer": int(row[0]) if row else 0}
    for side, tally in tallies.items():
        wanted = (tally.commits + tally.warm_up) * mixed_rows(0).num_rows
        if found[side] != wanted:
            raise RuntimeError(f"the lake of {side} has {found[side]} rows, the writers committed {wanted}")


def _summarise(result: Result, job: _Job, tallies: dict[str, _Tally]) -> None:
    ours, peer = tallies["ours"], tallies["peer"]
    writers = job.processes * job.threads
    ratio = ours.rate / peer.rate if peer.rate else None
    what = f"{writers} writers, appends a second"
    result.measures.append(Measure(what, "/s", ours.rate, peer.rate, EXTENSION, ratio, "the rate", at_least(10)))
    detail = Detail(
        f"{job.processes} processes × {job.threads} threads, {job.rounds} rounds of {job.appends} appends each",
        ("side", "wanted", "committed", "errors", "rolled back", "p50 ms", "p99 ms", "seconds"),
        [],
    )
    for side, tally in tallies.items():
        times = tally.latencies or [0.0]
        counts = (writers * job.appends * job.rounds, tally.commits, sum(tally.errors.values()), tally.rolled_back)
        latencies = (percentile(times, 50) * 1e3, percentile(times, 99) * 1e3)
        detail.rows.append((side, *counts, *latencies, tally.elapsed))
    result.details.append(detail)
    appends = ours.commits + ours.warm_up
    result.notes += [
        f"Our library tried a commit again {ours.retries} times; the peer does not tell. What was rolled back of ours"
        " are looks without a change: when a process opens the lake, and before it commits for the first time.",
        f"Of {appends:,} appends of ours {ours.joined:,} shared the commit of another: on average a commit has"
        f" {appends / max(appends - ours.joined, 1):.1f} of them, and {job.threads} at most, one of each thread.",
    ]
    for side, tally in tallies.items():
        if tally.errors:
            kinds = ", ".join(f"{count} × {name}" for name, count in tally.errors.most_common())
            result.notes.append(f"Errors raised to the caller and tried again, {side}: {kinds}.")
