"""One stream of JetStream: where it is, who may read it, and which sequences it has."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from quacklake.connectors.nats.connection import NatsConnection
from quacklake.connectors.nats.credentials import NatsCredentials
from quacklake.connectors.options import ConnectorOptions
from quacklake.errors import ConfigError, ConnectorError, NotFoundError

NO_STREAM = 10059


@dataclass(frozen=True)
class StreamRange:
    """The sequences that a stream has: from ``first`` to ``last``. ``created`` tells it from another of its name."""

    created: str
    first: int
    last: int
    config: Mapping[str, Any] = field(default_factory=dict, repr=False)


@dataclass(frozen=True)
class NatsStream:
    """One stream and the subjects that are read of it, as data that travels to executors."""

    servers: tuple[str, ...] = field(repr=False)  # a URL may have a password
    name: str
    subjects: tuple[str, ...]
    credentials: NatsCredentials
    timeout: timedelta = timedelta(seconds=10)
    attempts: int = 5

    @classmethod
    def of(cls, read: ConnectorOptions) -> NatsStream:
        """Take the options. Raise ``ConfigError``."""
        secrets = ("user", "password", "token", "nkey_seed", "ca_file", "cert_file", "key_file")
        name = read.text("stream")
        if not name or any(character.isspace() or character in ".*>/\\" for character in name):
            raise ConfigError(f"nats: {name!r} cannot be the name of a stream")
        return cls(
            tuple(read.names("servers")) or ("nats://localhost:4222",),
            name,
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
        """Return what the stream has now. Raise ``NotFoundError``."""
        try:
            found = connection.jetstream(f"STREAM.INFO.{self.name}")
        except ConnectorError as error:
            if error.number == NO_STREAM:
                raise NotFoundError(f"NATS has no stream {self.name!r}") from None
            raise
        state = found["state"]
        return StreamRange(found["created"], state["first_seq"], state["last_seq"], found["config"])

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
            return int(part.sequences[0]), datetime.fromtimestamp(part.times[0] / 1e9, tz=None).astimezone()
        return None


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
