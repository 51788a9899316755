"""Publish numbered messages once each, however often it is begun.

Every message names its writer, its checkpoint and its number in a header. Whoever begins, or goes on after the
connection broke, first reads which numbers the stream has, and publishes the others. What is still on its way at that
moment, of a process that was killed, arrives within the server's window of duplicates, and has the same id.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from quacklake.connectors.nats.connection import NatsConnection
from quacklake.connectors.nats.stream import NatsStream, StreamRange
from quacklake.errors import (
    ConnectorError,
    ConnectorUnavailableError,
    InputError,
    SnapshotExpiredError,
    StreamMismatchError,
)
from quacklake.extend.reporting import reach

HEADER = "Quacklake-Row"
_OWN_NAME = "Give each writer a writer_id of its own."
_SENT_AT_ONCE = 1 << 20
_BYTES_IN_FLIGHT = 32 << 20
_LEAST_PATIENCE = 1.0

Numbers: TypeAlias = npt.NDArray[np.int64]
Done: TypeAlias = npt.NDArray[np.bool_]
Batches: TypeAlias = Callable[[Done], Iterator[tuple[int, pa.RecordBatch]]]
"""Begins to read the messages that are not done, and maybe others, in batches with the number of their first."""


@dataclass(frozen=True)
class Label:
    """The writer and the checkpoint that messages are of."""

    writer: str
    checkpoint: int

    @property
    def prefix(self) -> str:
        """The text before the number of a message, in its header and in its id."""
        return f"{self.writer}:{self.checkpoint}:"

    def numbers(self, headers: Iterable[bytes]) -> Iterator[int]:
        """Yield the number that each message has under this label, -1 for a message of others."""
        before = f"\r\n{HEADER}: {self.prefix}".encode()
        for block in headers:
            rest = _value(block, before)
            yield int(rest) if rest.isdigit() else -1


@dataclass(frozen=True)
class Sighting:
    """The messages of ours behind a sequence of a stream, and whether any have been removed."""

    last: int
    last_missing: int
    """The last sequence whose message has been removed; 0 when all are there."""
    own_sequences: Numbers
    own_numbers: Numbers
    ids: frozenset[bytes] = frozenset()


class Progress:
    """The messages that the stream is known to have, and those that it may have."""

    def __init__(self, total: int, after: int, window: int, *, fresh: bool) -> None:
        self.done = np.zeros(total, dtype=np.bool_)
        self.after = after
        """The sequence behind which messages may lie that nobody has looked at."""
        self.sent = 0 if fresh else total
        """Messages from here on are surely not in the stream unless they are done."""
        self.low = 0
        """The first message that is not done."""
        self.last = 0
        self.window = window
        self.ids: frozenset[bytes] = frozenset()
        """The ids of messages that the stream has received since the commit was prepared."""

    def take(self, sighting: Sighting, *, trusting: bool) -> None:
        """Learn from a look at the stream. Raise ``SnapshotExpiredError`` when removed messages may have been ours.

        A message is sent only when all that lie ``window`` before it are stored: one that is seen vouches for those.
        """
        numbers, base = sighting.own_numbers, self.after
        if len(numbers):
            if numbers.max() >= len(self.done):
                raise ConnectorError("another commit has the same writer_id and checkpoint", hint=_OWN_NAME)
            self.done[numbers] = True
            self.last = max(self.last, int(sighting.own_sequences.max()))
            vouched = max(0, int(numbers.max()) - self.window + 1)
            if vouched and sighting.last_missing > base:
                self.done[:vouched] = True
                known = sighting.own_sequences[numbers < vouched]
                base = int(known.max()) if len(known) else base
        unknown = not bool(self.done[: self.sent].all())
        if unknown and not trusting and sighting.last_missing > base:
            raise SnapshotExpiredError(
                "messages have been removed from the stream, and it is unknown whether they belonged to this commit",
                hint="set on_expired='publish' to publish all that are not in the stream",
            )
        self.after, self.sent, self.ids = sighting.last, 0, self.ids | sighting.ids
        self.advance()

    def stored(self, places: Sequence[int], last: int) -> None:
        """Learn that the server has stored messages, and the sequence of the last."""
        self.done[np.array(places, dtype=np.int64)] = True
        self.last = max(self.last, last)

    @property
    def finished(self) -> bool:
        """True when the stream has every message."""
        return self.advance() == len(self.done)

    def advance(self) -> int:
        """Return the first message that is not done."""
        done, low = self.done, self.low
        while low < len(done) and done[low]:
            ahead = done[low : low + 4096]
            low += len(ahead) if ahead.all() else int(ahead.argmin())
        self.low = low
        return low


class Publisher:
    """Publishes the messages of one checkpoint."""

    def __init__(
        self,
        stream: NatsStream,
        connection: NatsConnection,
        label: Label,
        created: str,
        *,
        has_ids: bool = False,
        trusting: bool = False,
    ) -> None:
        self._stream = stream
        self._connection = connection
        self._label = label
        self._created = created
        self._has_ids = has_ids
        self._trusting = trusting
        self._patience, self._awake = _LEAST_PATIENCE, 0.0
        self._base = 0

    def publish(self, progress: Progress, batches: Batches) -> int:
        """Publish what the stream lacks, and return the sequence of the last message."""
        self._base = progress.after
        failures = 0
        while True:
            before = progress.low
            try:
                progress.take(self.look(progress.after), trusting=self._trusting)
                reach("connector.nats.publish.before")
                self._publish(progress, batches)
                reach("connector.nats.publish.after")
                return progress.last
            except (OSError, ConnectorUnavailableError, InputError) as error:
                self._connection.close()
                failures = 1 if progress.low > before else failures + 1
                if failures >= self._stream.attempts:
                    if isinstance(error, OSError):
                        raise ConnectorUnavailableError(f"NATS cannot be reached: {error}") from error
                    raise
                time.sleep(min(2.0, 0.1 * 2**failures))

    def look(self, after: int) -> Sighting:
        """Read which of our messages the stream has behind a sequence. Raise ``StreamMismatchError``."""
        stream, connection = self._stream, self._connection
        there = checked(stream, stream.look(connection), self._created, after)
        self._patience = max(_LEAST_PATIENCE, int(there.config.get("duplicate_window", 0)) / 2e9)
        self._awake = time.monotonic()
        seen, last_missing = after, 0
        own: list[tuple[int, int]] = []
        ids: set[bytes] = set()
        for part in connection.read_range(stream.name, after + 1, there.last + 1, headers_only=True):
            gaps = np.flatnonzero(np.diff(part.sequences, prepend=seen) > 1)
            last_missing = int(part.sequences[gaps[-1]]) - 1 if len(gaps) else last_missing
            seen = part.last
            headers = part.headers.to_pylist()
            numbers = self._label.numbers(headers)
            own += [pair for pair in zip(part.sequences.tolist(), numbers, strict=True) if pair[1] >= 0]
            if self._has_ids:
                ids.update(_value(block, b"\r\nNats-Msg-Id: ") for block in headers)
        pairs = np.array(own, dtype=np.int64).reshape(-1, 2)
        last_missing = there.last if seen < there.last else last_missing
        return Sighting(there.last, last_missing, pairs[:, 0], pairs[:, 1], frozenset(ids - {b""}))

    def _publish(self, progress: Progress, batches: Batches) -> None:
        if progress.finished:
            return
        for first, batch in batches(progress.done):
            if progress.ids:  # the server may have forgotten an id by now
                known = pc.is_in(batch.column("id").cast(pa.binary()), pa.array(progress.ids, pa.binary()))
                progress.done[first + np.flatnonzero(known.to_numpy(zero_copy_only=False))] = True
            numbers = np.flatnonzero(~progress.done[first : first + batch.num_rows])
            if len(numbers):
                rows = batch if len(numbers) == batch.num_rows else batch.take(pa.array(numbers))
                self._send(progress, numbers + first, self._encode(rows, numbers + first))
        while not progress.finished:
            self._receive(progress)

    def _send(self, progress: Progress, numbers: Numbers, encoded: pa.BinaryArray) -> None:
        """Send messages as far as the window allows, and take acknowledgements in between."""
        _, offset_buffer, data = encoded.buffers()
        offsets = np.frombuffer(offset_buffer, dtype=np.int32)[: len(numbers) + 1]
        view = memoryview(data)
        window = min(progress.window, max(1, _BYTES_IN_FLIGHT // int(np.diff(offsets).max())))
        sent = 0
        while sent < len(numbers):
            low = progress.advance()
            end = int(np.searchsorted(numbers, low + window))
            idle = low == numbers[sent]
            if end == sent or not (idle or end - sent >= min(len(numbers) - sent, window // 2)):
                self._receive(progress)
                continue
            end = max(sent + 1, min(end, int(np.searchsorted(offsets, offsets[sent] + _SENT_AT_ONCE)) - 1))
            self._stay_awake()
            progress.sent = max(progress.sent, int(numbers[end - 1]) + 1)
            self._connection.send_publishes(view[offsets[sent] : offsets[end]])
            reach("connector.nats.publish.sent")
            sent = end

    def _receive(self, progress: Progress) -> None:
        places, sequences, duplicates = zip(*self._connection.acknowledgements(), strict=True)
        if any(duplicates) and min(sequences) <= self._base and not self._has_ids:
            raise ConnectorError(
                f"the stream had messages of the checkpoint {self._label.checkpoint} of the writer "
                f"{self._label.writer!r} before they were prepared",
                hint=_OWN_NAME,
            )
        progress.stored(places, max(sequences))
        self._stay_awake()

    def _stay_awake(self) -> None:
        """Raise after a long sleep: the server may have forgotten the ids that another has published in our place."""
        now = time.monotonic()
        if now - self._awake > self._patience:
            raise ConnectionError("this process was held up for longer than the stream remembers ids")
        self._awake = now

    def _encode(self, rows: pa.RecordBatch, numbers: Numbers) -> pa.BinaryArray:
        """Return each message as the wire has it, all of them in one buffer."""
        number = pa.array(numbers).cast(pa.string()).cast(pa.binary())
        own = pc.binary_join_element_wise(self._label.prefix.encode(), number, b"")
        head = pc.binary_join_element_wise(
            b"NATS/1.0\r\nNats-Msg-Id: ",
            rows.column("id").cast(pa.binary()) if self._has_ids else own,
            f"\r\nNats-Expected-Stream: {self._stream.name}\r\n{HEADER}: ".encode(),
            own,
            b"\r\n\r\n",
            b"",
        )
        data = rows.column("data")
        head_size = pc.binary_length(head)
        size = pc.add(head_size, pc.binary_length(data))
        return pc.binary_join_element_wise(
            b"HPUB ",
            rows.column("subject").cast(pa.binary()),
            f" {self._connection.reply_prefix()}".encode(),
            number,
            b" ",
            head_size.cast(pa.string()).cast(pa.binary()),
            b" ",
            size.cast(pa.string()).cast(pa.binary()),
            b"\r\n",
            head,
            data,
            b"\r\n",
            b"",
        )


def checked(stream: NatsStream, there: StreamRange, created: str, after: int) -> StreamRange:
    """Return what a stream has, if it is the one that was there before."""
    if there.created != created or there.last < after:
        raise StreamMismatchError(
            f"the NATS stream {stream.name!r} is not the one that the commit was prepared for: it was recreated",
            hint="abort the commit, and write the rows again",
        )
    return there


def _value(headers: bytes, name: bytes) -> bytes:
    return headers.partition(name)[2].partition(b"\r\n")[0]
