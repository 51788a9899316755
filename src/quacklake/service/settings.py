"""The limits and choices of a running service, and those of the command that runs one."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from quacklake.config import check_table, setting
from quacklake.errors import ConfigError

if TYPE_CHECKING:
    from quacklake import Safety

__all__ = ["SECTION", "ServeSettings", "ServiceSettings", "is_loopback"]

SECTION = "service"
"""The table of the settings file, and the part of names of variables, that these settings are in."""
_MEBIBYTE = 1 << 20
_SHORTEST = 0.001


def _size(help: str, default: int, minimum: int = 1, **more: Any) -> Any:
    return setting("size", help, default, minimum=minimum, **more)


def _count(help: str, default: int, minimum: int = 1, **more: Any) -> Any:
    return setting("int", help, default, minimum=minimum, **more)


def _seconds(help: str, default: float, minimum: float = _SHORTEST, **more: Any) -> Any:
    return setting("seconds", help, default, minimum=minimum, **more)


def _port(help: str, default: int | None, option: str) -> Any:
    return setting("int", help, default, minimum=0, maximum=65_535, option=option, metavar="PORT")


def _text(help: str, option: str, metavar: str, default: str | None = None) -> Any:
    return setting("text", help, default, option=option, metavar=metavar)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceSettings:
    """The limits of a service. Every queue, body, page and answer has one. Raise ``ConfigError`` for a wrong value."""

    host: str = _text("The address to listen on", "--host", "ADDRESS", "127.0.0.1")
    port: int = _port("The port to listen on; 0 for any free one", 8080, "--port -p")
    prefix: str = _text(
        "The path before every route, as in /lake, for a service behind a balancer", "--prefix", "PATH", ""
    )
    web: bool = setting("bool", "Serve a dashboard at /ui/", True, option="--web/--no-web")
    backups: str = _text(
        "A folder or s3:// URL where admins may put backups, each tenant in a folder of its own",
        "--backups",
        "PLACE",
        "",
    )
    cors_origins: tuple[str, ...] = setting(
        "list", "Origins whose pages may call the service from a browser", (), option="--cors", metavar="ORIGIN"
    )

    max_head: int = _size(
        "The most bytes of the first line and the headers of a request, within what is read at once", 64 * 1024
    )
    max_body: int = _size(
        "The most bytes of a request, also once it is unpacked, and of an append by Flight",
        64 * _MEBIBYTE,
        option="--max-body",
        metavar="SIZE",
    )
    max_unpacked: int = _size(
        "The most bytes that the rows of a request take in memory, without compression and dictionaries",
        512 * _MEBIBYTE,
    )
    max_body_rows: int = _count("The most rows of one append or merge", 1_000_000)
    body_seconds: float = _seconds(
        "The time in which a request must have arrived, and a new connection must have sent the head of one", 60.0
    )
    idle_seconds: float = _seconds(
        "The time after which a connection without a request is closed: a busy service may see the next one late", 75.0
    )
    max_connections: int = _count("The most open connections; further ones are answered with 503", 2_000)

    max_rows: int = _count("The most rows of an answer", 1_000_000)
    max_bytes: int = _size("The most bytes of an answer, as Arrow holds it", 1024 * _MEBIBYTE)
    statement_seconds: float = _seconds(
        "The longest time that DuckDB works on a statement and its rows, also by Flight",
        30.0,
        option="--timeout",
        metavar="DURATION",
    )
    stalled_seconds: float = _seconds("The longest time that a reader may take for one piece of an answer", 60.0)
    max_memory: int = _size("DuckDB's memory for all statements of the readers of a lake together", 512 * _MEBIBYTE)
    max_spill: int = _size("Space for rows that do not fit into memory", 1024 * _MEBIBYTE, minimum=0)
    threads: int = _count("DuckDB's threads for the statements of a lake", 2)
    max_statements: int = _count("Statements that run at once; others wait", 16)
    max_waiting: int = _count("Requests that wait for their turn; further ones are answered with 429", 512)
    idle_sessions: int = _count("Sessions of a lake that are kept open between statements", 8, minimum=0)
    open_tenants: int = _count("Catalogs of a shared lake that are open at a time", 64)
    tenant_idle_seconds: float = _seconds(
        "The time after which a catalog that nobody has entered may be closed for another one", 600.0
    )
    open_lakes: int = _count("Lakes and past snapshots whose sessions are kept open", 32)

    page_rows: int = _count("Rows of a page, if a request does not say", 1_000)
    max_page_rows: int = _count("The most rows of a page", 10_000)

    max_counted_tables: int = _count(
        "The most tables whose changed rows are counted for the difference of two snapshots", 100
    )
    max_nodes: int = _count("The most nodes of a pond that are looked at for one answer", 10_000)
    max_pipelines: int = _count("Pipelines that run in this process at once", 8)

    max_message: int = _size(
        "The most bytes of a message that is read from a stream, for the origin of a row", 8 * _MEBIBYTE
    )

    group_appends: int = _count("The most appends that one commit takes", 256)
    max_appends: int = _count("Appends to a lake that wait; further ones are answered with 429", 4_096)
    group_seconds: float = _seconds(
        "The time that a commit waits for others to join, once two or more have come", 0.002, minimum=0
    )
    append_seconds: float = _seconds("The time after which an append that was not committed is answered with 503", 60.0)
    keep_keys: float = _seconds("The time for which idempotency keys are remembered", 86_400.0)

    rate: float = setting("float", "Requests a second of one principal, on average; 0 for no limit", 0.0, minimum=0)
    burst: int = _count("Requests that a principal may make at once before `rate` holds", 100)
    max_jobs: int = _count("Jobs of a principal that are remembered, running or done", 100)
    job_lease_seconds: float = _seconds(
        "The time after which a job is shown as lost when its process has not been heard of", 30.0
    )
    max_consumers: int = _count("Consumers of changes that a principal may have", 1_000)
    max_listeners: int = _count("Open streams of events and waiting polls", 256)
    poll_seconds: float = _seconds(
        "The time between two looks at the catalog for commits and jobs of other processes", 0.5
    )
    shutdown_seconds: float = _seconds("The time that requests have to end when the service stops", 30.0)

    def __post_init__(self) -> None:
        check_table(self)
        if self.prefix and (not self.prefix.startswith("/") or self.prefix.endswith("/")):
            raise ConfigError(f"the prefix {self.prefix!r} must begin with / and not end with it")
        if "*" in self.cors_origins:
            raise ConfigError("every origin may not call the service", hint="name the origins")

    def safety(self, *, read_only: bool) -> Safety:
        """Return the limits of a session for statements."""
        from quacklake import Safety  # takes longer than all that a service does before it listens

        return Safety.server(
            read_only=read_only,
            timeout=self.statement_seconds,
            max_rows=self.max_rows,
            max_bytes=self.max_bytes,
            max_memory=self.max_memory,
            max_spill=self.max_spill,
            threads=self.threads,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeSettings(ServiceSettings):
    """The settings of ``quacklake serve``: those of the service, and who gets in where."""

    tokens: str | None = _text("A file with lines of a role (reader, writer, admin) and a token", "--tokens", "FILE")
    users: bool = setting("bool", "Let in the users of the lake, by tokens of lake.access", False, option="--users")
    oidc_issuer: str | None = _text("The provider whose tokens also let users in; with --users", "--oidc-issuer", "URL")
    oidc_audience: str | None = _text("The audience of its tokens", "--oidc-audience", "NAME")
    oidc_keys: str | None = _text("Its keys: a JWKS", "--oidc-keys", "URL|FILE")
    oidc_claim: str | None = _text("The claim that names the user, by default sub", "--oidc-claim", "NAME")
    anonymous: str | None = setting(
        "text",
        "The role of requests without a token, on this machine only",
        choices=("reader", "writer", "admin"),
        option="--anonymous",
        metavar="ROLE",
    )
    flight_port: int | None = _port("Also serve Flight SQL on a port; 0 for any", None, "--flight")
    tls_certificate: str | None = _text("A certificate, for https", "--tls-certificate", "FILE")
    tls_key: str | None = _text("The key of the certificate", "--tls-key", "FILE")
    tenants: bool = setting("bool", "Serve every catalog of a shared lake to its users", False, option="--tenants")
    operators: str | None = _text(
        "A file of tokens that manage the tenants; one is made without it", "--operators", "FILE"
    )

    def __post_init__(self) -> None:
        ServiceSettings.__post_init__(self)
        provider = (self.oidc_issuer, self.oidc_audience, self.oidc_keys)
        if None in provider and (any(provider) or self.oidc_claim is not None):
            raise ConfigError("pass --oidc-issuer, --oidc-audience and --oidc-keys, or none of them")
        if (self.tls_certificate is None) != (self.tls_key is None):
            raise ConfigError("pass both --tls-certificate and --tls-key, or neither")
        if (self.users or self.tenants) and (self.tokens is not None or self.anonymous is not None):
            raise ConfigError("pass --users, or --tokens and --anonymous")
        if self.oidc_issuer is not None and not (self.users or self.tenants):
            raise ConfigError("tokens of a provider are for --users", hint="the lake says what each user may do")
        if self.operators is not None and not self.tenants:
            raise ConfigError("operators manage tenants", hint="pass --tenants, too")
        if self.tenants and self.users:
            raise ConfigError(
                "--tenants goes without --users", hint="it lets in the users of every catalog of a shared lake"
            )


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
