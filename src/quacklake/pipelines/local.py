"""Run a pipeline in this process: the source's batches, a query by DuckDB, the sinks.

It keeps no state between batches, so a query that needs one, such as an aggregate over the stream, is refused.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import nullcontext, suppress
from typing import Any, NamedTuple

import pyarrow as pa
import sqlglot
from sqlglot import exp

from quacklake.connectors.protocols import MessageSource, Sink, SourceCheckpoint
from quacklake.errors import ConfigError, SqlError, UnsupportedFeatureError
from quacklake.extend.checkpoints import Checkpoints, Claim
from quacklake.extend.reporting import reach
from quacklake.extend.sql import open_session
from quacklake.lake import Lake
from quacklake.pipelines.barrier import Barrier, Prepare, Stage
from quacklake.pipelines.definition import SOURCE_NAME, PipelineDefinition
from quacklake.pipelines.lake_tables import Counts, LakeSink
from quacklake.pipelines.origins import Origins
from quacklake.pipelines.reports import BatchReport
from quacklake.pipelines.sinks import Sinks, open_source, poll_interval
from quacklake.pipelines.windows import parse_query

_STATEFUL = (exp.AggFunc, exp.Group, exp.Distinct, exp.Window, exp.Limit, exp.Order, exp.Except, exp.Intersect)
_IDLE_CHECKPOINT = 60.0
"""Seconds after which a position without rows is committed, too."""


def needs_state(query: str | None) -> bool:
    """Return whether the rows of a query over a stream depend on more than one batch. Raise ``SqlError``."""
    if query is None:
        return False
    try:
        tree = parse_query(query, "duckdb")
    except SqlError:
        tree = parse_query(query, "spark")
    if tree.find(*_STATEFUL) is not None:
        return True
    return any(isinstance(node, exp.Union) and node.args.get("distinct") for node in tree.walk())


def branch(where: str, dialect: str = "duckdb") -> str:
    """Return the query for the rows of a branch. Raise ``SqlError`` for an invalid condition."""
    try:
        condition = sqlglot.parse_one(where, dialect=dialect, into=exp.Condition)
    except sqlglot.errors.SqlglotError as error:
        raise SqlError(f"where {where!r} is not a condition: {str(error).splitlines()[0]}") from None
    return exp.select("*").from_(SOURCE_NAME).where(condition).sql(dialect=dialect)


class _Gathered(NamedTuple):
    """The rows of a batch, the position behind them, what was no row, and whether more may be there at once."""

    batches: list[pa.RecordBatch]
    position: str
    rejected: pa.Table | None
    full: bool


class LocalRun:
    """One run of a pipeline in this process."""

    def __init__(self, lake: Lake, definition: PipelineDefinition, checkpoints: Checkpoints, claim: Claim) -> None:
        if needs_state(definition.query):
            raise UnsupportedFeatureError(
                "the query needs rows of more than one batch, which the engine local does not keep",
                hint="engine: spark",
            )
        self._definition = definition
        self._lake = lake
        self._source = open_source(lake, definition.source)
        self._sinks = Sinks.open(lake, definition, claim.incarnation)
        self._session = open_session(lake, queries_only=True)  # whoever runs a pipeline runs what somebody else wrote
        self._letters = None if definition.dead_letters is None else LakeSink(lake, {"table": definition.dead_letters})
        origins = Origins(definition, claim.position)
        self.barrier = Barrier(lake, checkpoints, claim, self._sinks.others, origins)
        self._claim = claim
        self.idle = poll_interval(definition.source, definition.every)
        self.full = False
        self._reader = ThreadPoolExecutor(1, "quacklake-pipeline")
        self._ahead: Future[_Gathered] | None = None
        self._committed = time.monotonic()
        self._confirmed: str | None = claim.position

    def open(self) -> None:
        """Show what an earlier run has confirmed, make the sinks ready, and begin behind the last checkpoint."""
        self._sinks.check(self._claim)
        self.barrier.recover()
        schema = self._schema = self._source.schema()
        empty = self._results(pa.table([pa.array([], field.type) for field in schema], schema=schema))
        self._sinks.initialize({name: rows.schema for name, rows in empty.items()})
        self.barrier.tables = self._sinks.table_ids()
        if self._letters is not None:
            if not isinstance(self._source, MessageSource):
                raise ConfigError("dead_letters are for sources of messages", hint="leave it out")
            self._letters.initialize(self._source.take_rejected().schema)
        position = self._claim.position
        self._source.start(None if position is None else SourceCheckpoint.from_json(position))

    def step(self) -> BatchReport | None:
        """Pass one batch on and return its report; None when there is nothing new."""
        began = time.perf_counter()
        ahead, self._ahead = self._ahead, None
        given = self._gather() if ahead is None else ahead.result()
        self.full, position = given.full, given.position
        recent = position == self._confirmed or time.monotonic() - self._committed < _IDLE_CHECKPOINT
        if not given.batches and given.rejected is None and recent:
            return None
        if given.full:
            self._ahead = self._reader.submit(self._gather)  # read on while this batch is committed
        rows = pa.Table.from_batches(given.batches, self._schema)
        results = self._results(rows)
        changes = {name: sink.change(results[name]) for name, sink in self._sinks.tables.items()}
        if given.rejected is not None:
            changes["dead_letters"] = self._dead_letters(given.rejected).change(given.rejected)
        stages: dict[str, Stage] = {name: nullcontext(change) for name, change in changes.items()}
        prepares = {name: _prepare(sink, results[name]) for name, sink in self._sinks.others.items()}
        reach("pipeline.batch.read")
        counts = self.barrier.commit(self.barrier.last + 1, position, stages, prepares)
        self._committed, self._confirmed = time.monotonic(), position
        if self._ahead is None:
            self._source.commit(SourceCheckpoint.from_json(position))
        letters = counts.pop("dead_letters", {}).get("rows", 0)
        milliseconds = (time.perf_counter() - began) * 1000
        return BatchReport(self.barrier.last, rows.num_rows, _sink_rows(counts), letters, milliseconds, position)

    @property
    def bounded(self) -> bool:
        """True when the source comes to an end."""
        return self._source.mode.bounded

    def close(self) -> None:
        """Let go of the source and the sinks."""
        if self._ahead is not None:
            with suppress(Exception):  # what was read is read again by the next run
                self._ahead.result()
        self._reader.shutdown()
        self._source.close()
        self._sinks.close()
        self._session.close()
        self._session.attachments.close()

    def _gather(self) -> _Gathered:
        """Return batches until the limits of one, the time for one, or until nothing is new.

        Rows that are here do not wait for more: a source that has ``caught_up`` is not asked again.
        """
        limits, rows, size = self._definition, 0, 0
        found: list[pa.RecordBatch] = []
        full, until = True, time.monotonic() + limits.every.total_seconds()
        while rows < limits.batch_rows and size < limits.batch_bytes and (not found or time.monotonic() < until):
            batch = self._source.poll_next()
            if batch is None:
                full = False
                break
            found.append(batch)
            rows, size = rows + batch.num_rows, size + batch.nbytes
            if self._source.caught_up:
                full = False
                break
        rejected = self._source.take_rejected() if isinstance(self._source, MessageSource) else None
        position = self._source.current_checkpoint().to_json()
        return _Gathered(found, position, rejected if rejected is not None and rejected.num_rows else None, full)

    def _dead_letters(self, rejected: pa.Table) -> LakeSink:
        if self._letters is None:
            first = rejected.slice(0, 1).to_pylist()[0]
            raise ConfigError(
                f"the message {first['_sequence']} is not a row: {first['_reason']}",
                hint="dead_letters: TABLE keeps such messages; on_bad: fail raises an error instead",
            )
        return self._letters

    def _results(self, rows: pa.Table) -> Mapping[str, pa.Table]:
        """Return the rows that each sink gets."""
        if self._definition.query is None and not any(self._sinks.wheres.values()):
            return dict.fromkeys(self._sinks.names, rows)
        query = self._definition.query or f"SELECT * FROM {SOURCE_NAME}"
        self._session.register(SOURCE_NAME, rows)
        try:
            result = self._session.sql(query).to_arrow()
            self._session.register(SOURCE_NAME, result)  # in place of the rows: the name stays
            found: dict[str, pa.Table] = {}
            for name in self._sinks.names:
                where = self._sinks.wheres[name]
                found[name] = result if where is None else self._session.sql(branch(where)).to_arrow()
            return found
        finally:
            self._session.unregister(SOURCE_NAME)


def _prepare(sink: Sink, rows: pa.Table) -> Prepare:
    def prepare(checkpoint_id: int) -> Any:
        for batch in rows.to_batches():
            sink.write_batch(batch)
        return sink.prepare_commit(checkpoint_id)

    return prepare


def _sink_rows(counts: Mapping[str, Counts]) -> dict[str, int]:
    return {name: int(each.get("rows", 0)) for name, each in counts.items()}
