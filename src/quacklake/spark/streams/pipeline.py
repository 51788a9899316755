"""Pipelines: pass new rows of one table through a query into another table, each exactly once.

A pipeline keeps its position in the lake, committed together with the rows that it wrote, so it needs no checkpoint.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterable, Sequence
from functools import reduce
from typing import TypeAlias

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame

from quacklake.core.operations.keyed_changes import CHANGE_TYPE, COMMIT_TIMESTAMP, COMMIT_VERSION, FEED_NAMES
from quacklake.core.operations.options import StreamPositions
from quacklake.errors import InputError, StreamMismatchError
from quacklake.extend.plans import FeedPlan, ScanPlan
from quacklake.extend.reporting import reach
from quacklake.extend.streams import StreamPlan, StreamSource
from quacklake.spark.engine import SparkEngine
from quacklake.spark.read.scan import (
    Slice,
    carrier_fields,
    read_slice,
    sliced_frame,
)
from quacklake.spark.read.slices import slices, state_slices
from quacklake.spark.runtime.local import shown_columns, to_frame
from quacklake.spark.runtime.session import has_time
from quacklake.spark.runtime.types import quote
from quacklake.spark.streams.sink import SparkSink, WrittenBatch
from quacklake.spark.streams.source import Bound, Position

_HERE = 1 << 20  # the most bytes of files that this process reads faster than Spark starts Python on the executors
FEED_TYPES = f"{CHANGE_TYPE} STRING, {COMMIT_VERSION} BIGINT, {COMMIT_TIMESTAMP} TIMESTAMP_LTZ"


# -- rows --------------------------------------------------------------------------------------------------------------
#
# Executors read the rows of a stream from files, without access to the catalog. Spark itself reads files whose rows
# were all inserted. DuckDB reads the others on the executors, such as files of several snapshots or rows that were
# updated. For that, quacklake must be installed there.


def slices_of(source: StreamSource, found: StreamPlan) -> list[Slice]:
    plans: list[ScanPlan | FeedPlan] = [] if found.state is None else [*state_slices(found.state)]
    return _slices(source, found, [*plans, *slices(found.feed, deletes=source.changes)])


def _slices(source: StreamSource, found: StreamPlan, plans: Iterable[ScanPlan | FeedPlan]) -> list[Slice]:
    columns = {"id": found.times.keys(), "time": found.times.values()}
    times = pa.table({name: pa.array(values, pa.int64()) for name, values in columns.items()})
    store, names = source.context.store, found.names
    return [Slice(store, plan, source.columns, names, source.changes, times) for plan in plans]


def raw_schema(source: StreamSource) -> str:
    """Return the columns of slices in Spark SQL, in transport form, under names that contain their ids."""
    return ", ".join([*carrier_fields(source.columns), *([FEED_TYPES] if source.changes else [])])


def shown_frame(source: StreamSource, raw: DataFrame, *, time: bool) -> DataFrame:
    """Convert rows from transport form to the form that users see."""
    return raw.selectExpr(*shown_columns(source.columns, time=time), *(FEED_NAMES if source.changes else ()))


def batch_frame(engine: SparkEngine, source: StreamSource, found: StreamPlan) -> DataFrame:
    time = has_time(engine.session)
    if source.changes:
        return shown_frame(source, _map_slices(engine, source, slices_of(source, found)), time=time)
    plain, rest = found.feed.plain_inserts()
    plans = [] if found.state is None else [found.state]
    if plain.files.num_rows or (plain.inlined is not None and plain.inlined.num_rows):
        plans.append(plain)
    names = [column.name for column in source.columns]
    parts = [engine.scan.frame(plan).select(*map(quote, found.names)).toDF(*names) for plan in plans]
    others = _slices(source, found, slices(rest, deletes=False))
    if others or not parts:
        parts.append(shown_frame(source, _map_slices(engine, source, others), time=time))
    return reduce(DataFrame.union, parts)


def _map_slices(engine: SparkEngine, source: StreamSource, parts: Sequence[Slice]) -> DataFrame:
    """Return slices as a DataFrame. A few rows are read here; otherwise each slice is a row of bytes for a task."""
    schema = raw_schema(source)
    size = 0  # about the bytes of all slices
    for plan in (part.plan for part in parts):
        rows = plan if isinstance(plan, ScanPlan) else plan.rows
        inlined = [rows.inlined] if isinstance(plan, ScanPlan) else [plan.inserted, plan.deleted]
        size += pc.sum(rows.files.column("file_size_bytes")).as_py() or 0
        size += sum(table.nbytes for table in inlined if table is not None)
    if size <= _HERE:
        found = [batch for part in parts for batch in read_slice(part)]
        if not found:
            return engine.session.createDataFrame([], schema)
        return to_frame(engine.session, pa.Table.from_batches(found))
    return sliced_frame(engine.session, parts, schema)


Query: TypeAlias = "str | Callable[[DataFrame], DataFrame]"
"""The query of a pipeline: SQL over ``source``, or a function of a DataFrame."""


class TablePipeline:
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
    def reports(self) -> list[WrittenBatch]:
        """The reports of the last batches, oldest first."""
        return list(self._sink.reports)

    @property
    def position(self) -> int:
        """The last snapshot of the source that has been processed; -1 before the first."""
        return -1 if self._position is None else self._position["after"]

    # -- running -----------------------------------------------------------------------------------------------------

    def run(self) -> list[WrittenBatch]:
        """Process all rows that exist when a batch begins, and return the report of each batch."""
        done: list[WrittenBatch] = []
        with self._turn:
            self._claim()
            while not self._stopped.is_set() and (report := self._next()) is not None:
                done.append(report)
        return done

    def start(self, every: float = 1.0) -> TablePipeline:
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
        """Stop after the batch in progress. Raise the error that the pipeline failed with."""
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
            return
        try:
            self._position = {str(key): int(value) for key, value in json.loads(mark.position).items()}
        except (ValueError, TypeError, AttributeError):
            raise StreamMismatchError(
                f'the stream "{self.name}" is at {mark.position!r}, which is not a position in a table'
            ) from None

    def _next(self) -> WrittenBatch | None:
        """Process one batch. Return None when there are no new rows."""
        assert self._position is not None
        end = self._source.latest(self._position)
        if end == self._position:
            return None
        plan = self._source.plan(self._position, end)
        reach("stream.batch.planned")
        batch, query = batch_frame(self._sink.engine, self._source, plan), self._query
        if isinstance(query, str):
            text = query.replace("{", "{{").replace("}", "}}")
            text = f"WITH source AS (SELECT * FROM {{batch}}) SELECT * FROM (\n{text}\n)"
            rows = self._sink.engine.session.sql(text, None, batch=batch)
        else:
            rows = query(batch)
        report = self._sink.write(rows, self._epoch + 1, json.dumps(dict(end), sort_keys=True))
        self._epoch, self._position = self._epoch + 1, end
        return report
