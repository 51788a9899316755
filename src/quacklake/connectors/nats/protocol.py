"""The NATS protocol as functions: messages as clients publish them, and as consumers of a stream get them.

Whole blocks of messages are taken apart by NumPy and Arrow, without a turn of Python for each: the rate at which a
stream is read depends on it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from quacklake.errors import ConnectorError, ConnectorUnavailableError, InputError

Numbers: TypeAlias = npt.NDArray[np.int64]
Places: TypeAlias = npt.NDArray[Any]

_TOO_MANY = 429
_ACK = b"$JS.ACK."
_SPACE, _DOT, _NEWLINE, _M, _H = b" .\nMH"


class NatsMessage(NamedTuple):
    """One message; ``headers`` is the raw block of its headers, empty if it has none."""

    subject: str
    reply: str
    headers: bytes
    data: bytes

    @property
    def status(self) -> int:
        """The status that the server put into the headers, 0 if there is none."""
        line = self.headers.partition(b"\r\n")[0]
        code = line[9:12]
        return int(code) if line.startswith(b"NATS/1.0 ") and code.isdigit() else 0

    @property
    def reason(self) -> str:
        """The text beside the status."""
        return self.headers.partition(b"\r\n")[0][13:].decode(errors="replace").strip()


@dataclass(frozen=True, slots=True)
class StoredMessages:
    """Messages of a stream as columns, in the order of their sequence. ``times`` are nanoseconds since 1970."""

    subjects: pa.BinaryArray
    sequences: Numbers
    times: Numbers
    headers: pa.BinaryArray
    data: pa.BinaryArray

    @classmethod
    def of(
        cls,
        subjects: Iterable[bytes] = (),
        sequences: Iterable[int] = (),
        times: Iterable[int] = (),
        headers: Iterable[bytes] = (),
        data: Iterable[bytes] = (),
    ) -> StoredMessages:
        """Return messages that are given as Python values."""
        return cls(
            pa.array(subjects, pa.binary()),
            np.array(list(sequences), np.int64),
            np.array(list(times), np.int64),
            pa.array(headers, pa.binary()),
            pa.array(data, pa.binary()),
        )

    @classmethod
    def join(cls, parts: Sequence[StoredMessages]) -> StoredMessages:
        """Return the messages of several parts, one behind the other."""
        if not parts:
            return cls.of()
        if len(parts) == 1:
            return parts[0]
        return cls(
            pa.concat_arrays([part.subjects for part in parts]),
            np.concatenate([part.sequences for part in parts]),
            np.concatenate([part.times for part in parts]),
            pa.concat_arrays([part.headers for part in parts]),
            pa.concat_arrays([part.data for part in parts]),
        )

    def __len__(self) -> int:
        return len(self.sequences)

    @property
    def last(self) -> int:
        """The greatest sequence."""
        return int(self.sequences[-1])

    def before(self, end: int) -> StoredMessages:
        """Return the messages with a smaller sequence."""
        if not len(self) or self.last < end:
            return self
        kept = int(np.searchsorted(self.sequences, end))
        return StoredMessages(
            self.subjects[:kept], self.sequences[:kept], self.times[:kept], self.headers[:kept], self.data[:kept]
        )


@dataclass(frozen=True, slots=True)
class Delivered:
    """The messages of a consumer, the number of each for the consumer, and whether more follow the last."""

    messages: StoredMessages
    numbers: Numbers
    pending: bool


def publish_command(subject: str, payload: bytes, reply: str, headers: Mapping[str, str] | None) -> bytes:
    """Return the command that publishes a message. Raise ``InputError`` for one that the protocol cannot carry."""
    if not subject or any(character.isspace() for character in subject):
        raise InputError(f"{subject!r} cannot be a subject of NATS", hint="subjects have no spaces")
    if not headers:
        return b"PUB %s %s %d\r\n%s\r\n" % (subject.encode(), reply.encode(), len(payload), payload)
    for key, value in headers.items():
        if any(c in f"{key}{value}" for c in "\r\n") or ":" in key:
            raise InputError(f"{key!r} cannot be a header of NATS with this value")
    block = b"NATS/1.0\r\n%s\r\n" % b"".join(f"{key}: {value}\r\n".encode() for key, value in headers.items())
    sizes = len(block), len(block) + len(payload)
    return b"HPUB %s %s %d %d\r\n%s%s\r\n" % (subject.encode(), reply.encode(), *sizes, block, payload)


def acknowledged(message: NatsMessage) -> dict[str, Any]:
    """Return what a stream answers when it has stored a message. Raise when it has not."""
    if message.status == 503:
        raise InputError("no stream of NATS stores what was published", hint="create a stream with this subject")
    answer: dict[str, Any] = json.loads(message.data)
    if "error" in answer:
        error = answer["error"]
        kind = ConnectorUnavailableError if error.get("code") == _TOO_MANY else ConnectorError
        raise kind(f"NATS did not store a message: {error.get('description')}", number=error.get("err_code"))
    return answer


def delivered(buffer: bytes, place: int) -> tuple[Delivered | None, int]:
    """Return the whole messages of a stream that stand at a place of what was received, and the place behind them.

    Anything else at the place, such as a status, is left there, and None returned.
    """
    try:
        return _parse_delivered(buffer, place, None)
    except pa.ArrowInvalid:  # a body has a line that looks like the beginning of a message
        return _parse_delivered(buffer, place, 1)


def _parse_delivered(buffer: bytes, place: int, most: int | None) -> tuple[Delivered | None, int]:
    received = np.frombuffer(buffer, np.uint8, offset=place) if place < len(buffer) else np.empty(0, np.uint8)
    starts, ends, has_headers = (each[:most] for each in _heads(received))
    if not len(starts) or starts[0]:
        return None, place
    lines = _pieces(buffer, place + starts, place + ends)
    text, edges = np.frombuffer(lines.buffers()[2], np.uint8), np.frombuffer(lines.buffers()[1], np.int32)
    # MSG <subject> <sid> <reply> <bytes>; HMSG <subject> <sid> <reply> <bytes of headers> <bytes>
    spaces = np.flatnonzero(text == _SPACE)
    first_space = np.searchsorted(spaces, edges)
    count = _prefix(np.diff(first_space) == 4 + has_headers)
    if not count:
        return None, place
    space = spaces[first_space[:count, None] + np.arange(4)]
    # $JS.ACK.<stream>.<consumer>.<delivered>.<sequence>.<consumer's sequence>.<time>.<pending>; newer servers
    # put the domain and a hash of the account before the stream, and a token behind
    dots = np.flatnonzero(text == _DOT)
    first_dot, behind_dot = np.searchsorted(dots, space[:, 2]), np.searchsorted(dots, space[:, 3])
    parts = behind_dot - first_dot
    count = _prefix((parts == parts[0]) & (parts >= 8) & _begin_with(text, space[:, 2] + 1, _ACK))
    if not count:
        return None, place
    shift = 4 if parts[0] < 10 else 6
    dot = dots[first_dot[:count, None] + np.arange(shift, shift + 4)]
    # The last number is that of the bytes; beside it stands that of the headers, or the bytes once more.
    last_space, line_end = spaces[first_space[1 : count + 1] - 1], edges[1 : count + 1] - 2
    behind = dots[first_dot[:count] + shift + 4] if parts[0] > shift + 4 else space[:count, 3]
    found = _numbers(
        lines,
        np.column_stack((dot + 1, last_space + 1)),
        np.column_stack((dot[:, 1:], behind, line_end)),
    )
    body = ends[:count]
    # A message is whole if all its bytes are there, and stands where the one before it ends.
    behind = body + found[:, 4] + 2
    count = _prefix((behind <= len(received)) & (starts[:count] == np.concatenate(([0], behind[:-1]))))
    if not count:
        return None, place
    found, space, has_headers = found[:count], space[:count], has_headers[:count]
    data = body = body[:count]
    if has_headers.any():
        head_end = np.where(has_headers, last_space[:count], line_end[:count])
        data = body + np.where(has_headers, _numbers(lines, space[:, 3] + 1, head_end), 0)
    messages = StoredMessages(
        _pieces(lines.buffers()[2], space[:, 0] + 1, space[:, 1]),
        found[:, 0],
        found[:, 2],
        _pieces(buffer, place + body, place + data) if has_headers.any() else pa.array([b""] * count, pa.binary()),
        _pieces(buffer, place + data, place + body + found[:, 4]),
    )
    return Delivered(messages, found[:, 1], bool(found[-1, 3])), place + int(behind[count - 1])


def _heads(received: npt.NDArray[np.uint8]) -> tuple[Places, Places, npt.NDArray[np.bool_]]:
    """Return where lines begin and end that may begin a message, and which of these have headers."""
    line_ends = np.flatnonzero(received == _NEWLINE) + 1
    line_starts = np.concatenate(([0], line_ends[:-1]))[: len(line_ends)]
    letters = received[line_starts]
    likely = np.flatnonzero((letters == _M) | (letters == _H))
    starts, ends, has_headers = line_starts[likely], line_ends[likely], letters[likely] == _H
    begins = _begin_with(received, starts + has_headers, b"MSG ")
    return (starts, ends, has_headers) if begins.all() else (starts[begins], ends[begins], has_headers[begins])


def _prefix(good: npt.NDArray[np.bool_]) -> int:
    """Return how many values at the beginning are true."""
    return len(good) if good.all() else int(good.argmin())


def _begin_with(text: npt.NDArray[np.uint8], starts: Places, word: bytes) -> npt.NDArray[np.bool_]:
    """Return at which places of a text a word stands."""
    found = np.ones(len(starts), np.bool_)
    last = max(0, len(text) - 1)
    for place, letter in enumerate(word):
        found &= text[np.minimum(starts + place, last)] == letter
    return found


def _numbers(lines: pa.BinaryArray, starts: Places, ends: Places) -> Numbers:
    """Return the numbers that stand at places of lines, in the shape of the places. Raise ``pa.ArrowInvalid``."""
    digits = _pieces(lines.buffers()[2], starts.reshape(-1), ends.reshape(-1)).cast(pa.string())
    found: Numbers = digits.cast(pa.int64()).to_numpy().reshape(starts.shape)
    return found


def _pieces(text: bytes | pa.Buffer, starts: Places, ends: Places) -> pa.BinaryArray:
    """Return pieces of a text, which follow each other and do not overlap."""
    edges = np.empty(2 * len(starts), np.int32)
    edges[0::2], edges[1::2] = starts, ends
    whole = pa.py_buffer(text) if isinstance(text, bytes) else text
    between = pa.Array.from_buffers(pa.binary(), len(edges) - 1, [None, pa.py_buffer(edges), whole])
    return between.take(pa.array(np.arange(0, len(edges) - 1, 2)))
