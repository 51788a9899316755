"""Run a service in this process until it is told to stop."""

from __future__ import annotations

import secrets
import signal
import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import uvicorn
from fastapi import FastAPI

from quacklake.errors import ConfigError
from quacklake.service.protocol import bounded_protocol
from quacklake.service.settings import ServiceSettings, is_loopback

__all__ = ["BackgroundService", "Tls", "check_place", "new_token", "serve"]

_BACKLOG = 2_048


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


class _Server(uvicorn.Server):
    """A server that says when it is ready, and that ends without passing signals on."""

    def __init__(self, config: uvicorn.Config, ready: Callable[[], None]) -> None:
        super().__init__(config)
        self._ready = ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if not self.should_exit:
            self._ready()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self.config.app.state.service.stop()  # type: ignore[union-attr]  # it is an application, not its name
        await super().shutdown(sockets)

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {each: signal.signal(each, self.handle_exit) for each in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for each, handler in before.items():
                signal.signal(each, handler)


def _config(app: FastAPI, settings: ServiceSettings, tls: Tls | None) -> uvicorn.Config:
    files: dict[str, Any] = {} if tls is None else {"ssl_certfile": tls.certificate, "ssl_keyfile": tls.key}
    return uvicorn.Config(
        app,
        host=settings.host,
        port=settings.port,
        log_config=None,
        log_level="warning",
        access_log=False,
        server_header=False,
        proxy_headers=False,
        lifespan="on",
        http=bounded_protocol(settings),
        ws="none",
        backlog=_BACKLOG,
        timeout_keep_alive=max(1, round(settings.idle_seconds)),
        limit_concurrency=settings.max_connections,
        timeout_graceful_shutdown=max(1, round(settings.shutdown_seconds)),
        **files,
    )


def _listen(settings: ServiceSettings) -> socket.socket:
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((settings.host, settings.port))
        listening.listen(_BACKLOG)
    except (OSError, OverflowError) as error:
        listening.close()
        why = getattr(error, "strerror", None) or error
        raise ConfigError(
            f"cannot listen on {settings.host}:{settings.port}: {why}", hint="choose another port"
        ) from None
    return listening


def _url(listening: socket.socket, settings: ServiceSettings, tls: Tls | None) -> str:
    host = f"[{settings.host}]" if ":" in settings.host else settings.host
    port = listening.getsockname()[1]
    return f"{'http' if tls is None else 'https'}://{host}:{port}{settings.prefix}"


def serve(app: FastAPI, settings: ServiceSettings, ready: Callable[[str], None], *, tls: Tls | None = None) -> None:
    """Serve until SIGTERM or Ctrl-C: then requests under way end, and what was acknowledged is committed.

    ``ready`` is called with the URL once requests are taken. Raises ``ConfigError`` when the address is in use.
    """
    listening = _listen(settings)
    url = _url(listening, settings, tls)
    server = _Server(_config(app, settings, tls), lambda: ready(url))
    try:
        server.run(sockets=[listening])
    finally:
        listening.close()


class BackgroundService:
    """A service in a thread of this process: for tests, notebooks and programs that embed one.

    ``with BackgroundService(app, settings) as url: …``
    """

    def __init__(self, app: FastAPI, settings: ServiceSettings | None = None, *, tls: Tls | None = None) -> None:
        self._settings = settings or ServiceSettings(port=0)
        self._listening = _listen(self._settings)
        self.url = _url(self._listening, self._settings, tls)
        self._started = threading.Event()
        self._server = _Server(_config(app, self._settings, tls), self._started.set)
        self._thread = threading.Thread(target=self._run, name="quacklake-service", daemon=True)

    def _run(self) -> None:
        try:
            self._server.run(sockets=[self._listening])
        finally:
            self._started.set()

    def __enter__(self) -> str:
        self._thread.start()
        self._started.wait()
        return self.url

    def __exit__(self, *_: object) -> None:
        self._server.should_exit = True
        self._thread.join()
        self._listening.close()


def roles_of(lines: Sequence[str]) -> dict[str, Any]:
    """Return the tokens of a file with lines ``role token``; empty lines and lines after # are left out."""
    from quacklake.service.identity import Role

    found: dict[str, Any] = {}
    for number, line in enumerate(lines, 1):
        words = line.partition("#")[0].split()
        if not words:
            continue
        if len(words) != 2 or words[0].upper() not in Role.__members__:
            raise ConfigError(f"line {number} of the token file is not a role and a token", hint="reader ql_…")
        found[words[1]] = Role[words[0].upper()]
    return found
