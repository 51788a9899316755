"""The long proofs, with counts: ``python -m tests.prove --kills 10000 --pairs all --transactions 20000 --seed 7``.

Ends with 1 when anything was found; then it says the seed that shows it again and where the lake is kept. A part is
left out with the count 0.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, cast

from services import S3Server, Server, Unavailable
from services.background import ensure, stop
from tests.catalog.stock import Stock
from tests.crash.forks import Forks
from tests.crash.homes import Workshop
from tests.crash.operations import prepare
from tests.prove import kills, lists, pairs, stores, streams
from tests.prove.places import SERVERS, Places
from tests.prove.soak import soak

__all__ = ["main"]

_TRANSACTIONS = 100
_STORM = 12
_MOST = 20
"""Anomalies that end a proof."""


@dataclass
class Outcome:
    """What came of one proof."""

    proof: str
    done: dict[str, Any] = field(default_factory=dict)
    anomalies: list[str] = field(default_factory=list)


class TooMany(Exception):
    """So much was found that there is no point in going on."""


class Prover:
    """Runs the proofs one after the other and collects what comes of them."""

    def __init__(self, options: argparse.Namespace, folder: Path) -> None:
        self.options = options
        self.folder = folder
        self.databases: list[str] = [name for name in options.databases if self._available(name)]
        self.places = Places(folder / "lakes", self.server)
        self.outcomes: list[Outcome] = []
        self._said = 0.0

    def server(self, name: str) -> Server:
        return ensure(name, self.folder / "services", owner=os.getpid(), durable=False)

    def _available(self, name: str) -> bool:
        if name not in (*SERVERS, "s3"):
            return True
        try:
            self.server(name)
        except Unavailable as error:
            print(f"{name} is left out: {error}", flush=True)
            return False
        return True

    def close(self) -> None:
        for name in (*SERVERS, "s3"):
            stop(name, self.folder / "services")

    def say(self, text: str) -> None:
        """Progress, at most every few seconds."""
        if time.monotonic() - self._said > 5:
            self._said = time.monotonic()
            print(f"{time.strftime('%H:%M:%S')} {text}", flush=True)

    def rounds(self) -> Iterator[tuple[str, str]]:
        """A database and a seed for each round; the first seed is the one that was given, to repeat a round by it."""
        number = 0
        while True:
            seed = self.options.seed if number == 0 else f"{self.options.seed}.{number}"
            yield self.databases[number % len(self.databases)], seed
            number += 1

    def prove(self, proof: str, work: Callable[[Outcome], None]) -> None:
        outcome = Outcome(proof)
        self.outcomes.append(outcome)
        began = time.perf_counter()
        with suppress(TooMany), self.watched(outcome):
            work(outcome)
        outcome.done["seconds"] = round(time.perf_counter() - began, 1)

    @contextmanager
    def watched(self, outcome: Outcome) -> Iterator[None]:
        """Note what goes wrong, an untyped error as well as a failed check, and go on: until it is too much."""
        try:
            yield
        except Exception as error:
            if isinstance(error, TooMany):
                raise
            told = str(error) if isinstance(error, AssertionError) else traceback.format_exc()
            outcome.anomalies.append(told)
            print(f"FOUND by {outcome.proof}: {told}", flush=True)
            if len(outcome.anomalies) >= _MOST:
                raise TooMany from error

    # -- the proofs ----------------------------------------------------------------------------------------------------

    def crashes(self, outcome: Outcome) -> None:
        """Every point of every operation, by exception, exit and kill: the tests in their long form."""
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/crash/test_crashes.py"]
        wanted = " or ".join(self.databases)
        ended = subprocess.run(
            [*command, "-k", wanted], env=os.environ | {"QUACKLAKE_TEST_PROFILE": "long"}, check=False
        )
        outcome.done["exit code"] = ended.returncode
        assert ended.returncode == 0, "the exhaustive crashes failed; see above"

    def kills(self, outcome: Outcome) -> None:
        total = kills.Tally()
        wanted: int = self.options.kills
        try:
            with Forks(["tests.crash.operations", "tests.prove.kills"]) as forks, Stock() as stock:
                for database, seed in self.rounds():
                    if total.kills >= wanted:
                        return
                    many = min(kills.KILLS, wanted - total.kills)

                    def tell(now: kills.Tally, before: int = total.kills) -> None:
                        self.say(f"kills: {before + now.kills} of {wanted}")

                    with self.watched(outcome):
                        total.add(kills.round_of_kills(self.places, forks, stock, database, many, seed, tell))
        finally:
            outcome.done |= _facts(total)
            outcome.done["seconds a kill"] = round(total.seconds / max(1, total.kills), 3)

    def transactions(self, outcome: Outcome) -> None:
        total = lists.Tally()
        wanted: int = self.options.transactions
        kinds = list(lists.KINDS)
        databases = [name for name in self.databases if name != "duckdb"]
        try:
            with Forks(["tests.crash.operations", "tests.prove.lists"]) as forks:
                for number, (_, seed) in enumerate(self.rounds()):
                    if total.transactions >= wanted or not databases:
                        return
                    chance = random.Random(seed)
                    kind, database = chance.choice(kinds), databases[number % len(databases)]
                    many = min(_TRANSACTIONS, wanted - total.transactions)
                    killed = chance.choice((0, 5))
                    with self.watched(outcome):
                        total.add(lists.round_of_lists(self.places, forks, database, kind, many, seed, killed))
                    self.say(f"transactions: {total.transactions} of {wanted}")
        finally:
            outcome.done |= _facts(total)

    def pairs(self, outcome: Outcome) -> None:
        wanted = None if self.options.pairs == "all" else int(self.options.pairs)
        share = None if wanted is None else -(-wanted // len(self.databases))
        done = both = 0
        try:
            with Stock() as stock:
                for database in self.databases:
                    chance = random.Random(self.options.seed)
                    for meeting in pairs.meetings(workshop := self._workshop(database), share, chance):
                        with self.watched(outcome):
                            both += pairs.meet(workshop, meeting, stock if done % 10 == 0 else None)
                        done += 1
                        self.say(f"pairs: {done} of {wanted or 'all'}")
                    workshop.close()
        finally:
            outcome.done |= {"meetings": done, "both done": both}

    def _workshop(self, database: str) -> Workshop:
        folder = self.folder / "lakes" / f"pairs-{database}"
        folder.mkdir(parents=True)
        server = self.server(database) if database in SERVERS else None
        made = Workshop(database, folder, server)  # type: ignore[arg-type]
        with made.create() as lake:
            prepare(lake)
        return made

    def storms(self, outcome: Outcome) -> None:
        total = stores.Tally()
        remote = self.options.storms > _STORM and self._available("s3")
        servers = [None, cast(S3Server, self.server("s3"))] if remote else [None]
        try:
            for number, (_, seed) in enumerate(self.rounds()):
                if total.operations >= self.options.storms:
                    return
                many = min(_STORM, self.options.storms - total.operations)
                folder = self.folder / "lakes" / f"storm{number}"
                with self.watched(outcome):
                    total.add(stores.storm(folder, servers[number % len(servers)], many, seed))
                    shutil.rmtree(folder)
                self.say(f"storms: {total.operations} of {self.options.storms} operations")
        finally:
            outcome.done |= _facts(total)

    def streams(self, outcome: Outcome) -> None:
        """Drivers of Spark streams: some die in a process that plays many, and some are processes that are killed."""
        total = streams.Tally()
        kills, deaths = self.options.streams, self.options.deaths
        try:
            for number, (_, seed) in enumerate(self.rounds()):
                folder = self.folder / "lakes" / f"stream{number}"
                if total.deaths < deaths:
                    total.add(streams.round_of_deaths(folder, min(streams.DEATHS, deaths - total.deaths), seed))
                elif total.kills < kills:
                    total.add(streams.round_of_streams(folder, min(streams.KILLS, kills - total.kills), seed))
                else:
                    return
                self.say(f"streams: {total.deaths} of {deaths} deaths, {total.kills} of {kills} kills")
        finally:
            outcome.done |= _facts(total)

    def soak(self, outcome: Outcome) -> None:
        """Writers and maintenance at once, on SQLite, which one process at a time writes to: the worst there is."""
        home = self.folder / "lakes" / "soak"
        home.mkdir(parents=True)
        seed = random.Random(self.options.seed).randrange(1 << 30)
        report = soak(home, f"sqlite:///{home}/lake.db", self.options.soak, seed=seed)
        outcome.done |= {name: value for name, value in _facts(report).items() if name != "problems"}
        assert not report.problems, "; ".join(report.problems[:10])
        # with the retries of the library itself, hardly a conflict gets as far as a writer
        assert report.conflicts <= max(1, report.commits // 1000), f"{report.conflicts} conflicts"


def _facts(tally: object) -> dict[str, Any]:
    found = {name.replace("_", " "): value for name, value in vars(tally).items() if name != "seconds"}
    return {name: dict(value) if isinstance(value, Counter) else value for name, value in found.items()}


def _table(outcomes: list[Outcome]) -> str:
    lines = []
    for outcome in outcomes:
        facts = [f"{name} {value}" for name, value in outcome.done.items() if not isinstance(value, dict)]
        lines.append(f"{outcome.proof:<13} anomalies {len(outcome.anomalies)}   {', '.join(facts)}")
        lines += [f"{'':<13} {name}: {value}" for name, value in outcome.done.items() if isinstance(value, dict)]
    return "\n".join(lines)


def main(arguments: list[str] | None = None) -> int:
    """Run what is asked for; 1 when an anomaly was found."""
    parser = argparse.ArgumentParser(prog="python -m tests.prove", description=__doc__)
    parser.add_argument("--kills", type=int, default=500, help="workers to kill")
    parser.add_argument("--pairs", default="200", help="meetings of two operations, or all")
    parser.add_argument("--transactions", type=int, default=1000, help="transactions on lists")
    parser.add_argument("--storms", type=int, default=60, help="operations on bad stores")
    parser.add_argument("--streams", type=int, default=0, help="drivers of Spark streams to kill: ten seconds each")
    parser.add_argument("--deaths", type=int, default=0, help="drivers of Spark streams that die in one process")
    parser.add_argument("--soak", type=float, default=60, help="seconds of constant writes beside maintenance")
    parser.add_argument("--crashes", action="store_true", help="the exhaustive crashes too: hours")
    parser.add_argument("--seed", default=time.strftime("%Y%m%d%H%M%S"))
    parser.add_argument("--databases", type=lambda text: text.split(","), default=["sqlite", "postgres", "mysql"])
    parser.add_argument("--json", type=Path, help="write the outcome there, too")
    parser.add_argument("--folder", type=Path, help="where the lakes are; those that show an anomaly stay there")
    options = parser.parse_args(arguments)
    folder = options.folder or Path(tempfile.mkdtemp(prefix="quacklake-prove-"))
    print(f"seed {options.seed}, lakes in {folder}", flush=True)
    prover = Prover(options, folder)
    proofs = {
        "crashes": prover.crashes if options.crashes else None,
        "kills": prover.kills if options.kills else None,
        "pairs": prover.pairs if options.pairs != "0" else None,
        "transactions": prover.transactions if options.transactions else None,
        "storms": prover.storms if options.storms else None,
        "streams": prover.streams if options.streams or options.deaths else None,
        "soak": prover.soak if options.soak else None,
    }
    try:
        for name, proof in proofs.items():
            if proof is not None:
                prover.prove(name, proof)
    finally:
        prover.close()
    found = [anomaly for outcome in prover.outcomes for anomaly in outcome.anomalies]
    print(_table(prover.outcomes))
    print(f"seed {options.seed}: {len(found)} anomalies")
    if options.json is not None:
        options.json.write_text(
            json.dumps({"seed": options.seed, "outcomes": [asdict(one) for one in prover.outcomes]}, indent=2)
        )
    if found:
        print(f"the lakes that show them are kept in {folder}")
    elif options.folder is None:
        shutil.rmtree(folder, ignore_errors=True)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
