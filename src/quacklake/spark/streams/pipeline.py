"""Pipelines: pass new rows of one table through a query into another table, each exactly once.

A pipeline keeps its position in the lake, committed together with the rows that it wrote, so it needs no checkpoint.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias

from quacklake import faults
from quacklake.errors import InputError, StreamMismatchError
from quacklake.operations.change_feed import Bound
from quacklake.operations.stream_positions import StreamPositions
from quacklake.spark.streams.feed import batch_frame
from quacklake.spark.streams.sink import BatchReport, SparkSink
from quacklake.spark.streams.source import Position, StreamSource

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

Query: TypeAlias = "str | Callable[[DataFrame], DataFrame]"
"""The query of a pipeline: SQL over ``source``, or a function of a DataFrame."""


class Pipeline:
    """A source table, a query and a target table. ``run`` processes the current rows; ``start`` runs until ``stop``."""

    def __init__(
        self, source: StreamSource, query: Query, sink: SparkSink, *, starting: Bound, restart: bool = False
    ) -> None:
        self._source = source
        self._query = query
        self._sink = sink
        self._starting = starting
        self._restart = restart
        self._position: Position | None = None
        self._epoch = -1
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None
        self._error: BaseException | None = None
        self._turn = threading.Lock()

    @property
    def name(self) -> str:
        """The name of the pipeline, which is the name of its stream in the lake."""
        return self._sink.name

    @property
    def reports(self) -> list[BatchReport]:
        """The reports of the last batches, oldest first."""
        return list(self._sink.reports)

    @property
    def position(self) -> int:
        """The last snapshot of the source that has been processed; -1 before the first."""
        return -1 if self._position is None else self._position["after"]

    # -- running -----------------------------------------------------------------------------------------------------

    def run(self) -> list[BatchReport]:
        """Process all rows that exist when a batch begins, and return the report of each batch."""
        done: list[BatchReport] = []
        with self._turn:
            self._claim()
            while not self._stopped.is_set() and (report := self._next()) is not None:
                done.append(report)
        return done

    def start(self, every: float = 1.0) -> Pipeline:
        """Keep running in a thread that looks for new rows ``every`` so many seconds, until ``stop``."""
        if self._thread is not None and self._thread.is_alive():
            raise InputError(f'the pipeline "{self.name}" runs already')
        if every <= 0:
            raise InputError(f"every must be a number of seconds above 0, not {every!r}")
        self._stopped.clear()
        self._error = None
        self._thread = threading.Thread(target=self._go_on, args=(every,), name=f"pipeline {self.name}", daemon=True)
        self._thread.start()
        return self

    def stop(self) -> None:
        """Stop after the batch in progress. Raises the error that the pipeline failed with."""
        self._stopped.set()
        if self._thread is not None:
            self._thread.join()
        if self._error is not None:
            raise self._error

    @property
    def is_active(self) -> bool:
        """True while the pipeline runs in its thread."""
        return self._thread is not None and self._thread.is_alive()

    def _go_on(self, every: float) -> None:
        try:
            with self._turn:
                self._claim()
                while not self._stopped.is_set():
                    if self._next() is None:
                        self._stopped.wait(every)
        except BaseException as error:
            self._error = error

    # -- batches -----------------------------------------------------------------------------------------------------

    def _claim(self) -> None:
        """Claim the pipeline for this process, and read its position."""
        sink = self._sink
        query = f"pipeline of {self._source.table.uuid}"
        mark = StreamPositions(sink.engine.handle).claim(self.name, query, restart=self._restart)
        sink.run, self._epoch = mark.run, mark.epoch
        if mark.position is None:
            self._position = self._source.start(self._starting)
        else:
            self._position = _decoded(mark.position, self.name)

    def _next(self) -> BatchReport | None:
        """Process one batch. Return None when there are no new rows."""
        assert self._position is not None
        end = self._source.latest(self._position)
        if end == self._position:
            return None
        plan = self._source.plan(self._position, end)
        faults.reach("stream.batch.planned")
        rows = self._made(batch_frame(self._sink.engine, self._source, plan))
        report = self._sink.write(rows, self._epoch + 1, json.dumps(dict(end), sort_keys=True))
        self._epoch, self._position = self._epoch + 1, end
        return report

    def _made(self, batch: DataFrame) -> DataFrame:
        if not isinstance(self._query, str):
            return self._query(batch)
        query = self._query.replace("{", "{{").replace("}", "}}")
        session = self._sink.engine.session
        return session.sql(f"WITH source AS (SELECT * FROM {{batch}}) SELECT * FROM (\n{query}\n)", None, batch=batch)


def _decoded(text: str, name: str) -> Position:
    try:
        found = json.loads(text)
        return {str(key): int(value) for key, value in found.items()}
    except (ValueError, TypeError, AttributeError):
        raise StreamMismatchError(
            f'the stream "{name}" has come to {text!r}, which is no position of a table'
        ) from None
