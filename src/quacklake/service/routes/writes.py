"""Appends and merges. A request with an Idempotency-Key may be sent again: its rows are added once."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Annotated, Any

from fastapi import APIRouter, Header, Query, Request
from pydantic import BaseModel, Field
from starlette.types import Scope

from quacklake.errors import InputError
from quacklake.service.appends import Append, late
from quacklake.service.bodies import BODY_FORMATS, body_format, rows_of, unpacked
from quacklake.service.commits import commit_once
from quacklake.service.encoding import JSON, NDJSON
from quacklake.service.idempotency import key_of
from quacklake.service.identity import Identity, Role
from quacklake.service.state import Service, service_of
from quacklake.service.values import LakeName, TableName

__all__ = ["appended", "router"]

router = APIRouter(tags=["writes"])

IdempotencyKey = Annotated[
    str | None,
    Header(
        alias="Idempotency-Key",
        description="A text of at most 255 characters that is new for each request; a retry has the same.",
    ),
]
_SMALL = 1 << 16
"""Bytes of a body whose key is made at once; a thread costs more."""
_LARGE = 1 << 18
"""Bytes of a body that is read before it waits for its commit."""
_EXAMPLE = [{"id": 5001, "day": "2026-07-01", "product": 2, "quantity": 4}]
_BODY: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "description": "Rows. Text is read with the types of the table.",
        "content": {
            JSON: {"schema": {"type": "array", "items": {"type": "object"}}, "example": _EXAMPLE},
            **{
                format: {"schema": {"type": "string", "format": "binary"}}
                for format in BODY_FORMATS
                if format not in (JSON, NDJSON)
            },
            NDJSON: {"schema": {"type": "string"}},
        },
    }
}


class Written(BaseModel):
    """The rows and the snapshot of an append."""

    rows: Annotated[int, Field(description="The rows of this request.")]
    snapshot: Annotated[int, Field(description="The snapshot that has them.")]
    repeated: Annotated[bool, Field(description="True when an earlier request with the same key did it.")] = False


class Merged(BaseModel):
    """The changes and the snapshot of a merge."""

    inserted: int
    updated: int
    snapshot: int
    repeated: bool = False


@router.post(
    "/tables/{table:part}/rows", summary="Append rows", operation_id="append_rows", status_code=201, openapi_extra=_BODY
)
async def append_rows(
    request: Request, table: TableName, idempotency_key: IdempotencyKey = None, lake: LakeName = None
) -> Written:
    """Add rows to a table. The answer comes when they are committed; appends that come at once share a snapshot."""
    header = request.headers.get
    return Written(**await appended(service_of(request), request.scope, header, table, lake, request.body))


async def appended(
    service: Service,
    scope: Scope,
    header: Callable[[str], str | None],
    table: str,
    lake: str | None,
    read: Callable[[], Awaitable[bytes]],
) -> dict[str, Any]:
    """Add the rows of a request to a table, and return its answer once they are committed.

    The body is read when the token was found to be right: nobody else takes memory for one.
    """
    settings = service.settings
    identity = await service.enter_by(scope, header("authorization"), lake, Role.WRITER)
    body = await read()
    future: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()

    def begin() -> Append:
        format = body_format(header("content-type"))
        plain = unpacked(body, header("content-encoding"), settings.max_body)
        key = key_of(header("idempotency-key"), identity.user, "append", table, format=format, body=plain)
        append = Append(table, plain, format, key, future)
        if len(plain) > _LARGE:  # others need not wait while it is read
            append.rows(identity.lake.table(table).info.schema, settings)
        return append

    small = len(body) <= _SMALL and header("content-encoding") is None
    append = begin() if small else await service.run(begin)
    service.appends.submit(identity.lake, append)
    try:
        async with asyncio.timeout(settings.append_seconds):
            return await future
    except TimeoutError:
        raise late() from None


@router.post("/tables/{table:part}/merge", summary="Merge rows", operation_id="merge_rows", openapi_extra=_BODY)
async def merge_rows(
    request: Request,
    table: TableName,
    on: Annotated[
        list[str] | None, Query(max_length=100, description="The key columns; by default the primary key.")
    ] = None,
    idempotency_key: IdempotencyKey = None,
    lake: LakeName = None,
) -> Merged:
    """Update the rows whose keys are in the body, and insert the others, in one snapshot."""
    service = service_of(request)
    identity = await service.enter(request, Role.WRITER)
    body = await request.body()

    def work() -> dict[str, Any]:
        return _merge(request, identity, table, on, idempotency_key, body)

    async with service.turn():
        return Merged(**await service.run(work))


def _merge(
    request: Request, identity: Identity, table: str, on: list[str] | None, header: str | None, body: bytes
) -> dict[str, Any]:
    settings = service_of(request).settings
    format = body_format(request.headers.get("content-type"))
    plain = unpacked(body, request.headers.get("content-encoding"), settings.max_body)
    key = key_of(header, identity.user, f"merge {on}", table, format=format, body=plain)
    if on is not None and not all(on):
        raise InputError("a key column has no name")

    def merge(opened: Any) -> dict[str, Any]:
        target = opened.table(table)
        result = target.merge(rows_of(plain, format, target.info.schema, settings), on)
        return {"inserted": result.inserted, "updated": result.updated}

    return commit_once(identity.lake, key, merge)
