"""Addresses of NATS servers, and the credentials that they ask for."""

from __future__ import annotations

import base64
import socket
import ssl
from dataclasses import dataclass, field
from typing import NamedTuple
from urllib.parse import unquote, urlsplit

from quacklake.errors import ConfigError, MissingExtraError

_PORT = 4222


@dataclass(frozen=True)
class NatsCredentials:
    """The proofs of who a client is. What is None is not sent; secrets are never shown."""

    user: str | None = field(default=None, repr=False)
    password: str | None = field(default=None, repr=False)
    token: str | None = field(default=None, repr=False)
    nkey_seed: str | None = field(default=None, repr=False)
    ca_file: str | None = None
    cert_file: str | None = None
    key_file: str | None = None

    def tls_context(self) -> ssl.SSLContext:
        """Return the context of an encrypted connection: the system's authorities, or ``ca_file``."""
        try:
            context = ssl.create_default_context(cafile=self.ca_file)
            if self.cert_file is not None:
                context.load_cert_chain(self.cert_file, self.key_file)
        except (OSError, ssl.SSLError) as error:
            raise ConfigError(f"the TLS files for NATS cannot be read: {error}") from error
        return context

    def encrypted(self, plain: socket.socket, host: str) -> ssl.SSLSocket:
        """Return a connection over TLS. Raise ``ConfigError`` when we do not trust the server."""
        try:
            return self.tls_context().wrap_socket(plain, server_hostname=host)
        except ssl.SSLCertVerificationError as error:
            raise ConfigError(
                f"the certificate of the NATS server {host} is not trusted: {error.verify_message}",
                hint="ca_file='…' names the authority that has signed it",
            ) from error

    def answer(self, nonce: str | None) -> dict[str, str]:
        """Return the fields of CONNECT that prove who we are."""
        said = {"user": self.user, "pass": self.password, "auth_token": self.token}
        if self.nkey_seed is not None:
            try:
                import nkeys
            except ImportError as error:
                raise MissingExtraError(
                    "an nkey needs the package nkeys", hint="pip install 'quacklake[nats]'"
                ) from error
            try:
                pair = nkeys.from_seed(self.nkey_seed.strip().encode())
                signature = base64.urlsafe_b64encode(pair.sign((nonce or "").encode())).rstrip(b"=")
                said |= {"nkey": pair.public_key.decode(), "sig": signature.decode()}
            except (nkeys.NkeysError, ValueError):
                raise ConfigError("the nkey_seed for NATS is not a seed", hint="it begins with SU") from None
        return {key: value for key, value in said.items() if value is not None}


class NatsAddress(NamedTuple):
    """The address of one server, and the user that it names."""

    host: str
    port: int
    tls: bool
    user: str | None
    password: str | None

    @classmethod
    def parse(cls, text: str) -> NatsAddress:
        """Return the address that a URL names. Raise ``ConfigError`` that shows no password."""
        parts = urlsplit(text if "://" in text else f"nats://{text}")
        try:
            port = parts.port or _PORT
        except ValueError as error:
            raise ConfigError(f"{parts.hostname!r} has a port that is not a number") from error
        if parts.scheme not in ("nats", "tls") or not parts.hostname:
            raise ConfigError(
                f"{_show_address(parts.scheme, parts.hostname)} is not a NATS address", hint="nats://host:4222"
            )
        user, password = (unquote(part) if part is not None else None for part in (parts.username, parts.password))
        return cls(parts.hostname, port, parts.scheme == "tls", user, password)

    def answer(self) -> dict[str, str]:
        """Return the fields of CONNECT that the URL gives: a user with a password, or a token alone."""
        if self.user is None:
            return {}
        return {"auth_token": self.user} if self.password is None else {"user": self.user, "pass": self.password}

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"

    def __repr__(self) -> str:
        return str(self)  # without the password


def _show_address(scheme: str, host: str | None) -> str:
    return repr(f"{scheme}://{host or ''}")
