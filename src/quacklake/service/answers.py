"""Answers of rows: streamed no faster than the client reads, and stopped when it goes away."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import logging
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import Executor
from functools import partial
from typing import Any, TypeVar

from fastapi import Request
from fastapi.responses import Response
from starlette.types import Receive, Scope, Send

from quacklake import telemetry
from quacklake.errors import CancelledError, QuacklakeError
from quacklake.service.encoding import Buffers, Piece, Rows, compressed, encoded
from quacklake.service.protocol import ABORT, WRITE, Write

__all__ = ["Departure", "RowAnswer", "awaited"]

_log = logging.getLogger("quacklake.service")
T = TypeVar("T")
_WHOLE = 1 << 16
"""Bytes of an answer below which it is made before it is sent, as one piece."""
_AGAIN = 0.05
"""Seconds between two tries to stop the work for a client that has gone."""


class Departure:
    """Notices that the client of a request has gone, and then calls ``gone`` until that returns True."""

    def __init__(self, request: Request) -> None:
        self.happened = False
        self.gone: Callable[[], bool] | None = None
        self._task = asyncio.create_task(self._watch(request))

    async def _watch(self, request: Request) -> None:
        while (await request.receive())["type"] != "http.disconnect":
            pass
        self.happened = True
        while self.gone is not None and not await asyncio.to_thread(self.gone):
            await asyncio.sleep(_AGAIN)  # the work has not begun, or is between two steps

    async def unless(self, waiting: Awaitable[T]) -> T:
        """Return what is awaited. Raise ``CancelledError`` when the client goes first."""
        task = asyncio.ensure_future(waiting)
        try:
            await asyncio.wait({task, self._task}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            if not task.done():
                task.cancel()
        if task.cancelled() or not task.done():
            raise CancelledError("the client has gone")
        return task.result()

    async def end(self) -> None:
        """Stop watching."""
        self._task.cancel()
        with contextlib.suppress(asyncio.CancelledError, Exception):
            await self._task


async def awaited(executor: Executor, work: Callable[..., T], *args: Any, **options: Any) -> T:
    """Run work in a thread and return its result. The thread always ends first: it holds what the work uses."""
    call = partial(work, *args, **options)
    if telemetry.is_traced():  # the spans of the thread are within that of the request
        call = partial(contextvars.copy_context().run, call)
    future = asyncio.get_running_loop().run_in_executor(executor, call)
    try:
        return await asyncio.shield(future)
    except asyncio.CancelledError:
        with contextlib.suppress(Exception):
            await future
        raise


class RowAnswer(Response):
    """Rows in a format. ``done`` is called in the end, whatever happened."""

    def __init__(
        self,
        executor: Executor,
        rows: Rows,
        format: str,
        *,
        done: Callable[[], object],
        departure: Departure | None = None,
        accept_encoding: str | None = None,
        headers: dict[str, str] | None = None,
        seconds: float = 60.0,
        status: int = 200,
    ) -> None:
        super().__init__(status_code=status, headers=headers, media_type=format)
        del self.headers["content-length"]
        self._executor = executor
        self._pieces: Iterator[Piece] = encoded(rows, format)
        self._done: Callable[[], object] | None = done
        self._departure = departure
        self._accept_encoding = accept_encoding
        self._seconds = seconds
        self._ready: list[Piece] = []
        self._write: Write | None = None
        self._whole = False

    def start(self) -> None:
        """Make the first pieces, so that what fails early is answered as a problem; call it in a thread.

        A small answer is made whole here, and nothing is held for it any longer. When this fails, ``done`` is called.
        """
        try:
            pieces, codec = compressed(self._pieces, self._accept_encoding)
            size = 0
            for piece in pieces:
                self._ready.append(piece)
                size += len(piece)
                if size >= _WHOLE:
                    break
            else:
                self._whole = True
                self._finish()
        except BaseException:
            self._finish()
            raise
        self._pieces = pieces
        if codec is not None:
            self.headers["content-encoding"] = codec
        self.headers["vary"] = "Accept, Accept-Encoding, Authorization"
        if self._whole:
            self._ready = [b"".join(map(bytes, self._ready))]
            self.headers["content-length"] = str(size)

    async def begin(self) -> RowAnswer:
        """Make the first pieces in a thread."""
        try:
            await awaited(self._executor, self.start)
        except BaseException:
            await self._end()
            raise
        return self

    def _finish(self) -> None:
        done, self._done = self._done, None
        if done is not None:
            done()

    async def _end(self) -> None:
        if self._departure is not None:
            await self._departure.end()
        if self._done is not None:
            await awaited(self._executor, self._finish)

    async def _send(self, send: Send, piece: Piece, *, more: bool) -> None:
        async with asyncio.timeout(self._seconds):
            if self._write is not None and isinstance(piece, Buffers):
                await self._write(piece.parts, piece.size)
            else:
                await send({"type": "http.response.body", "body": bytes(piece), "more_body": more})

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
            self._write = scope.get("extensions", {}).get(WRITE)
            if self._whole:
                await self._send(send, self._ready[0], more=False)
            else:
                await self._stream(send)
        except TimeoutError:
            _log.info("request %s: the client stopped reading", scope.get("request_id"))
            if (abort := scope.get("extensions", {}).get(ABORT)) is not None:
                abort()
        except QuacklakeError as error:
            # the status is sent: an answer that breaks off is all that is left to say
            facts = telemetry.error_facts(error, request_id=scope.get("request_id"))
            text = "request %s failed while it was answered: %s"
            _log.warning(text, scope.get("request_id"), error.code, extra=facts)
        finally:
            await self._end()

    async def _stream(self, send: Send) -> None:
        """Send the pieces; the next one is made while one is sent."""
        (*first, piece), self._ready = self._ready, []
        for each in first:
            await self._send(send, each, more=True)
        following: Piece | None = piece
        while following is not None and not (self._departure is not None and self._departure.happened):
            making = asyncio.ensure_future(awaited(self._executor, next, self._pieces, None))
            try:
                await self._send(send, following, more=True)
            finally:
                following = await making
        await self._send(send, b"", more=False)
