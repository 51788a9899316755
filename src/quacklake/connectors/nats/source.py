"""Read a JetStream stream by sequences: the position is the last sequence, so that every range can be read again."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import pyarrow as pa

from quacklake.connectors.nats.connection import NatsConnection
from quacklake.connectors.nats.credentials import NatsCredentials
from quacklake.connectors.nats.decoding import FORMATS, REJECTED, Decoder
from quacklake.connectors.options import ConnectorOptions
from quacklake.connectors.protocols import ReadMode, SourceCheckpoint
from quacklake.errors import (
    ConfigError,
    ConnectorError,
    InputError,
    LimitError,
    NotFoundError,
    SnapshotExpiredError,
    StreamMismatchError,
)

NO_STREAM, _NO_MESSAGE = 10059, 10037


def source(options: Mapping[str, Any]) -> NatsSource:
    """Return the source that options describe."""
    return NatsSource(options)


@dataclass(frozen=True)
class StreamRange:
    """The sequences that a stream has: from ``first`` to ``last``. ``created`` tells it from another of its name."""

    created: str
    first: int
    last: int


@dataclass(frozen=True)
class NatsStream:
    """One stream and the subjects that are read of it, as data that travels to executors."""

    servers: tuple[str, ...]
    name: str
    subjects: tuple[str, ...]
    credentials: NatsCredentials
    timeout: timedelta = timedelta(seconds=10)
    attempts: int = 5

    @classmethod
    def of(cls, read: ConnectorOptions) -> NatsStream:
        """Take the options. Raises ``ConfigError``."""
        secrets = ("user", "password", "token", "nkey_seed", "ca_file", "cert_file", "key_file")
        return cls(
            tuple(read.names("servers")) or ("nats://localhost:4222",),
            read.text("stream"),
            tuple(read.names("subject")),
            NatsCredentials(**{name: read.optional(name) for name in secrets}),
            read.duration("timeout", timedelta(seconds=10)),
            read.number("max_retries", 5, least=1) or 1,
        )

    def connect(self) -> NatsConnection:
        """Return a connection, which opens when it is used."""
        seconds = self.timeout.total_seconds()
        return NatsConnection(self.servers, self.credentials, timeout=seconds, attempts=self.attempts)

    def look(self, connection: NatsConnection) -> StreamRange:
        """Return what the stream has now. Raises ``NotFoundError``."""
        try:
            found = connection.jetstream(f"STREAM.INFO.{self.name}")
        except ConnectorError as error:
            if error.number == NO_STREAM:
                raise NotFoundError(f"NATS has no stream {self.name!r}") from None
            raise
        state = found["state"]
        return StreamRange(found["created"], state["first_seq"], state["last_seq"])

    def first_since(self, connection: NatsConnection, moment: datetime, there: StreamRange) -> int:
        """Return the first sequence that was stored at a time or later."""
        low, high = there.first, there.last + 1
        while low < high:
            middle = (low + high) // 2
            stored = self._stored_at(connection, middle, high)
            if stored is None or stored[1] >= moment:
                high = middle
            else:
                low = stored[0] + 1
        return low

    def _stored_at(self, connection: NatsConnection, sequence: int, end: int) -> tuple[int, datetime] | None:
        """Return the first message of a range that is there, with its time."""
        for part in connection.read_range(self.name, sequence, end, batch=1):
            return part.sequences[0], datetime.fromtimestamp(part.times[0] / 1e9, tz=None).astimezone()
        return None


class NatsSource:
    """A stream, or some of its subjects. ``take_rejected`` returns the messages that are no rows."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        read = ConnectorOptions("nats", options)
        self.stream = NatsStream.of(read)
        self.mode = ReadMode.parse(
            read.choice("mode", ("batch", "continuous"), "continuous"),
            poll_interval=read.duration("poll_interval", timedelta(seconds=1)),
        )
        self._start = read.text("start", "earliest")
        self._decoder = Decoder(read.choice("format", FORMATS, "json"), read.optional("schema"))
        self._batch = read.number("max_messages", 10_000, least=1) or 1
        self._batch_bytes = read.size("max_bytes", 16 << 20)
        self._expired = read.choice("on_expired", ("error", "skip"), "error")
        self._fails = read.choice("on_bad", ("reject", "fail"), "reject") == "fail"
        self._most_rejected = read.number("max_rejected", 100_000, least=1) or 1
        read.finish()
        self._connection: NatsConnection | None = None
        self._created, self._sequence, self._end = "", 0, 0
        self._looked = 0.0
        self._rejected: list[pa.Table] = []

    def schema(self) -> pa.Schema:
        """Return the columns that were declared, and ``_subject``, ``_sequence``, ``_time`` and ``_headers``."""
        return self._decoder.schema

    def start(self, checkpoint: SourceCheckpoint | None = None) -> None:
        """Begin behind a checkpoint; without one at ``start``: ``earliest``, ``latest``, a sequence or a time.

        Raises ``StreamMismatchError`` for a stream that was made anew, ``SnapshotExpiredError`` when messages behind
        the checkpoint have been removed, unless ``on_expired='skip'``.
        """
        self._connection = self.stream.connect()
        there = self.stream.look(self._connection)
        self._created, self._end = there.created, there.last + 1
        if checkpoint is None:
            self._sequence = first_sequence(self.stream, self._connection, there, self._start) - 1
            return
        if checkpoint.offsets.get("created") != there.created:
            raise StreamMismatchError(
                f"the NATS stream {self.stream.name!r} is not the one that was read before: it was made anew",
                hint="Begin without a checkpoint.",
            )
        self._sequence = int(checkpoint.offsets["sequence"])
        self._check(there)

    def poll_next(self) -> pa.RecordBatch | None:
        """Return the next rows; None at the end, or when nothing is new (after the poll interval)."""
        if self._connection is None:
            raise ConnectorError("the source is not started", hint="Call start(checkpoint) first.")
        while True:
            if self._sequence + 1 < self._end:
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
                raise StreamMismatchError(f"the NATS stream {self.stream.name!r} was made anew while it was read")
            self._check(there)
            self._end = there.last + 1
            if self._sequence + 1 >= self._end:
                return None

    def current_checkpoint(self) -> SourceCheckpoint:
        """Return the last sequence of the rows that were returned."""
        return SourceCheckpoint(offsets={"created": self._created, "sequence": self._sequence})

    def commit(self, checkpoint: SourceCheckpoint) -> None:
        """Do nothing: a stream keeps its messages as long as its own limits say."""
        return

    def close(self) -> None:
        """Close the connection."""
        if self._connection is not None:
            self._connection.close()
        self._connection = None

    def take_rejected(self) -> pa.Table:
        """Return the messages since the last call that are no rows, with ``_data`` and ``_reason``."""
        found = pa.concat_tables([REJECTED.empty_table(), *self._rejected])
        self._rejected.clear()
        return found

    def _next(self, connection: NatsConnection) -> pa.RecordBatch | None:
        limits = {"batch": self._batch, "batch_bytes": self._batch_bytes}
        parts = connection.read_range(self.stream.name, self._sequence + 1, self._end, self.stream.subjects, **limits)
        messages = next(parts, None)
        parts.close()
        if messages is None:  # the rest was deleted, or has other subjects
            self._sequence = self._end - 1
            return None
        decoded = self._decoder.decode(messages)
        if decoded.rejected.num_rows:
            if self._fails:
                first = decoded.rejected.slice(0, 1).to_pylist()[0]
                raise InputError(
                    f"the message {first['_sequence']} of {self.stream.name!r} is no row: {first['_reason']}"
                )
            if sum(kept.num_rows for kept in self._rejected) >= self._most_rejected:
                raise LimitError(
                    f"more than {self._most_rejected} messages of {self.stream.name!r} are no rows, and were not taken",
                    hint="Call take_rejected() after each batch.",
                )
            self._rejected.append(decoded.rejected)
        self._sequence = messages.sequences[-1]
        batches: Sequence[pa.RecordBatch] = decoded.rows.combine_chunks().to_batches()
        return batches[0] if batches else None

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
                    hint="Say on_expired='skip' to go on without them.",
                )
            self._sequence = there.first - 1


def first_sequence(stream: NatsStream, connection: NatsConnection, there: StreamRange, start: str) -> int:
    """Return the sequence that ``start`` means: ``earliest``, ``latest``, a sequence or a time."""
    if start == "earliest":
        return there.first
    if start == "latest":
        return there.last + 1
    if start.isdigit():
        return max(1, int(start))
    try:
        moment = datetime.fromisoformat(start)
    except ValueError:
        raise ConfigError(
            f"nats: start={start!r}", hint="earliest, latest, a sequence, or a time such as 2024-01-01T12:00Z"
        ) from None
    return stream.first_since(connection, moment.astimezone(), there)
