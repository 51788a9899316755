"""Appends past the framework: dispatch, validation and encoding by FastAPI cost more than all the rest of a small one.

Only requests of the plainest form come here. FastAPI has the route too: it describes it, and answers every other form,
with the same rows, keys and errors.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from starlette.types import Receive, Scope, Send

from quacklake.service.paths import part_of
from quacklake.service.routes.writes import appended
from quacklake.service.values import MAX_NAME

if TYPE_CHECKING:
    from quacklake.service.state import Service

__all__ = ["DirectAppends"]

_QUERY = re.compile(rb"(?:lake=([A-Za-z0-9_.-]{1,200}))?")


@dataclass(frozen=True, slots=True)
class _Route:
    """The route of appends as figures and traces call it, with what is before it."""

    path: str


class DirectAppends:
    """The ASGI application of ``POST …/tables/{table}/rows``."""

    def __init__(self, before: str) -> None:
        self._before = f"{before}/tables/"
        self._route = _Route(f"{before}/tables/{{table}}/rows")

    def takes(self, scope: Scope) -> bool:
        """Return whether a request is an append of the plainest form; remember its table and lake."""
        path: str = scope["path"]
        if scope["method"] != "POST" or not path.startswith(self._before) or not path.endswith("/rows"):
            return False
        table = path[len(self._before) : -len("/rows")]
        query = _QUERY.fullmatch(scope["query_string"])
        if not 0 < len(table) <= MAX_NAME or "/" in table or query is None:
            return False
        scope["route"] = self._route
        scope["append"] = part_of(table), None if query[1] is None else query[1].decode()
        return True

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        service: Service = scope["app"].state.service
        table, lake = scope["append"]
        headers: dict[bytes, bytes] = {}
        for name, value in scope["headers"]:
            headers.setdefault(name, value)

        def header(name: str) -> str | None:
            found = headers.get(name.encode())
            return None if found is None else found.decode("latin-1")

        async def read() -> bytes:
            message = await receive()
            body: bytes = message.get("body", b"")
            if message.get("more_body", False):
                pieces = [body]
                while message.get("more_body", False):
                    message = await receive()
                    pieces.append(message.get("body", b""))
                body = b"".join(pieces)
            return body

        answer = await appended(service, scope, header, table, lake, read)
        repeated = "true" if answer["repeated"] else "false"
        text = f'{{"rows":{answer["rows"]},"snapshot":{answer["snapshot"]},"repeated":{repeated}}}'.encode()
        given = [(b"content-type", b"application/json"), (b"content-length", str(len(text)).encode())]
        await send({"type": "http.response.start", "status": 201, "headers": given})
        await send({"type": "http.response.body", "body": text})
