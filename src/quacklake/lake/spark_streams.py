"""Streams of Spark into a lake and out of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from quacklake.errors import InputError, UnsupportedFeatureError
from quacklake.format.streams import check_stream
from quacklake.lake.reference import TableRef
from quacklake.lake.settings import Shared
from quacklake.lake.stream_options import MODES, choice, columns, refuse_unknown, trigger_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from quacklake.lake.lake import Lake
    from quacklake.lake.spark import SparkLake
    from quacklake.lake.spark_sink import SparkSink, StreamHandle

__all__ = ["SparkStreaming"]


class SparkStreaming:
    """What a lake in Spark does with streams."""

    session: SparkSession
    _lake: Lake
    _shared: Shared

    def write_stream(
        self: SparkLake,
        frame: DataFrame,
        table: str,
        *,
        name: str,
        checkpoint: str,
        mode: str = "append",
        on: str | Sequence[str] | None = None,
        trigger: str | None = None,
        evolve: bool = False,
        restart: bool = False,
        **unknown: object,
    ) -> StreamHandle:
        """Let the rows of a streaming DataFrame go into a table, each batch once, and return at once.

        ``name`` is that of the stream in the lake: the number of its last batch is committed with the rows. A replay
        adds nothing, a second query under the name ends the first. ``checkpoint`` is the folder where Spark keeps its
        own count; another one under an old name is refused, unless ``restart``. ``mode`` is ``append``; ``upsert``,
        which updates rows that have the keys ``on`` and adds others; or ``changes``, which also deletes, for rows as
        ``read_stream(changes=True)`` gives them. ``trigger`` is a span such as ``"10 seconds"``, or
        ``"availableNow"`` to end when all that is there now is in the table. With ``evolve`` the table gets columns
        that the rows have more.
        """
        refuse_unknown(unknown, ("name", "checkpoint", "mode", "on", "trigger", "evolve", "restart"))
        when = trigger_of(trigger)
        if not frame.isStreaming:
            raise InputError("the DataFrame is not a stream", hint="append() writes it, or make it with readStream")
        if not checkpoint:
            raise InputError("a stream needs a checkpoint", hint='pass checkpoint="checkpoints/name"')
        sink = self._sink(table, name, mode, on, evolve=evolve, restart=restart)
        from quacklake.lake.spark_sink import StreamHandle

        handle = StreamHandle(sink)
        writer = frame.writeStream.foreachBatch(handle._batch).option("checkpointLocation", str(checkpoint))
        handle._begin(writer.trigger(**when).start(), restart=restart)  # type: ignore[arg-type]
        return handle

    def _sink(
        self: SparkLake, table: str, name: str, mode: str, on: str | Sequence[str] | None, *, evolve: bool, restart: bool
    ) -> SparkSink:
        """Where batches go, after a look at whether they can. Raises for a table that does not exist."""
        from quacklake.lake.spark_sink import SparkSink

        check_stream(name)
        keys = columns(on)
        if choice("mode", mode, MODES) != "append" and not keys:
            raise InputError(f'mode="{mode}" needs keys', hint='pass on="id"')
        if mode == "append" and keys:
            raise InputError('mode="append" has no keys', hint='pass mode="upsert" or mode="changes"')
        ref = TableRef.parse(table)
        found = self._lake._view().find_table(ref.schema, ref.name)
        for key in keys:
            found.schema.find(key)
        self._refuse_connect()
        return SparkSink(self, name, ref, mode, keys, evolve=evolve, gaps=restart)

    def _refuse_connect(self: SparkLake) -> None:
        if type(self.session).__module__.startswith("pyspark.sql.connect"):
            raise UnsupportedFeatureError(
                "streams need a session in this process: Spark Connect runs their batches on its server",
                hint="use a classic session",
            )
