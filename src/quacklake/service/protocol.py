"""HTTP as the service takes it from the wire: by httptools, with an end to how long and how slow a head may be."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any, TypeAlias

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from quacklake.service.settings import ServiceSettings

__all__ = ["ABORT", "WRITE", "Write", "bounded_protocol"]

ABORT = "quacklake.abort"
"""The extension of a scope that ends its connection at once: to close it waits for what the client does not read."""

WRITE = "quacklake.write"
"""The extension of a scope that sends buffers, with their size, as a part of a streamed body, without joining them."""
Write: TypeAlias = Callable[[Sequence[Any], int], Awaitable[None]]


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
        self._end_head()
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
        self._end_head()
        extensions: dict[str, Any] = {ABORT: self.transport.abort}
        self.scope["extensions"] = extensions
        super().on_headers_complete()
        if self.cycle is not None:
            extensions[WRITE] = partial(_write, self.cycle)

    def _expect(self) -> None:
        if self._late is None:
            self._late = self.loop.call_later(self.settings.body_seconds, self._too_late)

    def _end_head(self) -> None:
        self._head = None
        if self._late is not None:
            self._late.cancel()
            self._late = None

    def _too_late(self) -> None:
        self._late = None
        if not self.transport.is_closing():
            self.transport.close()


async def _write(cycle: RequestResponseCycle, buffers: Sequence[Any], size: int) -> None:
    """Send a chunk of a body as ``cycle.send`` does, which makes one more copy of it."""
    if not (cycle.chunked_encoding and cycle.response_started) or cycle.response_complete or not size:
        await cycle.send({"type": "http.response.body", "body": b"".join(buffers), "more_body": True})
        return
    if cycle.flow.write_paused and not cycle.disconnected:
        await cycle.flow.drain()
    if not cycle.disconnected:
        cycle.transport.writelines([b"%x\r\n" % size, *(memoryview(each) for each in buffers), b"\r\n"])


def bounded_protocol(settings: ServiceSettings) -> type[Any]:
    """Return the class of the connections of a service."""
    return type("BoundedProtocol", (_Bounded,), {"settings": settings})
