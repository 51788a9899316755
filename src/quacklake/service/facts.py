"""Answers with facts of one snapshot, which is their tag: a client that has them hears so."""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any

from fastapi import Query, Request
from fastapi.responses import Response

from quacklake.errors import InputError, NotPermittedError
from quacklake.service.encoding import JSON, compressed
from quacklake.service.identity import Identity, Role
from quacklake.service.state import Service, service_of
from quacklake.service.values import resolved_version

if TYPE_CHECKING:
    from quacklake.core.format.objects import TableInfo
    from quacklake.core.transaction import Transaction
    from quacklake.lake import Lake, LakeAt

__all__ = ["FACTS", "LIMIT", "NOT_CHANGED", "SNAPSHOT", "answer_facts", "etag", "known", "page_size", "read_whole"]

SNAPSHOT = "X-Quacklake-Snapshot"
LIMIT = Annotated[int | None, Query(ge=1, le=100_000, description="The most entries of the page.")]
CURSOR = Annotated[str | None, Query(max_length=2_000, description="`next` of the page before.")]
NOT_CHANGED: dict[str, Any] = {"description": "The snapshot is the one that If-None-Match names"}
FACTS: dict[int | str, dict[str, Any]] = {
    200: {"description": "Facts of one snapshot", "content": {JSON: {"schema": {"type": "object"}}}},
    304: NOT_CHANGED,
}
Facts = Callable[[Identity, "LakeAt", int], dict[str, Any]]


async def answer_facts(
    request: Request,
    facts: Facts,
    version: int | None = None,
    timestamp: str | None = None,
    *,
    role: Role = Role.READER,
    expiring: bool = False,
    more: str = "",
) -> Response:
    """Answer with facts of one snapshot, or with 304 if the client has them and has at least the role.

    ``expiring`` facts tell of other snapshots, too, which expire without a new one. ``more`` is what the facts depend
    on besides: another text is another tag.
    """
    service = service_of(request)
    identity = await service.enter(request, role)

    def work() -> Response:
        at = resolved_version(identity.lake, version, timestamp)
        snapshot = identity.lake.current_snapshot() if at is None else at
        tag = etag(request, identity, snapshot, more + (_name_history(identity) if expiring else ""))
        headers = {"ETag": tag, "Cache-Control": "private, no-cache", SNAPSHOT: str(snapshot)}
        if known(request, identity, tag):
            return Response(status_code=304, headers=headers)
        # also the newest is read as a past one: all of an answer is of one snapshot
        found = {"snapshot": snapshot, **facts(identity, identity.lake.at(version=snapshot), snapshot)}
        text = json.dumps(found, default=str, ensure_ascii=False).encode()
        pieces, codec = compressed(iter([text]), request.headers.get("accept-encoding"))
        if codec is not None:
            headers |= {"Content-Encoding": codec}
        return Response(
            b"".join(map(bytes, pieces)), headers={**headers, "Vary": "Accept-Encoding, Authorization"}, media_type=JSON
        )

    async with service.turn():
        return await service.run(work)


def _name_history(identity: Identity) -> str:
    """Return a text that is another one when snapshots have expired: none comes back, so their number tells."""
    with identity.lake.handle.context.catalog.read() as reader:
        return str(reader.snapshots.count())


def etag(request: Request, identity: Identity, snapshot: int, more: str = "") -> str:
    """Return the tag of an answer: a snapshot never changes, and each principal may see something else of it.

    It names the path, so that the tag of one answer says nothing about another.
    """
    context = identity.lake.handle.context
    who = (identity.key, identity.role.name, str(context.catalog.url), str(identity.lake.catalog))
    parts = (*who, request.url.path, str(request.url.query), more)
    return f'"{snapshot}-{hashlib.sha256(chr(0).join(parts).encode()).hexdigest()[:16]}"'


def known(request: Request, identity: Identity, tag: str) -> bool:
    """Return whether If-None-Match has a tag. What a restricted principal may see changes without a snapshot."""
    if identity.lake.handle.restricted:
        return False
    return tag in {part.strip().removeprefix("W/") for part in request.headers.get("if-none-match", "").split(",")}


def page_size(service: Service, limit: int | None) -> int:
    """Return the most entries of a page."""
    return min(limit or service.settings.page_rows, service.settings.max_page_rows)


def cursor_of(position: Any) -> str:
    """Return a position as a cursor."""
    return base64.urlsafe_b64encode(json.dumps(position, ensure_ascii=False).encode()).decode()


def position_of(cursor: str) -> Any:
    """Return the position of a cursor. Raise ``InputError`` for what is none."""
    try:
        return json.loads(base64.urlsafe_b64decode(cursor.encode()))
    except (ValueError, TypeError, binascii.Error, RecursionError):
        raise not_a_cursor() from None


def not_a_cursor() -> InputError:
    """Return the error for a cursor that this service has not made."""
    return InputError("the cursor is not one of this service", hint="use `next` of the page before")


def read_whole(view: Transaction, table: TableInfo, what: str) -> None:
    """Raise ``NotPermittedError`` unless the principal may read all of a table: ``what`` tells of all its rows."""
    if view.visible(table) is not None:
        raise NotPermittedError(
            f"{what} of {table.qualified_name} may not be read, because some of its rows or columns are hidden"
        )


def whole_lake(identity: Identity) -> Lake:
    """Return the lake of an identity. Raise ``NotPermittedError`` for a principal that may not see everything."""
    identity.lake.handle.check_whole("this part of the service")
    return identity.lake
