"""The tree of a pond, and series for pictures."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from fastapi.responses import Response

from quacklake.service import series
from quacklake.service.facts import FACTS, LIMIT, answer_facts, page_size
from quacklake.service.identity import Identity, Role
from quacklake.service.series import Window
from quacklake.service.state import service_of
from quacklake.service.values import LakeName, TableName, Timestamp, Version

router = APIRouter(tags=["pond"])

_TIME = "ISO form (UTC without an offset), or milliseconds since 1970."
NodeName = Annotated[str, Query(max_length=2_000, description="The path of a node.", examples=["/sensors/dock.series"])]
From = Annotated[str | None, Query(alias="from", max_length=64, description=f"The first time: {_TIME}")]
To = Annotated[str | None, Query(max_length=64, description=f"The last time: {_TIME}")]
Width = Annotated[int, Query(ge=1, le=20_000, description="The width of the picture in pixels.")]
Columns = Annotated[
    list[str] | None, Query(max_length=100, description="The columns to draw; all that have numbers by default.")
]


@router.get("/pond/nodes", summary="List the nodes of a pond", operation_id="list_nodes", responses=FACTS)
async def list_nodes(
    request: Request,
    pattern: Annotated[
        str, Query(max_length=2_000, description="A path or a pattern.", examples=["/sensors/**/*.series"])
    ] = "/*",
    limit: LIMIT = None,
    after: Annotated[str | None, Query(max_length=2_000, description="`next` of the page before.")] = None,
    version: Version = None,
    timestamp: Timestamp = None,
    lake: LakeName = None,
) -> Response:
    """Return the directories, files, tables and series that a pattern names, in the order of their paths."""

    def facts(_: Identity, at: Any, __: int) -> dict[str, Any]:
        service = service_of(request)
        most = page_size(service, limit)
        found, following = series.nodes(series.tree(at), pattern, after, most, service.settings.max_nodes)
        return {"nodes": found, "next": following}

    return await answer_facts(request, facts, version, timestamp)


@router.get("/pond/node", summary="Describe a node of a pond", operation_id="describe_node", responses=FACTS)
async def describe_node(
    request: Request,
    path: NodeName,
    limit: LIMIT = None,
    version: Version = None,
    timestamp: Timestamp = None,
    lake: LakeName = None,
) -> Response:
    """Return what a node is, and its versions, newest first."""

    def facts(identity: Identity, at: Any, _: int) -> dict[str, Any]:
        most = page_size(service_of(request), limit)
        return series.described(series.tree(at), path, most, is_admin=identity.role >= Role.ADMIN)

    return await answer_facts(request, facts, version, timestamp)


@router.get("/pond/series", summary="Draw a series of a pond", operation_id="draw_series", responses=FACTS)
async def draw_series(
    request: Request,
    path: NodeName,
    from_: From = None,
    to: To = None,
    width: Width = 1_000,
    columns: Columns = None,
    version: Version = None,
    timestamp: Timestamp = None,
    lake: LakeName = None,
) -> Response:
    """Return the points of a range of time for a picture of some width, whatever the number of readings.

    `times` are microseconds since 1970, and a value of null is a gap. The points come from the readings, or from the
    coarsest reduction that has a bucket for each pixel: `resolution` says which. The readings around a point are then
    between `low` and `high`.
    """

    def facts(identity: Identity, at: Any, snapshot: int) -> dict[str, Any]:
        window = Window.parse(from_, to, width, columns)
        return series.of_node(service_of(request), identity, at, snapshot, path, window)

    return await answer_facts(request, facts, version, timestamp)


@router.get(
    "/tables/{table:part}/series", summary="Draw a table with times", operation_id="draw_table", responses=FACTS
)
async def draw_table(
    request: Request,
    table: TableName,
    time: Annotated[str | None, Query(max_length=300, description="The time column, unless its name tells.")] = None,
    from_: From = None,
    to: To = None,
    width: Width = 1_000,
    columns: Columns = None,
    version: Version = None,
    timestamp: Timestamp = None,
    lake: LakeName = None,
) -> Response:
    """Return the points of a table for a picture, as `/pond/series` does, of the rows that you may see."""

    def facts(identity: Identity, at: Any, snapshot: int) -> dict[str, Any]:
        window = Window.parse(from_, to, width, columns)
        return series.of_table(service_of(request), identity, at, snapshot, table, time, window)

    return await answer_facts(request, facts, version, timestamp)
