"""``quacklake access``: the users of a lake and their tokens. Grants, row filters and masks are SQL."""

from __future__ import annotations

import datetime as dt
from typing import Annotated

from quacklake.cli.context import Context
from quacklake.cli.options import argument, option

User = Annotated[str, argument("USER", "The name of the user.")]
AnyUser = Annotated[str | None, argument("USER", "The name of the user; without it, all of them.")]


def users(context: Context) -> None:
    """Each has its state and its roles."""
    import pyarrow as pa

    with context.open() as lake:
        roles = lake.access.roles()
        rows = [
            {
                "user": user.name,
                "state": user.state,
                "roles": sorted(role for role, members in roles.items() if user.name in members),
            }
            for user in lake.access.users()
        ]
    schema = pa.schema([("user", pa.string()), ("state", pa.string()), ("roles", pa.list_(pa.string()))])
    context.output.rows(pa.Table.from_pylist(rows, schema))


def create(
    context: Context,
    user: User,
    role: Annotated[list[str] | None, option("--role", "A role: reader, writer, admin, or your own.", "ROLE")] = None,
) -> None:
    """Without a role, it may do nothing until a grant allows it: `quacklake sql "GRANT SELECT ON TABLE t TO USER"`."""
    with context.open(write=True) as lake:
        lake.access.create_user(user, role or ())
        context.output.result(f"created the user {user}", {"created": user})


def drop(context: Context, user: User) -> None:
    """Its tokens and grants go with it."""
    with context.open(write=True) as lake:
        lake.access.drop_user(user)
        context.output.result(f"dropped the user {user}", {"dropped": user})


def token(
    context: Context,
    user: User,
    expires: Annotated[str | None, option("--expires-in", "The time for which it is good.", "DURATION")] = None,
) -> None:
    """The token is shown this once: the lake keeps a hash of it."""
    with context.open(write=True) as lake:
        made = lake.access.tokens.create(user, expires)
        context.output.result(f"Token: {made}", {"user": user, "token": made})


def tokens(context: Context, user: AnyUser = None) -> None:
    """It shows their ids, by which `revoke-token` finds them, and not the tokens."""
    import pyarrow as pa

    with context.open() as lake:
        rows = [
            {
                "id": row.token_id,
                "user": row.principal,
                "created": row.created,
                "expires": None if row.expires_ms is None else dt.datetime.fromtimestamp(row.expires_ms / 1000, dt.UTC),
            }
            for row in lake.access.tokens.list(user)
        ]
    moment = pa.timestamp("ms", tz="UTC")
    schema = pa.schema([("id", pa.string()), ("user", pa.string()), ("created", moment), ("expires", moment)])
    context.output.rows(pa.Table.from_pylist(rows, schema))


def revoke_token(context: Context, id_: Annotated[str, argument("TOKEN", "The token, or its id.")]) -> None:
    """Services refuse it at the latest after the setting token_cache_ms."""
    with context.open(write=True) as lake:
        lake.access.tokens.revoke(id_)
        context.output.result("revoked the token", {"revoked": True})


def grants(context: Context) -> None:
    """A grant on a role holds for its members."""
    with context.open() as lake:
        context.output.rows(lake.sql("SHOW GRANTS").to_arrow())
