"""The proofs in pieces: each a task of some seconds on one kind of database, which any process can do."""

from __future__ import annotations

import itertools
import random
import shutil
import time
import traceback
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import cached_property
from multiprocessing.util import Finalize
from pathlib import Path
from typing import Any, cast

from services import DatabaseServer, S3Server, Server
from services.background import ensure
from tests.catalog.stock import Stock
from tests.crash.forks import Forks
from tests.prove import kills, lists, mixed, outages, pairs, statements, stores, views, warm
from tests.prove.places import SERVERS, Places
from tests.prove.stands import Stand

__all__ = ["Bench", "Result", "Task", "add", "begin", "facts", "plan", "work"]

_TRANSACTIONS = 400
_MIXED = ("sqlite", "postgres")
"""Databases that stock DuckDB and ours can have open at once."""
_STORM = 12
_PARTS = 48
"""Into how many tasks all pairs of one database go: then two processes end at about the same time."""
_CLOSER = 25
"""The number of meetings after which stock DuckDB and the verification look too."""

#: Seconds that a task is expected to take per unit, until some were done.
SECONDS = {
    "kills": 0.3,
    "pairs": 0.2,
    "transactions": 0.06,
    "mixed": 2.0,
    "views": 3.0,
    "storms": 0.3,
    "statements": 0.05,
    "outages": 0.8,
}
#: All pairs of a kind of database, about, until they were counted.
PAIRS = 6_500


@dataclass(frozen=True)
class Task:
    """So many of a proof; of pairs, ``part`` says which share of them, and ``count`` is None for all."""

    proof: str
    database: str
    seed: str
    count: int | None
    part: tuple[int, int] = (0, 1)

    @property
    def size(self) -> int:
        """The approximate size of the task."""
        return -(-(PAIRS if self.count is None else self.count) // self.part[1])


@dataclass
class Result:
    """The outcome of a task."""

    task: Task
    done: dict[str, Any] = field(default_factory=dict)
    anomalies: list[str] = field(default_factory=list)
    seconds: float = 0.0


def plan(
    databases: list[str],
    seed: str,
    *,
    kills_: int,
    pairs_: int | None,
    transactions: int,
    storms: int,
    mixed_: int,
    s3: bool,
    statements_: int = 0,
    outages_: int = 0,
    views_: int = 0,
) -> list[Task]:
    """The tasks of all proofs with these counts, proof by proof; ``pairs_`` None is all."""
    shared = [name for name in databases if name != "duckdb"]
    found = list(_rounds("kills", databases, seed, kills_, kills.KILLS))
    for database in databases:
        share = None if pairs_ is None else -(-pairs_ // len(databases))
        parts = _PARTS if share is None else max(1, min(_PARTS, share // 20))
        if share != 0:
            found += [Task("pairs", database, seed, share, (part, parts)) for part in range(parts)]
    if shared:
        found += _rounds("transactions", shared, seed, transactions, _TRANSACTIONS)
    found += _rounds(
        "mixed", [name for name in databases if name in _MIXED] or ["sqlite"], seed, mixed_, mixed.HISTORIES
    )
    places = ["local", "s3"] if s3 and storms > _STORM else ["local"]
    found += _rounds("storms", places, seed, storms, _STORM)
    found += _rounds("outages", databases, seed, outages_, outages.OUTAGES)
    found += _rounds("views", databases, seed, views_, views.HISTORIES)
    files = [name for name in ("sqlite", "duckdb") if name in databases]
    return [*found, *(_rounds("statements", files, seed, statements_, statements.ROUND) if files else ())]


def _rounds(proof: str, databases: list[str], seed: str, count: int, most: int) -> Iterator[Task]:
    """Yield the rounds of a proof as tasks; the first has the given seed, so that a round can be repeated."""
    for number, begun in enumerate(range(0, count, most)):
        mine = seed if number == 0 else f"{seed}.{number}"
        yield Task(proof, databases[number % len(databases)], mine, min(most, count - begun))


class Bench:
    """Does tasks in turn; servers, forks and stands are made once."""

    def __init__(self, folder: Path, owner: int, databases: list[str]) -> None:
        self._folder = folder
        self._databases = databases
        self._owner = owner
        self._stack = ExitStack()
        self._stands: dict[str, Stand] = {}
        self._meetings: dict[Task, list[pairs.Meeting]] = {}
        self.places = Places(folder / "lakes", self.server)

    def server(self, name: str) -> Server:
        return ensure(name, self._folder / "services", owner=self._owner, durable=False)

    @cached_property
    def forks(self) -> Forks:
        modules = [
            "tests.prove.warm",
            "tests.prove.kills",
            "tests.prove.lists",
            "tests.prove.outages",
            "tests.prove.views",
        ]
        homes = [self.places.new(name) for name in SERVERS if name in self._databases]
        found = Forks(modules, {warm.URLS: "\n".join(home.url for home in homes)})
        return self._stack.enter_context(found)

    @cached_property
    def stock(self) -> Stock:
        return self._stack.enter_context(Stock())

    def close(self) -> None:
        for stand in self._stands.values():
            stand.close()
        self._stack.close()

    def run(self, task: Task) -> Result:
        """Do a task; what goes wrong, an untyped error as well as a failed check, is in the result."""
        result = Result(task)
        began = time.perf_counter()
        try:
            getattr(self, f"_{task.proof}")(task, result)
        except Exception as error:
            _note(result, error)
        result.seconds = time.perf_counter() - began
        return result

    def _kills(self, task: Task, result: Result) -> None:
        assert task.count is not None
        tally = kills.round_of_kills(self.places, self.forks, self.stock, task.database, task.count, task.seed)
        result.done = facts(tally)

    def _transactions(self, task: Task, result: Result) -> None:
        assert task.count is not None
        chance = random.Random(task.seed)
        kind, killed = chance.choice(list(lists.KINDS)), chance.choice((8, 16, 32))
        tally = lists.round_of_lists(
            self.places, self.forks, task.database, kind, task.count, task.seed, killed * task.count // _TRANSACTIONS
        )
        result.done = facts(tally)

    def _pairs(self, task: Task, result: Result) -> None:
        stand = self._stand(task.database)
        known = Task("pairs", task.database, task.seed, task.count)
        if known not in self._meetings:
            chance = random.Random(task.seed)
            self._meetings[known] = list(pairs.meetings(stand, task.count, chance))
        part, parts = task.part
        done: Counter[str] = Counter()
        for number, meeting in itertools.islice(enumerate(self._meetings[known]), part, None, parts):
            closer = number // parts % _CLOSER == part % _CLOSER
            done["meetings"] += 1
            try:
                done["both done"] += pairs.meet(stand, meeting, self.stock if closer else None, deep=closer)
            except Exception as error:
                _note(result, error)
        result.done = dict(done)

    def _stand(self, database: str) -> Stand:
        if database not in self._stands:
            server = cast(DatabaseServer, self.server(database)) if database in SERVERS else None
            folder = self._folder / "lakes" / f"pairs-{database}-{id(self)}"
            self._stands[database] = Stand(database, folder, server)
        return self._stands[database]

    @cached_property
    def stock_here(self) -> mixed.Here:
        found = mixed.Here()
        self._stack.callback(found.close)
        return found

    def _mixed(self, task: Task, result: Result) -> None:
        assert task.count is not None
        stock = self.stock if task.database == "sqlite" else self.stock_here
        result.done = facts(mixed.round_of_histories(self.places, stock, task.database, task.count, task.seed))

    def _views(self, task: Task, result: Result) -> None:
        assert task.count is not None
        stock = self.stock if task.database in _MIXED else None
        tally = views.round_of_views(self.places, stock, self.forks, task.database, task.count, task.seed)
        result.anomalies += tally.failures
        result.done = {name: value for name, value in facts(tally).items() if name != "failures"}

    def _storms(self, task: Task, result: Result) -> None:
        assert task.count is not None
        folder = self._folder / "lakes" / f"storm-{task.seed}"
        server = cast(S3Server, self.server("s3")) if task.database == "s3" else None
        result.done = facts(stores.storm(folder, server, task.count, task.seed))
        shutil.rmtree(folder)

    def _outages(self, task: Task, result: Result) -> None:
        assert task.count is not None
        folder = self._folder / "lakes" / f"outages-{task.seed}"
        server = cast(DatabaseServer, self.server(task.database)) if task.database in SERVERS else None
        tally = outages.round_of_outages(
            folder, self.forks, task.database, server, task.count, task.seed, small_disk=True
        )
        result.done = facts(tally)
        shutil.rmtree(folder)

    def _statements(self, task: Task, result: Result) -> None:
        assert task.count is not None
        folder = self._folder / "lakes" / f"statements-{task.seed}"
        folder.mkdir(parents=True)
        tally = statements.round_of_statements(folder, task.seed, task.count, task.database)
        result.done = {"statements": tally.statements, "failed": tally.failed, "permitted": tally.permitted}
        shortest = sorted(tally.findings, key=lambda finding: len(finding.sql))
        result.anomalies += [f"seed {finding.seed}: {finding.told}" for finding in shortest]
        if not shortest:
            shutil.rmtree(folder)


def _note(result: Result, error: Exception) -> None:
    result.anomalies.append(str(error) if isinstance(error, AssertionError) else traceback.format_exc())


def facts(tally: object) -> dict[str, Any]:
    """Return the counts of a tally under readable names."""
    found = {name.replace("_", " "): value for name, value in vars(tally).items() if name != "seconds"}
    return {name: dict(value) if isinstance(value, Counter) else value for name, value in found.items()}


def add(total: dict[str, Any], more: dict[str, Any]) -> None:
    """Add counts to counts, by name."""
    for name, value in more.items():
        if isinstance(value, dict):
            add(total.setdefault(name, {}), value)
        else:
            total[name] = total.get(name, 0) + value


_bench: Bench | None = None


def begin(folder: Path, owner: int, databases: list[str]) -> None:
    """Make a process ready for tasks."""
    global _bench
    _bench = Bench(folder, owner, databases)
    Finalize(None, _bench.close, exitpriority=1)


def work(task: Task) -> Result:
    """Do a task in a process that is ready."""
    assert _bench is not None
    return _bench.run(task)
