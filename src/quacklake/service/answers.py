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
from quacklake.service.encoding import Rows, compressed, encoded

__all__ = ["Departure", "RowAnswer", "awaited"]

_log = logging.getLogger("quacklake.service")
T = TypeVar("T")


class Departure:
    """Notices that the client of a request has gone, and then calls ``gone`` once, if that is set."""

    def __init__(self, request: Request) -> None:
        self.happened = False
        self.gone: Callable[[], object] | None = None
        self._task = asyncio.create_task(self._watch(request))

    async def _watch(self, request: Request) -> None:
        while (await request.receive())["type"] != "http.disconnect":
            pass
        self.happened = True
        if self.gone is not None:
            await asyncio.to_thread(self.gone)

    async def unless(self, waiting: Awaitable[T]) -> T:
        """Return what is awaited. Raises ``CancelledError`` when the client goes first."""
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
        self._pieces: Iterator[bytes] = encoded(rows, format)
        self._done = done
        self._departure = departure
        self._accept_encoding = accept_encoding
        self._seconds = seconds
        self._first: bytes | None = None

    async def begin(self) -> RowAnswer:
        """Make the first piece, so that what fails early is answered as a problem."""

        def work() -> tuple[Iterator[bytes], str | None, bytes | None]:
            pieces, codec = compressed(self._pieces, self._accept_encoding)
            return pieces, codec, next(pieces, None)

        try:
            self._pieces, codec, self._first = await awaited(self._executor, work)
        except BaseException:
            await self._end()
            raise
        if codec is not None:
            self.headers["content-encoding"] = codec
        self.headers["vary"] = "Accept, Accept-Encoding, Authorization"
        return self

    async def _end(self) -> None:
        if self._departure is not None:
            await self._departure.end()
        await awaited(self._executor, self._done)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
            piece = self._first
            while piece is not None and not (self._departure is not None and self._departure.happened):
                following = asyncio.ensure_future(awaited(self._executor, next, self._pieces, None))
                try:
                    async with asyncio.timeout(self._seconds):
                        await send({"type": "http.response.body", "body": piece, "more_body": True})
                finally:
                    piece = await following
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        except TimeoutError:
            _log.info("request %s: the client stopped reading", scope.get("request_id"))
        except QuacklakeError as error:
            # the status is sent: an answer that breaks off is all that is left to say
            _log.warning("request %s failed while it was answered: %s", scope.get("request_id"), error.code)
        finally:
            await self._end()
