"""A random kill -9 loop: several processes work on one lake, and whichever it hits is killed, again and again.

Each worker writes into a journal what it is about to do, does it, and writes that it is done. What a journal says is
done must be in the lake exactly once; what was begun is there wholly or not at all, and the next life of the worker finds
out which. Every commit is signed, so that the history of the lake can be counted, too.

A seed fixes what the workers do and when they are killed, not how the processes race: a failure keeps its lake.
"""

from __future__ import annotations

import json
import math
import os
import random
import time
from collections import Counter
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import quacklake
from quacklake import Lake
from quacklake.core import faults
from quacklake.errors import CommitConflict, QuacklakeError
from tests.catalog.stock import Stock
from tests.crash.forks import Child, Ended, Forks
from tests.crash.homes import Home, check_rows
from tests.crash.operations import note
from tests.prove import steps
from tests.prove.places import Places
from tests.prove.steps import STEPS, Model, Step

__all__ = ["Tally", "round_of_kills", "work"]

WORKERS = 3
KILLS = 80
"""Kills on one lake: then it has some hundreds of snapshots, and a new one is made."""
_TRIES = 200


@dataclass
class Tally:
    """Counts of a proof."""

    kills: int = 0
    acknowledged: int = 0
    unknown_done: int = 0
    unknown_lost: int = 0
    snapshots: int = 0
    steps: Counter[str] = field(default_factory=Counter)
    seconds: float = 0.0

    def add(self, other: Tally) -> None:
        for name, value in other.__dict__.items():
            setattr(self, name, getattr(self, name) + value)


# -- the journal -------------------------------------------------------------------------------------------------------


class Journal:
    """The steps that one worker began, and the end of each: ``true`` done, ``false`` not done."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: int | None = None
        self.begun: list[Step] = []
        self.ended: list[bool] = []
        self.found: list[bool] = []
        lines = path.read_text().splitlines() if path.exists() else []
        for line in lines:
            entry = json.loads(line)
            if "step" in entry:
                self.begun.append(entry["step"])
            else:
                self.ended.append(entry["done"])
                self.found.append(entry["found"])

    def begin(self, step: Step) -> None:
        self._write({"step": step})
        self.begun.append(step)

    def end(self, *, done: bool, found: bool = False) -> None:
        """``found``: it was not the worker who heard of it, but its next life that saw it in the lake."""
        self._write({"done": done, "found": found})
        self.ended.append(done)
        self.found.append(found)

    def _write(self, entry: dict[str, Any]) -> None:
        if self._file is None:
            self._file = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        line = (json.dumps(entry) + "\n").encode()
        assert os.write(self._file, line) == len(line)

    def close(self) -> None:
        if self._file is not None:
            os.close(self._file)

    def model(self) -> Model:
        """Return the rows that the worker knows of; a step that has not ended is not in it."""
        model = Model({}, {})
        for step, done in zip(self.begun, self.ended, strict=False):
            model = steps.after(model, step) if done else model.put(next_key=step["start"] + step["count"])
        return model

    @property
    def open_step(self) -> Step | None:
        return self.begun[-1] if len(self.begun) > len(self.ended) else None


def resolve(lake: Lake, worker: int, journal: Journal) -> Model:
    """The rows of a worker must be what its journal says, with or without the step it died in; notes which it is."""
    # a commit that is still on its way in the database's server has ended when another one has had its turn
    note(lake, worker)
    before = journal.model()
    with lake.transaction() as tx:
        found = steps.read(tx, worker)
    step = journal.open_step
    if step is not None:
        done = same(found, steps.after(before, step)) and not same(found, before)
        if same(found, before) and same(found, steps.after(before, step)):
            done = signed(lake, worker, len(journal.begun)) > 0
        journal.end(done=done, found=True)
        before = journal.model()
    assert same(found, before), f"worker {worker} after {step}: {differences(found, before)}"
    return before


def same(one: Model, two: Model) -> bool:
    return one.put(next_key=0) == two.put(next_key=0)


def differences(found: Model, wanted: Model) -> str:
    return "; ".join(
        f"{name}: the lake has {value}, the model {getattr(wanted, name)}"
        for name, value in found.__dict__.items()
        if name != "next_key" and value != getattr(wanted, name)
    )


def signed(lake: Lake, worker: int, number: int) -> int:
    """Return the number of snapshots that bear the signature of a worker's step."""
    return lake.snapshots().column("commit_message").to_pylist().count(signature(worker, number))


def signature(worker: int, number: int) -> str:
    return f"{worker}:{number}"


# -- the worker's process ----------------------------------------------------------------------------------------------


def work(url: str, journal: str, worker: int, seed: str, fault: str | None = None, most: int = 1_000_000) -> int:
    """Do steps until killed."""
    chance = random.Random(seed)
    armed = nullcontext() if fault is None else faults.arm(faults.Fault.parse(fault))
    log = Journal(Path(journal))
    with open_lake(url) as lake, armed:
        model = resolve(lake, worker, log)
        for count in range(most):
            step = steps.choose(chance, worker, model)
            log.begin(step)
            done = perform(lake, step, signature(worker, len(log.begun)))
            log.end(done=done)
            model = log.model()
            if count % 8 == 7:
                with lake.transaction() as tx:
                    found = steps.read(tx, worker)
                assert same(found, model), f"worker {worker} after {step}: {differences(found, model)}"
    return most


def open_lake(url: str) -> Lake:
    return quacklake.connect(url, duckdb_threads=1, ducklake_max_retry_count=_TRIES, ducklake_retry_wait_ms=3)


def perform(lake: Lake, step: Step, message: str) -> bool:
    """Do a step; return False if it was not done: it never got its turn, or was maintenance that met others."""
    kind = STEPS[step["name"]]
    if not kind.block:
        try:
            kind.run(lake.signed(message), step)
        except QuacklakeError as error:
            if step["name"] == "maintain" and error.transient:
                return False
            raise
        return True
    for _ in range(_TRIES):
        try:
            with lake.transaction(message) as tx:
                kind.run(tx, step)
            return True
        except CommitConflict:
            continue
    return False


# -- the killer --------------------------------------------------------------------------------------------------------


@dataclass
class Life:
    """One life of a worker: it ends some time after its journal has so many lines, fast or slow."""

    child: Child
    journal: Path
    lines: int
    delay: float
    until: float = math.inf

    def due(self) -> bool:
        if self.until == math.inf and _lines(self.journal) >= self.lines:
            self.until = time.monotonic() + self.delay
        return time.monotonic() >= self.until


def round_of_kills(
    places: Places,
    forks: Forks,
    stock: Stock | None,
    database: str,
    kills: int,
    seed: str,
    progress: Callable[[Tally], None] = lambda tally: None,
) -> Tally:
    """Kill ``kills`` workers on a new lake and judge what is left. Raise ``AssertionError``; then the lake is kept."""
    began = time.perf_counter()
    chance = random.Random(seed)
    home = places.make(database)
    with home.connect() as lake:
        steps.setup(lake)
    workers = 1 if database == "duckdb" else WORKERS
    tally = Tally()
    try:
        _kill(home, forks, chance, workers, kills, seed, tally, progress)
        _judge(home, stock, database, workers, tally)
    except AssertionError as error:
        raise AssertionError(f"seed {seed!r} on {database}, lake kept in {home.data.parent}: {error}") from error
    places.remove(home)
    tally.seconds = time.perf_counter() - began
    return tally


def _kill(
    home: Home,
    forks: Forks,
    chance: random.Random,
    workers: int,
    kills: int,
    seed: str,
    tally: Tally,
    progress: Callable[[Tally], None],
) -> None:
    lives: dict[int, Life] = {}
    try:
        while tally.kills < kills:
            for worker in range(workers):
                life = lives.get(worker)
                if life is None:
                    lives[worker] = _start(home, forks, chance, worker, f"{seed} {tally.kills} {worker}")
                elif (ended := _ended(life)) is not None:
                    del lives[worker]
                    assert ended.code == -9, ended.errors
                    tally.kills += 1
                    progress(tally)
            time.sleep(0.01)
    finally:
        # all at once, at the end
        for life in lives.values():
            life.child.kill()
        ends = [life.child.wait() for life in lives.values()]
    tally.kills += len(ends)
    assert all(ended.code == -9 for ended in ends), [ended.errors for ended in ends]


def _start(home: Home, forks: Forks, chance: random.Random, worker: int, seed: str) -> Life:
    # one half die at a chosen point, often around the database's commit, the others at a moment that nobody chose
    anywhere, commit = f"{chance.randrange(1, 500)}:kill", f"{chance.randrange(3, 16)}:kill:catalog.commit.*"
    fault = chance.choice((None, None, anywhere, commit))
    child = forks.start(
        "tests.prove.kills:work",
        url=home.url,
        journal=str(journal(home, worker)),
        worker=worker,
        seed=seed,
        fault=fault,
    )
    log = journal(home, worker)
    return Life(child, log, _lines(log) + chance.randrange(9), chance.uniform(0, 0.1))


def _lines(path: Path) -> int:
    return path.read_bytes().count(b"\n") if path.exists() else 0


def _ended(life: Life) -> Ended | None:
    if not life.due():
        return life.child.poll()
    life.child.kill()
    return life.child.wait()


def journal(home: Home, worker: int) -> Path:
    return home.data.parent / f"worker{worker}.journal"


# -- the judge ---------------------------------------------------------------------------------------------------------


def _judge(home: Home, stock: Stock | None, database: str, workers: int, tally: Tally) -> None:
    models: list[Model] = []
    with open_lake(home.url) as lake:
        for worker in range(workers):
            log = Journal(journal(home, worker))
            models.append(resolve(lake, worker, log))
            log.close()
            _count(log, tally)
        _check_history(lake, home, workers)
        for name in ("t", "u"):
            check_rows(lake, name)
            assert lake.table(name).count() == sum(len(getattr(model, name)) for model in models)
        for worker in range(workers):
            step: Step = {"worker": worker, "table": "t", "start": 10**9, "count": 1, "name": "append"}
            assert perform(lake, step, "after all")
        tally.snapshots += lake.snapshots().num_rows
    home.check_files()
    home.check_ids()
    if stock is not None and database != "mysql":
        found = stock.rows(home.url)
        for number, name in enumerate(("t", "u")):
            last = [(worker, 10**9, 0) for worker in range(workers)] if number == 0 else []
            rows = [(worker, *row) for worker, model in enumerate(models) for row in getattr(model, name).items()]
            assert sorted(found[f"main.{name}"]) == sorted([*rows, *last]), f"stock DuckDB sees other rows in {name}"


def _count(log: Journal, tally: Tally) -> None:
    endings = Counter(zip(log.ended, log.found, strict=True))
    tally.acknowledged += endings[True, False]
    tally.unknown_done += endings[True, True]
    tally.unknown_lost += endings[False, True]
    tally.steps.update(step["name"] for step, done in zip(log.begun, log.ended, strict=True) if done)


def _check_history(lake: Lake, home: Home, workers: int) -> None:
    """Assert that each step that was done made exactly one snapshot, and each other step none."""
    counts = Counter(lake.snapshots().column("commit_message").to_pylist())
    for worker in range(workers):
        log = Journal(journal(home, worker))
        model = Model({}, {})
        for number, (step, done) in enumerate(zip(log.begun, log.ended, strict=True), 1):
            found = counts[signature(worker, number)]
            next_model = steps.after(model, step) if done else model
            # maintenance makes as many snapshots as it needs
            if step["name"] != "maintain":
                assert found <= 1 and (done or not found), f"{step} of worker {worker} was committed {found} times"
                assert found or not done or same(next_model, model), f"{step} of worker {worker} is lost"
            model = next_model
