"""The shell around every request: its id, its limits, the headers of its answer, and its place in figures and log."""

from __future__ import annotations

import asyncio
import logging
import re
import time
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from quacklake import telemetry
from quacklake.errors import InputError, QuacklakeError, ResultTooLargeError
from quacklake.extend.names import uuid7
from quacklake.service.metrics import Requests, route_of
from quacklake.service.paths import shown_path
from quacklake.service.problems import StalledError, problem, unexpected
from quacklake.service.settings import ServiceSettings

if TYPE_CHECKING:
    from quacklake.service.tracing import Tracing

__all__ = ["Shell"]

_log = logging.getLogger("quacklake.service")
_REQUEST_ID = re.compile(rb"[A-Za-z0-9._-]{1,64}")
_HEADERS = [
    (b"x-content-type-options", b"nosniff"),
    (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'; base-uri 'none'"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"x-frame-options", b"DENY"),
]
_SECURE = (b"strict-transport-security", b"max-age=31536000")


class Shell:
    """Wraps an application."""

    def __init__(
        self, app: ASGIApp, settings: ServiceSettings, requests: Requests, tracing: Tracing | None = None
    ) -> None:
        self._app = app
        self._settings = settings
        self._requests = requests
        self._tracing = tracing

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        id_ = _request_id(scope)
        scope["request_id"] = id_
        began, status = time.perf_counter(), 0

        def told() -> dict[str, Any]:
            """Return what is known of the request: never the query or a header, since either may hold a secret."""
            principal = scope.get("principal")
            return {"request_id": id_, "principal": principal, "route": route_of(scope), "status": status}

        async def answer(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [*message.get("headers", ()), *_missing_headers(scope, id_, message)]
            await send(message)

        try:
            with self._requests.open(), nullcontext() if self._tracing is None else self._tracing.request(scope, told):
                await self._app(scope, _LimitedBody(receive, scope, self._settings), answer)
        except QuacklakeError as error:
            if status:
                raise
            await problem(error, id_)(scope, receive, answer)
        except Exception as error:
            if status:
                raise
            await unexpected(error, id_)(scope, receive, answer)
        finally:
            seconds = time.perf_counter() - began
            self._requests.done(scope, status, seconds)
            telemetry.count("service.requests")
            if _log.isEnabledFor(logging.INFO):
                method, path = scope["method"], shown_path(scope)[:200]
                more = {**told(), "method": method, "path": path, "ms": round(seconds * 1e3, 2)}
                _log.info("%s %s %d", method, path, status, extra=more)


def _request_id(scope: Scope) -> str:
    for name, value in scope["headers"]:
        if name == b"x-request-id" and _REQUEST_ID.fullmatch(value):
            return str(value.decode())
    return uuid7().hex


def _missing_headers(scope: Scope, id_: str, message: Message) -> list[tuple[bytes, bytes]]:
    known = {name for name, _ in message.get("headers", ())}
    added = [*((name, value) for name, value in _HEADERS if name not in known), (b"x-request-id", id_.encode())]
    if scope.get("scheme") == "https":
        added.append(_SECURE)
    if b"cache-control" not in known:
        added.append((b"cache-control", b"no-store"))
    return added


class _LimitedBody:
    """Receives a request, and no more of it than the settings allow."""

    def __init__(self, receive: Receive, scope: Scope, settings: ServiceSettings) -> None:
        self._receive = receive
        self._limit = settings.max_body
        self._seconds = settings.body_seconds
        self._until = time.monotonic() + settings.body_seconds
        self._read = 0
        self._ended = False
        length = dict(scope["headers"]).get(b"content-length", b"0")
        self._announced = int(length) if length.isdigit() else 0

    async def __call__(self) -> Message:
        if self._ended:
            return await self._receive()
        if self._announced > self._limit:
            raise self._too_large()
        try:
            async with asyncio.timeout(max(self._until - time.monotonic(), 0)):
                message: Any = await self._receive()
        except TimeoutError:
            raise StalledError(f"the request did not arrive in {self._seconds:.0f} seconds") from None
        if message["type"] == "http.disconnect":
            raise InputError("the request ended early")
        self._read += len(message.get("body", b""))
        self._ended = not message.get("more_body", False)
        if self._read > self._limit:
            raise self._too_large()
        return dict(message)

    def _too_large(self) -> ResultTooLargeError:
        return ResultTooLargeError(f"the request has more than {self._limit} bytes", hint="send it in parts")
