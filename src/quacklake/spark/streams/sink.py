"""Write the batches of a stream into a table. Each is committed once, together with its mark."""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from functools import reduce
from time import perf_counter
from typing import Any, TypeAlias

import pyarrow as pa
from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as f
from pyspark.sql.streaming.query import StreamingQuery

from quacklake import telemetry
from quacklake.core.format.objects import BatchContent, marked, older_checkpoint
from quacklake.core.operations import evolution
from quacklake.core.operations.keyed_changes import (
    CHANGE_TYPE,
    COMMIT_TIMESTAMP,
    COMMIT_VERSION,
    FEED_NAMES,
    PUT,
    TAKEN,
    apply_changes,
    check_names,
    null_key,
    unknown_change,
    upsert,
)
from quacklake.core.operations.options import StreamPositions
from quacklake.core.operations.statements import DUPLICATES_SHOWN, duplicate_keys
from quacklake.errors import StorageError, StreamBatchDoneError, UnsupportedFeatureError
from quacklake.extend.names import TableRef, uuid7
from quacklake.extend.reporting import reach
from quacklake.extend.schemas import TableInfo
from quacklake.extend.writes import Transaction
from quacklake.spark.changes.merge import SparkMerge, conform_keys
from quacklake.spark.engine import SparkEngine
from quacklake.spark.runtime.local import arrow_schema
from quacklake.spark.runtime.session import has_time
from quacklake.spark.runtime.settings import spark_path, spark_uri
from quacklake.spark.runtime.types import quote
from quacklake.spark.streams.checkpoint import SparkCheckpoint
from quacklake.spark.write.rows import SparkRows, carried_alike, given_columns
from quacklake.spark.write.tasks import Fetch

_log = logging.getLogger("quacklake.stream")
Counts: TypeAlias = dict[str, Any]
Work: TypeAlias = Callable[[Transaction], Counts]
"""Makes a change in a transaction, maybe twice, and returns its numbers."""

_REPORTS = 100  # the number of batches whose reports a stream keeps


@dataclass(frozen=True, slots=True)
class WrittenBatch:
    """The result of a batch: written ``rows``, data files and bytes; ``skipped`` if it was in the lake already."""

    epoch: int
    rows: int = 0
    deleted: int = 0
    files: int = 0
    bytes: int = 0
    milliseconds: float = 0.0
    skipped: bool = False


@dataclass
class SparkSink:
    """Writes the batches of one run of a stream. ``gaps`` says that batches may have been left out.

    ``restart_from`` is a batch that a person wants to be the next, whatever the lake has of the stream.
    """

    engine: SparkEngine
    name: str
    table: TableRef
    mode: str = "append"
    on: Sequence[str] = ()
    order_by: str | None = None
    evolve: bool = False
    gaps: bool = False
    restart_from: int | None = None
    run: str = ""
    reports: deque[WrittenBatch] = field(default_factory=lambda: deque(maxlen=_REPORTS))
    lock: threading.Lock = field(default_factory=threading.Lock)
    fetch: Fetch = field(init=False)

    def __post_init__(self) -> None:
        self.fetch = Fetch(self.engine.context.config.stream_driver_rows)

    def write(
        self, frame: DataFrame, epoch: int, position: str | None = None, content: BatchContent | None = None
    ) -> WrittenBatch:
        """Commit a batch, unless it is in the lake already. Raise the errors of ``Transaction.mark`` and of writes.

        A batch with a ``content`` is known by that, and its rows are read even if they are in the lake: Spark keeps the
        state of a query only when all of a batch was computed.
        """
        if content is not None and epoch == self.restart_from:
            content = replace(content, accepted=True)

        def marking(work: Work) -> Work:
            def marked_work(tx: Transaction) -> Counts:
                counts = work(tx)
                tx.mark(self.name, epoch, self.run, position, gaps=self.gaps, content=content)
                return counts

            return marked_work

        with self.lock, telemetry.timed("stream.batch"):
            began = perf_counter()
            reach("stream.batch.before")
            try:
                known = StreamPositions(self.engine.handle).find(self.name)
                # before any file is written
                marked(known, self.name, self.run, epoch, None, gaps=self.gaps, content=content)
                with self.stage(frame) as work:
                    counts = self.engine.handle.run(marking(work))
            except StreamBatchDoneError:
                counts = {"skipped": True}
                if content is not None:
                    StreamPositions(self.engine.handle).note_content(self.name, self.run, epoch, content)
                    read_through(frame)
            reach("stream.batch.after")
            report = WrittenBatch(epoch, milliseconds=(perf_counter() - began) * 1000, **counts)
        self.reports.append(report)
        label = self.engine.context.catalog.label
        telemetry.count("stream.batches_skipped" if report.skipped else "stream.batches", tenant=label)
        telemetry.count("stream.rows", report.rows, tenant=label)
        telemetry.count("stream.files", report.files, tenant=label)
        telemetry.count("stream.bytes", report.bytes, tenant=label)
        numbers = (report.epoch, report.rows, report.files, report.bytes, report.milliseconds)
        there = " (was there already)" if report.skipped else ""
        _log.info("stream %s batch %d: %d rows, %d files, %d bytes, %.0f ms%s", self.name, *numbers, there)
        return report

    def stage(self, frame: DataFrame) -> AbstractContextManager[Work]:
        """Return a block in which a batch is staged, with the change that adds it to a transaction."""
        if self.mode == "append":
            return self._append(frame)
        table = self.engine.handle.view().find_table(self.table.schema, self.table.name)
        time = has_time(self.engine.session)
        given = given_columns(frame.schema, table, time=time)
        few = self.fetch.few(frame) if carried_alike(given, table) else None
        if few is not None:
            return nullcontext(self._merging(few))
        # the last row of each key counts, however the key is spelled
        rows = conform_keys(frame, table, self.on, time=time, evolve=self.evolve, beside=FEED_NAMES)
        return self._merge(rows)

    @contextmanager
    def _append(self, frame: DataFrame) -> Iterator[Work]:
        engine = self.engine
        rows = SparkRows(engine.context, engine.writer, frame, partial=self.evolve, fetch=self.fetch)

        def work(tx: Transaction) -> Counts:
            table = tx.find_table(self.table.schema, self.table.name)
            if self.evolve:
                table = evolution.evolve(engine.context, tx, table, arrow_schema(frame.schema, required=False))
            rows.add_to(tx, table)
            counts = _counts(tx, table)
            self.fetch.last = counts["rows"]
            return counts

        with rows.discarded_on_failure():
            yield work

    def _merging(self, rows: pa.Table) -> Work:
        """Return the change that merges a small batch by its keys, which the driver compares."""
        context = self.engine.context

        def work(tx: Transaction) -> Counts:
            table = tx.find_table(self.table.schema, self.table.name)
            deleted = 0
            if self.mode == "changes":
                deleted = apply_changes(context, tx, table, rows, self.on, evolve=self.evolve)
            else:
                upsert(context, tx, table, rows, self.on, self.order_by, evolve=self.evolve)
            return {**_counts(tx, table), "deleted": deleted}

        return work

    @contextmanager
    def _merge(self, frame: DataFrame) -> Iterator[Work]:
        """Merge a large batch by its keys, which the executors compare."""
        changes = self.mode == "changes"
        rows = changed_rows(frame, self.on) if changes else upserted_rows(frame, self.on, self.order_by)
        merge = SparkMerge(self.engine, self.table, rows, self.on)
        merge = changes_merge(merge, self.on) if changes else upsert_merge(merge, self.on)
        with (merge.with_schema_evolution() if self.evolve else merge).staged() as work:

            def counting(tx: Transaction) -> Counts:
                done = work(tx)
                table = tx.find_table(self.table.schema, self.table.name)
                rows = {"rows": done.rows_inserted + done.rows_updated, "deleted": done.rows_deleted}
                return {**_counts(tx, table), **rows}

            yield counting


def read_through(frame: DataFrame) -> None:
    """Compute all rows of a batch and drop them. Then Spark has committed the state of the query for the batch."""
    frame.write.format("noop").mode("overwrite").save()


def _counts(tx: Transaction, table: TableInfo) -> Counts:
    """Return the numbers of rows, files and bytes that a transaction adds to a table."""
    pending = tx.pending(table)
    return {
        "rows": sum(file.record_count for file in pending.files)
        + sum(insert.rows.num_rows for insert in pending.inserts),
        "files": len(pending.files),
        "bytes": sum(file.file_size_bytes for file in pending.files),
    }


# -- large batches, merged by key on the executors ---------------------------------------------------------------------

_RANK = "_ql_rank"


def upserted_rows(frame: DataFrame, on: Sequence[str], order_by: str | None) -> DataFrame:
    """Return the rows of an upsert: all, or the last of each key in an order. Raise ``SchemaMismatchError``."""
    if order_by is None:
        return frame
    check_names(frame.columns, [order_by, *on])
    return _last(frame, on, [_column(order_by).desc_nulls_last()], _any(_column(name).isNull() for name in on))


def upsert_merge(merge: SparkMerge, on: Sequence[str]) -> SparkMerge:
    """Update the rows that have the keys and insert the others. Repeated keys are an error that shows them."""
    merge._check = lambda source: _check_keys(source, on)
    return merge.when_matched_update_all().when_not_matched_insert_all()


def changed_rows(frame: DataFrame, on: Sequence[str]) -> DataFrame:
    """Return the last change of each key, and rows without a valid change type. Raise ``SchemaMismatchError``."""
    check_names(frame.columns, (CHANGE_TYPE, *on))
    order = [_column(COMMIT_VERSION).desc_nulls_last()] if COMMIT_VERSION in frame.columns else []
    # within one commit, deletes come before inserts
    rows = _last(frame, on, [*order, _is(PUT).desc()], ~(_is(PUT) | _is(TAKEN)))
    return rows.drop(COMMIT_VERSION, COMMIT_TIMESTAMP)


def changes_merge(merge: SparkMerge, on: Sequence[str]) -> SparkMerge:
    """Update, insert or delete keys by their changes. Invalid changes raise the errors of ``apply_changes``."""

    def check(source: DataFrame) -> None:
        wrong = source.filter(~(_is(PUT) | _is(TAKEN)) | _any(_column(name).isNull() for name in on))
        for row in wrong.select(CHANGE_TYPE, *map(_column, on)).limit(1).collect():
            if row[0] not in (*PUT, *TAKEN):
                raise unknown_change(row[0])
            raise null_key(next(name for name, value in zip(on, row[1:], strict=True) if value is None))
        _check_keys(source.filter(_is(PUT)), on)

    merge._beside, merge._check = (CHANGE_TYPE,), check
    put, taken = (f.expr(f"source.{CHANGE_TYPE}").isin(*kinds) for kinds in (PUT, TAKEN))
    return merge.when_matched_delete(taken).when_matched_update_all().when_not_matched_insert_all(put)


def _last(frame: DataFrame, on: Sequence[str], order: Sequence[SparkColumn], others: SparkColumn) -> DataFrame:
    """Return the first row of each key in an order, and the rows for which ``others`` holds."""
    rank = f.rank().over(Window.partitionBy(*map(_column, on)).orderBy(*order))
    return frame.withColumn(_RANK, rank).filter((f.col(_RANK) == 1) | others).drop(_RANK)


def _check_keys(source: DataFrame, on: Sequence[str]) -> None:
    names = [_column(name) for name in on]
    several = source.filter(~_any(name.isNull() for name in names)).groupBy(*names).agg(f.expr("count(*) AS _ql_count"))
    found = several.filter("_ql_count > 1").orderBy(*names).limit(DUPLICATES_SHOWN + 1).collect()
    if found:
        raise duplicate_keys(on, [tuple(row)[:-1] for row in found])


def _column(name: str) -> SparkColumn:
    return f.col(quote(name))


def _is(kinds: Sequence[str]) -> SparkColumn:
    return f.coalesce(f.col(CHANGE_TYPE).isin(*kinds), f.lit(False))


def _any(conditions: Iterable[SparkColumn]) -> SparkColumn:
    return reduce(SparkColumn.__or__, conditions)


class StreamHandle:
    """A running stream into a table, with the methods of Spark's ``StreamingQuery`` that stop it or wait for it.

    The error that stopped it is raised unchanged, not as text inside a Spark error. ``query`` is Spark's own object.
    """

    def __init__(self, sink: SparkSink, checkpoint: SparkCheckpoint) -> None:
        self._sink = sink
        self._checkpoint = checkpoint
        self._ready = threading.Event()
        self._error: BaseException | None = None
        self.query: StreamingQuery

    @property
    def name(self) -> str:
        """The name of the stream."""
        return self._sink.name

    @property
    def isActive(self) -> bool:
        """True while the stream runs."""
        return bool(self.query.isActive)

    @property
    def reports(self) -> list[WrittenBatch]:
        """The reports of the last batches, oldest first."""
        return list(self._sink.reports)

    def exception(self) -> BaseException | None:
        """Return the error that stopped the stream, or None."""
        return self._error or self.query.exception()

    def awaitTermination(self, timeout: int | None = None) -> bool:
        """Wait until the stream ends. Return True when it has ended. Raise the error that stopped it."""
        try:
            return self.query.awaitTermination(timeout) is not False
        except Exception as error:
            raise (self._error or error) from None

    def processAllAvailable(self) -> None:
        """Wait until all current rows are in the table. Raise the error that stopped the stream."""
        try:
            self.query.processAllAvailable()
        except Exception as error:
            raise (self._error or error) from None

    def stop(self) -> None:
        """Stop the stream. A batch in progress is either committed as a whole or left out."""
        self._ready.set()
        self.query.stop()
        with self._sink.lock:
            return  # Spark does not wait for Python to finish

    # -- starting ----------------------------------------------------------------------------------------------------

    def check(self) -> None:
        """Raise ``StreamMismatchError`` when the checkpoint lacks the last batch in the lake.

        This is known before Spark starts, which would add to the checkpoint.
        """
        sink = self._sink
        known = StreamPositions(sink.engine.handle).find(self.name)
        if known is None or known.position is None or sink.gaps or sink.restart_from is not None:
            return
        if self._checkpoint.query() == known.query and self._checkpoint.digest(known.epoch) != known.position:
            raise older_checkpoint(known, self._checkpoint.next_batch(known.epoch))

    def hand_over(self) -> Callable[[DataFrame, int], None]:
        """Return the function that Spark calls with each batch."""
        return self._batch

    def _batch(self, frame: DataFrame, epoch: int) -> None:
        """Write a batch, once the stream has been claimed."""
        self._ready.wait()
        try:
            if self._error is not None:
                raise self._error
            self._sink.write(frame, epoch, content=self._checkpoint.content(epoch))
        except BaseException as error:
            self._error = error
            raise

    def _begin(self, query: StreamingQuery, *, restart: bool) -> None:
        """Claim the stream for a query that has just started, and let its batches through."""
        self.query = query
        try:
            run = str(query.runId)
            StreamPositions(self._sink.engine.handle).claim(self.name, str(query.id), run=run, restart=restart)
            self._sink.run = run
        except BaseException as error:
            self._error = error
            self.stop()
            raise
        self._ready.set()


_LOOK = 0.1  # seconds between two checks for a new batch
_READY = "ready/_SUCCESS"
_DONE = "done"


class ConnectHandle(StreamHandle):
    """A running stream of Spark Connect, whose server has no access to the catalog.

    The server writes each batch into files below the table, and waits. This process, which owns the session, reads
    those files through Spark, commits the rows with the number of the batch, and answers in a file beside them; then
    the server continues. So neither an address nor a password of the catalog leaves this process. If either side ends
    in between, the batch arrives again and is recognised.
    """

    def __init__(self, sink: SparkSink, checkpoint: SparkCheckpoint) -> None:
        super().__init__(sink, checkpoint)
        context, table = sink.engine.context, sink.table
        if context.catalog.encrypted:
            raise UnsupportedFeatureError(
                "a stream of Spark Connect would put rows of an encrypted lake into plain files",
                hint="use a classic session, or a pipeline",
            )
        found = sink.engine.handle.view().find_table(table.schema, table.name)
        self._store = context.store
        self._folder = f"{found.location}staged-{uuid7()}"
        self._thread = threading.Thread(target=self._go_on, name=f"stream {sink.name}", daemon=True)

    def hand_over(self) -> Callable[[DataFrame, int], None]:
        return _handing_over(spark_uri(self._store.url(self._folder)), spark_path(self._store.url(self._folder)))

    def stop(self) -> None:
        """Stop the stream. A batch in progress is either committed as a whole or left out."""
        if self._thread.ident is None:  # the server may be waiting for an answer
            self._thread.start()
        super().stop()
        self._thread.join()

    def awaitTermination(self, timeout: int | None = None) -> bool:
        """Wait until the stream ends. Return True when it has ended. Raise the error that stopped it."""
        ended = super().awaitTermination(timeout)
        if ended:
            self._thread.join()
        return ended

    def _begin(self, query: StreamingQuery, *, restart: bool) -> None:
        super()._begin(query, restart=restart)
        self._thread.start()

    # -- batches -----------------------------------------------------------------------------------------------------

    def _go_on(self) -> None:
        """Commit each batch as it arrives, until the query has ended."""
        last = -1
        while True:
            try:
                active = self.isActive
            except Exception:  # the session is closed
                active = False
            try:
                # files of batches by path: the number of the batch, and the kind of the file
                paths = [entry.path for entry in self._store.list(self._folder)]
                parts = ((path, path.removeprefix(f"{self._folder}/").partition("/")) for path in paths)
                files = {path: (int(number), rest) for path, (number, _, rest) in parts}
                epoch = next((epoch for epoch, rest in files.values() if rest == _READY and epoch > last), None)
                if epoch is not None:
                    self._take(epoch)
                    last = epoch
                    self._store.delete([path for path, (before, _) in files.items() if before < epoch])
                elif not active:
                    self._store.delete(files)
                    self._store.prune(f"{self._folder}/")
                    return
            except StorageError:
                _log.warning("stream %s: the files of a batch cannot be reached", self.name, exc_info=True)
            time.sleep(_LOOK)

    def _take(self, epoch: int) -> None:
        """Commit a batch, and answer the server."""
        place, answer = f"{self._folder}/{epoch}", _DONE
        try:
            frame = self._sink.engine.session.read.parquet(spark_path(self._store.url(f"{place}/rows")))
            self._batch(frame, epoch)
        except Exception as error:
            self._error = self._error or error
            answer = f"{type(error).__name__}: {error}"
        self._store.write(f"{place}/answer", answer.encode())


def _handing_over(folder: str, pattern: str, done: str = _DONE) -> Callable[[DataFrame, int], None]:
    """Return a function that is sent to the server by value. It needs only PySpark there."""

    def hand_over(frame: DataFrame, epoch: int) -> None:
        import time

        from pyspark.errors import AnalysisException

        session = frame.sparkSession
        marked = {"mapreduce.fileoutputcommitter.marksuccessfuljobs": "true"}
        frame.write.mode("overwrite").parquet(f"{folder}/{epoch}/rows")
        session.range(0).write.mode("overwrite").options(**marked).parquet(f"{folder}/{epoch}/ready")
        while True:
            try:
                answer = session.read.text(f"{pattern}/{epoch}/answer", wholetext=True).first()
            except AnalysisException:  # the answer does not exist yet
                time.sleep(0.1)
                continue
            if answer is None or answer[0] != done:
                raise RuntimeError("the batch was refused" if answer is None else answer[0])
            return

    return hand_over
