"""HTTP as the service takes it from the wire: by httptools, with an end to how long and how slow a head may be."""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from quacklake.service.settings import ServiceSettings

__all__ = ["ABORT", "bounded_protocol"]

ABORT = "quacklake.abort"
"""The extension of a scope that ends its connection at once: to close it waits for what the client does not read."""


class _Bounded(HttpToolsProtocol):
    """A connection that is closed when the head of a request is too long, or does not come in time.

    The parser keeps what it has of a head for as long as it takes, and nothing else looks at a connection without one.
    """

    settings: ServiceSettings

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._head: int | None = None
        self._late: asyncio.TimerHandle | None = None
        self._expect()

    def connection_lost(self, exc: Exception | None) -> None:
        self._arrived()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self._head is None:
            return  # a body, or the whole request
        self._head += len(data)
        if self._head > self.settings.max_head and not self.transport.is_closing():
            self.send_400_response("The head of the request is too long.")

    def on_message_begin(self) -> None:
        self._head = 0
        self._expect()
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        self._arrived()
        self.scope["extensions"] = {ABORT: self.transport.abort}  # type: ignore[dict-item]  # not one of ASGI's own
        super().on_headers_complete()

    def _expect(self) -> None:
        if self._late is None:
            self._late = self.loop.call_later(self.settings.body_seconds, self._too_late)

    def _arrived(self) -> None:
        self._head = None
        if self._late is not None:
            self._late.cancel()
            self._late = None

    def _too_late(self) -> None:
        self._late = None
        if not self.transport.is_closing():
            self.transport.close()


def bounded_protocol(settings: ServiceSettings) -> type[Any]:
    """Return the class of the connections of a service."""
    return type("BoundedProtocol", (_Bounded,), {"settings": settings})
