"""Drivers that die, many of them in one process: a stream is simulated with calls of the sink, without a JVM.

What Spark keeps in a checkpoint, the number of the last batch that it knows to be done, is a number here. A driver that is
dead does nothing any more: not even its clean-up gets through to the store or to the catalog.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING

import quacklake
from quacklake.core import faults
from quacklake.core.operations.options import StreamPositions
from tests.seeds import chance
from tests.spark.streaming import POINTS, Stage

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from quacklake.spark.streams.sink import SparkSink

__all__ = ["Deaths", "Died", "death", "sink_of"]

#: The points where drivers die, and the latest of their visits there at which they do.
_ANYWHERE = {**dict.fromkeys(POINTS, 2), "catalog.*": 40, "storage.*": 8, "stream.*": 3}
_EXECUTORS = 25
"""One of so many drivers lets executors merge, which takes seconds."""


class Died(BaseException):
    """The end of a driver."""


@contextmanager
def death(pattern: str, at: int, *, clean: bool) -> Iterator[None]:
    """A driver dies at a point, when it comes there for the ``at``-th time. With ``clean`` it can still clean up."""
    reached, where, lock = 0, "", threading.Lock()

    def hook(name: str) -> None:
        nonlocal reached, where
        with lock:
            if where and clean:
                return
            reached += not where and fnmatchcase(name, pattern)
            where = where or (name if reached == at else "")
        if where:
            raise Died(where)

    with faults._hooked(hook):
        yield


def sink_of(spark: quacklake.SparkLake, mode: str) -> SparkSink:
    """Return a sink for the batches of a new run of the stream, without a query of Spark."""
    sink = spark._sink("t", "in", mode, None if mode == "append" else "id", evolve=False, restart=False)
    sink.run = StreamPositions(spark.handle).claim("in", "a query").run
    return sink


class Deaths:
    """A stream whose drivers die in turn, and what Spark knows about it."""

    def __init__(self, session: SparkSession, folder: Path, mode: str, seed: str) -> None:
        self.session = session
        self.stage = Stage(folder, mode)
        self.dice = chance("deaths", mode, seed)
        self.points: Counter[str] = Counter()
        self.done = -1
        self.stage.make(1, self.dice)

    def play(self, kills: int) -> None:
        """Let so many drivers die, at each point at least once if possible, and compare the table with its source."""
        for number in range(kills):
            point = POINTS[number] if number < len(POINTS) else self.dice.choice(list(_ANYWHERE))
            try:
                with death(point, self.dice.randint(1, _ANYWHERE[point]), clean=self.dice.random() < 0.25):
                    self._live(executors=number % _EXECUTORS == len(POINTS))
            except Died as died:
                self.points[str(died)] += 1
        self.finish()
        assert sum(self.points.values()) == kills

    def finish(self) -> None:
        """Bring everything into the table, and look at it."""
        with self.stage.open() as lake:
            sink = sink_of(quacklake.spark(lake, self.session), self.stage.mode)
            while self.done + 1 < self.stage.batches:
                self.next_batch(sink)
            assert sink.write(self.stage.batch(self.session, 0), self.dice.randint(0, self.done)).skipped
        self.stage.check()

    def _live(self, *, executors: bool) -> None:
        """The life of one driver, which ends with its death."""
        with self.stage.open(stream_driver_rows=0 if executors else 1000) as lake:
            sink = sink_of(quacklake.spark(lake, self.session), self.stage.mode)
            while True:
                self.next_batch(sink)

    def next_batch(self, sink: SparkSink) -> None:
        """The batch that Spark would run next."""
        if self.done + 1 == self.stage.batches:
            self.stage.add(self.dice)
        sink.write(self.stage.batch(self.session, self.done + 1), self.done + 1)
        self.done += 1
