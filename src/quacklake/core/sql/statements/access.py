"""Users, roles, grants, row filters and masks: CREATE, DROP, ALTER, GRANT, REVOKE and SHOW, for administrators."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa

from quacklake.core.access import LakeAccess
from quacklake.core.format.access import FILTER, Privilege
from quacklake.core.format.names import quote
from quacklake.core.sql.result import Result
from quacklake.core.sql.words import Cursor, refuse_parameters
from quacklake.errors import SqlError

if TYPE_CHECKING:
    from quacklake.core.sql.session import Session

_PRIVILEGES = frozenset({"ALL", *(privilege.upper() for privilege in Privilege)})


def run(session: Session, cursor: Cursor, params: Any) -> Result:
    """Run a statement about access to the current lake."""
    refuse_parameters(cursor.words)
    attached = session.names.default
    if attached is None or attached.lake is None:
        raise SqlError("users, roles and grants are those of a lake", hint="USE lake")
    if session.work.explicit:
        raise SqlError("users, roles and grants cannot be changed in a transaction: COMMIT or ROLLBACK first")
    access = LakeAccess(attached.lake)
    verb = cursor.take().upper
    if verb == "SHOW":
        return _show(access, cursor)
    if verb in ("GRANT", "REVOKE"):
        _grant(access, cursor, giving=verb == "GRANT")
    elif verb == "ALTER":
        cursor.expect("USER")
        name = cursor.name()
        enable = cursor.accept("ENABLE")
        if not enable:
            cursor.expect("DISABLE")
        cursor.end()
        (access.enable_user if enable else access.disable_user)(name)
    else:
        kind = cursor.take().upper
        _MAKERS[(verb, kind)](access, cursor)
    return Result()


def _create_user(access: LakeAccess, cursor: Cursor) -> None:
    forgiving = cursor.accept("IF", "NOT", "EXISTS")
    name = cursor.name()
    roles = []
    if cursor.accept("ROLE"):
        roles.append(cursor.name())
        while cursor.accept(","):
            roles.append(cursor.name())
    cursor.end()
    access.create_user(name, roles, if_not_exists=forgiving)


def _create_role(access: LakeAccess, cursor: Cursor) -> None:
    forgiving = cursor.accept("IF", "NOT", "EXISTS")
    name = cursor.name()
    cursor.end()
    access.create_role(name, if_not_exists=forgiving)


def _drop_user(access: LakeAccess, cursor: Cursor) -> None:
    forgiving = cursor.accept("IF", "EXISTS")
    name = cursor.name()
    cursor.end()
    access.drop_user(name, if_exists=forgiving)


def _drop_role(access: LakeAccess, cursor: Cursor) -> None:
    forgiving = cursor.accept("IF", "EXISTS")
    name = cursor.name()
    cursor.end()
    access.drop_role(name, if_exists=forgiving)


def _create_policy(access: LakeAccess, cursor: Cursor) -> None:
    name = cursor.name()
    cursor.expect("ON")
    table = _table(cursor)
    role = cursor.name() if cursor.accept("TO") else None
    cursor.expect("USING")
    expression = cursor.parens()
    cursor.end()
    access.create_policy(name, table, expression, to=role)


def _drop_policy(access: LakeAccess, cursor: Cursor) -> None:
    forgiving = cursor.accept("IF", "EXISTS")
    name = cursor.name()
    cursor.expect("ON")
    table = _table(cursor)
    cursor.end()
    access.drop_policy(name, table, if_exists=forgiving)


def _create_mask(access: LakeAccess, cursor: Cursor) -> None:
    cursor.expect("ON")
    table, column = _table(cursor), _column(cursor)
    role = cursor.name() if cursor.accept("TO") else None
    cursor.expect("USING")
    expression = cursor.parens()
    cursor.end()
    access.create_mask(table, column, expression, to=role)


def _drop_mask(access: LakeAccess, cursor: Cursor) -> None:
    forgiving = cursor.accept("IF", "EXISTS")
    cursor.expect("ON")
    table, column = _table(cursor), _column(cursor)
    role = cursor.name() if cursor.accept("TO") else None
    cursor.end()
    access.drop_mask(table, column, to=role, if_exists=forgiving)


_MAKERS = {
    ("CREATE", "USER"): _create_user,
    ("CREATE", "ROLE"): _create_role,
    ("CREATE", "POLICY"): _create_policy,
    ("CREATE", "MASK"): _create_mask,
    ("DROP", "USER"): _drop_user,
    ("DROP", "ROLE"): _drop_role,
    ("DROP", "POLICY"): _drop_policy,
    ("DROP", "MASK"): _drop_mask,
}


def _table(cursor: Cursor) -> str:
    return ".".join(quote(name) for name in cursor.names())


def _column(cursor: Cursor) -> str:
    cursor.expect("(")
    name = cursor.name()
    cursor.expect(")")
    return name


def _grant(access: LakeAccess, cursor: Cursor, *, giving: bool) -> None:
    """Run GRANT or REVOKE of privileges or of a role."""
    first = cursor.peek()
    towards = "TO" if giving else "FROM"
    if first is not None and not (first.kind == "word" and first.upper in _PRIVILEGES):
        role = cursor.name()
        cursor.expect(towards)
        member = cursor.name()
        cursor.end()
        (access.add_member if giving else access.remove_member)(role, member)
        return
    privileges, columns = [cursor.take().upper], None
    cursor.accept("PRIVILEGES")
    while cursor.accept(","):
        privileges.append(cursor.take().upper)
    if cursor.sees("("):
        columns = [type(cursor)(item).name() for item in cursor.items()]
    cursor.expect("ON")
    place: dict[str, Any] = {}
    if cursor.accept("SCHEMA"):
        place["schema"] = ".".join(cursor.names())
    elif not cursor.accept("LAKE"):
        cursor.accept("TABLE") or cursor.accept("VIEW")
        place["table"] = _table(cursor)
        place["columns"] = columns
    if columns is not None and "table" not in place:
        raise cursor.fail("columns are those of a table")
    cursor.expect(towards)
    name = cursor.name()
    cursor.end()
    if giving:
        access.grant(privileges, name, **place)
    else:
        access.revoke(privileges, name, **place)


def _show(access: LakeAccess, cursor: Cursor) -> Result:
    if cursor.accept("GRANTS"):
        name = cursor.name() if cursor.accept("FOR") else None
        cursor.end()
        return _to_result("grantee privilege scope object column state", grant_rows(access, name))
    cursor.expect("ACCESS")
    what = cursor.take().upper
    cursor.end()
    if what == "USERS":
        return _to_result("user state", [(user.name, user.state) for user in access.users()])
    if what == "ROLES":
        return _to_result("role members", [(role, ", ".join(mine)) for role, mine in access.roles().items()])
    return _to_result("name kind table column role expression", policy_rows(access))


def grant_rows(access: LakeAccess, grantee: str | None = None) -> list[tuple[str | None, ...]]:
    """Return the grants with the last names of their objects, and whether these are still there."""
    found = [
        (
            each.grant.grantee,
            each.grant.privilege.upper(),
            each.grant.scope,
            each.object,
            each.column,
            "dropped" if each.dropped else "current",
        )
        for each in access.named_grants(grantee)
    ]
    return sorted(found, key=str)


def policy_rows(access: LakeAccess) -> list[tuple[str | None, ...]]:
    """Return the row filters and masks."""
    return sorted(
        (
            (
                policy.name if policy.kind == FILTER else None,
                policy.kind,
                f"{policy.schema_name}.{policy.table_name}",
                policy.column_name,
                policy.role,
                policy.expression,
            )
            for policy in access.policies()
        ),
        key=str,
    )


def _to_result(names: str, rows: list[Any]) -> Result:
    schema = pa.schema([(name, pa.string()) for name in names.split()])
    return Result(pa.Table.from_pylist([dict(zip(schema.names, row, strict=True)) for row in rows], schema=schema))
