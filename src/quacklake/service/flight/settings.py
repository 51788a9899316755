"""The settings of a Flight server."""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from quacklake import Safety
from quacklake.config import parse_duration, parse_size
from quacklake.errors import ConfigError
from quacklake.service.settings import ServiceSettings, is_loopback

_LEAST = {"port": 0, "endpoint_bytes": 1}


@dataclass(frozen=True, slots=True, kw_only=True)
class FlightSettings:
    """The address of a Flight server, and its limits for each principal. ``None`` switches a limit off.

    Raise ``ConfigError`` for settings that make no sense.
    """

    host: str = "127.0.0.1"
    port: int = 0
    """The port; 0 for any free one."""
    certificate: Path | None = None
    """A file with the certificates of the server, in PEM; the server then speaks TLS only."""
    key: Path | None = None
    """A file with the key of the certificate."""
    insecure: bool = False
    """Allow to listen beyond this machine without TLS, for a server behind a proxy that has it."""
    secret: bytes = field(default_factory=lambda: secrets.token_bytes(32), repr=False)
    """The key that signs tickets; servers behind one address share it."""
    ticket_seconds: int = 3600
    """Seconds for which a ticket or a prepared statement is good."""
    timeout: float | str | None = 300.0
    """Seconds that DuckDB may work on a statement or on one endpoint of a table."""
    max_rows: int | None = None
    """The most rows of a result, or of one endpoint of a table."""
    max_bytes: int | str | None = "10GB"
    """The most bytes of a result, or of one endpoint of a table."""
    max_memory: int | str | None = "1GB"
    """DuckDB's memory for all statements of a principal."""
    threads: int | None = None
    """DuckDB's threads for the statements of a principal; ``None`` for one per core."""
    max_streams: int = 16
    """The most results that a principal may be reading or writing at a time."""
    max_all_streams: int = 128
    """The most results of all principals together."""
    held_seconds: float = 30.0
    """Seconds for which the result of a statement waits for its reader; after that the ticket runs it again."""
    prompt_seconds: float = 2.0
    """Seconds in which a prepared query begins to answer; a slower one runs when its rows are fetched.

    A client such as JDBC's driver can cancel a query only while it fetches the rows.
    """
    max_endpoints: int = 8
    """The most endpoints of a table."""
    endpoint_bytes: int | str = "32MB"
    """Bytes of files below which an endpoint of a table is not divided."""
    max_body: int | str | None = None
    """The most bytes of one append as it arrives, without dictionaries."""
    max_put_bytes: int | str = "10GB"
    """The most bytes of the rows of one append, once dictionaries, runs and views are unpacked."""
    max_unpacked: int | str = "512MiB"
    """The most bytes of the rows of one message once they are unpacked, since they are in memory at once.

    Compressed buffers are the exception: Arrow unpacks those of a message before anybody can look at it.
    """
    group_bytes: int | str = "1MB"
    """The most bytes of an append whose rows wait to be committed together with those of others."""
    max_message: int | str = "4MB"
    """The most bytes of a command, an action, a ticket or a set of parameters."""
    max_parameter_rows: int = 10_000
    """The most rows of parameters of one statement."""
    max_listed: int = 10_000
    """The most tables of a listing."""
    max_transactions: int = 16
    """The most open transactions of a principal."""
    max_kept: int | str = "64MB"
    """The most bytes of a result that are kept when the next statement of its transaction comes before its end."""
    transaction_seconds: float = 600.0
    """Seconds after which an idle transaction is rolled back."""
    max_principals: int = 64
    """The most principals whose sessions stay open between calls."""
    max_sessions: int = 10_000
    """The most sets of session options."""
    grace_seconds: float = 10.0
    """Seconds that running calls have to end when the server shuts down."""
    key_seconds: int = 86_400
    """Seconds for which the idempotency key of an append is remembered."""

    def __post_init__(self) -> None:
        for each in fields(self):
            value = getattr(self, each.name)
            if isinstance(value, int | float) and not isinstance(value, bool) and value < _LEAST.get(each.name, 0):
                raise ConfigError(f"FlightSettings({each.name}={value!r}): a number below zero makes no sense")
        for name in ("endpoint_bytes", "max_put_bytes", "max_unpacked", "group_bytes", "max_message", "max_kept"):
            self.size(name)
        if self.max_body is not None:
            self.size("max_body")
        self.safety(read_only=True)
        if (self.certificate is None) != (self.key is None):
            raise ConfigError("TLS needs a certificate and its key", hint="set both certificate and key")
        if len(self.secret) < 16:
            raise ConfigError("the secret that signs tickets has fewer than 16 bytes")
        if self.certificate is None and not self.insecure and not is_loopback(self.host):
            raise ConfigError(
                f"a Flight server does not listen on {self.host} without TLS",
                hint="set certificate and key, or insecure=True behind a proxy that has TLS",
            )

    @classmethod
    def like(cls, settings: ServiceSettings, **more: Any) -> FlightSettings:
        """Return settings with the limits of a service over HTTP, for a server beside it.

        Results have limits of their own: they go out in pieces, and none is kept whole.
        """
        return cls(
            timeout=settings.statement_seconds,
            max_body=settings.max_body,
            max_put_bytes=settings.max_unpacked,
            max_unpacked=settings.max_unpacked,
            key_seconds=int(settings.keep_keys),
            **more,
        )

    def size(self, name: str) -> int:
        """Return a setting that is a number of bytes. Raise ``ConfigError``."""
        try:
            return parse_size(getattr(self, name))
        except ValueError as error:
            raise ConfigError(f"FlightSettings({name}={getattr(self, name)!r}): {error}") from None

    @property
    def most_body(self) -> int | None:
        """The most bytes of an append as it arrives."""
        return None if self.max_body is None else self.size("max_body")

    @property
    def most_bytes(self) -> int | None:
        """The most bytes of a result."""
        return None if self.max_bytes is None else self.size("max_bytes")

    @property
    def seconds(self) -> float | None:
        """The timeout in seconds."""
        return None if self.timeout is None else parse_duration(self.timeout).total_seconds()

    def safety(self, *, read_only: bool) -> Safety:
        """Return the limits of the sessions that run statements."""
        return Safety(
            read_only=read_only,
            timeout=self.timeout,
            max_rows=self.max_rows,
            max_bytes=self.max_bytes,
            max_memory=self.max_memory,
            threads=self.threads,
        )
