"""The origin of a row: its commit, its batch and its message."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Path, Request

from quacklake.service.origins import origin_of
from quacklake.service.state import service_of
from quacklake.service.values import MAX_VALUE, LakeName, TableName, Timestamp, Version, resolved_version

router = APIRouter(tags=["pipelines"])

RowId = Annotated[int, Path(ge=0, le=MAX_VALUE, description="The row id, as `rowid` in SQL.")]


@router.get("/tables/{table}/rows/{row}/origin", summary="Find the origin of a row", operation_id="find_origin")
async def find_origin(
    request: Request,
    table: TableName,
    row: RowId,
    version: Version = None,
    timestamp: Timestamp = None,
    lake: LakeName = None,
) -> dict[str, Any]:
    """Return the snapshot that made a row, and who committed it; of a row of a pipeline, its batch and its message.

    `sequence` is the number of the message on its NATS stream: exact, or null, with the range of the batch beside it.
    `message` is for the role admin, as long as the stream has it, with up to 64 KiB of its body. `why` says why it is
    missing.
    """
    service = service_of(request)
    identity = await service.enter(request)

    def work() -> dict[str, Any]:
        at = resolved_version(identity.lake, version, timestamp)
        snapshot = identity.lake.current_snapshot() if at is None else at
        return origin_of(service, identity, table, row, snapshot)

    async with service.turn():
        return await service.run(work)
