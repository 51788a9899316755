"""Run a pipeline on Spark: Structured Streaming reads and keeps state, executors write the files of all sinks.

Spark's own progress and state are in a folder below the lake's data path. The barrier is what counts: a batch that
Spark repeats after a crash is known by what the progress says of it, and only shown if that is what was left to do. Its
rows are computed all the same where the query has state, which Spark keeps for whole batches only.
"""

from __future__ import annotations

import json
import queue
import threading
import time
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from quacklake.connectors.options import ConnectorOptions, resolved
from quacklake.connectors.protocols import PreparedCommit, Sink
from quacklake.connectors.staging import FileStage
from quacklake.errors import ConfigError, StreamMismatchError, nearest
from quacklake.extend.checkpoints import Checkpoints, Claim
from quacklake.extend.reporting import reach
from quacklake.lake import Lake
from quacklake.pipelines.barrier import Barrier, Prepare, Stage
from quacklake.pipelines.checkpoints import last_manifest
from quacklake.pipelines.definition import LAKE, SOURCE_NAME, SPARK, PipelineDefinition
from quacklake.pipelines.joined_tables import PUSHDOWN, follow_joined
from quacklake.pipelines.lake_tables import LakeSink, Work
from quacklake.pipelines.local import branch, needs_state
from quacklake.pipelines.origins import Origins
from quacklake.pipelines.reports import BatchReport
from quacklake.pipelines.sinks import Sinks, folder
from quacklake.pipelines.spark_files import write_files
from quacklake.pipelines.windows import spark_query

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from quacklake.spark.lake import SparkLake

_WAIT = 0.2
"""Seconds between two looks at a running query."""


class SparkRun:
    """One run of a pipeline on Spark."""

    def __init__(
        self,
        lake: Lake,
        definition: PipelineDefinition,
        checkpoints: Checkpoints,
        claim: Claim,
        *,
        until_caught_up: bool,
        session: SparkSession | None = None,
    ) -> None:
        from quacklake.spark.lake import spark
        from quacklake.spark.streams.checkpoint import SparkCheckpoint, read_from_store

        self._lake = lake
        self._definition = definition
        self._claim = claim
        self._spark = spark(lake, session)
        self._session = self._spark.session
        self._stateful = needs_state(definition.query)
        self._until_caught_up = until_caught_up
        self._sinks = Sinks.open(lake, definition, claim.incarnation)
        self._letters = None if definition.dead_letters is None else LakeSink(lake, {"table": definition.dead_letters})
        origins = Origins(definition, claim.position)
        self.barrier = Barrier(lake, checkpoints, claim, self._sinks.others, origins)
        self._folder = f"{folder(definition.name)}{claim.incarnation}/"
        self._store = lake.handle.context.store
        self._checkpoint = SparkCheckpoint(read_from_store(self._store, self._folder))
        self._reports: queue.Queue[BatchReport] = queue.Queue()
        self._error: BaseException | None = None
        self._query: StreamingQuery | None = None
        self._caught_up = threading.Event()
        self.idle = 0.0  # `step` waits itself, and Spark keeps the pace
        self.full = True
        self._source = _SparkSource(self._spark, definition)

    def open(self) -> None:
        """Show what an earlier run has confirmed, and start the query behind the last checkpoint."""
        self._sinks.check(self._claim)
        self.barrier.recover()
        self._check_progress()
        from quacklake.spark.runtime.settings import spark_uri

        frame = self._source.stream()
        shown = self._run_query(self._source.rows(self._source.decoded(frame))) if self._stateful else frame
        self._initialize(shown)
        place = spark_uri(self._store.url(self._folder))
        writer = shown.writeStream.foreachBatch(self._batch).option("checkpointLocation", place)
        writer = writer.outputMode(self._definition.output_mode)
        session = self._session
        every = 0.0 if self._until_caught_up else self._definition.every.total_seconds()
        writer = writer.trigger(processingTime=f"{int(every * 1000)} milliseconds")
        most = self._definition.partitions or _partitions(session)
        wanted = {"spark.sql.shuffle.partitions": str(most)} if most else {}
        with _settings(session, {**wanted, PUSHDOWN: "true"}):
            self._query = writer.queryName(f"quacklake {self._definition.name}").start()
        if self._until_caught_up:
            threading.Thread(target=self._catch_up, name="quacklake-pipeline", daemon=True).start()

    def _check_progress(self) -> None:
        """Raise ``StreamMismatchError`` unless Spark's progress has the batch of the last checkpoint."""
        last = self._claim.last
        if last < 0:
            return
        found = self._checkpoint.digest(last)
        hint = f"restore {self._store.url(self._folder)} as it was at checkpoint {last}, or use restart to start over"
        if found is None:
            raise StreamMismatchError(f"the progress of Spark behind checkpoint {last} is gone", hint=hint)
        manifest = last_manifest(self._claim)
        known = None if manifest is None else manifest.batch
        if known not in (None, found):
            raise StreamMismatchError(
                f"the progress of Spark is that of another checkpoint {last} than the last one in the lake", hint=hint
            )

    def step(self) -> BatchReport | None:
        """Return the report of the next batch; None when there is none yet, or all is done."""
        assert self._query is not None
        while True:
            try:
                return self._reports.get(timeout=_WAIT)
            except queue.Empty:
                pass
            ended = self._caught_up.is_set() and self._reports.empty()
            self._raise()  # after the look at whether it has ended, which an error may be the cause of
            if ended or not self._until_caught_up:
                return None

    @property
    def bounded(self) -> bool:
        """False: a streaming query goes on."""
        return False

    def close(self) -> None:
        """Stop the query, and let go of the sinks."""
        if self._query is not None:
            self._query.stop()
        self._sinks.close()

    # -- the query -----------------------------------------------------------------------------------------------------

    def _catch_up(self) -> None:
        assert self._query is not None
        try:
            self._query.processAllAvailable()
        except Exception as error:
            self._error = self._error or error
        self._caught_up.set()

    def _raise(self) -> None:
        assert self._query is not None
        if self._error is not None:
            raise self._error
        if not self._query.isActive:
            failed = self._query.exception()
            if failed is not None:
                raise ConfigError(f"the query stopped: {str(failed).splitlines()[0]}") from failed

    def _run_query(self, rows: DataFrame) -> DataFrame:
        """Return the rows of the pipeline's query."""
        if self._definition.query is None:
            return rows
        session = rows.sparkSession
        rows.createOrReplaceTempView(SOURCE_NAME)
        lake = self._lake_of(session)
        query = self._definition.query
        views: Collection[str] = ()
        if self._stateful:
            query, views = follow_joined(self._lake, session, query, f"quacklake_{self._definition.name}")
        # whoever runs a pipeline runs what somebody else has written
        return lake.run_stored_query(spark_query(query), views=[SOURCE_NAME, *views])

    def _initialize(self, shown: DataFrame) -> None:
        from quacklake.spark.runtime.local import arrow_schema

        rows = shown if self._stateful else self._run_query(self._source.rows(self._source.nothing()))
        for where in self._sinks.wheres.values():
            self._branch(rows, where)  # an error in it shows before any table is made
        schema = arrow_schema(rows.schema, required=False)
        self._sinks.initialize(dict.fromkeys(self._sinks.names, schema))
        self.barrier.tables = self._sinks.table_ids()
        if self._letters is not None:
            found = self._source.rejected(self._source.nothing())
            if found is None:
                raise ConfigError("dead_letters are for sources of messages", hint="leave it out")
            self._letters.initialize(arrow_schema(found.schema, required=False))

    def _batch(self, frame: DataFrame, epoch: int) -> None:
        """Pass a batch on."""
        from quacklake.spark.streams.sink import read_through

        began = time.perf_counter()
        try:
            if self._error is not None:
                raise self._error
            if epoch < self.barrier.last:
                raise StreamMismatchError(
                    f"Spark repeats checkpoint {epoch}, and the lake has checkpoint {self.barrier.last}",
                    hint="use restart to start over",
                )
            if epoch == self.barrier.last:
                self.barrier.recover()
                if self._stateful:
                    read_through(frame)
                return
            report = self._pass_on(frame, epoch, began)
        except BaseException as error:
            self._error = error
            raise
        self._reports.put(report)

    def _pass_on(self, frame: DataFrame, epoch: int, began: float) -> BatchReport:
        position = json.dumps(self._offsets(epoch)[1])
        frame = (frame if self._stateful else self._source.decoded(frame)).persist()
        try:
            rows = frame if self._stateful else self._run_query(self._source.rows(frame))
            bad = self._bad(frame, epoch)
            branches = {name: self._branch(rows, where) for name, where in self._sinks.wheres.items()}
            stages: dict[str, Stage] = {
                name: self._stage(name, sink, branches[name]) for name, sink in self._sinks.tables.items()
            }
            if bad is not None:
                assert self._letters is not None
                stages["dead_letters"] = self._stage("dead_letters", self._letters, bad)
            prepares = {name: self._prepare(sink, branches[name]) for name, sink in self._sinks.others.items()}
            reach("pipeline.batch.read")
            batch = self._checkpoint.content(epoch).digest
            counts = self.barrier.commit(epoch, position, stages, prepares, batch)
        finally:
            frame.unpersist()
        letters = counts.pop("dead_letters", {}).get("rows", 0)
        written = {name: int(each.get("rows", 0)) for name, each in counts.items()}
        total = max(written.values(), default=0)
        return BatchReport(epoch, total, written, letters, (time.perf_counter() - began) * 1000, position)

    def _branch(self, rows: DataFrame, where: str | None) -> DataFrame:
        if where is None:
            return rows
        session = rows.sparkSession
        rows.createOrReplaceTempView(SOURCE_NAME)
        return self._lake_of(session).run_stored_query(branch(where, "spark"), views=[SOURCE_NAME])

    def _lake_of(self, session: SparkSession) -> SparkLake:
        """Return the lake in the session of a batch, which may be another than that of the query."""
        from quacklake.spark.lake import spark

        return self._spark if session is self._session else spark(self._lake, session)

    def _bad(self, frame: DataFrame, epoch: int) -> DataFrame | None:
        """Return the messages of a batch that are not rows. Raise ``ConfigError`` when nothing keeps them."""
        bad = self._source.rejected(frame) if not self._stateful else self._source.rejected_again(self._offsets(epoch))
        if bad is None:
            return None
        if self._letters is not None:
            return bad
        for first in bad.select("_sequence", "_reason").limit(1).collect():
            raise ConfigError(
                f"the message {first[0]} is not a row: {first[1]}", hint="dead_letters: TABLE keeps such messages"
            )
        return None

    def _offsets(self, epoch: int) -> tuple[Any, Any]:
        """Return where a batch begins, None for the first, and where it ends."""

        def read(number: int) -> Any:
            if number < 0:
                return None
            return json.loads(self._store.read(f"{self._folder}offsets/{number}").decode().splitlines()[-1])

        return read(epoch - 1), read(epoch)

    # -- sinks ---------------------------------------------------------------------------------------------------------

    @contextmanager
    def _stage(self, name: str, sink: LakeSink, rows: DataFrame) -> Iterator[Work]:
        from quacklake.spark.engine import SparkEngine
        from quacklake.spark.streams.sink import SparkSink

        engine = SparkEngine.of(self._lake.handle, rows.sparkSession)
        keys = sink.key if sink.mode != "append" else ()
        made = SparkSink(engine, name, sink.ref, sink.mode, keys, sink.order_by, evolve=sink.evolve)

        with made.stage(rows) as work:
            yield lambda change: work(change.transaction.handle.view())

    def _prepare(self, sink: Sink, rows: DataFrame) -> Prepare:
        def prepare(checkpoint_id: int) -> PreparedCommit:
            stage = getattr(sink, "stage", None)
            if isinstance(stage, FileStage):
                key = tuple(getattr(sink, "key", ())) if getattr(sink, "mode", None) == "upsert" else ()
                stage.files.extend(write_files(rows, stage, key))
                return sink.prepare_commit(checkpoint_id)
            stage = FileStage(self._store, folder=f"{self._folder}rows/")
            for file in write_files(rows, stage):
                with stage.store.open_input(file.path) as opened:
                    for batch in pq.ParquetFile(opened).iter_batches():
                        sink.write_batch(batch)
                stage.store.delete([file.path])
            return sink.prepare_commit(checkpoint_id)

        return prepare


@contextmanager
def _settings(session: SparkSession, wanted: Mapping[str, str]) -> Iterator[None]:
    """Give a session settings for the queries that start meanwhile, which keep them."""
    before = {name: session.conf.get(name, None) for name in wanted}
    for name, value in wanted.items():
        session.conf.set(name, value)
    try:
        yield
    finally:
        for name, earlier in before.items():
            if earlier is None:
                session.conf.unset(name)
            else:
                session.conf.set(name, earlier)


def _partitions(session: SparkSession) -> int | None:
    """Return the number of partitions of a query's state that suits a single machine, None on a cluster."""
    context = session.sparkContext
    return 2 * context.defaultParallelism if str(context.master).startswith("local") else None


def _instants(frame: DataFrame, name: str) -> DataFrame:
    """Return rows whose column has instants, as Spark wants for a watermark; times without a zone are UTC."""
    from pyspark.sql import functions as f
    from pyspark.sql.types import TimestampNTZType, TimestampType

    from quacklake.spark.runtime.types import quote

    kinds = {field.name: field.dataType for field in frame.schema.fields}
    if name not in kinds:
        hint = nearest(name, kinds) or f"They have {', '.join(kinds)}."
        raise ConfigError(f"watermark: the rows have no column {name!r}", hint=hint)
    if isinstance(kinds[name], TimestampNTZType):
        column = f.from_utc_timestamp(f.col(quote(name)).cast("timestamp"), f.current_timezone())
        return frame.withColumn(name, column)
    if not isinstance(kinds[name], TimestampType):
        raise ConfigError(f"watermark: the column {name!r} has no times, but {kinds[name].simpleString()}")
    return frame


class _SparkSource:
    """The source of a pipeline as a streaming DataFrame."""

    def __init__(self, spark: Any, definition: PipelineDefinition) -> None:
        self._spark = spark
        self._session: SparkSession = spark.session
        self._source = definition.source
        self._schema: Any = None
        self._frame: DataFrame | None = None

    def stream(self) -> DataFrame:
        """Return the stream as it comes."""
        options = dict(self._source.options)
        if self._source.type == LAKE:
            self._frame = self._lake_stream(options)
        elif self._source.type == "nats":
            self._frame = self._nats_stream(options)
        elif self._source.type == SPARK:
            self._frame = self._foreign_stream(options)
        else:
            raise ConfigError(
                f"Spark does not stream from {self._source.type!r} through a connector of ours",
                hint=f"type: spark, format: {self._source.type} uses Spark's own; or engine: local",
            )
        return self._frame

    def nothing(self) -> DataFrame:
        """Return the columns of what came, decoded, without rows."""
        assert self._frame is not None
        return self.decoded(self._session.createDataFrame([], self._frame.schema))

    def decoded(self, frame: DataFrame) -> DataFrame:
        """Return what came in the form that ``rows`` and ``rejected`` take, which is worth keeping for both."""
        if not self._has_messages:
            return frame
        from quacklake.connectors.nats.spark import decode

        return decode(frame, self._form, self._schema)

    def rows(self, decoded: DataFrame) -> DataFrame:
        """Return the rows of what came."""
        frame = decoded
        if self._has_messages:
            from quacklake.connectors.nats.spark import rows_of

            frame = rows_of(decoded)
        if self._source.watermark is None:
            return frame
        column, delay = self._source.watermark
        frame = _instants(frame, column)
        return frame.withWatermark(column, delay) if frame.isStreaming else frame

    def rejected(self, decoded: DataFrame) -> DataFrame | None:
        """Return the messages that are not rows; None for a source of rows."""
        if not self._has_messages:
            return None
        from quacklake.connectors.nats.spark import rejected_of

        return rejected_of(decoded)

    def rejected_again(self, offsets: tuple[Any, Any]) -> DataFrame | None:
        """Read a batch once more for the messages that are not rows."""
        if not self._has_messages:
            return None
        from quacklake.connectors.nats.spark import read_range

        start, end = offsets
        first = int(start["sequence"]) + 1 if start is not None else 1
        return self.rejected(self.decoded(read_range(self._session, self._nats, first, int(end["sequence"]))))

    @property
    def _has_messages(self) -> bool:
        """True for messages that have to be decoded."""
        return self._source.type == "nats" and self._form != "raw"

    def _lake_stream(self, options: dict[str, Any]) -> DataFrame:
        read = ConnectorOptions(LAKE, options)
        table = read.text("table")
        feed, starting = read.boolean("change_data_feed", False), read.optional("start") or "earliest"
        limits = read.number("max_files", least=1), read.number("max_bytes", least=1)
        read.finish()
        found: DataFrame = self._spark.read_stream(
            table,
            starting=int(starting) if starting.isdigit() else starting,
            changes=feed,
            max_files=limits[0],
            max_bytes=limits[1],
        )
        return found

    def _nats_stream(self, options: dict[str, Any]) -> DataFrame:
        from quacklake.connectors.nats.decoding import FORMATS, Decoder
        from quacklake.connectors.nats.spark import read_nats

        read = ConnectorOptions("nats", {key: options.pop(key) for key in ("format", "schema") if key in options})
        self._form = read.choice("format", FORMATS, "json")
        columns = read.optional("schema")
        for name in ("mode", "poll_interval", "on_bad", "max_rejected"):
            options.pop(name, None)
        if self._form != "raw":
            from pyspark.sql.pandas.types import from_arrow_schema

            decoder = Decoder(self._form, columns)
            self._schema = from_arrow_schema(pa.schema([f for f in decoder.schema if not f.name.startswith("_")]))
        self._nats = options
        return read_nats(self._session, options)

    def _foreign_stream(self, options: dict[str, Any]) -> DataFrame:
        form = str(options.pop("format", ""))
        if not form:
            raise ConfigError("a source of the type spark needs a format", hint="format: kafka")
        reader = self._session.readStream.format(form)
        schema = options.pop("schema", None)
        if schema is not None:
            reader = reader.schema(str(schema))
        try:
            return reader.options(**{key: resolved(str(value), key) for key, value in options.items()}).load()
        except Exception as error:
            raise ConfigError(f"Spark cannot read {form!r}: {str(error).splitlines()[0]}") from error
