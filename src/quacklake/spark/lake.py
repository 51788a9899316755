"""A lake in Spark: read tables as DataFrames, and write DataFrames into tables."""

from __future__ import annotations

import datetime as dt
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeAlias

from quacklake import Expression, MergeResult
from quacklake.core.format.objects import check_stream
from quacklake.core.operations import dml, evolution
from quacklake.core.operations.handles import Handle, LakeHandle
from quacklake.core.sql.sessions import LakeSessions
from quacklake.errors import InputError, SnapshotExpiredError, UnsupportedFeatureError
from quacklake.extend.names import TableRef
from quacklake.extend.partitions import overwrite_partitions
from quacklake.extend.predicates import ANYTHING, to_predicate
from quacklake.extend.schemas import TableInfo
from quacklake.extend.streams import StreamSource
from quacklake.extend.writes import Operation, Transaction
from quacklake.spark.expressions.translator import Filter
from quacklake.spark.maintenance import SparkMaintaining
from quacklake.spark.runtime.settings import (
    DYNAMIC,
    OVERWRITE_MODES,
    has_sources,
    parse_version,
    require_pyspark,
    require_sources,
)
from quacklake.spark.runtime.settings import spark_settings as settings_for
from quacklake.spark.streams.source import (
    EARLIEST,
    OUTPUT_MODES,
    Bound,
    choice,
    open_source,
    positive,
    refuse_unknown,
    trigger_of,
)
from quacklake.spark.streams.source import MODES as STREAM_MODES

if TYPE_CHECKING:
    from pyspark.sql import Column as SparkColumn
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from quacklake.extend.reads import Source
    from quacklake.spark.changes.merge import SparkMerge
    from quacklake.spark.changes.staged_changes import ChangeMetrics
    from quacklake.spark.engine import SparkEngine
    from quacklake.spark.streams.pipeline import Query, TablePipeline
    from quacklake.spark.streams.sink import SparkSink, StreamHandle
    from quacklake.spark.write.rows import SparkRows


_Keys: TypeAlias = "str | Sequence[str] | None"
Where: TypeAlias = "Filter | SparkColumn | None"


def spark(lake: Source, session: SparkSession | None = None) -> SparkLake:
    """Return a lake for reading and writing with Spark.

    ``session`` is a Spark session, classic or Connect; the default is the active session, or a new one. The lake also
    becomes the one that ``format("quacklake")`` refers to in this session. Raise ``MissingExtraError`` when
    ``pyspark`` or Java is not installed, ``UnsupportedVersionError`` for a version of Spark that does not work.
    """
    require_pyspark()
    return SparkLake(_whole(lake), session)


def spark_settings(lake: Source, version: str | None = None) -> dict[str, str]:
    """Return the Spark settings for a lake, without secrets, for ``spark-defaults.conf`` or a session builder.

    ``version`` is the version of Spark, such as ``"4.1"``; the default is the installed one. No session is needed.
    """
    return settings_for(lake.handle.context.store, None if version is None else parse_version(version))


def _whole(lake: Source) -> LakeHandle:
    handle = lake.handle
    if not isinstance(handle, LakeHandle):
        raise InputError("Spark works on a whole lake, not on a past snapshot or an open transaction")
    return handle


def register_spark(session: SparkSession | None = None, lake: Source | None = None, *, name: str | None = None) -> None:
    """Register ``format("quacklake")`` with a session, by default the active one, for plain Spark code and SQL.

    ``lake`` is the default lake when the option ``lake`` is missing, and the lake that ``name`` refers to in that
    option; a URL always works. ``quacklake.spark(lake)`` does the same. On Spark Connect, tables can only be read, by
    the URL of their lake, which the server must be able to open.

    Raise ``UnsupportedFeatureError`` for a Spark before 4, which has no Python data sources.
    """
    require_pyspark()
    require_sources()
    from pyspark.sql import SparkSession

    from quacklake.spark.datasource.format import SparkFormat, register_source, source_class
    from quacklake.spark.runtime.session import is_connect

    found = session if session is not None else SparkSession.getActiveSession()
    if found is None:
        raise InputError("there is no Spark session", hint="pass one, or use quacklake.spark(lake), which makes one")
    if is_connect(found):
        if lake is not None:
            raise UnsupportedFeatureError(
                "a lake of this process cannot be read by the server of Spark Connect",
                hint='leave it out, and name the lake by its URL: .option("lake", "postgresql://…")',
            )
        register_source(found, source_class(None))
        return
    service = SparkFormat.of(found).service
    if lake is not None:
        service.add(_whole(lake), name)
    elif name is not None:
        raise InputError("a name is given, but no lake", hint='pass register_spark(session, lake, name="sales")')


class SparkLake(SparkMaintaining):
    """A lake in a Spark session. Only the driver uses the catalog; executors only read and write files."""

    def __init__(self, handle: LakeHandle, session: SparkSession | None = None) -> None:
        from quacklake.spark.engine import SparkEngine
        from quacklake.spark.runtime.session import is_connect

        self.handle = handle
        self._context = handle.context
        self._sessions = LakeSessions(handle)
        self._engine = SparkEngine.of(handle, session)
        self.session: SparkSession = self._engine.session
        if has_sources() and not is_connect(self.session):
            from quacklake.spark.datasource.format import SparkFormat

            SparkFormat.of(self.session).service.add(handle)

    def __repr__(self) -> str:
        return f"<SparkLake over {self._context.catalog.url}>"

    def sql(self, text: str, params: Sequence[Any] | Mapping[str, Any] | None = None) -> DataFrame:
        """Run one statement in Spark SQL, over tables of the lake and of Spark, and return its rows.

        Name tables of the lake ``table``, ``schema.table`` or ``lake.schema.table``, also at a past state (``table
        VERSION AS OF 3``); other names are Spark's. A change of the lake is committed at once, as one snapshot, and
        returns its counts as a row. ``params`` are values for ``?`` (a list) or ``:name`` (a dictionary). Raise
        ``SqlError``, ``NotFoundError``, or the error of the operation itself.
        """
        from quacklake.spark.sql.dispatch import run

        return run(self._engine, self._sessions, text, params)

    def run_stored_query(self, text: str, *, views: Collection[str] = ()) -> DataFrame:
        """Run a query of somebody else over the lake and these views of the session alone.

        It calls no function that runs programs, reads files or tells about the session. Raise ``NotPermittedError``
        for one that would, and ``NotFoundError`` for another table.
        """
        from quacklake.spark.sql.dispatch import run_stored

        return run_stored(self._engine, self._sessions, text, views)

    # -- reading -----------------------------------------------------------------------------------------------------

    def table(
        self,
        name: str,
        *,
        at: int | dt.datetime | str | None = None,
        version: int | str | None = None,
        timestamp: dt.datetime | str | None = None,
        tag: str | None = None,
        where: Where = None,
    ) -> DataFrame:
        """Return a table as a DataFrame, in its current state or ``at`` a snapshot id, a tag or a time.

        ``where`` is a filter in the SQL of the lake or of ``pyarrow.compute``, which also skips files, or a Spark
        column. The DataFrame does not change when the table does.
        """
        ref = TableRef.parse(name)
        if at is version is timestamp is tag is None:
            view = self.handle.view()
        else:
            if at is not None and not version is timestamp is tag is None:
                raise InputError("pass one of at=, version=, timestamp= and tag=")
            past = self.handle.at(version, timestamp, tag) if at is None else self.handle.at_version(at)
            view = past.view()
        info = view.find_table(ref.schema, ref.name)
        from quacklake.spark.changes.clauses import condition_of

        column = type(where).__module__.startswith("pyspark.")
        frame = self._engine.frame(view, info, ANYTHING if column else to_predicate(where, info.schema))
        return frame if where is None else frame.filter(condition_of(where, self._engine.scope(table=info.schema)))

    # -- writing -----------------------------------------------------------------------------------------------------

    def append(self, name: str, frame: DataFrame) -> None:
        """Add the rows of a DataFrame to a table, in one snapshot. Raise the errors of ``Table.append``."""
        ref = TableRef.parse(name)
        self._engine.write(frame, lambda tx, rows: rows.add_to(tx, tx.find_table(ref.schema, ref.name)))

    def overwrite(
        self, name: str, frame: DataFrame, *, where: Where = None, partition_overwrite_mode: str = "static"
    ) -> None:
        """Replace the rows that match a filter (all without one) by those of a DataFrame, in one snapshot.

        With ``partition_overwrite_mode="dynamic"``, replace the partitions that the DataFrame has rows for. The
        DataFrame may read the table itself.
        """
        ref = TableRef.parse(name)
        dynamic = choice("partition_overwrite_mode", partition_overwrite_mode, OVERWRITE_MODES) == DYNAMIC
        if dynamic and where is not None:
            raise InputError("where and dynamic overwriting both say which rows go", hint="leave one of them out")

        def work(tx: Transaction, rows: SparkRows) -> None:
            table = tx.find_table(ref.schema, ref.name)
            if dynamic:
                overwrite_partitions(self._context, tx, table, lambda: rows.add_to(tx, table))
            else:
                dml.delete(self._context, tx, table, where, asked=Operation.OVERWRITE)
                rows.add_to(tx, table)

        self._engine.write(frame, work)

    def create_table(
        self,
        name: str,
        columns: DataFrame | StructType,
        *,
        partition_by: str | Sequence[str] = (),
        sort_by: str | Sequence[str] = (),
    ) -> None:
        """Create a table with the columns of a schema, or of a DataFrame whose rows fill it in the same snapshot.

        Columns of a schema that are not nullable reject NULL; all columns of a DataFrame may be NULL. ``partition_by``
        and ``sort_by`` are keys as in ``Lake.create_table``.
        """
        from pyspark.sql.types import StructType

        from quacklake.spark.engine import schema_of

        ref = TableRef.parse(name)
        schema = schema_of(columns)

        def create(tx: Transaction) -> TableInfo:
            return evolution.create_table(self._context, tx, ref, schema, partition_by, sort_by)

        if isinstance(columns, StructType):
            self.handle.run(create)
        else:
            self._engine.write(columns, lambda tx, rows: rows.add_to(tx, create(tx)))

    # -- changing ----------------------------------------------------------------------------------------------------

    def delete(self, name: str, where: Where = None) -> ChangeMetrics:
        """Delete the rows that match a filter (see ``table``), or all rows, in one snapshot.

        Executors find the rows. Raise the errors of ``Table.delete``.
        """
        from quacklake.spark.changes.clauses import delete

        return self.handle.run(lambda tx: delete(self._engine, tx, TableRef.parse(name), where))

    def update(self, name: str, set: Mapping[str, Any], where: Where = None) -> ChangeMetrics:
        """Set columns of the rows that match a filter, or of all rows, in one snapshot. Row ids stay the same.

        Values are those of ``Table.update``; pass a computed value as ``quacklake.expr("n + 1")`` or as a Spark column.
        """
        from quacklake.spark.changes.clauses import update

        return self.handle.run(lambda tx: update(self._engine, tx, TableRef.parse(name), set, where))

    def merge(self, name: str, source: DataFrame, on: str | Sequence[str] | Expression | SparkColumn) -> SparkMerge:
        """Merge the rows of a DataFrame into a table: add clauses to the returned builder, then ``execute()`` it.

        ``on`` is the name of one key column or several; or a condition in the SQL of the lake (or a Spark column) on
        ``target`` and ``source``.
        """
        from quacklake.spark.changes.merge import SparkMerge
        from quacklake.spark.runtime.session import require

        require(self.session, "to merge rows")
        return SparkMerge(self._engine, TableRef.parse(name), source, on)

    # -- streams -----------------------------------------------------------------------------------------------------

    def write_stream(
        self,
        table: str,
        frame: DataFrame,
        *,
        name: str,
        checkpoint: str,
        mode: str = "append",
        on: _Keys = None,
        order_by: str | None = None,
        output_mode: str = "append",
        trigger: str | None = None,
        evolve: bool = False,
        restart: bool = False,
        restart_from: int | None = None,
        **unknown: object,
    ) -> StreamHandle:
        """Start a stream that writes the rows of a streaming DataFrame into a table, each batch once.

        ``name`` is the name of the stream in the lake: its last batch is committed with the rows, by its number and a
        digest of its offsets. A replay of that batch adds nothing, and a second query under the same name ends the
        first. ``checkpoint`` is the folder of Spark's own progress; that of another query is refused, unless
        ``restart`` is true. An older copy is refused, too: ``restart_from`` is the number of the batch with which the
        stream goes on all the same, so that rows may be written twice, or be missing. ``mode``
        is ``append``; ``upsert``, which updates rows that have the keys ``on`` and inserts the others; or ``changes``,
        which also deletes, for rows in the form of ``read_stream(changes=True)``. When a batch of ``upsert`` has
        several rows with one key, the last by the column ``order_by`` counts; without ``order_by`` they are an error.
        ``output_mode`` is Spark's output mode for an aggregate: ``update`` and ``complete`` need ``upsert``.
        ``trigger`` is an interval such as ``"10 seconds"``, or ``"availableNow"`` to end when all current rows are in
        the table. With ``evolve``, the table gets the additional columns of the rows.
        """
        known = ("name", "checkpoint", "mode", "on", "order_by", "output_mode", "trigger", "evolve", "restart")
        refuse_unknown(unknown, (*known, "restart_from"))
        when = trigger_of(trigger)
        if choice("output_mode", output_mode, OUTPUT_MODES) != "append" and mode != "upsert":
            raise InputError(f'output_mode="{output_mode}" emits rows again', hint='pass mode="upsert", and their keys')
        if not frame.isStreaming:
            raise InputError("the DataFrame is not a stream", hint="append() writes it, or make it with readStream")
        if not checkpoint:
            raise InputError("a stream needs a checkpoint", hint='pass checkpoint="checkpoints/name"')
        if restart_from is not None and (isinstance(restart_from, bool) or restart_from < 0):
            raise InputError(f"restart_from must be the number of a batch, not {restart_from!r}")
        sink = self._sink(table, name, mode, on, order_by, evolve=evolve, restart=restart)
        sink.restart_from = restart_from
        handle = self._handle(sink, str(checkpoint))
        handle.check()
        writer = frame.writeStream.foreachBatch(handle.hand_over()).option("checkpointLocation", str(checkpoint))
        writer = writer.outputMode(output_mode).trigger(**when)  # type: ignore[arg-type]
        handle._begin(writer.start(), restart=restart)
        return handle

    def read_stream(
        self,
        table: str,
        *,
        starting: Bound = EARLIEST,
        changes: bool = False,
        max_files: int | None = None,
        max_bytes: int | None = None,
        lake_url: str | None = None,
        **unknown: object,
    ) -> DataFrame:
        """Return a streaming DataFrame of the rows inserted into a table, each once, in the order of snapshots.

        Rows that are updated, deleted or moved by maintenance do not appear again. With ``changes``, the stream has
        every change of a row, with ``_change_type`` (``insert``, ``delete``, ``update_preimage``,
        ``update_postimage``), ``_commit_version`` and ``_commit_timestamp``. ``starting`` is the first snapshot, by
        number, tag or time; ``"earliest"`` for all rows that exist and then new ones (with ``changes``: for all changes
        that the history has); or ``"latest"`` for new rows only.
        A batch has at most ``max_files`` files of ``max_bytes`` in total, but always a whole snapshot.

        On Spark Connect the server itself looks for new rows. There ``lake_url`` is required: the URL by which the
        server opens the lake for reading. The server learns it in no other way. Elsewhere it has no effect.
        """
        refuse_unknown(unknown, ("starting", "changes", "max_files", "max_bytes", "lake_url"))
        require_sources()
        from quacklake.spark.datasource.format import SparkFormat, remote_stream
        from quacklake.spark.datasource.source_classes import FORMAT
        from quacklake.spark.runtime.session import has_time, is_connect
        from quacklake.spark.streams.pipeline import raw_schema, shown_frame

        view = self.handle.view()
        source = self._source(table, starting, view, (max_files, max_bytes), changes=changes)
        if is_connect(self.session):
            raw = remote_stream(self.session, source, starting, view.base.id, lake_url)
        else:
            id_ = SparkFormat.of(self.session).service.serve(source, starting)
            raw = self.session.readStream.format(FORMAT).schema(raw_schema(source)).option("stream", id_).load()
        return shown_frame(source, raw, time=has_time(self.session))

    def pipeline(
        self,
        source: str,
        sql: Query,
        sink: str,
        *,
        name: str,
        mode: str = "append",
        on: _Keys = None,
        order_by: str | None = None,
        starting: Bound = EARLIEST,
        changes: bool = False,
        max_files: int | None = None,
        max_bytes: int | None = None,
        evolve: bool = False,
        restart: bool = False,
        **unknown: object,
    ) -> TablePipeline:
        """Return a pipeline that passes new rows of a table through a query into another table, each exactly once.

        ``sql`` is a query over the new rows, which it names ``source``, or a function from DataFrame to DataFrame. The
        position of the pipeline is committed with the rows that it writes, under its ``name``, so it needs no
        checkpoint. The other options are those of ``read_stream`` and ``write_stream``. ``run()`` processes the current
        rows, ``start()`` continues until ``stop()``.
        """
        known = ("name", "mode", "on", "order_by", "starting", "changes", "max_files", "max_bytes", "evolve", "restart")
        refuse_unknown(unknown, known)
        view = self.handle.view()
        found = self._source(source, starting, view, (max_files, max_bytes), changes=changes)
        target = self._sink(sink, name, mode, on, order_by, evolve=evolve, restart=restart)
        if self.handle.view().find_table(target.table.schema, target.table.name).id == found.table.id:
            raise InputError(f"a pipeline from {found.table.qualified_name} into itself would never end")
        from quacklake.spark.streams.pipeline import TablePipeline

        return TablePipeline(found, sql, target, starting=starting, restart=restart)

    def _source(
        self, table: str, starting: Bound, view: Transaction, limits: tuple[int | None, int | None], *, changes: bool
    ) -> StreamSource:
        from quacklake.spark.runtime.session import require

        require(self.session, "a stream")
        ref = TableRef.parse(table)
        most = positive("max_files", limits[0]), positive("max_bytes", limits[1])
        source = open_source(self._context, view.find_table(ref.schema, ref.name), *most, changes=changes)
        with suppress(SnapshotExpiredError):  # a checkpoint may be further ahead
            source.start(starting)
        return source

    def _sink(
        self, table: str, name: str, mode: str, on: _Keys, order_by: str | None = None, *, evolve: bool, restart: bool
    ) -> SparkSink:
        """Return the sink of a stream after checking that it can be written. Raise if the table does not exist."""
        from quacklake.spark.runtime.session import require
        from quacklake.spark.streams.sink import SparkSink

        check_stream(name)
        keys = [on] if isinstance(on, str) else list(on or ())
        if choice("mode", mode, STREAM_MODES) != "append" and not keys:
            raise InputError(f'mode="{mode}" needs keys', hint='pass on="id"')
        if mode == "append" and keys:
            raise InputError('mode="append" has no keys', hint='pass mode="upsert" or mode="changes"')
        if order_by is not None and mode != "upsert":
            raise InputError("order_by is for upsert alone", hint='pass mode="upsert"')
        ref = TableRef.parse(table)
        found = self.handle.view().find_table(ref.schema, ref.name)
        keys = [found.schema.find(key).name for key in keys]
        require(self.session, "a stream")
        return SparkSink(self._engine, name, ref, mode, keys, order_by, evolve=evolve, gaps=restart)

    def _handle(self, sink: SparkSink, checkpoint: str) -> StreamHandle:
        from quacklake.spark.runtime.session import is_connect
        from quacklake.spark.streams.checkpoint import SparkCheckpoint, read_from_spark
        from quacklake.spark.streams.sink import ConnectHandle, StreamHandle

        kind = ConnectHandle if is_connect(self.session) else StreamHandle
        return kind(sink, SparkCheckpoint(read_from_spark(self.session, checkpoint)))

    # -- settings ----------------------------------------------------------------------------------------------------

    def settings(self) -> dict[str, str]:
        """Return the settings that a session for this lake should have, without secrets."""
        return settings_for(self._context.store, parse_version(self.session.version))

    def spark_defaults(self) -> str:
        """Return the settings as lines for ``spark-defaults.conf``."""
        return "".join(f"{key} {value}\n" for key, value in self.settings().items())


# -- DataFrames as what Table takes for rows ---------------------------------------------------------------------------


def merge_frame(
    handle: Handle, ref: TableRef, frame: DataFrame, keys: Sequence[str], *, evolve: bool = False
) -> MergeResult:
    """Update the rows whose keys a DataFrame has and insert the others, in one snapshot."""
    merge = build_frame_merge(handle, ref, frame, list(keys))
    merge.when_matched_update_all().when_not_matched_insert_all()
    done = (merge.with_schema_evolution() if evolve else merge).execute()
    return MergeResult(done.updated, done.inserted)


def build_frame_merge(
    handle: Handle, ref: TableRef, frame: DataFrame, on: str | Sequence[str] | Expression | SparkColumn
) -> SparkMerge:
    """Return a builder of a merge of a DataFrame, in one snapshot."""
    from quacklake.spark.changes.merge import SparkMerge

    return SparkMerge(_engine(handle, frame), ref, frame, on)


def _engine(handle: Handle, frame: DataFrame) -> SparkEngine:
    from quacklake.spark.engine import SparkEngine

    if not isinstance(handle, LakeHandle):
        raise InputError(
            "a Spark DataFrame is written in its own snapshot, not in an open transaction",
            hint="write it with lake.table(…), outside of the transaction",
        )
    return SparkEngine.of(handle, frame.sparkSession)


def write_frame(
    handle: Handle, ref: TableRef, frame: DataFrame, where: Filter | None = None, *, replace: bool = False
) -> int:
    """Add the rows of a DataFrame, or replace those that match a filter, in one snapshot; return how many are new."""
    from quacklake.spark.changes.staged_changes import counted

    engine, rows_written = _engine(handle, frame), [0]

    def work(tx: Transaction, rows: SparkRows) -> None:
        table = tx.find_table(ref.schema, ref.name)
        if replace:
            dml.delete(engine.context, tx, table, where, asked=Operation.OVERWRITE)
        rows_written[:] = [counted(tx, table, rows)]

    engine.write(frame, work)
    return rows_written[0]
