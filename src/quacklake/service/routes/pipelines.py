"""Pipelines: what they do, how far they are, and starting and stopping them."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Path, Query, Request

from quacklake.service import runners
from quacklake.service.facts import whole_lake
from quacklake.service.identity import Role
from quacklake.service.state import service_of
from quacklake.service.values import LakeName

router = APIRouter(tags=["pipelines"])

PipelineName = Annotated[str, Path(max_length=200)]


@router.get("/pipelines", summary="List the pipelines", operation_id="list_pipelines")
async def list_pipelines(request: Request, lake: LakeName = None) -> dict[str, list[dict[str, Any]]]:
    """Return the pipelines of the lake, and whether each is wanted to run, and runs."""
    service = service_of(request)
    identity = await service.enter(request)
    async with service.turn():
        return {"pipelines": await service.run(lambda: runners.listed(whole_lake(identity)))}


@router.get("/pipelines/{name:part}", summary="Describe a pipeline", operation_id="describe_pipeline")
async def describe_pipeline(request: Request, name: PipelineName, lake: LakeName = None) -> dict[str, Any]:
    """Return what a pipeline does, its last checkpoint and position, and by how much it lags behind its source.

    `lag` counts messages or versions; it is null when the source cannot tell. `run` is there where this process runs
    the pipeline, or did: its rows, its rate, its last batch, and the error that it ended with.
    """
    service = service_of(request)
    identity = await service.enter(request)
    async with service.turn():
        return await service.run(lambda: runners.described(whole_lake(identity), name, service.runners))


@router.post("/pipelines/{name:part}/start", summary="Start a pipeline", operation_id="start_pipeline", status_code=202)
async def start_pipeline(
    request: Request,
    name: PipelineName,
    restart: Annotated[bool, Query(description="Forget the position, and begin anew.")] = False,
    accept: Annotated[bool, Query(description="Go on from the position although the pipeline has changed.")] = False,
    lake: LakeName = None,
) -> dict[str, Any]:
    """Run a pipeline in this process until it is stopped. This needs the role admin.

    One that runs already, here or elsewhere, is a conflict. One that needs Spark is refused: `quacklake pipeline start`
    runs it in a process of its own.
    """
    service = service_of(request)
    identity = await service.enter(request, Role.ADMIN)
    await service.run(service.runners.start, whole_lake(identity), name, restart=restart, accept=accept)
    return await service.run(runners.described, identity.lake, name, service.runners)


@router.post("/pipelines/{name:part}/stop", summary="Stop a pipeline", operation_id="stop_pipeline", status_code=202)
async def stop_pipeline(request: Request, name: PipelineName, lake: LakeName = None) -> dict[str, Any]:
    """Ask whoever runs a pipeline to stop after its batch. This needs the role admin."""
    service = service_of(request)
    identity = await service.enter(request, Role.ADMIN)
    await service.run(service.runners.stop, whole_lake(identity), name)
    return await service.run(runners.described, identity.lake, name, service.runners)
