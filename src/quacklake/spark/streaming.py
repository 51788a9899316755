"""Spark streams into a lake and out of it."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, TypeAlias

from quacklake.errors import InputError, SnapshotExpiredError
from quacklake.format.streams import check_stream
from quacklake.operations.change_feed import Bound
from quacklake.operations.context import LakeContext
from quacklake.operations.handles import LakeHandle
from quacklake.operations.reference import TableRef
from quacklake.spark.runtime.settings import require_sources
from quacklake.spark.streams.source import (
    EARLIEST,
    MODES,
    OUTPUT_MODES,
    StreamSource,
    choice,
    columns,
    positive,
    refuse_unknown,
    trigger_of,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from quacklake.spark.engine import SparkEngine
    from quacklake.spark.streams.pipeline import Pipeline, Query
    from quacklake.spark.streams.sink import SparkSink, StreamHandle
    from quacklake.transaction import Transaction

_Keys: TypeAlias = "str | Sequence[str] | None"


class SparkStreaming:
    """The stream methods of ``SparkLake``."""

    session: SparkSession
    handle: LakeHandle
    _engine: SparkEngine
    _context: LakeContext

    def write_stream(
        self,
        frame: DataFrame,
        table: str,
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
        **unknown: object,
    ) -> StreamHandle:
        """Start a stream that writes the rows of a streaming DataFrame into a table, each batch once.

        ``name`` is the name of the stream in the lake: the number of its last batch is committed with the rows. A
        replayed batch adds nothing, and a second query under the same name ends the first. ``checkpoint`` is the folder
        of Spark's own progress; another folder under an existing name is refused, unless ``restart`` is true. ``mode``
        is ``append``; ``upsert``, which updates rows that have the keys ``on`` and inserts the others; or ``changes``,
        which also deletes, for rows in the form of ``read_stream(changes=True)``. When a batch of ``upsert`` has
        several rows with one key, the last by the column ``order_by`` counts; without ``order_by`` they are an error.
        ``output_mode`` is Spark's output mode for an aggregate: ``update`` and ``complete`` need ``upsert``.
        ``trigger`` is an interval such as ``"10 seconds"``, or ``"availableNow"`` to end when all current rows are in
        the table. With ``evolve``, the table gets the additional columns of the rows.
        """
        known = ("name", "checkpoint", "mode", "on", "order_by", "output_mode", "trigger", "evolve", "restart")
        refuse_unknown(unknown, known)
        when = trigger_of(trigger)
        if choice("output_mode", output_mode, OUTPUT_MODES) != "append" and mode != "upsert":
            raise InputError(f'output_mode="{output_mode}" gives rows again', hint='pass mode="upsert", and their keys')
        if not frame.isStreaming:
            raise InputError("the DataFrame is not a stream", hint="append() writes it, or make it with readStream")
        if not checkpoint:
            raise InputError("a stream needs a checkpoint", hint='pass checkpoint="checkpoints/name"')
        sink = self._sink(table, name, mode, on, order_by, evolve=evolve, restart=restart)
        handle = self._handle(sink)
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
        number, tag or time; ``"earliest"`` for all existing rows and then new ones; or ``"latest"`` for new rows only.
        A batch has at most ``max_files`` files of ``max_bytes`` in total, but always a whole snapshot.

        On Spark Connect the server itself looks for new rows. There ``lake_url`` is required: the URL by which the
        server opens the lake for reading. The server learns it in no other way. Elsewhere it has no effect.
        """
        refuse_unknown(unknown, ("starting", "changes", "max_files", "max_bytes", "lake_url"))
        require_sources()
        from quacklake.spark.datasource.format import RemoteLake, SparkFormat
        from quacklake.spark.runtime.session import has_time, is_connect
        from quacklake.spark.streams.pipeline import raw_schema, shown_frame

        remote = RemoteLake.of(self.handle.context.catalog.tenant, lake_url) if is_connect(self.session) else None
        view = self.handle.view()
        source = self._source(table, starting, view, (max_files, max_bytes), changes=changes)
        if remote is None:
            raw = SparkFormat.of(self.session).stream(self.session, source, starting, raw_schema(source))
        else:
            raw = remote.stream(self.session, source, starting, view.base.id)
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
    ) -> Pipeline:
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
        from quacklake.spark.streams.pipeline import Pipeline

        return Pipeline(found, sql, target, starting=starting, restart=restart)

    def _source(
        self, table: str, starting: Bound, view: Transaction, limits: tuple[int | None, int | None], *, changes: bool
    ) -> StreamSource:
        from quacklake.spark.runtime.session import require

        require(self.session, "a stream")
        ref = TableRef.parse(table)
        most = positive("max_files", limits[0]), positive("max_bytes", limits[1])
        source = StreamSource(self._context, view.find_table(ref.schema, ref.name), changes, *most)
        source.check()
        with suppress(SnapshotExpiredError):  # a checkpoint may be further ahead
            source.start(starting)
        return source

    def _sink(
        self, table: str, name: str, mode: str, on: _Keys, order_by: str | None = None, *, evolve: bool, restart: bool
    ) -> SparkSink:
        """Return the sink of a stream after checking that it can be written. Raises if the table does not exist."""
        from quacklake.spark.runtime.session import require
        from quacklake.spark.streams.sink import SparkSink

        check_stream(name)
        keys = columns(on)
        if choice("mode", mode, MODES) != "append" and not keys:
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

    def _handle(self, sink: SparkSink) -> StreamHandle:
        from quacklake.spark.runtime.session import is_connect
        from quacklake.spark.streams.sink import ConnectHandle, StreamHandle

        return ConnectHandle(sink) if is_connect(self.session) else StreamHandle(sink)
