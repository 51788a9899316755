"""How to reach an object store: endpoint and credentials."""

from __future__ import annotations

from dataclasses import dataclass, field

from quacklake.errors import ConfigError

__all__ = ["S3Options"]


@dataclass(frozen=True, slots=True)
class S3Options:
    """Where an S3 server is and how to sign in; keys never show in ``repr``.

    Without ``access_key`` the usual AWS chain is asked (environment, profile, instance role). ``endpoint`` is
    ``host:port`` or an ``http(s)://`` address; an address decides ``secure`` itself. ``path_style`` puts the
    bucket into the path, which is what servers other than AWS expect; it has no effect without an endpoint.
    ``scoped`` keys are for this store alone: others in the same bucket, or in the same process, have their own.
    Raises ``ConfigError`` when only one half of a key pair is given or the endpoint is no address.
    """

    endpoint: str | None = None
    access_key: str | None = field(default=None, repr=False)
    secret_key: str | None = field(default=None, repr=False)
    session_token: str | None = field(default=None, repr=False)
    region: str | None = None
    secure: bool = True
    path_style: bool = True
    scoped: bool = False

    def __post_init__(self) -> None:
        if (self.access_key is None) != (self.secret_key is None):
            raise ConfigError(
                "an S3 key pair needs both halves",
                hint="give access_key and secret_key together, or neither to use the environment's credentials",
            )
        if self.endpoint is None:
            return
        scheme, separator, host = self.endpoint.rpartition("://")
        host = host.rstrip("/")
        if scheme not in ("", "http", "https") or not host or "@" in host or "/" in host:
            raise ConfigError(
                "the S3 endpoint is not of the form host:port or http(s)://host:port",
                hint="credentials do not belong in it: use access_key and secret_key",
            )
        object.__setattr__(self, "endpoint", host)
        if separator:
            object.__setattr__(self, "secure", scheme == "https")

    @property
    def secrets(self) -> tuple[str, ...]:
        """The values that must never appear in a message."""
        return tuple(value for value in (self.secret_key, self.session_token) if value)
