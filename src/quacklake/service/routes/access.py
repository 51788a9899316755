"""Users, roles, grants, row filters, masks and tokens of a lake, for its administrators."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Path, Query, Request, Response
from pydantic import BaseModel, ConfigDict, Field

from quacklake.core.access import LakeAccess
from quacklake.core.format.access import BUILT_IN, FILTER
from quacklake.errors import InputError
from quacklake.service.access_gate import AccessGate
from quacklake.service.facts import CURSOR, LIMIT, cursor_of, not_a_cursor, page_size, position_of, whole_lake
from quacklake.service.identity import Role
from quacklake.service.state import service_of
from quacklake.service.values import MAX_NAME, LakeName

router = APIRouter(tags=["access"])

_MAX_LENGTH = 127
_MAX_COUNT = 100
"""The most roles, privileges or columns of one request."""
AccessName = Annotated[str, Field(min_length=1, max_length=_MAX_LENGTH)]
NameInPath = Annotated[str, Path(max_length=_MAX_LENGTH)]
IdInPath = Annotated[str, Path(max_length=64)]
_Entry = dict[str, Any]


class _AccessBody(BaseModel):
    model_config = ConfigDict(extra="forbid")


class NewUser(_AccessBody):
    """A user to create."""

    name: AccessName
    roles: Annotated[list[AccessName], Field(max_length=_MAX_COUNT)] = []


class UserState(_AccessBody):
    """The state of a user: one that is not enabled may do nothing."""

    enabled: bool


class NewRole(_AccessBody):
    """A role to create."""

    name: AccessName


class NewMember(_AccessBody):
    """A user or role that gets a role."""

    member: AccessName


class NewGrant(_AccessBody):
    """Privileges on the lake, on a schema, or on a table or view or some of its columns."""

    model_config = ConfigDict(
        extra="forbid", json_schema_extra={"example": {"privileges": ["SELECT"], "to": "ann", "table": "main.orders"}}
    )

    privileges: Annotated[list[Annotated[str, Field(max_length=20)]], Field(min_length=1, max_length=_MAX_COUNT)]
    to: AccessName
    schema_name: Annotated[str | None, Field(alias="schema", max_length=MAX_NAME)] = None
    table: Annotated[str | None, Field(max_length=MAX_NAME)] = None
    columns: Annotated[list[Annotated[str, Field(max_length=MAX_NAME)]] | None, Field(max_length=1_000)] = None


class NewRule(_AccessBody):
    """A row filter with a name, or a mask of a column, for everybody or for one role."""

    kind: Literal["filter", "mask"]
    table: Annotated[str, Field(max_length=MAX_NAME)]
    using: Annotated[str, Field(min_length=1, max_length=10_000, description="An expression over the columns.")]
    name: AccessName | None = None
    column: Annotated[str | None, Field(max_length=MAX_NAME)] = None
    to: AccessName | None = None


class NewToken(_AccessBody):
    """A token to make."""

    user: AccessName
    expires_in: Annotated[str | None, Field(max_length=40, description="Such as `90 days`; without it, never.")] = None


# -- what there is -----------------------------------------------------------------------------------------------------


@router.get("/access/{kind}", summary="List users, roles, grants, rules or tokens", operation_id="list_access")
async def list_access(
    request: Request,
    kind: Literal["users", "roles", "grants", "rules", "tokens"],
    search: Annotated[str, Query(max_length=200, description="Only entries with this text in them.")] = "",
    limit: LIMIT = None,
    cursor: CURSOR = None,
    lake: LakeName = None,
) -> dict[str, Any]:
    """Return a page of the users, roles, grants, rules (row filters and masks) or tokens. This needs the role admin.

    Of a token its id is known and when it ends: the token itself was shown once. `users_enter` tells whether this
    service lets in the users of the lake, or only tokens of its own. A grant on something dropped is still there.
    """
    service = service_of(request)
    identity = await service.enter(request, Role.ADMIN)
    most = page_size(service, limit)
    after = _position(cursor)

    def work() -> dict[str, Any]:
        wanted = search.lower()
        found = sorted(_LISTS[kind](whole_lake(identity).access), key=_key)
        left = [entry for entry in found if _key(entry) > after and wanted in _text(entry)]
        page = left[:most]
        return {kind: page, "next": cursor_of(_key(page[-1])) if len(left) > most else None}

    async with service.turn():
        found = await service.run(work)
    return {**found, "users_enter": isinstance(service.gate, AccessGate)}


def _position(cursor: str | None) -> list[str]:
    position = [] if cursor is None else position_of(cursor)
    if not isinstance(position, list) or not all(isinstance(part, str) for part in position):
        raise not_a_cursor()
    return position


def _key(entry: _Entry) -> list[str]:
    """Return the place of an entry: by whose it is, then by its other texts. No two are the same."""
    return [str(value) for value in entry.values()]


def _text(entry: _Entry) -> str:
    return " ".join(str(value) for name, value in entry.items() if name not in ("id", "created")).lower()


def _users(access: LakeAccess) -> list[_Entry]:
    roles: dict[str, list[str]] = {}
    for role, members in access.roles().items():
        for member in members:
            roles.setdefault(member, []).append(role)
    tokens: dict[str, int] = {}
    for token in access.tokens.list():
        tokens[token.principal] = tokens.get(token.principal, 0) + 1
    return [
        {
            "name": user.name,
            "state": user.state,
            "roles": roles.get(user.name, []),
            "tokens": tokens.get(user.name, 0),
            "created": user.created.isoformat(),
        }
        for user in access.users()
    ]


def _roles(access: LakeAccess) -> list[_Entry]:
    return [
        {"name": role, "built_in": role in BUILT_IN, "members": members} for role, members in access.roles().items()
    ]


def _grants(access: LakeAccess) -> list[_Entry]:
    return [
        {
            "grantee": each.grant.grantee,
            "scope": str(each.grant.scope),
            "object": each.object,
            "column": each.column,
            "privilege": each.grant.privilege.upper(),
            "dropped": each.dropped,
            "created": each.grant.created.isoformat(),
            "id": each.grant.grant_id,
        }
        for each in access.named_grants()
    ]


def _rules(access: LakeAccess) -> list[_Entry]:
    return [
        {
            "table": f"{policy.schema_name}.{policy.table_name}",
            "kind": policy.kind,
            "name": policy.name if policy.kind == FILTER else None,
            "column": policy.column_name,
            "role": policy.role,
            "using": policy.expression,
            "created": policy.created.isoformat(),
            "id": policy.policy_id,
        }
        for policy in access.policies()
    ]


def _tokens(access: LakeAccess) -> list[_Entry]:
    now = dt.datetime.now(dt.UTC)
    found = []
    for token in access.tokens.list():
        ends = None if token.expires_ms is None else dt.datetime.fromtimestamp(token.expires_ms / 1000, dt.UTC)
        found.append(
            {
                "user": token.principal,
                "created": token.created.isoformat(),
                "expires": None if ends is None else ends.isoformat(),
                "expired": ends is not None and ends <= now,
                "id": token.token_id,
            }
        )
    return found


_LISTS: Mapping[str, Callable[[LakeAccess], Sequence[_Entry]]] = {
    "users": _users,
    "roles": _roles,
    "grants": _grants,
    "rules": _rules,
    "tokens": _tokens,
}


# -- changes -----------------------------------------------------------------------------------------------------------


async def _change_access(request: Request, change: Callable[[LakeAccess], Any]) -> Any:
    """Let an administrator change who may do what."""
    service = service_of(request)
    identity = await service.enter(request, Role.ADMIN)
    async with service.turn():
        return await service.run(lambda: change(whole_lake(identity).access))


@router.post("/access/users", summary="Create a user", operation_id="create_user", status_code=201)
async def create_user(request: Request, body: NewUser, lake: LakeName = None) -> dict[str, Any]:
    """Create a user, who may do nothing until a role or a grant allows it. This needs the role admin."""
    await _change_access(request, lambda access: access.create_user(body.name, body.roles))
    return {"name": body.name.lower(), "roles": [role.lower() for role in body.roles]}


@router.post("/access/users/{name:part}", summary="Disable or enable a user", operation_id="set_user_state")
async def set_user_state(request: Request, name: NameInPath, body: UserState, lake: LakeName = None) -> dict[str, Any]:
    """Let a user do nothing, or again what its roles and grants allow; it keeps them and its tokens."""
    await _change_access(request, lambda access: (access.enable_user if body.enabled else access.disable_user)(name))
    return {"name": name.lower(), "enabled": body.enabled}


@router.delete("/access/users/{name:part}", summary="Drop a user", operation_id="drop_user", status_code=204)
async def drop_user(request: Request, name: NameInPath, lake: LakeName = None) -> None:
    """Remove a user with its tokens and grants."""
    await _change_access(request, lambda access: access.drop_user(name))


@router.post("/access/roles", summary="Create a role", operation_id="create_role", status_code=201)
async def create_role(request: Request, body: NewRole, lake: LakeName = None) -> dict[str, Any]:
    """Create a role, to which grants, row filters and masks can be given. This needs the role admin."""
    await _change_access(request, lambda access: access.create_role(body.name))
    return {"name": body.name.lower()}


@router.delete("/access/roles/{role:part}", summary="Drop a role", operation_id="drop_role", status_code=204)
async def drop_role(request: Request, role: NameInPath, lake: LakeName = None) -> None:
    """Remove a role with its grants. One that row filters or masks are for stays."""
    await _change_access(request, lambda access: access.drop_role(role))


@router.post("/access/roles/{role:part}/members", summary="Give a role", operation_id="add_member", status_code=201)
async def add_member(request: Request, role: NameInPath, body: NewMember, lake: LakeName = None) -> dict[str, Any]:
    """Give a role to a user or to another role."""
    await _change_access(request, lambda access: access.add_member(role, body.member))
    return {"role": role.lower(), "member": body.member.lower()}


@router.delete(
    "/access/roles/{role:part}/members/{member:part}",
    summary="Take a role away",
    operation_id="remove_member",
    status_code=204,
)
async def remove_member(request: Request, role: NameInPath, member: NameInPath, lake: LakeName = None) -> None:
    """Take a role away from a user or from another role."""
    await _change_access(request, lambda access: access.remove_member(role, member))


@router.post("/access/grants", summary="Grant privileges", operation_id="grant", status_code=201)
async def grant(request: Request, body: NewGrant, lake: LakeName = None) -> dict[str, Any]:
    """Allow `SELECT`, `INSERT`, `UPDATE`, `DELETE`, `CREATE` or `ALL` on the lake, a schema, or a table or view.

    With `columns`, `SELECT` is for these columns of a table.
    """
    schema, table, columns = body.schema_name, body.table, body.columns
    await _change_access(
        request, lambda access: access.grant(body.privileges, body.to, schema=schema, table=table, columns=columns)
    )
    privileges = [each.upper() for each in body.privileges]
    return {"privileges": privileges, "to": body.to.lower(), "schema": schema, "table": table, "columns": columns}


@router.delete("/access/grants/{id}", summary="Revoke a grant", operation_id="revoke_grant", status_code=204)
async def revoke_grant(request: Request, id: IdInPath, lake: LakeName = None) -> None:
    """Take one grant away; the next statement of whoever had it obeys."""
    await _change_access(request, lambda access: access.revoke_grant(id))


@router.post("/access/rules", summary="Make a row filter or a mask", operation_id="create_rule", status_code=201)
async def create_rule(request: Request, body: NewRule, lake: LakeName = None) -> dict[str, Any]:
    """Show only the rows that satisfy `using`, or its value in place of a column, to everybody or to one role.

    A filter needs a `name`, a mask a `column`. Administrators see all rows and values.
    """
    kind, name, column = body.kind, body.name, body.column

    def work(access: LakeAccess) -> str:
        if kind == FILTER and name is not None and column is None:
            return access.create_policy(name, body.table, body.using, to=body.to)
        if kind != FILTER and column is not None and name is None:
            return access.create_mask(body.table, column, body.using, to=body.to)
        raise InputError("a filter has a name, and a mask has a column", hint="pass one of them")

    return {"id": await _change_access(request, work), **body.model_dump()}


@router.delete("/access/rules/{id}", summary="Drop a row filter or a mask", operation_id="drop_rule", status_code=204)
async def drop_rule(request: Request, id: IdInPath, lake: LakeName = None) -> None:
    """Remove a row filter or a mask: from now on, those it was for see what it hid, as far as no other hides it."""
    await _change_access(request, lambda access: access.drop_rule(id))


@router.post("/access/tokens", summary="Make a token", operation_id="create_token", status_code=201)
async def create_token(request: Request, body: NewToken, response: Response, lake: LakeName = None) -> dict[str, Any]:
    """Return a new token of a user. It is in this answer and nowhere else: the lake keeps a hash of it."""
    token = await _change_access(request, lambda access: access.tokens.create(body.user, body.expires_in))
    response.headers["Cache-Control"] = "no-store"
    return {"token": token, "id": token.split("_")[1], "user": body.user.lower(), "expires_in": body.expires_in}


@router.delete("/access/tokens/{id}", summary="Revoke a token", operation_id="revoke_token", status_code=204)
async def revoke_token(request: Request, id: IdInPath, lake: LakeName = None) -> None:
    """Revoke a token by its id. Other processes may let it in for a few seconds more (setting `token_cache_ms`)."""
    await _change_access(request, lambda access: access.tokens.revoke(id))
