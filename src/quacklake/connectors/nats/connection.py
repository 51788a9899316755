"""A small synchronous NATS client: requests, publishing, and ranges of JetStream sequences.

A range of a stream is read at 100,000 messages a second on one core, which an asynchronous client reaches a tenth of;
on an executor of Spark that is what counts. Commands and replies are those of the NATS protocol and of the JetStream
API as documented by NATS.
"""

from __future__ import annotations

import json
import re
import secrets
import socket
import time
from collections import deque
from collections.abc import Generator, Mapping, Sequence
from typing import Any, NoReturn, Self

import numpy as np

from quacklake.connectors.nats.credentials import NatsAddress, NatsCredentials
from quacklake.connectors.nats.protocol import (
    NatsMessage,
    StoredMessages,
    acknowledged,
    delivered,
    publish_command,
)
from quacklake.errors import ConfigError, ConnectorError, ConnectorUnavailableError

_READ_BYTES = 1 << 18
_MAX_CONTROL_LINE = 1 << 16
_PLACE = "p"
# What nearly every acknowledgement looks like; others are read as JSON.
_STORED = re.compile(
    rb'MSG _INBOX\.[0-9a-f]+\.p(\d+) 1 \d+\r\n\{"stream": ?"[^"]*", ?"seq": ?(\d+)(, ?"duplicate": ?true)?\}\r\n'
)


class NatsConnection:
    """One connection to one of several servers; not safe for use by two threads at once.

    A connection that breaks is made again by the next call: a range goes on behind the last message that arrived.
    """

    def __init__(
        self,
        servers: str | Sequence[str],
        credentials: NatsCredentials | None = None,
        *,
        timeout: float = 10.0,
        attempts: int = 5,
        max_message_bytes: int = 64 << 20,
    ) -> None:
        listed = servers.split(",") if isinstance(servers, str) else list(servers)
        self._servers = [NatsAddress.parse(text.strip()) for text in listed if text.strip()]
        if not self._servers:
            raise ConfigError("no NATS server is given", hint="nats://host:4222")
        self._credentials = credentials or NatsCredentials()
        self._timeout = timeout
        self._attempts = attempts
        self._limit = max_message_bytes
        self._socket: socket.socket | None = None
        self._buffer = b""
        self._place = 0
        self._inbox = ""
        self._subscriptions = 0
        self.info: dict[str, Any] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection; the next call would open it again."""
        opened, self._socket = self._socket, None
        if opened is not None:
            opened.close()
        self._buffer, self._place = b"", 0

    # requests

    def request(self, subject: str, payload: bytes = b"", headers: Mapping[str, str] | None = None) -> NatsMessage:
        """Send a request and return its first reply; try again where the connection breaks.

        A request may therefore arrive twice: give it an id (``Nats-Msg-Id``) where that matters.
        """
        for attempt in range(self._attempts):
            try:
                reply_to = self._new_inbox()
                self._send(publish_command(subject, payload, reply_to, headers))
                while (message := self._next_message()).subject != reply_to:
                    pass  # a late reply to an earlier request
                if message.status == 503:
                    raise ConnectorUnavailableError(f"nobody answers {subject!r} on NATS: is JetStream switched on?")
                return message
            except (OSError, ConnectorUnavailableError) as error:
                self.close()
                if attempt + 1 == self._attempts:
                    self._unavailable(error)
                time.sleep(min(2.0, 0.1 * 2**attempt))
        raise AssertionError("unreachable")

    def jetstream(self, name: str, body: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Call the JetStream API (``STREAM.INFO.orders``) and return its answer."""
        payload = b"" if body is None else json.dumps(body).encode()
        answer: dict[str, Any] = json.loads(self.request(f"$JS.API.{name}", payload).data)
        if "error" in answer:
            error = answer["error"]
            raise ConnectorError(
                f"NATS refused {name}: {error.get('description', error)}", number=error.get("err_code")
            )
        return answer

    # publishing

    def publish(self, messages: Sequence[tuple[str, bytes, Mapping[str, str] | None]], *, window: int = 1000) -> int:
        """Publish messages to streams and return how many were new, once the server has stored all of them.

        A message with ``Nats-Msg-Id`` that the stream has had within its window of duplicates counts as stored, not as
        new. At most ``window`` messages wait for their acknowledgement.
        """
        pending: dict[str, int] = {}
        unsent = deque(range(len(messages)))
        new = 0
        for attempt in range(self._attempts):
            try:
                while unsent or pending:
                    if unsent and len(pending) <= window // 2:
                        block = []
                        while unsent and len(pending) < window:
                            inbox = self._new_inbox()
                            pending[inbox] = place = unsent.popleft()
                            block.append(publish_command(*messages[place][:2], inbox, messages[place][2]))
                        self._send(b"".join(block))
                    message = self._next_message()
                    if message.subject in pending:
                        new += not acknowledged(message).get("duplicate", False)
                        del pending[message.subject]
                return new
            except OSError as error:
                self.close()
                if attempt + 1 == self._attempts:
                    self._unavailable(error)
                # those that were not acknowledged may be there all the same: only an id tells
                unsent.extendleft(sorted(pending.values(), reverse=True))
                pending.clear()
                time.sleep(min(2.0, 0.1 * 2**attempt))
        raise AssertionError("unreachable")

    def reply_prefix(self) -> str:
        """Return what the replies to :meth:`send_publishes` begin with; a new connection has another."""
        self._connect()
        return f"{self._inbox}.{_PLACE}"

    def send_publishes(self, data: bytes | memoryview) -> None:
        """Send encoded publishes. Their replies are ``reply_prefix()`` and a number, by which acknowledgements come."""
        self._send(data)

    def acknowledgements(self) -> list[tuple[int, int, bool]]:
        """Return the acknowledgements that have come, at least one: the number, the sequence, and if it was there.

        Raise for a message that was not stored.
        """
        deadline = time.monotonic() + self._timeout
        found: list[tuple[int, int, bool]] = []
        while True:
            while match := _STORED.match(self._buffer, self._place):
                self._place = match.end()
                found.append((int(match[1]), int(match[2]), match[3] is not None))
            if found:
                return found
            if self._place < len(self._buffer):
                line = self._line(deadline)
                if not line.startswith((b"MSG ", b"HMSG ")):
                    self._control(line)
                    continue
                message = self._message(line, deadline)
                prefix, _, place = message.subject.rpartition(_PLACE)
                if prefix == f"{self._inbox}.":
                    answer = acknowledged(message)
                    found.append((int(place), int(answer["seq"]), bool(answer.get("duplicate"))))
            else:
                self._receive(deadline)

    # ranges

    def read_range(
        self,
        stream: str,
        first: int,
        end: int,
        subjects: Sequence[str] = (),
        *,
        batch: int = 10_000,
        batch_bytes: int = 16 << 20,
        headers_only: bool = False,
    ) -> Generator[StoredMessages, None, None]:
        """Yield the messages of a stream with ``first <= sequence < end`` in order, at most ``batch`` at a time.

        Messages that were deleted, or whose subject is not asked for, are left out. Where the connection breaks or the
        server starts again, the rest is read on a new connection. With ``headers_only`` the bodies are not sent.
        """
        failures = 0
        while first < end:
            consumer = ""
            try:
                consumer = self._create_consumer(stream, first, subjects, headers_only)
                expected = 1
                while first < end:
                    messages, pending = self._fetch(stream, consumer, expected, batch, batch_bytes)
                    expected += len(messages)
                    wanted = messages.before(end)
                    if len(wanted):
                        first = wanted.last + 1
                        failures = 0
                        yield wanted
                    if len(wanted) < len(messages) or not pending:
                        return
            except (OSError, ConnectorUnavailableError) as error:
                self.close()
                failures += 1
                if failures >= self._attempts:
                    self._unavailable(error)
                time.sleep(min(2.0, 0.1 * 2**failures))
            finally:
                if consumer:
                    self._delete_consumer(stream, consumer)

    def _create_consumer(self, stream: str, first: int, subjects: Sequence[str], headers_only: bool) -> str:
        name = f"quacklake-{secrets.token_hex(8)}"
        config: dict[str, Any] = {
            "name": name,
            "deliver_policy": "by_start_sequence",
            "opt_start_seq": max(1, first),
            "ack_policy": "none",
            "mem_storage": True,
            "inactive_threshold": 60_000_000_000,
            "num_replicas": 1,
            "headers_only": headers_only,
        }
        if subjects:
            config["filter_subjects"] = list(subjects)
        self.jetstream(f"CONSUMER.CREATE.{stream}.{name}", {"stream_name": stream, "config": config})
        return name

    def _delete_consumer(self, stream: str, name: str) -> None:
        """Delete a consumer if the connection still stands; the server forgets it after a minute anyway."""
        if self._socket is None:
            return
        try:
            self._send(publish_command(f"$JS.API.CONSUMER.DELETE.{stream}.{name}", b"", self._new_inbox(), None))
        except OSError:
            self.close()

    def _fetch(
        self, stream: str, consumer: str, expected: int, batch: int, batch_bytes: int
    ) -> tuple[StoredMessages, bool]:
        """Return the next messages of a consumer, and whether more may follow.

        One request is under way at a time: a second one may be answered "408 Requests Pending" before the first has
        ended, and that taken for the end would lose messages.
        """
        inbox = self._new_inbox()
        wanted = {"batch": batch, "no_wait": True, "max_bytes": batch_bytes}
        self._send(
            publish_command(f"$JS.API.CONSUMER.MSG.NEXT.{stream}.{consumer}", json.dumps(wanted).encode(), inbox, None)
        )
        deadline = time.monotonic() + self._timeout
        parts: list[StoredMessages] = []
        count = 0
        while count < batch:
            block, self._place = delivered(self._buffer, self._place)
            if block is not None:
                if (block.numbers != np.arange(len(block.numbers)) + expected + count).any():
                    raise ConnectorUnavailableError(f"NATS left out a message of {stream!r}")
                parts.append(block.messages)
                count += len(block.messages)
                if not block.pending:
                    return StoredMessages.join(parts), False
                continue
            status = self._status(deadline)
            if status is None or status.subject != inbox:
                continue
            if status.status == 404:
                return StoredMessages.join(parts), False
            if status.status != 409 or "maxbytes" not in status.reason.lower().replace(" ", ""):
                raise ConnectorUnavailableError(f"NATS ended a read of {stream!r}: {status.status} {status.reason}")
            if count:
                break
            if batch_bytes >= self._limit:
                raise ConnectorError(
                    f"a message of {stream!r} is larger than the limit of {self._limit} bytes",
                    hint="raise max_message_bytes",
                )
            return self._fetch(stream, consumer, expected, 1, self._limit)
        return StoredMessages.join(parts), True

    def _status(self, deadline: float) -> NatsMessage | None:
        """Take one line that is not a message of a stream; return a status, or None for anything else.

        Receives more when the line, or the message that begins with it, is not whole.
        """
        line_end = self._buffer.find(b"\r\n", self._place)
        if line_end < 0:
            self._receive(deadline)
            return None
        words = self._buffer[self._place : line_end].split(b" ")
        if words[0] not in (b"HMSG", b"MSG"):
            self._control(self._line(deadline))
            return None
        if not words[3].startswith(b"$JS.ACK."):
            return self._message(self._line(deadline), deadline)
        missing = line_end + 4 + self._check_size(int(words[-1])) - len(self._buffer)
        if missing <= 0:
            raise ConnectorUnavailableError("what the NATS server says is not the NATS protocol")
        self._receive(deadline, missing)
        return None

    # the wire

    def _new_inbox(self) -> str:
        self._connect()
        self._subscriptions += 1
        return f"{self._inbox}.{self._subscriptions}"

    def _connect(self) -> socket.socket:
        if self._socket is not None:
            return self._socket
        failures: list[Exception] = []
        for server in self._servers:
            try:
                return self._connect_to(server)
            except (OSError, ConnectorUnavailableError, ConfigError) as error:
                self.close()
                failures.append(error)
        # a server that refuses us will go on to; one that is away may come back
        away = [error for error in failures if not isinstance(error, ConfigError)]
        if not away:
            raise failures[0]
        self._unavailable(away[-1])

    def _connect_to(self, server: NatsAddress) -> socket.socket:
        self._socket = socket.create_connection((server.host, server.port), timeout=self._timeout)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        line = self._line()
        if not line.startswith(b"INFO "):
            raise ConnectorUnavailableError(f"{server} is not a NATS server")
        self.info = json.loads(line[5:])
        credentials = self._credentials
        if server.tls or self.info.get("tls_required") or credentials.ca_file:
            if not self.info.get("tls_required") and not self.info.get("tls_available"):
                raise ConfigError(f"the NATS server {server} does not offer TLS")
            self._socket = credentials.encrypted(self._socket, server.host)
        hello = {
            "verbose": False,
            "pedantic": False,
            "lang": "python",
            "version": "1",
            "name": "quacklake",
            "protocol": 1,
            "headers": True,
            "no_responders": True,
            **server.answer(),
            **credentials.answer(self.info.get("nonce")),
        }
        self._socket.sendall(b"CONNECT %s\r\nPING\r\n" % json.dumps(hello).encode())
        while (line := self._line()) != b"PONG":
            if line.startswith(b"-ERR"):
                self._raise_refusal(line)
        self._inbox = f"_INBOX.{secrets.token_hex(11)}"
        self._socket.sendall(b"SUB %s.* 1\r\n" % self._inbox.encode())
        return self._socket

    def _send(self, data: bytes | memoryview) -> None:
        opened = self._connect()
        opened.settimeout(self._timeout)
        opened.sendall(data)

    def _next_message(self) -> NatsMessage:
        deadline = time.monotonic() + self._timeout
        while not (line := self._line(deadline)).startswith((b"MSG ", b"HMSG ")):
            self._control(line)
        return self._message(line, deadline)

    def _control(self, line: bytes) -> None:
        if line == b"PING":
            self._send(b"PONG\r\n")
        elif line.startswith(b"-ERR"):
            self._raise_refusal(line)
        elif line.startswith(b"INFO "):
            self.info |= json.loads(line[5:])

    def _message(self, line: bytes, deadline: float) -> NatsMessage:
        # MSG <subject> <sid> [reply] <bytes>; HMSG <subject> <sid> [reply] <bytes of headers> <bytes>
        words = line.decode().split(" ")
        has_headers = words[0] == "HMSG"
        size, head = self._check_size(int(words[-1])), int(words[-2]) if has_headers else 0
        reply = words[3] if len(words) == (6 if has_headers else 5) else ""
        if (missing := size + 2 - len(self._buffer) + self._place) > 0:
            self._receive(deadline, missing)
        start = self._place
        self._place += size + 2
        return NatsMessage(
            words[1], reply, self._buffer[start : start + head], self._buffer[start + head : start + size]
        )

    def _check_size(self, size: int) -> int:
        if size > self._limit:
            raise ConnectorError(
                f"a NATS message has {size} bytes, more than the limit of {self._limit}",
                hint="raise max_message_bytes",
            )
        return size

    def _line(self, deadline: float | None = None) -> bytes:
        deadline = time.monotonic() + self._timeout if deadline is None else deadline
        while (end := self._buffer.find(b"\r\n", self._place)) < 0:
            if len(self._buffer) - self._place > _MAX_CONTROL_LINE:
                raise ConnectorUnavailableError("what the NATS server says is not the NATS protocol")
            self._receive(deadline)
        line = self._buffer[self._place : end]
        self._place = end + 2
        return line

    def _receive(self, deadline: float, missing: int = 1) -> None:
        """Add at least ``missing`` bytes to what has not been taken yet."""
        if self._socket is None:
            raise ConnectionError("the connection is closed")
        parts = [self._buffer[self._place :]]
        while missing > 0:
            self._socket.settimeout(max(0.001, deadline - time.monotonic()))
            data = self._socket.recv(_READ_BYTES)
            if not data:
                raise ConnectionError("the NATS server closed the connection")
            parts.append(data)
            missing -= len(data)
        self._buffer, self._place = b"".join(parts), 0

    def _raise_refusal(self, line: bytes) -> NoReturn:
        text = line[5:].decode(errors="replace").strip("'")
        if "authorization" in text.lower() or "authentication" in text.lower():
            raise ConfigError(
                f"the NATS server refused the credentials: {text}", hint="check user and password, token or nkey"
            )
        if "permissions violation" in text.lower():
            raise ConfigError(f"the NATS server refused: {text}")
        raise ConnectionError(text)

    def _unavailable(self, error: Exception | None) -> NoReturn:
        if isinstance(error, ConnectorUnavailableError):
            raise error
        names = ", ".join(map(str, self._servers))
        raise ConnectorUnavailableError(
            f"NATS cannot be reached at {names}: {error}", hint="is the server running, and is the address right?"
        ) from error
