"""The HTTP application of a service."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

from fastapi import APIRouter, FastAPI
from starlette.middleware.cors import CORSMiddleware
from starlette.types import Receive, Scope, Send

import quacklake
from quacklake.service.appends import GroupCommits
from quacklake.service.dashboard import dashboard_router
from quacklake.service.direct import DirectAppends
from quacklake.service.identity import Gate
from quacklake.service.metrics import Requests
from quacklake.service.operators import Operator, operator_router
from quacklake.service.paths import divide
from quacklake.service.plugins import ServicePlugin, describe_pages, load_service_plugins
from quacklake.service.problems import PROBLEMS, add_handlers
from quacklake.service.routes import (
    access,
    audit,
    backups,
    care,
    catalog,
    changes,
    health,
    layout,
    origins,
    pipelines,
    pond,
    sql,
    views,
    work,
    writes,
)
from quacklake.service.settings import ServiceSettings
from quacklake.service.shell import Shell
from quacklake.service.state import Service
from quacklake.service.tracing import Tracing

__all__ = ["API", "create_app"]

API = "/api/v1"
# the busiest first: they are searched in this order
_MODULES = (sql, writes, care, catalog, layout, changes, work, views, pipelines, origins, pond, access, audit, backups)
_ABOUT = """Read and change a lake over HTTP.

Every request carries `Authorization: Bearer <token>`. An error is `application/problem+json` with a stable `code`, a
`hint` and the id of the request. Reads take `version` or `timestamp` to show the lake as it was."""


class _Application(FastAPI):
    """An application that takes plain appends past the framework; the shell is around them, too."""

    direct: tuple[DirectAppends, Shell] | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            divide(scope)
        if scope["type"] == "http" and self.direct is not None and self.direct[0].takes(scope):
            scope["app"] = self
            await self.direct[1](scope, receive, send)
        else:
            await super().__call__(scope, receive, send)


def create_app(
    gate: Gate,
    settings: ServiceSettings | None = None,
    *,
    more: Sequence[APIRouter] = (),
    at_end: Callable[[], object] = lambda: None,
    tracing: Tracing | None = None,
    facts: Mapping[str, Any] | None = None,
    commits: GroupCommits | None = None,
    operator: Operator | None = None,
    plugins: Sequence[ServicePlugin] | None = None,
) -> FastAPI:
    """Return the application that serves the lakes behind a gate; closing it closes the gate.

    ``more`` are routers of other protocols, such as the Iceberg catalog. ``at_end`` is called before the gate closes.
    ``tracing`` makes spans of requests, and is closed at the end, and so are ``commits``, which others may use, too.
    ``facts`` are added to what the service says of its lake. ``operator`` lets those in who run a shared lake, and is
    closed at the end. ``plugins`` are the parts of other packages, by default of all that are installed. Raise
    ``ConfigError`` that names the package of one that cannot be loaded.
    """
    settings = settings or ServiceSettings()
    plugins = load_service_plugins() if plugins is None else plugins

    requests = Requests()

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        app.state.service = Service(gate, settings, requests, commits)
        try:
            yield
        finally:
            await asyncio.to_thread(at_end)
            await asyncio.to_thread(app.state.service.close)
            if operator is not None:
                await asyncio.to_thread(operator.close)
            if tracing is not None:
                await asyncio.to_thread(tracing.close)

    app = _Application(
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
    _describe_tokens(app)
    app.state.facts = {"pages": describe_pages(plugins), **(facts or {})}
    own = [module.router for module in _MODULES]
    own += [] if operator is None else [operator_router(operator)]
    _include(app, settings, own, more, plugins)
    if settings.cors_origins:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=list(settings.cors_origins),
            allow_methods=["GET", "POST", "DELETE"],
            allow_headers=["Authorization", "Content-Type", "Idempotency-Key", "If-None-Match"],
            expose_headers=["ETag", "X-Request-Id", "X-Quacklake-Snapshot"],
        )
    else:  # those of a browser need the headers of CORS
        direct = DirectAppends(f"{settings.prefix}{API}")
        app.direct = direct, Shell(direct, settings, requests, tracing)
    app.add_middleware(Shell, settings=settings, requests=requests, tracing=tracing)
    return app


def _include(
    app: FastAPI,
    settings: ServiceSettings,
    own: Iterable[APIRouter],
    more: Iterable[APIRouter],
    plugins: Sequence[ServicePlugin],
) -> None:
    """Add the routes of the service: its ``own``, those of plugins and of other protocols, and the dashboard."""
    app.include_router(health.router, prefix=settings.prefix)
    for router in own:
        app.include_router(router, prefix=f"{settings.prefix}{API}")
    for plugin in plugins:
        for router in plugin.routers:
            app.include_router(router, prefix=f"{settings.prefix}{plugin.prefix}")
    if settings.web:
        app.include_router(dashboard_router(settings.prefix, plugins))
    for router in more:
        app.include_router(router, prefix=settings.prefix)


_OPEN = ("live", "ready")
"""The operations that ask for no token."""


def _describe_tokens(app: FastAPI) -> None:
    """Let the description of the API say that requests carry a bearer token."""
    plain = app.openapi

    def described() -> dict[str, Any]:
        if app.openapi_schema is None:
            found = plain()
            bearer = {"type": "http", "scheme": "bearer", "description": "A token of the service, or of a user."}
            found.setdefault("components", {})["securitySchemes"] = {"token": bearer}
            for operation in (each for path in found["paths"].values() for each in path.values()):
                operation["security"] = [] if operation.get("operationId") in _OPEN else [{"token": []}]
        assert app.openapi_schema is not None
        return app.openapi_schema

    app.openapi = described  # type: ignore[method-assign]
