"""The administration of access: users, roles, grants, row filters, masks and tokens."""

from __future__ import annotations

import builtins
import json
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from quacklake.core.access.audit import audit_of
from quacklake.core.access.expressions import check_policy
from quacklake.core.access.rules import PrincipalRules, current_rules
from quacklake.core.access.tokens import NewToken, Tokens
from quacklake.core.catalog import Reader, Writer, access_tables
from quacklake.core.catalog.grant_names import NamedGrant, named_grants
from quacklake.core.catalog.policy_names import policy_names
from quacklake.core.format.access import (
    BUILT_IN,
    DISABLED,
    ENABLED,
    FILTER,
    MASK,
    NOBODY,
    OF_COLUMNS,
    OF_TABLES,
    Grant,
    Member,
    PolicyRow,
    Principal,
    Privilege,
    Scope,
    TokenRow,
    check_access_name,
)
from quacklake.core.format.names import fold, uuid7
from quacklake.core.format.objects import TableInfo
from quacklake.core.operations.context import boundary
from quacklake.core.operations.handles import LakeHandle
from quacklake.core.operations.reference import TableRef
from quacklake.errors import AlreadyExistsError, InputError, NotFoundError, NotPermittedError, nearest

if TYPE_CHECKING:
    from datetime import timedelta


@dataclass(frozen=True, slots=True)
class _Object:
    scope: Scope
    schema_id: int | None = None
    id: int | None = None
    column_ids: tuple[int | None, ...] = (None,)


@boundary
class LakeAccess:
    """Users, roles, grants, row filters, masks and tokens of a lake. They hold from the next statement on."""

    def __init__(self, handle: LakeHandle) -> None:
        if handle.restricted:
            raise NotPermittedError("only administrators manage access to a lake")
        self._handle = handle
        self._catalog = handle.context.catalog
        self.tokens = Tokens(handle.context.catalog, handle.context.config.token_cache_ms / 1000)

    @contextmanager
    def _changing(self) -> Iterator[Writer]:
        with self._catalog.commit() as writer:
            writer.snapshots.check_there()
            yield writer

    @contextmanager
    def _reading(self) -> Iterator[Reader]:
        with self._catalog.read() as reader:
            reader.snapshots.check_there()
            yield reader

    # -- users and roles -----------------------------------------------------------------------------------------------

    def users(self) -> builtins.list[Principal]:
        """Return the users, by name."""
        with self._reading() as reader:
            return sorted(access_tables.entries(reader, Principal), key=lambda user: user.name)

    def create_user(self, name: str, roles: Iterable[str] = (), *, if_not_exists: bool = False) -> None:
        """Create a user, who may do nothing until a role or a grant allows it."""
        name = check_access_name(name, "user")
        roles = [check_access_name(role, "role") for role in roles]
        with self._changing() as writer:
            if _is_user(writer, name) and if_not_exists:
                return
            _add_user(writer, name, roles)

    def create_user_with_token(
        self, name: str, roles: Iterable[str] = (), expires_in: float | str | timedelta | None = None
    ) -> str:
        """Create a user together with a token, which is returned this once: there are both, or neither."""
        roles = [check_access_name(role, "role") for role in roles]
        token = NewToken.of(name, expires_in)
        with self._changing() as writer:
            _add_user(writer, token.principal, roles)
            token.add_to(writer)
        return token.text

    def drop_user(self, name: str, *, if_exists: bool = False) -> None:
        """Remove a user with its tokens and grants."""
        name = check_access_name(name, "user")
        with self._changing() as writer:
            if not _is_user(writer, name):
                if if_exists:
                    return
                raise _no_user(writer, name)
            access_tables.remove(writer, Principal, name=name)
            access_tables.remove(writer, TokenRow, principal=name)
            access_tables.remove(writer, Member, member=name)
            access_tables.remove(writer, Grant, grantee=name)

    def disable_user(self, name: str) -> None:
        """Let a user do nothing, and keep its roles, grants and tokens."""
        self._set_state(name, DISABLED)

    def enable_user(self, name: str) -> None:
        """Let a user do again what its roles and grants allow."""
        self._set_state(name, ENABLED)

    def _set_state(self, name: str, state: str) -> None:
        name = check_access_name(name, "user")
        with self._changing() as writer:
            known = access_tables.entries(writer, Principal, name=name)
            if not known:
                raise _no_user(writer, name)
            access_tables.remove(writer, Principal, name=name)
            access_tables.add(writer, Principal(name, state, known[0].created))

    def roles(self) -> dict[str, builtins.list[str]]:
        """Return the roles with their members."""
        with self._reading() as reader:
            found: dict[str, builtins.list[str]] = {role: [] for role in BUILT_IN}
            for entry in access_tables.entries(reader, Member):
                mine = found.setdefault(entry.role, [])
                if entry.member != NOBODY:
                    mine.append(entry.member)
        return {role: sorted(found[role]) for role in sorted(found)}

    def create_role(self, name: str, *, if_not_exists: bool = False) -> None:
        """Create a role, to which grants, row filters and masks can be given."""
        name = check_access_name(name, "role")
        with self._changing() as writer:
            if if_not_exists and _is_role(writer, name):
                return
            _check_free(writer, name)
            access_tables.add(writer, Member(name, NOBODY, access_tables.now(writer)[0]))

    def drop_role(self, name: str, *, if_exists: bool = False) -> None:
        """Remove a role with its grants. Raise ``InputError`` while a row filter or mask is for it."""
        name = check_access_name(name, "role")
        if name in BUILT_IN:
            raise InputError(f'the role "{name}" is part of every lake')
        with self._changing() as writer:
            if if_exists and not _is_role(writer, name):
                return
            _check_role(writer, name)
            used = access_tables.entries(writer, PolicyRow, role=name)
            if used:
                raise InputError(
                    f'the role "{name}" has policies, one of them on {used[0].schema_name}.{used[0].table_name}',
                    hint="drop them first",
                )
            access_tables.remove(writer, Member, role=name)
            access_tables.remove(writer, Member, member=name)
            access_tables.remove(writer, Grant, grantee=name)

    def add_member(self, role: str, member: str) -> None:
        """Give a role to a user or to another role."""
        role, member = check_access_name(role, "role"), check_access_name(member, "user")
        with self._changing() as writer:
            _check_role(writer, role)
            _check_grantee(writer, member)
            if role == member or member in BUILT_IN:
                raise InputError(f'"{member}" cannot be a member of the role "{role}"')
            if not access_tables.entries(writer, Member, role=role, member=member):
                access_tables.add(writer, Member(role, member, access_tables.now(writer)[0]))

    def remove_member(self, role: str, member: str) -> None:
        """Take a role away."""
        role, member = check_access_name(role, "role"), check_access_name(member, "user")
        with self._changing() as writer:
            _check_role(writer, role)
            access_tables.remove(writer, Member, role=role, member=member)

    # -- grants --------------------------------------------------------------------------------------------------------

    def grants(self, grantee: str | None = None) -> builtins.list[Grant]:
        """Return the grants, or those of one user or role."""
        name = None if grantee is None else check_access_name(grantee, "user")
        with self._reading() as reader:
            return access_tables.entries(reader, Grant, grantee=name)

    def named_grants(self, grantee: str | None = None) -> builtins.list[NamedGrant]:
        """Return the grants that allow something, with the last names of what they are on.

        One on something dropped allows to read it in the snapshots that have it, and says so.
        """
        name = None if grantee is None else check_access_name(grantee, "user")
        with self._reading() as reader:
            return named_grants(reader, access_tables.entries(reader, Grant, grantee=name))

    def grant(
        self,
        privileges: str | Iterable[str],
        to: str,
        *,
        schema: str | None = None,
        table: str | None = None,
        columns: str | Sequence[str] | None = None,
    ) -> None:
        """Allow ``SELECT``, ``INSERT``, ``UPDATE``, ``DELETE`` or ``CREATE`` on the lake, a schema, or a table or view.

        With ``columns``, ``SELECT`` is for these columns of a table; its other columns do not exist for the grantee.
        A materialized view is visible only by a grant on itself, because it holds rows of other tables.
        """
        chosen = self._privileges(privileges, table, columns)
        place = self._object(schema, table, columns)
        grantee = check_access_name(to, "user")
        with self._changing() as writer:
            _check_grantee(writer, grantee)
            grants = access_tables.entries(writer, Grant, grantee=grantee)
            kept = {each.grant.grant_id for each in named_grants(writer, grants)}
            for grant in (each for each in grants if each.grant_id not in kept):  # no snapshot has its object
                access_tables.remove(writer, Grant, grant_id=grant.grant_id)
            known = {_key(grant) for grant in grants}
            created, _ = access_tables.now(writer)
            for privilege in chosen:
                for column in place.column_ids:
                    given = Grant(
                        str(uuid7()), grantee, privilege, place.scope, place.schema_id, place.id, column, created
                    )
                    if _key(given) not in known:
                        access_tables.add(writer, given)

    def revoke(
        self,
        privileges: str | Iterable[str],
        from_: str,
        *,
        schema: str | None = None,
        table: str | None = None,
        columns: str | Sequence[str] | None = None,
    ) -> None:
        """Take grants away, as they were given, also those on dropped objects of that name.

        ``ALL`` stands for every privilege.
        """
        chosen = self._privileges(privileges, table, columns)
        grantee = check_access_name(from_, "user")
        with self._changing() as writer:
            _check_grantee(writer, grantee)
            grants = access_tables.entries(writer, Grant, grantee=grantee)
            old = [each.grant for each in named_grants(writer, grants) if _was(each, schema, table, columns)]
            try:
                place = self._object(schema, table, columns)
            except NotFoundError:
                if not old:
                    raise
                place = None
            for grant in grants:
                same = place is not None and (grant.scope, grant.object_id) == (place.scope, place.id)
                here = same and place is not None and grant.column_id in place.column_ids
                if grant.privilege in chosen and (here or grant in old):
                    access_tables.remove(writer, Grant, grant_id=grant.grant_id)

    def revoke_grant(self, grant_id: str) -> None:
        """Take one grant away by its id. Raise ``NotFoundError``."""
        with self._changing() as writer:
            if not access_tables.entries(writer, Grant, grant_id=grant_id):
                raise NotFoundError("there is no such grant")
            access_tables.remove(writer, Grant, grant_id=grant_id)

    def drop_rule(self, policy_id: str) -> None:
        """Remove a row filter or a mask by its id. Raise ``NotFoundError``."""
        with self._changing() as writer:
            if not access_tables.entries(writer, PolicyRow, policy_id=policy_id):
                raise NotFoundError("there is no such row filter or mask")
            access_tables.remove(writer, PolicyRow, policy_id=policy_id)

    def _privileges(
        self, privileges: str | Iterable[str], table: str | None, columns: str | Sequence[str] | None
    ) -> builtins.list[Privilege]:
        names = [privileges] if isinstance(privileges, str) else list(privileges)
        allowed: Collection[Privilege] = frozenset(Privilege)
        if table is not None:
            allowed = OF_TABLES if columns is None else OF_COLUMNS
        chosen: builtins.list[Privilege] = []
        for name in names:
            if name.upper() == "ALL":
                chosen += allowed
            elif name.lower() in allowed:
                chosen.append(Privilege(name.lower()))
            else:
                known = ", ".join(sorted(each.upper() for each in allowed))
                raise InputError(f"there is no privilege {name.upper()} for this", hint=f"there are {known}")
        if not chosen:
            raise InputError("no privilege is given")
        return chosen

    def _object(self, schema: str | None, table: str | None, columns: str | Sequence[str] | None) -> _Object:
        view = self._handle.view()
        if table is None:
            if columns is not None:
                raise InputError("columns are those of a table: pass table= too")
            if schema is None:
                return _Object(Scope.LAKE)
            return _Object(Scope.SCHEMA, id=view.find_schema(schema).id)
        if schema is not None:
            raise InputError("pass schema= or table=, not both")
        ref = TableRef.parse(table)
        shown = view.objects.get_view(ref.schema, ref.name) if columns is None else None
        if shown is not None:
            return _Object(Scope.TABLE, shown.schema_id, shown.id)
        info = view.find_table(ref.schema, ref.name)
        if columns is None:
            return _Object(Scope.TABLE, info.schema_id, info.id)
        names = [columns] if isinstance(columns, str) else columns
        return _Object(Scope.TABLE, info.schema_id, info.id, tuple(info.schema.find(name).id for name in names))

    # -- row filters and masks -----------------------------------------------------------------------------------------

    def policies(self) -> builtins.list[PolicyRow]:
        """Return the row filters and masks."""
        with self._reading() as reader:
            return access_tables.entries(reader, PolicyRow)

    def create_policy(self, name: str, table: str, using: str, *, to: str | None = None) -> str:
        """Show only the rows of a table that satisfy a condition, to everybody or to one role; return the rule's id.

        A table with row filters shows a row if one of those that are for the principal holds, and no row if none is.
        New rows must satisfy the same. The condition may name the columns of the table, ``current_principal()`` and
        ``has_role('r')``. Administrators see all rows.
        """
        name = check_access_name(name, "policy")
        info = self._table(table)
        expression, columns = check_policy(using, info.schema, "BOOLEAN")
        return self._add_policy(FILTER, name, info, None, to, expression, columns)

    def drop_policy(self, name: str, table: str, *, if_exists: bool = False) -> None:
        """Remove a row filter."""
        self._drop_policy(FILTER, check_access_name(name, "policy"), table, None, if_exists=if_exists)

    def create_mask(self, table: str, column: str, using: str, *, to: str | None = None) -> str:
        """Show the value of an expression in place of a column, to everybody or to one role; return the rule's id.

        Conditions see that value too. A column shows NULL to a principal that several of its masks are for.
        """
        info = self._table(table)
        found = info.schema.find(column)
        expression, columns = check_policy(using, info.schema, found.duckdb_type())
        role = None if to is None else check_access_name(to, "role")
        return self._add_policy(
            MASK, f"{found.id}.{role or 'everybody'}", info, (found.id, found.name), to, expression, columns
        )

    def drop_mask(self, table: str, column: str, *, to: str | None = None, if_exists: bool = False) -> None:
        """Remove a mask."""
        role = None if to is None else check_access_name(to, "role")
        self._drop_policy(MASK, role, table, column, if_exists=if_exists)

    def _table(self, name: str) -> TableInfo:
        ref = TableRef.parse(name)
        return self._handle.view().find_table(ref.schema, ref.name)

    def _add_policy(
        self,
        kind: str,
        name: str,
        table: TableInfo,
        column: tuple[int, str] | None,
        to: str | None,
        expression: str,
        columns: dict[str, int],
    ) -> str:
        role = None if to is None else check_access_name(to, "role")
        with self._changing() as writer:
            if role is not None:
                _check_role(writer, role)
            for known in access_tables.entries(writer, PolicyRow, table_id=table.id):
                if (known.kind, known.name) == (kind, name):
                    what = f'the policy "{name}"' if kind == FILTER else "that mask"
                    raise AlreadyExistsError(f"{table.qualified_name} has {what} already", hint="drop it first")
            made = PolicyRow(
                str(uuid7()),
                kind,
                name,
                table.id,
                table.schema_name,
                table.name,
                None if column is None else column[0],
                None if column is None else column[1],
                role,
                expression,
                json.dumps(columns, sort_keys=True),
                access_tables.now(writer)[0],
            )
            access_tables.add(writer, made)
        return made.policy_id

    def _drop_policy(self, kind: str, name: str | None, table: str, column: str | None, *, if_exists: bool) -> None:
        """Remove a policy of a table, or of one that had the name: the table may have been dropped since."""
        ref = TableRef.parse(table)
        info = self._handle.view().get_table(ref.schema, ref.name)
        with self._changing() as writer:
            policies = access_tables.entries(writer, PolicyRow)
            names, id_ = policy_names(writer, policies), None if info is None else info.id
            for known in policies:
                here = names.is_for(known, id_, ref.schema, ref.name)
                own = known.name == name if kind == FILTER else known.role == name
                same = column is None or names.masks(known, id_, self._column_id(info, column), column)
                if known.kind == kind and here and own and same:
                    access_tables.remove(writer, PolicyRow, policy_id=known.policy_id)
                    return
            if not if_exists:
                raise NotFoundError(f"there is no such {'policy' if kind == FILTER else 'mask'} on {table}")

    def _column_id(self, table: TableInfo | None, name: str) -> int | None:
        column = None if table is None else table.schema.get(name)
        return None if column is None else column.id

    def flush_audit(self) -> None:
        """Write the records of the audit log that are still in memory to its table, ``quacklake_audit.log``."""
        if not self._catalog.closed:
            audit_of(self._handle.context).flush()

    # -- what holds ----------------------------------------------------------------------------------------------------

    def rules(self, principal: str) -> PrincipalRules:
        """Return what a user may see and change now. One that does not exist may do nothing."""
        return current_rules(self._catalog, check_access_name(principal, "user"))

    def is_enabled(self, name: str) -> bool:
        """Return whether there is such a user, and it may come in."""
        with self._reading() as reader:
            found = access_tables.entries(reader, Principal, name=check_access_name(name, "user"))
            return bool(found) and found[0].state == ENABLED

    def check_user(self, name: str) -> None:
        """Raise ``NotFoundError`` for a user that does not exist."""
        with self._reading() as reader:
            if not _is_user(reader, check_access_name(name, "user")):
                raise _no_user(reader, name)


def _key(grant: Grant) -> tuple[object, ...]:
    return grant.grantee, grant.privilege, grant.scope, grant.object_id, grant.column_id


def _was(named: NamedGrant, schema: str | None, table: str | None, columns: str | Sequence[str] | None) -> bool:
    """Return whether a grant is on a dropped object that had these names at last."""
    if not named.dropped:
        return False
    if table is None:
        return schema is not None and named.table is None and fold(named.schema or "") == fold(schema)
    ref = TableRef.parse(table)
    names = None if columns is None else {fold(each) for each in ([columns] if isinstance(columns, str) else columns)}
    same = (fold(named.schema or ""), fold(named.table or "")) == (fold(ref.schema), fold(ref.name))
    return same and (named.column is None if names is None else fold(named.column or "") in names)


def _add_user(writer: Writer, name: str, roles: Iterable[str]) -> None:
    _check_free(writer, name)
    created, _ = access_tables.now(writer)
    access_tables.add(writer, Principal(name, ENABLED, created))
    for role in roles:
        _check_role(writer, role)
        access_tables.add(writer, Member(role, name, created))


def _is_user(reader: Reader, name: str) -> bool:
    return bool(access_tables.entries(reader, Principal, name=name))


def _is_role(reader: Reader, name: str) -> bool:
    return name in BUILT_IN or any(entry.member == NOBODY for entry in access_tables.entries(reader, Member, role=name))


def _no_user(reader: Reader, name: str) -> NotFoundError:
    known = [user.name for user in access_tables.entries(reader, Principal)]
    return NotFoundError(f'there is no user "{name}"', hint=nearest(name, known))


def _check_role(reader: Reader, name: str) -> None:
    if not _is_role(reader, name):
        known = {entry.role for entry in access_tables.entries(reader, Member)} | set(BUILT_IN)
        raise NotFoundError(f'there is no role "{name}"', hint=nearest(name, known))


def _check_grantee(reader: Reader, name: str) -> None:
    if not _is_user(reader, name) and not _is_role(reader, name):
        raise NotFoundError(f'there is no user or role "{name}"')


def _check_free(reader: Reader, name: str) -> None:
    if _is_user(reader, name) or _is_role(reader, name):
        raise AlreadyExistsError(f'there is a user or role "{name}" already')
