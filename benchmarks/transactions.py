"""Explicit transactions beside busy writers: how many commits they lose, and what their turns cost the writers.

A transaction between BEGIN and COMMIT is the client's code, so nobody but the client can run it again. Its commit fails
when another writer has changed what it has read, and beside busy writers it may fail every time. Two clients read a
total and change the rows it is made of, with a pause for their own work, while other threads append to and update the
same table without a pause. They run in turn with turns for transactions, which are the default, and without.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, field

import pyarrow as pa

import quacklake
from benchmarks.common import Bench, Detail, Measure, Place, Result, at_most, percentile
from quacklake import dbapi

TITLE = "explicit transactions of SQL beside threads that append to and update the same table"

_LABELS = {"sqlite": "SQLite", "postgres": "PostgreSQL"}
_PEER = "without turns"
_SIDES = {"ours": 5_000, _PEER: 0}
"""The setting ``turn_ms`` of each side."""
_CLIENTS = 2
_ACCOUNTS = 100
_PAUSE = 0.02


@dataclass(slots=True)
class _Tally:
    """The transactions and the writes of one side."""

    seconds: float = 0.0
    attempts: int = 0
    committed: list[int] = field(default_factory=list)
    """The attempts that each committed transaction took."""
    unfinished: int = 0
    """The most attempts of a transaction that had not committed at the end."""
    writes: list[float] = field(default_factory=list)
    """The seconds of each append and update."""

    @property
    def conflicts(self) -> float:
        """The percentage of attempts that lost their commit."""
        return 100 * (1 - len(self.committed) / self.attempts) if self.attempts else 0.0

    @property
    def most(self) -> int:
        """The most attempts that a transaction took, or had taken so far."""
        return max([*self.committed, self.unfinished])


def run(bench: Bench, result: Result) -> None:
    """Measure both catalogs."""
    seconds, rounds = bench.pick((1.0, 1), (5.0, 3), (20.0, 3))
    detail = Detail(
        f"{_CLIENTS} clients with a pause of {_PAUSE * 1e3:.0f} ms, 2 threads that append and 1 that updates;"
        f" {rounds} rounds of {seconds:.0f} s for each side",
        ("side", "committed", "lost", "most attempts", "writes a second", "p50 ms", "p99 ms", "longest ms"),
        [],
    )
    for catalog, label in _LABELS.items():
        tallies = {side: _Tally() for side in _SIDES}
        with bench.directory() as directory:
            place = bench.place(directory, catalog, "turns")
            _create(place)
            for number in range(rounds):
                for side, turn_ms in _SIDES.items():
                    with bench.step(f"{label}, {side}, round {number + 1} of {rounds}"):
                        _round(place, turn_ms, seconds, tallies[side])
        _summarise(result, detail, label, tallies)
    result.details.append(detail)


def _create(place: Place) -> None:
    with quacklake.connect(place.url, data_path=place.data) as lake:
        lake.create_table("accounts", pa.table({"id": range(_ACCOUNTS), "balance": [100] * _ACCOUNTS}))


def _round(place: Place, turn_ms: int, seconds: float, tally: _Tally) -> None:
    stop = threading.Event()
    with quacklake.connect(place.url) as lake:
        accounts = lake.table("accounts")
        writes: Sequence[Callable[[int], object]] = (
            lambda number: accounts.append([{"id": 1_000_000 + number, "balance": 0}]),
            lambda number: accounts.append([{"id": 2_000_000 + number, "balance": 0}]),
            lambda number: accounts.update({"balance": quacklake.expr("balance + 1")}, f"id = {number % _ACCOUNTS}"),
        )
        threads = [threading.Thread(target=_write, args=(write, stop, tally)) for write in writes]
        threads += [threading.Thread(target=_transact, args=(place, turn_ms, stop, tally)) for _ in range(_CLIENTS)]
        start = time.perf_counter()
        for thread in threads:
            thread.start()
        time.sleep(seconds)
        stop.set()
        for thread in threads:
            thread.join()
        tally.seconds += time.perf_counter() - start
        accounts.delete(f"id >= {_ACCOUNTS}")


def _write(write: Callable[[int], object], stop: threading.Event, tally: _Tally) -> None:
    number = 0
    while not stop.is_set():
        start = time.perf_counter()
        write(number)
        tally.writes.append(time.perf_counter() - start)
        number += 1


def _transact(place: Place, turn_ms: int, stop: threading.Event, tally: _Tally) -> None:
    with closing(dbapi.connect(place.url, turn_ms=turn_ms)) as connection:
        attempt = 0
        while not stop.is_set():
            attempt += 1
            tally.attempts += 1
            try:
                connection.execute("SELECT sum(balance) FROM accounts").fetchall()
                time.sleep(_PAUSE)
                connection.execute(f"UPDATE accounts SET balance = balance - 1 WHERE id < {_ACCOUNTS} AND balance > 0")
                connection.commit()
            except dbapi.OperationalError:
                connection.rollback()
                continue
            tally.committed.append(attempt)
            attempt = 0
        tally.unfinished = max(tally.unfinished, attempt)


def _summarise(result: Result, detail: Detail, label: str, tallies: dict[str, _Tally]) -> None:
    ours, peer = tallies["ours"], tallies[_PEER]
    result.measures += [
        Measure(f"{label}, most attempts of a transaction", "", ours.most, peer.most, _PEER, target=at_most(3, "ours")),
        Measure(f"{label}, commits lost", "%", ours.conflicts, peer.conflicts, _PEER),
        _rate(f"{label}, transactions a second", *(len(each.committed) / each.seconds for each in (ours, peer))),
        _rate(f"{label}, appends and updates a second", *(len(each.writes) / each.seconds for each in (ours, peer))),
    ]
    for side, tally in tallies.items():
        times = tally.writes or [0.0]
        counts = (len(tally.committed), tally.attempts - len(tally.committed), tally.most)
        latencies = [percentile(times, percent) * 1e3 for percent in (50, 99, 100)]
        detail.rows.append((f"{label}, {side}", *counts, len(tally.writes) / tally.seconds, *latencies))


def _rate(what: str, ours: float, peer: float) -> Measure:
    return Measure(what, "/s", ours, peer, _PEER, ours / peer if peer else None, "the rate")
