"""The health of the service, and its figures."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse, Response

from quacklake.errors import QuacklakeError
from quacklake.service.identity import Role
from quacklake.service.metrics import lake_figures
from quacklake.service.state import service_of

router = APIRouter(tags=["health"])


@router.get("/health/live", summary="Whether the process answers", operation_id="live")
async def live() -> dict[str, str]:
    """Answer without asking anything else."""
    return {"status": "live"}


@router.get(
    "/health/ready",
    summary="Whether the catalog and the store answer",
    operation_id="ready",
    responses={503: {"description": "The catalog or the store does not answer, or the service stops"}},
)
async def ready(request: Request) -> Response:
    """Ask the catalog and the store. A balancer sends requests while this is 200."""
    service = service_of(request)
    if service.stopping:
        return JSONResponse({"status": "stopping"}, 503)
    try:
        await service.run(service.gate.probe)
    except QuacklakeError as error:
        return JSONResponse({"status": "unavailable", "code": error.code}, 503)
    return JSONResponse({"status": "ready"})


@router.get(
    "/metrics",
    summary="Figures for Prometheus",
    operation_id="metrics",
    response_class=Response,
    responses={200: {"content": {"text/plain": {}}, "description": "Figures in the text format of Prometheus"}},
)
async def metrics(request: Request) -> Response:
    """Return what the process has counted, and the state of the lake. This needs the role admin."""
    service = service_of(request)
    identity = await service.enter(request, Role.ADMIN)

    def work() -> bytes:
        service.requests.scans.set(service.statements.count())
        return service.requests.text(lake_figures(identity.lake, service.runners))

    found: Any = await service.run(work)
    return Response(found, media_type="text/plain; version=0.0.4")
