"""Pipelines: what they do, how far they are, and starting and stopping them."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Path, Query, Request
from pydantic import BaseModel, ConfigDict, Field

from quacklake.service import runners
from quacklake.service.facts import LIMIT, page_size, whole_lake
from quacklake.service.identity import Role
from quacklake.service.state import service_of
from quacklake.service.values import MAX_VALUE, LakeName

router = APIRouter(tags=["pipelines"])

_MAX_LETTERS = 100
"""Dead letters of a page: each may have many bytes."""

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

    `lag` counts messages or versions, and `lag_seconds` is how long the first of them has waited; both are null when
    the source cannot tell. `checkpoints` are the last ones, with their sequences of a NATS stream. `run` is there if
    this process runs the pipeline, or did: its rows, its rate, its last batches, and the error that it ended with.
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
    runs it in a process of its own. A service of all tenants refuses each.
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


class Replay(BaseModel):
    """The dead letters to publish again, by their row ids; none finishes a replay that was cut off."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"example": {"rows": [0, 1]}})

    rows: Annotated[list[Annotated[int, Field(ge=0, le=MAX_VALUE)]], Field(max_length=10_000)] = []


@router.get("/pipelines/{name}/dead-letters", summary="List dead letters", operation_id="list_dead_letters")
async def list_dead_letters(
    request: Request,
    name: PipelineName,
    limit: LIMIT = None,
    after: Annotated[int, Query(ge=-1, le=MAX_VALUE, description="`next` of the page before.")] = -1,
    lake: LakeName = None,
) -> dict[str, Any]:
    """Return the messages that are not rows, each with its row id, its sequence, the reason and its body.

    A body comes as `text`, or as `base64` if it is not one, and up to 64 KiB of it. `pending` counts messages of a
    replay that was cut off before they were published.
    """
    service = service_of(request)
    identity = await service.enter(request)
    async with service.turn():
        most = min(page_size(service, limit), _MAX_LETTERS)
        return await service.run(lambda: runners.letters(whole_lake(identity), name, after, most))


@router.post("/pipelines/{name}/dead-letters/replay", summary="Replay dead letters", operation_id="replay_dead_letters")
async def replay_dead_letters(
    request: Request, name: PipelineName, body: Replay, lake: LakeName = None
) -> dict[str, Any]:
    """Publish dead letters to their stream again, once, and remove them. This needs the role admin.

    The pipeline reads them as new messages: change its schema or its query first, so that they become rows.
    """
    service = service_of(request)
    identity = await service.enter(request, Role.ADMIN)
    return await service.run(runners.replayed, whole_lake(identity), name, body.rows, service.runners)
