"""Run a service in this process until it is told to stop."""

from __future__ import annotations

import signal
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import uvicorn
from fastapi import FastAPI

from quacklake.service.listening import BACKLOG, Tls, listen, url_of
from quacklake.service.protocol import bounded_protocol
from quacklake.service.settings import ServiceSettings

__all__ = ["BackgroundService", "serve"]


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
        backlog=BACKLOG,
        timeout_keep_alive=max(1, round(settings.idle_seconds)),
        limit_concurrency=settings.max_connections,
        timeout_graceful_shutdown=max(1, round(settings.shutdown_seconds)),
        **files,
    )


def serve(
    app: FastAPI,
    settings: ServiceSettings,
    listening: socket.socket,
    ready: Callable[[], None],
    *,
    tls: Tls | None = None,
) -> None:
    """Serve until SIGTERM or Ctrl-C: then requests under way end, and what was acknowledged is committed.

    ``ready`` is called once requests are taken. The socket is closed in the end.
    """
    server = _Server(_config(app, settings, tls), ready)
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
        self._listening = listen(self._settings)
        self.url = url_of(self._listening, self._settings, tls)
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
