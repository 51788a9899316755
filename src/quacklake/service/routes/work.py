"""Jobs, events and consumers: work that takes longer than a request."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Header, Path, Query, Request
from fastapi.responses import Response, StreamingResponse
from pydantic import BaseModel, ConfigDict, Field

from quacklake.service.consumers import Claim, Consumers
from quacklake.service.encoding import Rows
from quacklake.service.facts import SNAPSHOT
from quacklake.service.identity import Identity, Role
from quacklake.service.routes.catalog import limited, streamed
from quacklake.service.routes.sql import wanted_format
from quacklake.service.state import Service, service_of
from quacklake.service.values import MAX_NAME, MAX_VALUE, LakeName

router = APIRouter(tags=["work"])

ConsumerName = Annotated[str, Path(max_length=200)]
_MAX_SNAPSHOTS = 1_000


class JobRequest(BaseModel):
    """A job to start."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={"example": {"kind": "expire", "arguments": {"keep_last": 10}, "dry_run": True}},
    )

    kind: Annotated[str, Field(max_length=40)]
    arguments: dict[str, Any] = Field(default_factory=dict)
    dry_run: bool = False


@router.post("/jobs", summary="Start a job", operation_id="start_job", status_code=202)
async def start_job(request: Request, body: JobRequest, lake: LakeName = None) -> dict[str, Any]:
    """Start work that takes longer than a request. This needs the role admin.

    Of a lake: `maintain`, `expire` (`older_than`, `keep_last`, `versions`), `cleanup` and `orphans` (`older_than`),
    `verify` (`deep`) and `rollback` (`to`). Of a table: `restore` (`table`, `to`), `flush`, `merge` and `rewrite`
    (`table`). Of a materialized view: `refresh` and `verify_view` (`view`).
    """
    service = service_of(request)
    identity = await service.enter(request, Role.ADMIN)
    work = identity.lake, identity.key, body.kind, body.arguments
    job = await service.run(service.jobs.start, *work, dry_run=body.dry_run)
    return job.shown()


@router.get("/jobs", summary="List your jobs", operation_id="list_jobs")
async def list_jobs(request: Request, lake: LakeName = None) -> dict[str, Any]:
    """Return the last jobs of your token, newest first, whichever process of the service runs them."""
    service = service_of(request)
    identity = await service.enter(request, Role.ADMIN)
    return {"jobs": await service.run(service.jobs.of, identity.lake, identity.key)}


@router.get("/jobs/{id}", summary="Look at a job", operation_id="describe_job")
async def describe_job(
    request: Request, id: Annotated[str, Path(max_length=64)], lake: LakeName = None
) -> dict[str, Any]:
    """Return the state and progress of a job, and its result when it is done.

    A job that was lost with its process is `failed` with the code `lost`.
    """
    service = service_of(request)
    identity = await service.enter(request, Role.ADMIN)
    return await service.run(service.jobs.get, identity.lake, id, identity.key)


@router.delete("/jobs/{id}", summary="Cancel a job", operation_id="cancel_job")
async def cancel_job(
    request: Request, id: Annotated[str, Path(max_length=64)], lake: LakeName = None
) -> dict[str, Any]:
    """Ask a job of your token to end, after the step that is under way: its state becomes `cancelled`.

    Any process of the service can be asked. What the job has committed stays. A job that has ended, or that has only
    one step left, stays as it is.
    """
    service = service_of(request)
    identity = await service.enter(request, Role.ADMIN)
    return await service.run(service.jobs.cancel, identity.lake, id, identity.key)


@router.get(
    "/events",
    summary="Listen to commits and jobs",
    operation_id="events",
    response_class=StreamingResponse,
    responses={200: {"content": {"text/event-stream": {}}, "description": "Events as they happen"}},
)
async def events(
    request: Request,
    since: Annotated[int | None, Query(ge=0, le=MAX_VALUE, description="The last snapshot that you know.")] = None,
    last_event_id: Annotated[str | None, Header(max_length=30)] = None,
    lake: LakeName = None,
) -> Response:
    """Stream an event `commit` for each new snapshot, `job` when a job of yours begins or ends, in any process of the
    service, and `pipeline` for each batch of a pipeline that this process runs.
    """
    service = service_of(request)
    identity = await service.enter(request)
    known = since
    if last_event_id is not None and last_event_id.isdecimal() and int(last_event_id) <= MAX_VALUE:
        known = int(last_event_id)
    newest = await service.run(identity.lake.current_snapshot)
    since = newest if known is None else min(known, newest)
    stream = service.events.stream(identity, since, lambda: service.enter_again(request))
    return StreamingResponse(stream, media_type="text/event-stream", headers={"X-Accel-Buffering": "no"})


class ClaimRequest(BaseModel):
    """A consumer to claim."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"example": {"table": "orders", "since": 1}})

    table: Annotated[str, Field(max_length=MAX_NAME)]
    since: Annotated[int | None, Field(ge=0, le=MAX_VALUE, description="Where a new consumer begins.")] = None
    seconds: Annotated[float, Field(gt=0, le=3_600, description="How long the turn lasts.")] = 30.0


class Acknowledgement(BaseModel):
    """The last snapshot whose changes are done."""

    model_config = ConfigDict(extra="forbid")

    lease: Annotated[str, Field(max_length=64)]
    snapshot: Annotated[int, Field(ge=0, le=MAX_VALUE)]
    seconds: Annotated[float, Field(ge=0, le=3_600, description="How long to keep the turn; 0 gives it back.")] = 30.0


class Turn(BaseModel):
    """The turn of a consumer: read the changes from the snapshot ``next`` on, and acknowledge with the lease."""

    table: str
    next: int
    lease: str
    seconds: float


def _consumers(service: Service, identity: Identity) -> Consumers:
    return Consumers(identity.lake, identity.user, service.settings.max_consumers)


def _turn(claim: Claim) -> Turn:
    return Turn(table=claim.table, next=claim.next, lease=claim.lease, seconds=claim.left_ms / 1000)


@router.post("/consumers/{name:part}/claim", summary="Take the turn of a consumer", operation_id="claim_consumer")
async def claim_consumer(request: Request, name: ConsumerName, body: ClaimRequest, lake: LakeName = None) -> Turn:
    """Take the turn to read the changes of a table, where the one before acknowledged last."""
    service = service_of(request)
    identity = await service.enter(request)
    own = _consumers(service, identity)
    return _turn(await service.run(own.claim, name, body.table, body.since, body.seconds))


@router.post("/consumers/{name:part}/ack", summary="Acknowledge changes", operation_id="acknowledge")
async def acknowledge(request: Request, name: ConsumerName, body: Acknowledgement, lake: LakeName = None) -> Turn:
    """Note that the changes up to a snapshot are done; whoever claims the consumer next begins after it."""
    service = service_of(request)
    identity = await service.enter(request)
    own = _consumers(service, identity)
    return _turn(await service.run(own.acknowledge, name, body.lease, body.snapshot, body.seconds))


@router.delete("/consumers/{name:part}", summary="Forget a consumer", operation_id="forget_consumer", status_code=204)
async def forget_consumer(request: Request, name: ConsumerName, lake: LakeName = None) -> None:
    """Remove a consumer with its position."""
    service = service_of(request)
    identity = await service.enter(request)
    await service.run(_consumers(service, identity).forget, name)


@router.get(
    "/consumers/{name:part}/changes", summary="Read what comes next", operation_id="consume", response_class=Response,
    responses={200: {"description": "Rows, in the format of the Accept header"}},
)  # fmt: skip
async def consume(
    request: Request,
    name: ConsumerName,
    lease: Annotated[str, Query(max_length=64)],
    wait: Annotated[float, Query(ge=0, le=60, description="Seconds to wait for changes.")] = 0.0,
    lake: LakeName = None,
) -> Response:
    """Return the changes since the last acknowledgement, and wait for some if there are none.

    The header `X-Quacklake-Snapshot` has the snapshot to acknowledge.
    """
    service = service_of(request)
    identity = await service.enter(request)
    format = wanted_format(request)
    claim = await service.run(_consumers(service, identity).of, name, lease)
    newest = await service.run(identity.lake.current_snapshot)
    if newest < claim.next and wait:
        newest = await service.events.after(identity.lake, claim.next - 1, wait)
        identity = await service.enter_again(request)
    last = min(newest, claim.next + _MAX_SNAPSHOTS - 1)
    async with service.turn():
        rows = await service.run(_changes, service, identity.lake, claim, last)
        headers = {SNAPSHOT: str(max(last, claim.next - 1))}
        return await streamed(service, request, rows, format, headers)


def _changes(service: Service, lake: Any, claim: Claim, last: int) -> Rows:
    table = lake.table(claim.table)
    if last < claim.next:
        schema = table.changes(max(0, claim.next - 1)).schema
        return Rows(schema, ())
    scan = table.changes(claim.next, last)
    return Rows(scan.schema, limited(scan.to_batches(), service))
