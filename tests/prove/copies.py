"""Two copies of SQLite in one process: stock DuckDB's and ours have one lake open, in threads, beside another process.

An interleaving is a number of random steps: each side opens, reads, writes, holds a transaction or a result, and closes.
What either has acknowledged must be there in the end, once, and nobody may meet an error but that of a lock that
another has. One thread has stock DuckDB: two of its own connections are enough to lock it out, because a COMMIT of its
that was refused keeps its locks until the process ends.
"""

from __future__ import annotations

import random
import shutil
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import duckdb

import quacklake
from quacklake import Lake
from quacklake.errors import CatalogUnavailableError, CommitConflict
from tests.duckdbs import import_extension

__all__ = ["Tally", "interleave"]

_STEPS = 12
#: Errors of stock when another client is writing or has committed in the meantime, in a separate process too.
_REFUSALS = ("changes into DuckLake: database is locked", "conflict", "UNIQUE constraint", "PRIMARY KEY")


@dataclass
class Tally:
    """Counts of a proof; ``refused`` counts writes and reads that a lock has prevented."""

    interleavings: int = 0
    acknowledged: Counter[str] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)


class Ids:
    """The numbers of rows: which were given out, and which of them were acknowledged."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.given = 0
        self.acknowledged: set[int] = set()
        self.unexpected: list[str] = []

    def new(self) -> int:
        with self._lock:
            self.given += 1
            return self.given


class Elsewhere:
    """Another process that appends to lakes on request."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.prove.copies"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self._lock = threading.Lock()

    def append(self, url: str, number: int) -> str:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with self._lock:
            self._process.stdin.write(f"{number} {url}\n")
            self._process.stdin.flush()
            return self._process.stdout.readline().strip()

    def close(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait()
        self._process.stdout.close()


class Actor:
    """One thread's side of both clients."""

    def __init__(
        self, url: str, path: Path, ids: Ids, tally: Tally, elsewhere: Elsewhere, seed: str, *, has_stock: bool
    ) -> None:
        self.has_stock = has_stock
        self.url, self.path, self.ids, self.tally, self.elsewhere = url, path, ids, tally, elsewhere
        self.chance = random.Random(seed)
        self.lake: Lake | None = None
        self.stock: duckdb.DuckDBPyConnection | None = None
        self.pending: list[int] | None = None

    def run(self) -> None:
        ours = (self.ours_write, self.ours_read, self.ours_close, self.other_process)
        stock = (self.stock_write, self.stock_read, self.stock_begin, self.stock_end, self.stock_hold, self.stock_close)
        steps = (*ours, *stock) if self.has_stock else ours
        weights = (4, 3, 1, 1, 4, 3, 1, 2, 1, 1)[: len(steps)]
        try:
            for _ in range(_STEPS):
                self.chance.choices(steps, weights)[0]()
        finally:
            self.stock_end()
            self.stock_close()
            self.ours_close()

    # -- ours --------------------------------------------------------------------------------------------------------

    def _ours(self, work: Callable[[Lake], None]) -> None:
        try:
            if self.lake is None:
                self.lake = quacklake.connect(self.url, busy_timeout_ms=100, ducklake_retry_wait_ms=1)
            work(self.lake)
        except (CatalogUnavailableError, CommitConflict) as error:
            self.tally.refused[f"ours {type(error).__name__}"] += 1
        except Exception as error:
            self.ids.unexpected.append(f"ours: {error!r}")

    def ours_write(self) -> None:
        number = self.ids.new()

        def write(lake: Lake) -> None:
            lake.table("t").append([{"id": number}])
            self.ids.acknowledged.add(number)
            self.tally.acknowledged["ours"] += 1

        self._ours(write)

    def ours_read(self) -> None:
        expected = set(self.ids.acknowledged)
        self._ours(lambda lake: self._look("ours", expected, [row["id"] for row in lake.table("t").to_pylist()]))

    def ours_close(self) -> None:
        if self.lake is not None:
            self.lake.close()
            self.lake = None

    def _look(self, who: str, expected: set[int], seen: list[int]) -> None:
        if expected - set(seen) or len(seen) != len(set(seen)):
            self.ids.unexpected.append(f"{who} read {sorted(seen)}, and {sorted(expected)} were acknowledged before")

    # -- stock's -----------------------------------------------------------------------------------------------------

    def _stock(self, work: Callable[[duckdb.DuckDBPyConnection], object]) -> None:
        try:
            if self.stock is None:
                self.stock = duckdb.connect()
                self.stock.execute("LOAD ducklake; LOAD sqlite_scanner")
                self.stock.execute(f"ATTACH 'ducklake:sqlite:{self.path}' AS l")
            work(self.stock)
        except duckdb.Error as error:
            if not any(word.lower() in str(error).lower() for word in _REFUSALS):
                self.ids.unexpected.append(f"stock: {error!r}")
            self.tally.refused["stock"] += 1
            self.pending = None
            if self.stock is not None:
                self.stock.close()
            self.stock = None

    def stock_write(self) -> None:
        number = self.ids.new()

        def write(stock: duckdb.DuckDBPyConnection) -> None:
            stock.execute(f"INSERT INTO l.t VALUES ({number})")
            if self.pending is not None:
                self.pending.append(number)
            else:
                self._acknowledge([number])

        self._stock(write)

    def _acknowledge(self, numbers: list[int]) -> None:
        self.ids.acknowledged.update(numbers)
        self.tally.acknowledged["stock"] += len(numbers)

    def stock_read(self) -> None:
        expected = set() if self.pending is not None else set(self.ids.acknowledged)
        query = "SELECT id FROM l.t"
        self._stock(lambda stock: self._look("stock", expected, [row[0] for row in stock.execute(query).fetchall()]))

    def stock_begin(self) -> None:
        def begin(stock: duckdb.DuckDBPyConnection) -> None:
            stock.execute("BEGIN")
            self.pending = []

        if self.pending is None:
            self._stock(begin)

    def stock_end(self) -> None:
        pending, self.pending = self.pending, None

        def end(stock: duckdb.DuckDBPyConnection) -> None:
            stock.execute("COMMIT")
            self._acknowledge(pending or [])

        if pending is not None:
            self._stock(end)

    def stock_hold(self) -> None:
        self._stock(lambda stock: stock.execute("SELECT id FROM l.t"))

    def stock_close(self) -> None:
        self.pending = None
        if self.stock is not None:
            with suppress(duckdb.Error):
                self.stock.close()
            self.stock = None

    # -- another process ---------------------------------------------------------------------------------------------

    def other_process(self) -> None:
        number = self.ids.new()
        told = self.elsewhere.append(self.url, number)
        if told == "done":
            self.ids.acknowledged.add(number)
            self.tally.acknowledged["another process"] += 1
        elif told == "refused":
            self.tally.refused["another process"] += 1
        else:
            self.ids.unexpected.append(f"another process: {told}")


def interleave(folder: Path, count: int, seed: str) -> Tally:
    """Run random interleavings, each on its own lake, in one to three threads. Raise ``AssertionError``."""
    for name in ("ducklake", "sqlite_scanner"):
        import_extension(name)
    tally = Tally()
    elsewhere = Elsewhere()
    try:
        for number in range(count):
            home = folder / f"copies-{seed}-{number}"
            home.mkdir(parents=True)
            _one(home, f"{seed}.{number}", tally, elsewhere)
            tally.interleavings += 1
            shutil.rmtree(home)
    finally:
        elsewhere.close()
    return tally


def _one(home: Path, seed: str, tally: Tally, elsewhere: Elsewhere) -> None:
    path = home / "lake.db"
    url = f"sqlite:///{path}"
    with quacklake.connect(url, data_path=home / "data") as lake:
        lake.create_table("t", [{"id": 0}])
    ids = Ids()
    chance = random.Random(seed)
    threads = chance.choice((1, 1, 2, 3))
    actors = [
        Actor(url, path, ids, tally, elsewhere, f"{seed}.{number}", has_stock=number == 0) for number in range(threads)
    ]
    if threads == 1:
        actors[0].run()
    else:
        running = [threading.Thread(target=actor.run) for actor in actors]
        for thread in running:
            thread.start()
        for thread in running:
            thread.join()
    with quacklake.connect(url) as lake:
        rows = Counter(row["id"] for row in lake.table("t").to_pylist())
        problems = [*ids.unexpected, *(finding.what for finding in lake.verify().findings)]
    lost = sorted(ids.acknowledged - set(rows))
    twice = sorted(number for number, times in rows.items() if times > 1)
    assert not (lost or twice or problems), f"seed {seed}, {home}: lost {lost}, twice {twice}, {problems[:5]}"


def _serve() -> None:
    for line in sys.stdin:
        number, url = line.strip().split(" ", 1)
        try:
            with quacklake.connect(url, busy_timeout_ms=100, ducklake_retry_wait_ms=1) as lake:
                lake.table("t").append([{"id": int(number)}])
            print("done", flush=True)
        except (CatalogUnavailableError, CommitConflict):
            print("refused", flush=True)
        except Exception as error:
            print(repr(error).replace("\n", " "), flush=True)


if __name__ == "__main__":
    _serve()
