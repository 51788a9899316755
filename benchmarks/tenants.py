"""Tenants: many lakes in one set of metadata tables, and what one of them feels of the others.

A platform has a lake for every customer. Three questions decide whether that holds: is a lake among very many as quick
as one among ten, does it cost anything that they share tables, and do their writers wait for each other? All of it on
PostgreSQL. The peer is what stock DuckLake offers, a database schema for each tenant; its schemas are made by the
extension at first and then by copying the tables of one, which is much faster.
"""

from __future__ import annotations

import multiprocessing
import os
import random
import threading
import time
from collections.abc import Callable
from contextlib import closing, suppress
from dataclasses import astuple, dataclass, field
from pathlib import Path
from typing import Any

import psycopg

import quacklake
from benchmarks.common import (
    Bench,
    Detail,
    Measure,
    Place,
    Result,
    Target,
    at_least,
    at_most,
    chunks,
    mixed_rows,
    percentile,
    slowdown,
)
from benchmarks.tenant_schemas import analyze, compare, database_size, first_query, tenant_name, timed

TITLE = "tenants: many lakes in one database, on PostgreSQL"

_FEW = 10
_BATCH = 50_000
_PATIENCE = 240.0
"""Seconds for which processes are waited for."""


def run(bench: Bench, result: Result) -> None:
    """Measure the crowd, the shared tables, the writers, and the peer."""
    many = bench.pick(200, 10_000, 1_000_000)
    with bench.directory() as directory:
        lakes = {count: bench.place(directory, "postgres", f"crowd{count}") for count in (_FEW, many)}
        detail = Detail("wall and processor milliseconds of our process", ("work", "p50", "cpu p50", "p99"), [])
        result.details.append(detail)
        result.measures += _make(bench, detail, lakes, many)
        result.measures += _open(bench, detail, lakes)
        result.measures.append(_commit(bench, detail, lakes[many], bench.place(directory, "postgres", "plain")))
        result.measures += _write(bench, result, lakes[many])
        compare(bench, result, bench.place(directory, "postgres", "peer"))


@dataclass(slots=True)
class _Times:
    """Measure wall and processor seconds of some work repeatedly; the latter mean something even on a busy machine."""

    walls: list[float] = field(default_factory=list)
    cpus: list[float] = field(default_factory=list)

    def add(self, work: Callable[..., object], *arguments: object) -> None:
        cpu = time.process_time()
        self.walls.append(timed(work, *arguments))
        self.cpus.append(time.process_time() - cpu)

    def row(self, what: str) -> tuple[str, float, float, float]:
        """For a table of details."""
        return (what, *(1e3 * value for value in self.at(50)), 1e3 * percentile(self.walls, 99))

    def at(self, percent: float) -> tuple[float, float]:
        return percentile(self.walls, percent), percentile(self.cpus, percent)


# -- making ------------------------------------------------------------------------------------------------------------


def _make(bench: Bench, detail: Detail, lakes: dict[int, Place], many: int) -> list[Measure]:
    """Fill both lakes; some of the catalogs have a table."""
    for count, place in lakes.items():
        with (
            quacklake.tenants(place.url, place.data) as tenants,
            bench.step(f"making {count:,} tenants", count) as done,
        ):
            batches, ones = _Times(), _Times()
            for part in chunks(count, -(-count // _BATCH)):
                batches.add(tenants.create_many, map(tenant_name, part))
                done(len(part))
            for number in range(bench.pick(5, 100, 300)):
                ones.add(tenants.create, f"one{number}")
        analyze(place)
        with bench.step("a table in some"):
            for name in _sample(bench, count):
                with quacklake.connect(place.url, catalog=name) as lake:
                    lake.create_table("t", mixed_rows(0))
    size, seconds = database_size(lakes[many]), sum(batches.walls)
    detail.rows.append(ones.row(f"create one among {many:,}"))
    each = (1e6 * seconds / many, 1e6 * sum(batches.cpus) / many)
    detail.rows.append(("create_many, microseconds each", *each, ""))
    rate = Measure(f"create_many, {many:,} tenants", "/s", many / seconds, target=Target("≥", 10_000, "ours"))
    one = Measure(f"create one among {many:,}, p50", "ms", ones.at(50)[0] * 1e3, target=at_most(5, "ours"))
    return [rate, one, Measure(f"database with {many:,} tenants", "MB", size / 1e6)]


def _sample(bench: Bench, count: int) -> list[str]:
    """The catalogs that are opened."""
    wanted = min(count, bench.pick(10, 50, 200))
    return [tenant_name(number) for number in sorted(random.Random(1).sample(range(count), wanted))]


# -- opening -----------------------------------------------------------------------------------------------------------


def _open(bench: Bench, detail: Detail, lakes: dict[int, Place]) -> list[Measure]:
    """Connect to a catalog and read its table, in turn among few and among many."""
    rounds = bench.pick(3, 100, 600)
    times = {count: _Times() for count in lakes}
    names = {count: _sample(bench, count) for count in lakes}
    with bench.step("connecting", rounds) as done:
        for count, place in lakes.items():
            first_query(place.url, names[count][0])
        for number in range(rounds):
            for count, place in lakes.items():
                times[count].add(first_query, place.url, names[count][number % len(names[count])])
            done(1)
    few, many = lakes
    detail.rows.extend(each.row(f"connect and first query among {count:,}") for count, each in times.items())
    measures = []
    for percent, limit in ((50, 40), (99, 100)):
        ours, peer = (percentile(times[count].walls, percent) * 1e3 for count in (many, few))
        what = f"connect and first query among {many:,}, p{percent}"
        measures.append(slowdown(what, ours, peer, "ms", at_most(1.2), f"among {few}"))
        measures.append(Measure(f"{what}, itself", "ms", ours, target=at_most(limit, "ours")))
    return measures


# -- commits -----------------------------------------------------------------------------------------------------------


def _commit(bench: Bench, detail: Detail, shared: Place, plain: Place) -> Measure:
    """Time small appends to a catalog among many, and to a plain lake, in turn."""
    count, rounds = bench.pick((10, 2), (300, 30), (3_000, 100))
    names = ("a catalog among many", "a plain lake")
    with (
        closing(quacklake.connect(shared.url, catalog="commits", create=True)) as one,
        closing(quacklake.connect(plain.url, plain.data)) as other,
        bench.step("commits", count) as done,
    ):
        tables = [lake.create_table("t", mixed_rows(0).schema) for lake in (one, other)]
        times = [_Times(), _Times()]
        for table in tables:
            for number in range(5):
                table.append(mixed_rows(number))
        for part in chunks(count, rounds):
            for table, each in zip(tables, times, strict=True):
                for rows in [mixed_rows(number) for number in part]:
                    each.add(table.append, rows)
            done(len(part))
    detail.rows.extend(each.row(f"commit of 10 rows, {name}") for name, each in zip(names, times, strict=True))
    ours, peer = (each.at(50)[0] * 1e3 for each in times)
    return slowdown("commit of 10 rows, p50", ours, peer, "ms", at_most(1.1), names[1])


# -- writers -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Job:
    """Writers in several processes; ``tenants`` names that of each writer in each round."""

    url: str
    processes: int
    threads: int
    seconds: float
    rounds: tuple[tuple[str, ...], ...]


def _write(bench: Bench, result: Result, place: Place) -> list[Measure]:
    """Writers on a tenant each, and as many on one, in turn."""
    processes, threads, seconds, rounds = bench.pick((2, 2, 1.0, 1), (8, 4, 4.0, 2), (8, 4, 10.0, 3))
    writers = processes * threads
    apart = tuple(f"writer-{number:02}" for number in range(writers))
    together = ("writer-00",) * writers
    with quacklake.tenants(place.url) as tenants:
        for name in apart:
            with tenants.open(name, create=True) as lake:
                lake.create_table("t", mixed_rows(0).schema)
    job = _Job(place.url, processes, threads, seconds, (apart, together) * rounds)
    with bench.step(f"{writers} writers, {2 * rounds} rounds of {seconds:.0f} s"):
        found = _conduct(job)
    sides = [_Round.sum(found[side::2]) for side in (0, 1)]
    names = (f"{writers} writers on {writers} tenants", f"{writers} writers on one")
    columns = ("work", "cpu ms an append", "of the server", "cores in use", "waiting for a lock", "for the log")
    rows = [(name, *side.row(seconds * rounds)) for name, side in zip(names, sides, strict=True)]
    about = f"writers: what they and the server take of {os.cpu_count()} cores, and how many sessions wait"
    result.details.append(Detail(about, columns, rows))
    return [
        _rate(f"{names[0]}, commits a second", names[1], sides, [seconds * rounds] * 2, at_least(4)),
        _rate(f"{names[0]}, commits a processor second of theirs", names[1], sides, [side.cpu for side in sides]),
        _rate(
            f"{names[0]}, commits a processor second of theirs and of the server",
            names[1],
            sides,
            [side.cpu + side.server for side in sides],
        ),
    ]


def _rate(what: str, peer: str, sides: list[_Round], seconds: list[float], target: Target | None = None) -> Measure:
    rates = [side.commits / each if each else 0.0 for side, each in zip(sides, seconds, strict=True)]
    ratio = rates[0] / rates[1] if rates[1] else None
    return Measure(what, "/s", *rates, peer, ratio, "the rate", target)


@dataclass(slots=True)
class _Round:
    """The work of all writers: appends, processor seconds of theirs and of the server, sessions that waited."""

    commits: int = 0
    cpu: float = 0.0
    server: float = 0.0
    looks: int = 0
    locks: int = 0
    logs: int = 0

    @classmethod
    def sum(cls, rounds: list[_Round]) -> _Round:
        return cls(*(sum(values) for values in zip(*map(astuple, rounds), strict=True)))

    def row(self, seconds: float) -> tuple[float, ...]:
        """For a table of details."""
        looks, each = max(self.looks, 1), 1e3 / max(self.commits, 1)
        cores = (self.cpu + self.server) / seconds
        return (self.cpu * each, self.server * each, cores, self.locks / looks, self.logs / looks)


def _conduct(job: _Job) -> list[_Round]:
    """Run all writers, and return what they did in each round."""
    context = multiprocessing.get_context("spawn")
    gate, results = context.Barrier(job.processes + 1), context.Queue()
    workers = [
        context.Process(target=_work, args=(number, job, gate, results), daemon=True) for number in range(job.processes)
    ]
    for worker in workers:
        worker.start()
    try:
        gate.wait(_PATIENCE)
        rounds = [_watch(job, gate) for _ in job.rounds]
        found: list[list[_Round]] = [results.get(timeout=_PATIENCE) for _ in workers]
        for worker in workers:
            worker.join()
    finally:
        for worker in workers:
            worker.kill()
    return [_Round.sum([seen, *those]) for seen, *those in zip(rounds, *found, strict=True)]


def _watch(job: _Job, gate: Any) -> _Round:
    """Watch the server during a round."""
    seen = _Round()
    with psycopg.connect(job.url, autocommit=True) as connection:
        gate.wait(_PATIENCE)
        before, end = _processors(connection), time.perf_counter() + job.seconds
        while time.perf_counter() < end:
            locks, logs = connection.execute(_WAITING).fetchone() or (0, 0)
            seen.looks, seen.locks, seen.logs = seen.looks + 1, seen.locks + locks, seen.logs + logs
            time.sleep(0.1)
        seen.server = sum(used - before.get(pid, 0.0) for pid, used in _processors(connection).items())
    return seen


def _processors(connection: psycopg.Connection) -> dict[int, float]:
    """Return the processor seconds so far of each process of the server, which is on this machine."""
    found: dict[int, float] = {}
    for (pid,) in connection.execute("SELECT pid FROM pg_stat_activity").fetchall():
        with suppress(OSError):  # it has just ended
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            found[pid] = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return found


_WAITING = """
    SELECT count(*) FILTER (WHERE wait_event_type = 'Lock'), count(*) FILTER (WHERE wait_event LIKE 'WAL%')
    FROM pg_stat_activity WHERE datname = current_database() AND state = 'active'
"""


def _work(number: int, job: _Job, gate: Any, results: Any) -> None:
    """One process: its threads write until the time is over, round after round."""
    mine = slice(number * job.threads, (number + 1) * job.threads)
    names = {name for tenants in job.rounds for name in tenants[mine]}
    lakes = {name: quacklake.connect(job.url, catalog=name, duckdb_threads=1) for name in names}
    rounds: list[_Round] = []
    for tenants in (job.rounds[0], *job.rounds):  # the first opens connections
        made: list[int] = []
        threads = [
            threading.Thread(target=_append, args=(lakes[name].table("t"), job.seconds if rounds else 0.5, made))
            for name in tenants[mine]
        ]
        gate.wait()
        cpu = time.process_time()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        rounds.append(_Round(sum(made), time.process_time() - cpu))
    results.put(rounds[1:])
    for lake in lakes.values():
        lake.close()


def _append(table: quacklake.Table, seconds: float, made: list[int]) -> None:
    rows, count, end = mixed_rows(threading.get_ident() % 1_000), 0, time.perf_counter() + seconds
    while time.perf_counter() < end:
        table.append(rows)
        count += 1
    made.append(count)
