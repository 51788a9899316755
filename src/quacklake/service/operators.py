"""The catalogs (tenants) of a shared lake, for those who run it. Only an application with an ``Operator`` has them.

An operator makes, limits, renames and drops catalogs, and makes the first administrator of one. No row of a catalog is
ever shown to an operator, and no token of a catalog opens these routes.
"""

from __future__ import annotations

import hmac
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

from fastapi import APIRouter, Path, Query, Request, Response
from pydantic import BaseModel, ConfigDict, Field

from quacklake.core.format.names import MAX_TENANT_NAME
from quacklake.errors import InputError, UnauthenticatedError
from quacklake.service.access_gate import AccessGate
from quacklake.service.facts import CURSOR, LIMIT, cursor_of, not_a_cursor, page_size, position_of
from quacklake.service.identity import hashed
from quacklake.service.parameters import check_parameters
from quacklake.service.state import Service, bearer, service_of

if TYPE_CHECKING:
    from quacklake import Tenant, TenantStats
    from quacklake.lake.tenants import Tenants

__all__ = ["Operator", "operator_router"]

T = TypeVar("T")
_MAX_COUNT = 2**53
TenantName = Annotated[str, Path(max_length=MAX_TENANT_NAME)]
NewName = Annotated[str, Field(min_length=1, max_length=MAX_TENANT_NAME)]


class Operator:
    """A shared lake, and the tokens of those who run it; tokens are kept as hashes only."""

    def __init__(self, tenants: Tenants, tokens: Collection[str]) -> None:
        self.tenants = tenants
        self._hashes = [hashed(token) for token in tokens]

    def check(self, token: str | None) -> str:
        """Return the name of an operator by a token. Raise ``UnauthenticatedError``."""
        digest = hashed(token or "")
        # every token is compared, so that the time does not tell which one was nearly right
        found = [hmac.compare_digest(known, digest) for known in self._hashes]
        if token is None or not any(found):
            raise UnauthenticatedError
        return f"operator-{digest[:8]}"

    def close(self) -> None:
        """Close the shared lake."""
        self.tenants.close()


class _OperatorBody(BaseModel):
    model_config = ConfigDict(extra="forbid")


class NewTenant(_OperatorBody):
    """A tenant to create."""

    name: NewName


class OtherName(_OperatorBody):
    """Another name for a tenant."""

    name: NewName


class TenantLimits(_OperatorBody):
    """Limits of a tenant: null for any number. Those that are left out stay as they are."""

    commits_per_second: Annotated[float | None, Field(gt=0, le=1e6)] = None
    concurrent_scans: Annotated[int | None, Field(ge=1, le=1_000_000)] = None
    bytes: Annotated[int | None, Field(ge=1, le=_MAX_COUNT)] = None
    tables: Annotated[int | None, Field(ge=1, le=_MAX_COUNT)] = None
    snapshots: Annotated[int | None, Field(ge=1, le=_MAX_COUNT)] = None


class NewAdministrator(_OperatorBody):
    """A user of a tenant who may do everything there."""

    name: Annotated[str, Field(min_length=1, max_length=127)]
    expires_in: Annotated[str | None, Field(max_length=40, description="Such as `90 days`; without it, never.")] = None


def operator_router(operator: Operator) -> APIRouter:
    """Return the routes of an operator."""
    router = APIRouter(tags=["tenants"])
    tenants = operator.tenants

    async def done(request: Request, work: Callable[[], T]) -> T:
        service = service_of(request)
        await _let_in(service, request, operator)
        async with service.turn():
            return await service.run(work)

    @router.get("/tenants", summary="List the tenants", operation_id="list_tenants")
    async def list_tenants(
        request: Request,
        prefix: Annotated[str, Query(max_length=MAX_TENANT_NAME, description="Only names that begin with this.")] = "",
        limit: LIMIT = None,
        cursor: CURSOR = None,
    ) -> dict[str, Any]:
        """Return a page of the tenants by name, each with its size at its newest snapshot. For operators only."""
        most = page_size(service_of(request), limit)
        after = _position(cursor)
        page = await done(request, lambda: _page(tenants, prefix, after, most + 1))
        following = cursor_of(page[most - 1]["name"]) if len(page) > most else None
        return {"tenants": page[:most], "next": following}

    @router.post("/tenants", summary="Create a tenant", operation_id="create_tenant", status_code=201)
    async def create_tenant(request: Request, body: NewTenant) -> dict[str, Any]:
        """Create a tenant: a lake of its own, which nobody may enter until it has an administrator."""
        return _describe_tenant(await done(request, lambda: tenants.create(body.name)))

    @router.get("/tenants/{name:part}", summary="Look at a tenant", operation_id="tenant")
    async def tenant(request: Request, name: TenantName) -> dict[str, Any]:
        """Return the size of a tenant and the limits that hold for it."""
        return await done(request, lambda: _one(tenants, name))

    @router.post("/tenants/{name:part}/rename", summary="Rename a tenant", operation_id="rename_tenant")
    async def rename_tenant(request: Request, name: TenantName, body: OtherName) -> dict[str, Any]:
        """Give a tenant another name. Its files stay, and so do its users and their tokens."""
        found = await done(request, lambda: tenants.rename(name, body.name))
        _forget(request, name, body.name)
        return _describe_tenant(found)

    @router.post("/tenants/{name:part}/limits", summary="Limit a tenant", operation_id="limit_tenant")
    async def limit_tenant(request: Request, name: TenantName, body: TenantLimits) -> dict[str, Any]:
        """Set limits of a tenant, and return those that hold for it now. They hold from its next commit or scan on."""
        given: dict[str, Any] = body.model_dump(exclude_unset=True)
        limits = await done(request, lambda: tenants.limit(name, **given))
        return {"limits": limits.asdict()}

    @router.post(
        "/tenants/{name:part}/administrators",
        summary="Make an administrator",
        operation_id="create_administrator",
        status_code=201,
    )
    async def create_administrator(
        request: Request, name: TenantName, body: NewAdministrator, response: Response
    ) -> dict[str, Any]:
        """Make a user of a tenant with the role admin, and return its token. It is in this answer and nowhere else."""
        token = await done(request, lambda: _administrator(tenants, name, body))
        response.headers["Cache-Control"] = "no-store"
        return {"tenant": name, "user": body.name.lower(), "token": token}

    @router.delete("/tenants/{name:part}", summary="Drop a tenant", operation_id="drop_tenant", status_code=204)
    async def drop_tenant(request: Request, name: TenantName) -> None:
        """Drop a tenant: nobody can enter it from now on. Its files stay until `quacklake tenant purge`."""
        await done(request, lambda: tenants.drop(name))
        _forget(request, name)

    return router


def _forget(request: Request, *names: str) -> None:
    """Let the gate look again which catalogs have these names."""
    gate = service_of(request).gate
    if isinstance(gate, AccessGate):
        for name in names:
            gate.forget(name)


async def _let_in(service: Service, request: Request, operator: Operator) -> None:
    principal = operator.check(bearer(request.headers.get("authorization")))
    if request.query_params.get("lake") is not None:
        raise InputError("an operator has no lake", hint="leave lake= out")
    request.scope["principal"] = principal
    service.spend(principal)
    check_parameters(request.scope)


def _page(tenants: Tenants, prefix: str, after: str | None, most: int) -> list[dict[str, Any]]:
    stats = {each.name: each for each in tenants.stats(prefix=prefix, after=after, limit=most)}
    return [_describe_tenant(each, stats.get(each.name)) for each in tenants.list(prefix, after=after, limit=most)]


def _one(tenants: Tenants, name: str) -> dict[str, Any]:
    found = tenants.get(name)
    (stats,) = tenants.stats(found.name)
    return {**_describe_tenant(found, stats), "limits": tenants.limits(found.name).asdict()}


def _administrator(tenants: Tenants, tenant: str, body: NewAdministrator) -> str:
    """Make an administrator of a tenant, and return its token."""
    with tenants.open(tenant) as lake:
        return lake.access.create_user_with_token(body.name, ["admin"], body.expires_in)


def _describe_tenant(tenant: Tenant, stats: TenantStats | None = None) -> dict[str, Any]:
    told: dict[str, Any] = {"name": tenant.name, "created": tenant.created.isoformat()}
    if stats is not None:
        told |= {
            "snapshots": stats.snapshots,
            "tables": stats.tables,
            "files": stats.files,
            "rows": stats.rows,
            "bytes": stats.bytes,
        }
    return told


def _position(cursor: str | None) -> str | None:
    if cursor is None:
        return None
    position = position_of(cursor)
    if not isinstance(position, str):
        raise not_a_cursor()
    return position
