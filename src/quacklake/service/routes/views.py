"""Materialized views: where they stand, how they are refreshed, and jobs that refresh and prove them."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Path, Query, Request

from quacklake.extend.names import TableRef
from quacklake.service.facts import whole_lake
from quacklake.service.identity import Identity, Role
from quacklake.service.state import service_of
from quacklake.service.values import MAX_NAME, LakeName, Version

router = APIRouter(tags=["materialized views"])

ViewName = Annotated[str, Path(max_length=MAX_NAME, description="`view` in `main`, or `schema.view`.")]
DryRun = Annotated[bool, Query(description="Say what would be done, and do nothing.")]


@router.get("/materialized-views", summary="List the materialized views", operation_id="list_materialized_views")
async def list_materialized_views(request: Request, lake: LakeName = None) -> dict[str, list[dict[str, Any]]]:
    """Return the views with their tables, schedules, positions, and by how many snapshots each lags."""
    service = service_of(request)
    identity = await service.enter(request)
    async with service.turn():
        found = await service.run(lambda: whole_lake(identity).materialized_views.list().to_pylist())
    return {"materialized_views": found}


@router.get(
    "/materialized-views/{view:part}", summary="Describe a materialized view", operation_id="describe_materialized_view"
)
async def describe_materialized_view(
    request: Request, view: ViewName, version: Version = None, lake: LakeName = None
) -> dict[str, Any]:
    """Return its query, where it stands, its lag in snapshots and rows, and the way it is refreshed.

    With `version`: at which snapshot of its tables the view stood then.
    """
    service = service_of(request)
    identity = await service.enter(request)
    async with service.turn():
        return await service.run(lambda: whole_lake(identity).materialized_views.describe(view, version))


@router.post(
    "/materialized-views/{view:part}/refresh",
    summary="Refresh a materialized view",
    operation_id="refresh_materialized_view",
    status_code=202,
)
async def refresh_materialized_view(
    request: Request, view: ViewName, dry_run: DryRun = False, lake: LakeName = None
) -> dict[str, Any]:
    """Start a job that brings a view to the newest snapshot. This needs the role admin."""
    return await _start(request, "refresh", view, dry_run=dry_run)


@router.post(
    "/materialized-views/{view:part}/verify",
    summary="Prove a materialized view",
    operation_id="verify_materialized_view",
    status_code=202,
)
async def verify_materialized_view(request: Request, view: ViewName, lake: LakeName = None) -> dict[str, Any]:
    """Start a job that compares a view with a full computation of its query. This needs the role admin."""
    return await _start(request, "verify_view", view)


async def _start(request: Request, kind: str, view: str, *, dry_run: bool = False) -> dict[str, Any]:
    service = service_of(request)
    identity = await service.enter(request, Role.ADMIN)
    await service.run(_check, identity, view)
    work = identity.lake, identity.key, kind, {"view": view}
    return (await service.run(service.jobs.start, *work, dry_run=dry_run)).shown()


def _check(identity: Identity, view: str) -> None:
    """Raise ``NotFoundError`` for a view that there is not, at once and not in the job."""
    from quacklake.core.materialized import registry

    context = whole_lake(identity).handle.context
    registry.get(context, context.latest(), TableRef.parse(view))
