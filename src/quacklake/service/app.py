"""The HTTP application of a service."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager

from fastapi import APIRouter, FastAPI
from starlette.middleware.cors import CORSMiddleware

import quacklake
from quacklake.service.dashboard import dashboard_router
from quacklake.service.identity import Gate
from quacklake.service.metrics import Requests
from quacklake.service.problems import PROBLEMS, add_handlers
from quacklake.service.routes import care, catalog, changes, ekko, health, layout, sql, views, work, writes
from quacklake.service.settings import ServiceSettings
from quacklake.service.shell import Shell
from quacklake.service.state import Service

__all__ = ["API", "create_app"]

API = "/api/v1"
_MODULES = (care, catalog, layout, changes, sql, writes, work, views)
_ABOUT = """Read and change a lake over HTTP.

Every request carries `Authorization: Bearer <token>`. An error is `application/problem+json` with a stable `code`, a
`hint` and the id of the request. Reads take `version` or `timestamp` to show the lake as it was."""


def create_app(
    gate: Gate,
    settings: ServiceSettings | None = None,
    *,
    more: Sequence[APIRouter] = (),
    at_end: Callable[[], object] = lambda: None,
) -> FastAPI:
    """Return the application that serves the lakes behind a gate; closing it closes the gate.

    ``more`` are routers of other protocols, such as the Iceberg catalog. ``at_end`` is called before the gate closes.
    """
    settings = settings or ServiceSettings()

    requests = Requests()

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        app.state.service = Service(gate, settings, requests)
        try:
            yield
        finally:
            await asyncio.to_thread(at_end)
            await asyncio.to_thread(app.state.service.close)

    app = FastAPI(
        title="Quacklake",
        version=quacklake.__version__,
        description=_ABOUT,
        docs_url=None,
        redoc_url=None,
        openapi_url=f"{settings.prefix}{API}/openapi.json",
        lifespan=lifespan,
        redirect_slashes=False,
        responses=PROBLEMS,
    )
    add_handlers(app)
    app.include_router(health.router, prefix=settings.prefix)
    for router in (module.router for module in _MODULES):
        app.include_router(router, prefix=f"{settings.prefix}{API}")
    app.include_router(ekko.router, prefix=f"{settings.prefix}/api")
    if settings.web:
        app.include_router(dashboard_router(settings.prefix))
    for router in more:
        app.include_router(router, prefix=settings.prefix)
    if settings.cors_origins:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=list(settings.cors_origins),
            allow_methods=["GET", "POST", "DELETE"],
            allow_headers=["Authorization", "Content-Type", "Idempotency-Key", "If-None-Match"],
            expose_headers=["ETag", "X-Request-Id", "X-Quacklake-Snapshot"],
        )
    app.add_middleware(Shell, settings=settings, requests=requests)
    return app
