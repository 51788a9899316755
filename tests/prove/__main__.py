"""The long proofs, with counts: ``python -m tests.prove --kills 10000 --pairs all --transactions 20000 --jobs 2``.

Ends with 1 when anything was found; then it says the seed that shows it again and where the lake is kept. A part is
left out with the count 0.
"""

from __future__ import annotations

import argparse
import itertools
import json
import multiprocessing
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from services import Unavailable
from services.background import ensure, stop
from tests.catalog.stock import Stock
from tests.crash.forks import Forks
from tests.prove import pipelines, spark_views, streams, views
from tests.prove.copies import interleave
from tests.prove.expressions import ROUND, Tally, round_of_expressions
from tests.prove.places import SERVERS
from tests.prove.publishes import round_of_publishes
from tests.prove.soak import soak
from tests.prove.tasks import SECONDS, Bench, Result, Task, add, begin, facts, plan, work

__all__ = ["main"]

_MAX_COUNT = 20
"""Anomalies that end a proof."""
#: The unit that each proof counts.
_COUNTED = {
    "kills": "kills",
    "pairs": "meetings",
    "transactions": "transactions",
    "storms": "operations",
    "mixed": "histories",
    "views": "histories",
    "statements": "statements",
    "outages": "outages",
}


@dataclass
class Outcome:
    """The outcome of one proof; ``databases`` counts what was done on each."""

    proof: str
    done: dict[str, Any] = field(default_factory=dict)
    databases: dict[str, int] = field(default_factory=dict)
    anomalies: list[str] = field(default_factory=list)
    seconds: float = 0.0

    def find(self, told: str) -> None:
        self.anomalies.append(told)
        print(f"FOUND by {self.proof}: {told}", flush=True)


class Prover:
    """Runs the proofs and collects their outcomes."""

    def __init__(self, options: argparse.Namespace, folder: Path) -> None:
        self.options = options
        self.folder = folder
        self.databases: list[str] = [name for name in options.databases if self._available(name)]
        self.outcomes: dict[str, Outcome] = {}
        self._said = 0.0

    def _available(self, name: str) -> bool:
        if name not in (*SERVERS, "s3"):
            return True
        try:
            ensure(name, self.folder / "services", owner=os.getpid(), durable=False)
        except Unavailable as error:
            print(f"{name} is left out: {error}", flush=True)
            return False
        return True

    def close(self) -> None:
        for name in (*SERVERS, "s3"):
            stop(name, self.folder / "services")

    # -- the proofs in tasks -------------------------------------------------------------------------------------------

    def tasks(self) -> list[Task]:
        options = self.options
        return plan(
            self.databases,
            options.seed,
            kills_=options.kills,
            pairs_=None if options.pairs == "all" else int(options.pairs),
            transactions=options.transactions,
            storms=options.storms,
            mixed_=options.mixed,
            s3=options.storms > 0 and self._available("s3"),
            statements_=options.statements,
            outages_=options.outages,
            views_=options.views,
        )

    def run(self, tasks: list[Task]) -> None:
        """All tasks, in several processes or here; says from time to time how far that is."""
        began = time.monotonic()
        left = list(tasks)
        for result in self._results(tasks):
            left.remove(result.task)
            outcome = self.outcomes.setdefault(result.task.proof, Outcome(result.task.proof))
            add(outcome.done, result.done)
            add(outcome.databases, {result.task.database: result.done.get(_COUNTED[outcome.proof], 0)})
            outcome.seconds += result.seconds
            for told in result.anomalies:
                outcome.find(told)
            if time.monotonic() - self._said > 10 or not left:
                self._said = time.monotonic()
                print(f"{time.strftime('%H:%M:%S')} {self._progress(left, time.monotonic() - began)}", flush=True)

    def _results(self, tasks: list[Task]) -> Iterator[Result]:
        """The results as they come; a proof that has found too much is not gone on with."""
        if self.options.jobs == 1:
            bench = Bench(self.folder, os.getpid(), self.databases)
            try:
                for task in tasks:
                    yield Result(task) if self._hopeless(task) else bench.run(task)
            finally:
                bench.close()
            return
        context = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(self.options.jobs, context, begin, (self.folder, os.getpid(), self.databases)) as pool:
            waiting: dict[Future[Result], Task] = {pool.submit(work, task): task for task in tasks}
            for future in as_completed(waiting):
                yield Result(waiting[future]) if future.cancelled() else future.result()
                for other, task in waiting.items():
                    if self._hopeless(task):
                        other.cancel()

    def _hopeless(self, task: Task) -> bool:
        return task.proof in self.outcomes and len(self.outcomes[task.proof].anomalies) >= _MAX_COUNT

    def _progress(self, left: list[Task], elapsed: float) -> str:
        """Return a line that says what is done, and when the rest will be at this pace."""
        counts = [f"{name} {sum(one.databases.values()):,}" for name, one in self.outcomes.items()]
        paces = dict(SECONDS)
        for name, one in self.outcomes.items():
            paces[name] = one.seconds / max(1, sum(one.databases.values())) or paces[name]
        rest = sum(task.size * paces[task.proof] for task in left) / self.options.jobs
        found = sum(len(one.anomalies) for one in self.outcomes.values())
        return f"{', '.join(counts)}; {found} anomalies; {elapsed / 60:.0f} min, about {rest / 60:.0f} min to go"

    # -- those that are alone ------------------------------------------------------------------------------------------

    def alone(self, proof: str, work: Callable[[Outcome], None]) -> None:
        outcome = self.outcomes[proof] = Outcome(proof)
        began = time.perf_counter()
        try:
            work(outcome)
        except Exception as error:
            outcome.find(str(error) if isinstance(error, AssertionError) else traceback.format_exc())
        outcome.seconds = time.perf_counter() - began

    def crashes(self, outcome: Outcome) -> None:
        """Every point of every operation, by exception, exit and kill: the tests in their long form."""
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
        command += ["tests/crash/test_crashes.py", "tests/lake/test_interrupts.py"]
        wanted = " or ".join(self.databases)
        ended = subprocess.run(
            [*command, "-k", wanted], env=os.environ | {"QUACKLAKE_TEST_PROFILE": "long"}, check=False
        )
        outcome.done["exit code"] = ended.returncode
        assert ended.returncode == 0, "the exhaustive crashes failed; see above"

    def streams(self, outcome: Outcome) -> None:
        """Drivers of Spark streams: some die in a process that plays many, and some are processes that are killed."""
        total = streams.Tally()
        kills, deaths, starts = self.options.streams, self.options.deaths, self.options.checkpoints
        try:
            for number in itertools.count():
                folder, seed = self.folder / "lakes" / f"stream{number}", f"{self.options.seed}.{number}"
                if total.starts < starts:
                    total.add(streams.round_of_checkpoints(folder, seed))
                elif total.deaths < deaths:
                    total.add(streams.round_of_deaths(folder, min(streams.DEATHS, deaths - total.deaths), seed))
                elif total.kills < kills:
                    total.add(streams.round_of_streams(folder, min(streams.KILLS, kills - total.kills), seed))
                else:
                    return
                told = f"streams {total.starts} of {starts} starts, {total.deaths} of {deaths} deaths"
                told += f", {total.kills} of {kills} kills"
                print(f"{time.strftime('%H:%M:%S')} {told}", flush=True)
        finally:
            outcome.done |= facts(total)

    def expressions(self, outcome: Outcome) -> None:
        """Expressions and views that DuckDB and Spark compute, in processes that start Spark once each."""
        total = Tally()
        for number, begun in enumerate(range(0, self.options.expressions, ROUND)):
            folder = self.folder / "lakes" / f"expressions{number}"
            seed = self.options.seed if number == 0 else f"{self.options.seed}.{number}"
            total.add(round_of_expressions(folder, min(ROUND, self.options.expressions - begun), seed))
            shutil.rmtree(folder)
            print(f"{time.strftime('%H:%M:%S')} expressions {total.expressions}, views {total.views}", flush=True)
        for told in total.differences:
            outcome.find(told)
        outcome.done |= {name: value for name, value in facts(total).items() if name != "differences"}

    def spark_views(self, outcome: Outcome) -> None:
        """Histories of materialized views, refreshed on Spark and on DuckDB, in processes that start Spark once each."""
        total = views.Tally()
        for number, begun in enumerate(range(0, self.options.spark_views, spark_views.ROUND)):
            folder = self.folder / "lakes" / f"spark-views{number}"
            count = min(spark_views.ROUND, self.options.spark_views - begun)
            total.add(spark_views.round_of_spark_views(folder, count, f"{self.options.seed}.{number}"))
            print(f"{time.strftime('%H:%M:%S')} views on Spark {total.histories}, {dict(total.engines)}", flush=True)
        for told in total.failures:
            outcome.find(told)
        outcome.done |= {name: value for name, value in facts(total).items() if name != "failures"}

    def copies(self, outcome: Outcome) -> None:
        """Stock DuckDB and ours on one SQLite lake in one process."""
        outcome.done |= facts(interleave(self.folder / "lakes", self.options.copies, self.options.seed))

    def publishes(self, outcome: Outcome) -> None:
        """Commits to NATS, whose writers and server are killed."""
        folder = self.folder / "lakes" / "publishes"
        outcome.done |= facts(round_of_publishes(folder, self.options.publishes, self.options.seed))

    def pipelines(self, outcome: Outcome) -> None:
        """Pipelines whose process, NATS server and catalog are killed: at points of a batch, and among many messages."""
        options, total = self.options, pipelines.Tally()
        every = options.pipelines == "all"
        kinds = [name for name in ("sqlite", "postgres") if name in self.databases]
        rounds = list(itertools.product(kinds, ("nats", "lake"), pipelines.SINKS))
        share = 0 if every else -(-int(options.pipelines) // max(1, len(rounds)))
        dice = random.Random(options.seed)

        def choose(numbers: Sequence[int], what: str) -> Sequence[int]:
            most = share if what == "process" else -(-share // 5)
            return numbers if every else sorted(dice.sample(numbers, min(most, len(numbers))))

        with Forks(["tests.prove.pipelines"]) as forks, Stock() as stock:
            for kind in kinds:
                folder = self.folder / "lakes" / f"pipelines-{kind}"
                stand = pipelines.Stand(folder, forks, stock, postgres=kind == "postgres")
                try:
                    for _, source, mode in (each for each in rounds if each[0] == kind and (share or every)):
                        total.add(pipelines.round_of_kills(stand, source, mode, choose)[0])
                        print(f"{time.strftime('%H:%M:%S')} pipelines {total.struck} kills", flush=True)
                    if options.messages and kind == kinds[-1]:
                        kills = options.message_kills
                        total.add(pipelines.round_of_messages(stand, options.messages, kills, options.seed))
                finally:
                    stand.close()
                    outcome.done |= facts(total)

    def soak(self, outcome: Outcome) -> None:
        """Run writers and maintenance at once on SQLite, where one process writes at a time: the worst case."""
        home = self.folder / "lakes" / "soak"
        home.mkdir(parents=True)
        seed = random.Random(self.options.seed).randrange(1 << 30)
        report = soak(home, f"sqlite:///{home}/lake.db", self.options.soak, seed=seed)
        outcome.done |= {name: value for name, value in facts(report).items() if name != "problems"}
        assert not report.problems, "; ".join(report.problems[:10])
        # with the retries of the library itself, hardly a conflict gets as far as a writer
        assert report.conflicts <= max(1, report.commits // 1000), f"{report.conflicts} conflicts"


def table(outcomes: list[Outcome], databases: list[str]) -> str:
    """Return a table of what was done on each kind of database, with the facts below it."""
    places = [*databases, "local", "s3"]
    columns = [name for name in places if any(one.databases.get(name) for one in outcomes)]
    lines = ["".join([f"{'':<14}", *(f"{name:>10}" for name in columns), f"{'all':>10}{'anomalies':>11}{'hours':>8}"])]
    for one in outcomes:
        counts = [f"{one.databases.get(name, 0) or '':>10}" for name in columns]
        total = sum(one.databases.values()) or ""
        lines.append("".join([f"{one.proof:<14}", *counts, f"{total:>10}{len(one.anomalies):>11}"]))
        lines[-1] += f"{one.seconds / 3600:>8.2f}"
    for one in outcomes:
        told = [f"{name} {value}" for name, value in one.done.items()]
        lines.append(f"{one.proof}: {', '.join(told)}")
    return "\n".join(lines)


def main(arguments: list[str] | None = None) -> int:
    """Run what is asked for; 1 when an anomaly was found."""
    parser = argparse.ArgumentParser(prog="python -m tests.prove", description=__doc__)
    parser.add_argument("--kills", type=int, default=500, help="workers to kill")
    parser.add_argument("--pairs", default="200", help="meetings of two operations, or all")
    parser.add_argument("--transactions", type=int, default=1000, help="transactions on lists")
    parser.add_argument("--storms", type=int, default=60, help="operations on bad stores")
    parser.add_argument("--mixed", type=int, default=20, help="histories of ours and stock DuckDB on one lake")
    parser.add_argument("--statements", type=int, default=4000, help="statements to compare with plain DuckDB")
    parser.add_argument("--outages", type=int, default=0, help="operations to cancel, cut off or leave without room")
    parser.add_argument("--views", type=int, default=0, help="histories of materialized views")
    parser.add_argument("--spark-views", type=int, default=0, help="histories of views that Spark refreshes, too")
    parser.add_argument("--streams", type=int, default=0, help="drivers of Spark streams to kill: ten seconds each")
    parser.add_argument("--deaths", type=int, default=0, help="drivers of Spark streams that die in one process")
    parser.add_argument(
        "--checkpoints", type=int, default=0, help="starts of streams whose checkpoints are put back or lost in part"
    )
    parser.add_argument("--expressions", type=int, default=0, help="expressions to compare between DuckDB and Spark")
    parser.add_argument("--soak", type=float, default=60, help="seconds of constant writes beside maintenance")
    parser.add_argument("--copies", type=int, default=0, help="interleavings with another SQLite in the same process")
    parser.add_argument("--publishes", type=int, default=0, help="commits to NATS under kills: two seconds each")
    parser.add_argument(
        "--pipelines", default="0", help="kills of pipelines at points of a batch, or all: three seconds each"
    )
    parser.add_argument("--messages", type=int, default=0, help="messages through a pipeline under kills")
    parser.add_argument("--message-kills", type=int, default=50, help="kills among these messages")
    parser.add_argument("--crashes", action="store_true", help="the exhaustive crashes too: hours")
    parser.add_argument("--seed", default=time.strftime("%Y%m%d%H%M%S"))
    parser.add_argument("--jobs", type=int, default=1, help="processes that share the work")
    databases = ["sqlite", "duckdb", "postgres", "mysql"]
    parser.add_argument("--databases", type=lambda text: text.split(","), default=databases)
    parser.add_argument("--json", type=Path, help="write the outcome there, too")
    parser.add_argument("--folder", type=Path, help="where the lakes are; those that show an anomaly stay there")
    options = parser.parse_args(arguments)
    folder = options.folder or Path(tempfile.mkdtemp(prefix="quacklake-prove-"))
    print(f"seed {options.seed}, lakes in {folder}", flush=True)
    prover = Prover(options, folder)
    try:
        prover.run(prover.tasks())
        if options.crashes:
            prover.alone("crashes", prover.crashes)
        if options.streams or options.deaths or options.checkpoints:
            prover.alone("streams", prover.streams)
        if options.expressions:
            prover.alone("expressions", prover.expressions)
        if options.spark_views:
            prover.alone("views on Spark", prover.spark_views)
        if options.soak:
            prover.alone("soak", prover.soak)
        if options.copies:
            prover.alone("copies", prover.copies)
        if options.publishes:
            prover.alone("publishes", prover.publishes)
        if options.pipelines != "0" or options.messages:
            prover.alone("pipelines", prover.pipelines)
    finally:
        prover.close()
    outcomes = list(prover.outcomes.values())
    found = [anomaly for outcome in outcomes for anomaly in outcome.anomalies]
    print(table(outcomes, prover.databases))
    print(f"seed {options.seed}: {len(found)} anomalies")
    if options.json is not None:
        options.json.write_text(
            json.dumps({"seed": options.seed, "outcomes": [asdict(one) for one in outcomes]}, indent=2)
        )
    if found:
        print(f"the lakes that show them are kept in {folder}")
    elif options.folder is None:
        shutil.rmtree(folder, ignore_errors=True)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
