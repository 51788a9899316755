"""Take the place of a service and check who may come in, before anything that takes long is loaded."""

from __future__ import annotations

import secrets
import socket
from collections.abc import Sequence
from dataclasses import dataclass

from quacklake.errors import ConfigError
from quacklake.service.identity import Role
from quacklake.service.settings import ServiceSettings, is_loopback

__all__ = ["Tls", "check_place", "listen", "new_token", "roles_of", "url_of"]

BACKLOG = 2_048
"""Connections that wait to be taken."""


@dataclass(frozen=True, slots=True)
class Tls:
    """The files of a certificate and its key."""

    certificate: str
    key: str


def new_token() -> str:
    """Return a token that nobody can guess.

    >>> len(new_token())
    46
    """
    return f"ql_{secrets.token_urlsafe(32)}"


def check_place(host: str, *, authenticated: bool) -> None:
    """Raise ``ConfigError`` for a service without tokens that others could reach."""
    if not authenticated and not is_loopback(host):
        raise ConfigError(
            f"everybody who reaches {host} could use the lake", hint="give tokens, or listen on 127.0.0.1"
        )


def listen(settings: ServiceSettings) -> socket.socket:
    """Return a socket that takes connections, which wait for a server. Raise ``ConfigError`` when it is in use."""
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((settings.host, settings.port))
        listening.listen(BACKLOG)
    except (OSError, OverflowError) as error:
        listening.close()
        why = getattr(error, "strerror", None) or error
        raise ConfigError(
            f"cannot listen on {settings.host}:{settings.port}: {why}", hint="choose another port"
        ) from None
    return listening


def url_of(listening: socket.socket, settings: ServiceSettings, tls: Tls | None = None) -> str:
    """Return the address of a service."""
    host = f"[{settings.host}]" if ":" in settings.host else settings.host
    port = listening.getsockname()[1]
    return f"{'http' if tls is None else 'https'}://{host}:{port}{settings.prefix}"


def roles_of(lines: Sequence[str]) -> dict[str, Role]:
    """Return the tokens of a file with lines ``role token``; empty lines and lines after # are left out."""
    found: dict[str, Role] = {}
    for number, line in enumerate(lines, 1):
        words = line.partition("#")[0].split()
        if not words:
            continue
        if len(words) != 2 or words[0].upper() not in Role.__members__:
            raise ConfigError(f"line {number} of the token file is not a role and a token", hint="reader ql_…")
        found[words[1]] = Role[words[0].upper()]
    return found
