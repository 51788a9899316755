"""Changes of snapshots, the difference of two, and names for snapshots."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Path, Query, Request
from fastapi.responses import Response
from pydantic import BaseModel, ConfigDict, Field

from quacklake.service.differences import before, difference
from quacklake.service.facts import FACTS, LIMIT, answer_facts, page_size, whole_lake
from quacklake.service.identity import Identity, Role
from quacklake.service.row_differences import row_differences
from quacklake.service.state import service_of
from quacklake.service.values import MAX_VALUE, LakeName, TableName

router = APIRouter(tags=["snapshots"])

SnapshotId = Annotated[int, Path(ge=0, le=MAX_VALUE)]
TagName = Annotated[str, Path(max_length=200)]


@router.get(
    "/snapshots/{id}/changes", summary="Look at what a snapshot changed", operation_id="snapshot_changes",
    responses=FACTS,
)  # fmt: skip
async def snapshot_changes(request: Request, id: SnapshotId, lake: LakeName = None) -> Response:
    """Return the tables that a snapshot created, altered and dropped, and the numbers of rows that it changed."""

    def facts(identity: Identity, _: Any, __: int) -> dict[str, Any]:
        return difference(service_of(request), identity, before(identity.lake, id), id)

    return await answer_facts(request, facts, id)


@router.get("/diff", summary="Compare two snapshots", operation_id="compare_snapshots", responses=FACTS)
async def compare_snapshots(
    request: Request,
    from_: Annotated[int, Query(alias="from", ge=0, le=MAX_VALUE, description="The earlier snapshot.")],
    to: Annotated[int | None, Query(ge=0, le=MAX_VALUE, description="The later snapshot (the newest).")] = None,
    lake: LakeName = None,
) -> Response:
    """Return what was created, altered and dropped after one snapshot up to another, and how many rows changed.

    A row that was changed several times counts each time. `complete` is false where rows of some tables were not
    counted, because that would take too long: their `rows` is null.
    """

    def facts(identity: Identity, _: Any, newest: int) -> dict[str, Any]:
        return difference(service_of(request), identity, from_, newest)

    return await answer_facts(request, facts, to)


@router.get("/tables/{table}/diff", summary="Compare a table with itself", operation_id="compare_rows", responses=FACTS)
async def compare_rows(
    request: Request,
    table: TableName,
    from_: Annotated[int, Query(alias="from", ge=0, le=MAX_VALUE, description="The earlier snapshot.")],
    to: Annotated[int | None, Query(ge=0, le=MAX_VALUE, description="The later snapshot (the newest).")] = None,
    limit: LIMIT = None,
    after: Annotated[int, Query(ge=0, le=MAX_VALUE, description="`next` of the page before.")] = 0,
    lake: LakeName = None,
) -> Response:
    """Return the columns and rows of a table that differ between two snapshots, and how many there are of each kind.

    A row is known by `key`, the primary key, or by its row id in a table without one. One that was changed several
    times is told once, as it was `before` and as it is `after`. Values are texts.
    """

    def facts(identity: Identity, _: Any, newest: int) -> dict[str, Any]:
        service = service_of(request)
        return row_differences(service, identity, table, from_, newest, after, page_size(service, limit))

    return await answer_facts(request, facts, to)


class NewTag(BaseModel):
    """A name for a snapshot."""

    model_config = ConfigDict(
        extra="forbid", json_schema_extra={"example": {"name": "before-the-move", "version": 3, "replace": False}}
    )

    name: Annotated[str, Field(max_length=200)]
    version: Annotated[int | None, Field(ge=0, le=MAX_VALUE, description="The snapshot (the newest).")] = None
    replace: Annotated[bool, Field(description="Move a tag that exists.")] = False


class Tagged(BaseModel):
    """A tag and its snapshot."""

    tag: str
    snapshot: int


@router.get("/tags", summary="List the tags", operation_id="list_tags")
async def list_tags(request: Request, lake: LakeName = None) -> dict[str, list[dict[str, Any]]]:
    """Return every tag with its snapshot and the time it was set."""
    service = service_of(request)
    identity = await service.enter(request)
    found = await service.run(lambda: whole_lake(identity).history.tags().to_pylist())
    return {"tags": found}


@router.post("/tags", summary="Tag a snapshot", operation_id="tag_snapshot", status_code=201)
async def tag_snapshot(request: Request, body: NewTag, lake: LakeName = None) -> Tagged:
    """Give a snapshot a name. It does not expire as long as it has one. This needs the role admin."""
    service = service_of(request)
    identity = await service.enter(request, Role.ADMIN)
    snapshot = await service.run(identity.lake.tag, body.name, body.version, replace=body.replace)
    return Tagged(tag=body.name, snapshot=snapshot)


@router.delete("/tags/{name:part}", summary="Remove a tag", operation_id="untag_snapshot", status_code=204)
async def untag_snapshot(request: Request, name: TagName, lake: LakeName = None) -> None:
    """Remove a tag; its snapshot stays, and can expire. This needs the role admin."""
    service = service_of(request)
    identity = await service.enter(request, Role.ADMIN)
    await service.run(identity.lake.history.untag, name)
