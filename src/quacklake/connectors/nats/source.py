"""Read a JetStream stream by sequences: the position is the last sequence, so that every range can be read again."""

from __future__ import annotations

import time
from collections.abc import Generator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa

from quacklake.connectors.nats.connection import NatsConnection
from quacklake.connectors.nats.decoding import FORMATS, REJECTED, Decoder
from quacklake.connectors.nats.inference import INFERRED, sample_columns
from quacklake.connectors.nats.protocol import StoredMessages
from quacklake.connectors.nats.stream import NatsStream, StreamRange, first_sequence
from quacklake.connectors.options import ConnectorOptions
from quacklake.connectors.protocols import ReadMode, SourceCheckpoint
from quacklake.errors import (
    ConfigError,
    ConnectorError,
    InputError,
    LimitError,
    SchemaMismatchError,
    SnapshotExpiredError,
    StreamMismatchError,
)


def source(options: Mapping[str, Any]) -> NatsSource:
    """Return the source that options describe."""
    return NatsSource(options)


class NatsSource:
    """A stream, or some of its subjects. ``take_rejected`` returns the messages that are not rows."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        read = ConnectorOptions("nats", options)
        self.stream = NatsStream.of(read)
        self.mode = ReadMode.parse(
            read.choice("mode", ("batch", "continuous"), "continuous"),
            poll_interval=read.duration("poll_interval", timedelta(seconds=1)),
        )
        self._start = read.text("start", "earliest")
        self._form = read.choice("format", FORMATS, "json")
        self._columns = read.optional("schema")
        self._sample = read.number("sample", least=1)
        self._decoder = None if self._sample else Decoder(self._form, self._columns)
        if self._sample and (self._columns is not None or self._form not in INFERRED):
            raise ConfigError(
                f"nats: sample is for {' and '.join(INFERRED)} without a schema", hint="leave one of the two out"
            )
        self._batch = read.number("max_messages", 50_000, least=1) or 1
        self._batch_bytes = read.size("max_bytes", 16 << 20)
        self._expired = read.choice("on_expired", ("error", "skip"), "error")
        self._fails = read.choice("on_bad", ("reject", "fail"), "reject") == "fail"
        self._most_rejected = read.number("max_rejected", 100_000, least=1) or 1
        read.finish()
        self._connection: NatsConnection | None = None
        self._created, self._sequence, self._end = "", 0, 0
        self._looked = 0.0
        self._range: Generator[StoredMessages, None, None] | None = None
        self._range_end = 0
        self._ahead: Future[StoredMessages | None] | None = None
        self._reader = ThreadPoolExecutor(1, "quacklake-nats")
        self._rejected: list[pa.Table] = []

    def schema(self) -> pa.Schema:
        """Return the columns that were declared, and ``_subject``, ``_sequence``, ``_time`` and ``_headers``.

        With ``sample`` the columns are those of the first messages. They are inferred once, and kept in checkpoints.
        """
        if self._decoder is None:
            with self.stream.connect() as connection:
                self._infer(connection)
        return self._fixed_decoder().schema

    def start(self, checkpoint: SourceCheckpoint | None = None) -> None:
        """Begin behind a checkpoint; without one at ``start``: ``earliest``, ``latest``, a sequence or a time.

        Raise ``StreamMismatchError`` for a stream that was recreated, ``SnapshotExpiredError`` when messages behind
        the checkpoint have been removed, unless ``on_expired='skip'``.
        """
        self._connection = self.stream.connect()
        there = self.stream.look(self._connection)
        self._created, self._end = there.created, there.last + 1
        if self._sample:
            self._fix_columns(self._connection, checkpoint)
        if checkpoint is None:
            self._sequence = first_sequence(self.stream, self._connection, there, self._start) - 1
            return
        if checkpoint.offsets.get("created") != there.created:
            raise StreamMismatchError(
                f"the NATS stream {self.stream.name!r} is not the one that was read before: it was recreated",
                hint="begin without a checkpoint",
            )
        self._sequence = int(checkpoint.offsets["sequence"])
        self._check(there)

    def poll_next(self) -> pa.RecordBatch | None:
        """Return the next rows; None at the end, or when nothing is new (after the poll interval)."""
        if self._connection is None:
            raise ConnectorError("the source is not started", hint="call start(checkpoint) first")
        while True:
            if not self.caught_up:
                batch = self._next(self._connection)
                if batch is not None:
                    return batch
                continue
            if self.mode.bounded:
                return None
            wait = self._looked + self.mode.poll_interval.total_seconds() - time.monotonic()
            if wait > 0:
                time.sleep(wait)
            self._looked = time.monotonic()
            there = self.stream.look(self._connection)
            if there.created != self._created:
                raise StreamMismatchError(f"the NATS stream {self.stream.name!r} was recreated while it was read")
            self._check(there)
            self._end = there.last + 1
            if self.caught_up:
                return None

    @property
    def caught_up(self) -> bool:
        """True when everything has been returned that the last look at the stream saw."""
        return self._sequence + 1 >= self._end

    def behind(self, position: int) -> int:
        """Return how many sequences the stream has after one."""
        with self.stream.connect() as connection:
            return max(0, self.stream.look(connection).last - position)

    def waiting_since(self, position: int) -> datetime | None:
        """Return when the first message after a sequence was stored; None without one."""
        with self.stream.connect() as connection:
            end = self.stream.look(connection).last + 1
            first = connection.read_range(
                self.stream.name, position + 1, end, self.stream.subjects, batch=1, headers_only=True
            )
            found = next(first, None)
            first.close()
            return None if found is None else datetime.fromtimestamp(found.times[0] / 1e9, UTC)

    def current_checkpoint(self) -> SourceCheckpoint:
        """Return the last sequence of the rows that were returned."""
        offsets = {"created": self._created, "sequence": self._sequence}
        return SourceCheckpoint(offsets={**offsets, "columns": self._columns} if self._sample else offsets)

    def commit(self, checkpoint: SourceCheckpoint) -> None:
        """Do nothing: a stream keeps its messages as long as its own limits say."""
        return

    def close(self) -> None:
        """Close the connection."""
        self._forget()
        if self._connection is not None:
            self._connection.close()
        self._connection = None

    def take_rejected(self) -> pa.Table:
        """Return the messages since the last call that are not rows, with ``_data`` and ``_reason``."""
        found = pa.concat_tables([REJECTED.empty_table(), *self._rejected])
        self._rejected.clear()
        return found

    def _next(self, connection: NatsConnection) -> pa.RecordBatch | None:
        try:
            messages = self._take_fetched(connection)
            if messages is None:  # the rest was deleted, or has other subjects
                self._sequence = self._range_end - 1
                self._forget()
                return None
            if messages.last + 1 < self._range_end:
                self._ahead = self._reader.submit(self._read_on)
            return self._decode(messages)
        except BaseException:
            self._forget()  # what was read and not returned is read again
            raise

    def _take_fetched(self, connection: NatsConnection) -> StoredMessages | None:
        """Return the next messages, which were read while those before were decoded."""
        if self._ahead is not None:
            ahead, self._ahead = self._ahead, None
            return ahead.result()
        if self._range is None or self._sequence + 1 >= self._range_end:
            self._forget()
            stream, self._range_end = self.stream, self._end
            self._range = connection.read_range(
                stream.name,
                self._sequence + 1,
                self._range_end,
                stream.subjects,
                batch=self._batch,
                batch_bytes=self._batch_bytes,
            )
        return self._read_on()

    def _read_on(self) -> StoredMessages | None:
        return None if self._range is None else next(self._range, None)

    def _forget(self) -> None:
        """Stop reading ahead."""
        if self._ahead is not None:
            with suppress(Exception):
                self._ahead.result()
        if self._range is not None:
            with suppress(Exception):
                self._range.close()
        self._ahead = self._range = None

    def _decode(self, messages: StoredMessages) -> pa.RecordBatch | None:
        decoded = self._fixed_decoder().decode(messages)
        if decoded.rejected.num_rows:
            if self._fails:
                first = decoded.rejected.slice(0, 1).to_pylist()[0]
                raise InputError(
                    f"the message {first['_sequence']} of {self.stream.name!r} is not a row: {first['_reason']}"
                )
            if sum(kept.num_rows for kept in self._rejected) >= self._most_rejected:
                raise LimitError(
                    f"more than {self._most_rejected} messages of {self.stream.name!r} are not rows and were not taken",
                    hint="call take_rejected() after each batch",
                )
            self._rejected.append(decoded.rejected)
        self._sequence = messages.last
        batches: Sequence[pa.RecordBatch] = decoded.rows.combine_chunks().to_batches()
        return batches[0] if batches else None

    def _fix_columns(self, connection: NatsConnection, checkpoint: SourceCheckpoint | None) -> None:
        """Take the columns of the checkpoint; infer them where there is none."""
        kept = checkpoint.offsets.get("columns") if checkpoint is not None else None
        if kept is not None and self._decoder is None:
            self._columns, self._decoder = kept, Decoder(self._form, kept)
        elif kept is not None and kept != self._columns:
            raise SchemaMismatchError(
                f"the messages of the NATS stream {self.stream.name!r} had other columns before: {kept}",
                hint="start with the checkpoint before you ask for the schema, or set schema='…'",
            )
        elif self._decoder is None:
            self._infer(connection)

    def _infer(self, connection: NatsConnection) -> None:
        assert self._sample is not None
        self._columns = sample_columns(self.stream, connection, self._form, self._sample)
        self._decoder = Decoder(self._form, self._columns)

    def _fixed_decoder(self) -> Decoder:
        assert self._decoder is not None
        return self._decoder

    def _check(self, there: StreamRange) -> None:
        """Refuse a stream whose messages behind the position have been removed, or whose end is before it."""
        if there.last < self._sequence:
            raise StreamMismatchError(
                f"the NATS stream {self.stream.name!r} ends at {there.last}, before {self._sequence}, which was read"
            )
        if there.first > self._sequence + 1:
            if self._expired == "error":
                raise SnapshotExpiredError(
                    f"messages {self._sequence + 1} to {there.first - 1} of the NATS stream {self.stream.name!r} "
                    "have been removed before they were read",
                    hint="set on_expired='skip' to continue without them",
                )
            self._sequence = there.first - 1
