"""The limits and choices of a running service."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING

from quacklake.errors import ConfigError

if TYPE_CHECKING:
    from quacklake.core.sql.safety import Safety

__all__ = ["ServiceSettings", "is_loopback"]

_MEGABYTE = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceSettings:
    """The limits of a service. Every queue, body, page and answer has one. Raises ``ConfigError`` for a wrong value."""

    host: str = "127.0.0.1"
    port: int = 8080
    prefix: str = ""
    """The path before every route, for a service behind a balancer: ``/lake``."""
    web: bool = True
    """Serve a dashboard at ``/ui/``."""
    backups: str = ""
    """A folder or ``s3://`` URL where admins may put backups, each tenant in a folder of its own; empty for none."""
    cors_origins: tuple[str, ...] = ()
    """The origins whose scripts may call the service from a browser; none by default."""

    max_head: int = 64 * 1024
    """The most bytes of the first line and the headers of a request, within what is read at once."""
    max_body: int = 64 * _MEGABYTE
    """The most bytes of a request, also once it is unpacked."""
    max_unpacked: int = 512 * _MEGABYTE
    """The most bytes that the rows of a request take in memory, without compression and dictionaries."""
    max_body_rows: int = 1_000_000
    """The most rows of one append or merge."""
    body_seconds: float = 60.0
    """Seconds in which a request must have arrived, and in which a new connection must have sent the head of one."""
    idle_seconds: float = 75.0
    """Seconds after which a connection without a request is closed: a busy service may see the next one late."""
    max_connections: int = 2_000
    """The most open connections; further ones are answered with 503."""

    max_rows: int = 1_000_000
    """The most rows of an answer."""
    max_bytes: int = 1024 * _MEGABYTE
    """The most bytes of an answer, as Arrow holds it."""
    statement_seconds: float = 30.0
    """Seconds that DuckDB may work on a statement and its rows."""
    stalled_seconds: float = 60.0
    """Seconds that a reader may take for one piece of an answer."""
    max_memory: int = 512 * _MEGABYTE
    """DuckDB's memory for all statements of the readers of a lake together."""
    max_spill: int = 1024 * _MEGABYTE
    """Space for rows that do not fit into memory."""
    threads: int = 2
    """DuckDB's threads for the statements of a lake."""
    max_statements: int = 16
    """Statements that run at once; others wait."""
    max_waiting: int = 512
    """Requests that wait for their turn; further ones are answered with 429."""
    idle_sessions: int = 8
    """Sessions of a lake that are kept open between statements."""
    open_tenants: int = 64
    """Catalogs of a shared lake that are open at a time."""
    tenant_idle_seconds: float = 600.0
    """The time after which a catalog that nobody has entered may be closed for another one."""
    open_lakes: int = 32
    """Lakes and past snapshots whose sessions are kept open."""

    page_rows: int = 1_000
    """Rows of a page, if a request does not say."""
    max_page_rows: int = 10_000
    """The most rows of a page."""

    max_counted_tables: int = 100
    """The most tables whose changed rows are counted for the difference of two snapshots."""
    max_nodes: int = 10_000
    """The most nodes of a pond that are looked at for one answer."""
    max_pipelines: int = 8
    """Pipelines that run in this process at once."""

    max_message: int = 8 * _MEGABYTE
    """The most bytes of a message that is read from a stream, for the origin of a row."""

    group_appends: int = 256
    """The most appends that one commit takes."""
    max_appends: int = 4_096
    """Appends to a lake that wait; further ones are answered with 429."""
    group_seconds: float = 0.002
    """Seconds that a commit waits for others to join, once two or more have come."""
    append_seconds: float = 60.0
    """Seconds after which an append that was not committed is answered with 503."""
    keep_keys: float = 86_400.0
    """Seconds for which idempotency keys are remembered."""

    rate: float = 0.0
    """Requests a second of one principal, on average; 0 for no limit."""
    burst: int = 100
    """Requests that a principal may make at once before ``rate`` holds."""
    max_jobs: int = 100
    """Jobs of a principal that are remembered, running or done."""
    job_lease_seconds: float = 30.0
    """Seconds after which a job is shown as lost when its process has not been heard of."""
    max_consumers: int = 1_000
    """Consumers of changes that a principal may have."""
    max_listeners: int = 256
    """Open streams of events and waiting polls."""
    poll_seconds: float = 0.5
    """Seconds between two looks at the catalog for commits and jobs of other processes."""
    shutdown_seconds: float = 30.0
    """Seconds that requests have to end when the service stops."""

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if isinstance(value, int | float) and (value < 0 or (value == 0 and field.name not in _MAY_BE_ZERO)):
                raise ConfigError(f"the service setting {field.name} cannot be {value}")
        if self.prefix and (not self.prefix.startswith("/") or self.prefix.endswith("/")):
            raise ConfigError(f"the prefix {self.prefix!r} must begin with / and not end with it")
        if "*" in self.cors_origins:
            raise ConfigError("every origin may not call the service", hint="name the origins")

    def safety(self, *, read_only: bool) -> Safety:
        """Return the limits of a session for statements."""
        from quacklake.core.sql.safety import Safety  # takes longer than all that a service does before it listens

        return Safety.server(
            read_only=read_only,
            timeout=self.statement_seconds,
            max_rows=self.max_rows,
            max_bytes=self.max_bytes,
            max_memory=self.max_memory,
            max_spill=self.max_spill,
            threads=self.threads,
        )


_MAY_BE_ZERO = frozenset({"port", "rate", "group_seconds", "max_spill", "idle_sessions", "web"})


def is_loopback(host: str) -> bool:
    """Return whether only this machine can reach an address.

    >>> is_loopback("127.0.0.1"), is_loopback("0.0.0.0"), is_loopback("localhost")
    (True, False, True)
    """
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
