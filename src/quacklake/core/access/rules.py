"""The rules of one principal: its roles, grants, row filters and masks, read from the catalog."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace

from quacklake.core.access.expressions import bound, columns_of, tried
from quacklake.core.catalog import Catalog, Reader, access_tables
from quacklake.core.catalog.policy_names import PolicyNames, policy_names
from quacklake.core.format.access import (
    ADMIN,
    AUDIT_SCHEMA,
    BUILT_IN,
    ENABLED,
    FILTER,
    MASK,
    Grant,
    Member,
    PolicyRow,
    Principal,
    Privilege,
    Scope,
)
from quacklake.core.format.bounds import ANYTHING, Predicate, some
from quacklake.core.format.names import fold
from quacklake.core.format.objects import MacroInfo, SchemaInfo, TableInfo, ViewInfo
from quacklake.core.format.schema import Column, TableSchema
from quacklake.core.scan import to_predicate
from quacklake.core.scan.visibility import Visible, value_name
from quacklake.errors import InputError, NotPermittedError, PredicateError

Note = Callable[[TableInfo, Sequence[str], int], None]
_MAX_LEVELS = 20
"""The most levels of roles that are members of roles."""


@dataclass(frozen=True)
class PrincipalRules:
    """The rules of a principal as they were at one moment; see ``scan.visibility.Rules``."""

    principal: str
    roles: frozenset[str] = frozenset()
    grants: tuple[Grant, ...] = ()
    policies: tuple[PolicyRow, ...] = ()
    names: PolicyNames = field(default=PolicyNames(), hash=False)
    note: Note | None = field(default=None, compare=False)

    def noted(self, table: TableInfo, columns: Sequence[str], snapshot_id: int) -> None:
        """Record that columns of a table are read."""
        if self.note is not None:
            self.note(table, columns, snapshot_id)

    @property
    def is_admin(self) -> bool:
        """True when the principal may do everything."""
        return ADMIN in self.roles

    # -- privileges ----------------------------------------------------------------------------------------------------

    def on_lake(self, privilege: Privilege) -> bool:
        """Return whether a privilege holds for the whole lake."""
        if any(privilege in BUILT_IN.get(role, ()) for role in self.roles):
            return True
        return any(grant.scope == Scope.LAKE and grant.privilege == privilege for grant in self.grants)

    def on_schema(self, privilege: Privilege, schema_id: int) -> bool:
        """Return whether a privilege holds for a schema."""
        return self.on_lake(privilege) or self._has_grant(privilege, Scope.SCHEMA, schema_id)

    def on_table(self, privilege: Privilege, schema_id: int, id_: int, *, derived: bool = False) -> bool:
        """Return whether a privilege holds for a table or view, for a ``derived`` one by a grant of its own.

        A materialized view holds rows of other tables, and the audit log what others do: both are derived.
        """
        own = self._has_grant(privilege, Scope.TABLE, id_)
        return own or (not derived and self.on_schema(privilege, schema_id))

    def _has_grant(self, privilege: Privilege, scope: Scope, id_: int) -> bool:
        return any(
            grant.privilege == privilege and grant.scope == scope and grant.object_id == id_ and grant.column_id is None
            for grant in self.grants
        )

    def _columns(self, table: TableInfo, *, derived: bool = False) -> tuple[Column, ...]:
        """Return the columns of a table that may be read."""
        derived = derived or _is_audit(table.schema_name)
        if self.on_table(Privilege.SELECT, table.schema_id, table.id, derived=derived):
            return table.schema.columns
        mine = {
            grant.column_id
            for grant in self.grants
            if grant.scope == Scope.TABLE and grant.object_id == table.id and grant.privilege == Privilege.SELECT
        }
        return tuple(column for column in table.schema.columns if column.id in mine)

    def _changes(self, table: TableInfo) -> bool:
        changes = (Privilege.INSERT, Privilege.UPDATE, Privilege.DELETE)
        if _is_audit(table.schema_name):
            return False
        return any(self.on_table(privilege, table.schema_id, table.id) for privilege in changes)

    # -- what is visible -----------------------------------------------------------------------------------------------

    def sees_schema(self, schema: SchemaInfo) -> bool:
        """Return whether a schema, or anything in it, is visible."""
        if not _is_audit(schema.name) and any(self.on_schema(privilege, schema.id) for privilege in Privilege):
            return True
        return any(grant.scope == Scope.TABLE and grant.schema_id == schema.id for grant in self.grants)

    def sees(self, item: ViewInfo | MacroInfo) -> bool:
        """Return whether a view or macro is visible."""
        if isinstance(item, MacroInfo):
            return self.on_schema(Privilege.SELECT, item.schema_id)
        return self.on_table(Privilege.SELECT, item.schema_id, item.id)

    def table(self, table: TableInfo, *, derived: bool) -> TableInfo | None:
        """Return a table with its visible columns, or None for a hidden one."""
        columns = self._columns(table, derived=derived)
        if len(columns) == len(table.schema.columns):
            return table
        if columns:
            # partitioning and order may name hidden columns
            return replace(table, schema=TableSchema(columns), partition=None, sort=None)
        return table if not derived and self._changes(table) else None

    def visible(self, table: TableInfo, *, derived: bool) -> Visible | None:
        """Return what may be read of a whole table; None for all of it. Raise ``NotPermittedError`` for nothing."""
        columns = self._columns(table, derived=derived)
        if not columns:
            raise NotPermittedError(f"the rows of {table.qualified_name} may not be read")
        masks = self._masks(table)
        filters = self._filters(table)
        if len(columns) == len(table.schema.columns) and not masks and filters is None:
            return None
        shown = tuple(replace(column, nullable=True) if column.id in masks else column for column in columns)
        masks = {id_: sql for id_, sql in masks.items() if any(column.id == id_ for column in columns)}
        condition = None if filters is None else self._condition(table, filters)
        predicate = ANYTHING if filters is None else self._predicate(table, filters)
        return Visible(TableSchema(shown), condition, masks, predicate)

    def shows_files(self, table: TableInfo, *, derived: bool) -> bool:
        """Return whether the files of a table may be read as they are, with all rows and columns that they ever had.

        Columns that were dropped are still in files and in past snapshots, so a grant on all columns of today is not
        enough, nor that no column of today has a mask.
        """
        derived = derived or _is_audit(table.schema_name)
        whole = self.on_table(Privilege.SELECT, table.schema_id, table.id, derived=derived)
        return whole and self._filters(table) is None and not self._mine(self._of(table, MASK))

    # -- policies ------------------------------------------------------------------------------------------------------

    def row_condition(self, table: TableInfo) -> str | None:
        """Return the condition that new rows of a table must satisfy, over ``value_name``; None if there is none."""
        filters = self._filters(table)
        return None if filters is None else self._condition(table, filters)

    def _of(self, table: TableInfo, kind: str) -> list[PolicyRow]:
        """Return the policies of a table, also those that it has inherited with its name."""
        return [
            policy
            for policy in self.policies
            if policy.kind == kind and self.names.is_for(policy, table.id, table.schema_name, table.name)
        ]

    def _mine(self, policies: Iterable[PolicyRow]) -> list[PolicyRow]:
        return [policy for policy in policies if policy.role is None or policy.role in self.roles]

    def _filters(self, table: TableInfo) -> list[PolicyRow] | None:
        """Return the row filters of the principal, of which one must hold; None for a table without any."""
        known = self._of(table, FILTER)
        return self._mine(known) if known else None

    def _sql(self, policy: PolicyRow, table: TableInfo, *, named: bool = False) -> str:
        columns = columns_of(policy.columns, table.schema, by_id=policy.table_id == table.id)
        if columns is None:  # fail closed
            raise NotPermittedError(
                f"{table.qualified_name} cannot be read: its policies need a column that it does not have",
                hint="an administrator can drop the policy, and make another",
            )
        names = {name: column.name if named else value_name(column) for name, column in columns.items()}
        try:
            return bound(policy.expression, names, self.principal, self.roles)
        except InputError:  # fail closed, and show nothing of the policy
            raise NotPermittedError(
                f"{table.qualified_name} cannot be read: one of its policies is not valid",
                hint="an administrator can drop the policy, and make another",
            ) from None

    def _condition(self, table: TableInfo, filters: Sequence[PolicyRow]) -> str:
        parts = [f"coalesce({tried(self._sql(policy, table), 'BOOLEAN')}, false)" for policy in filters]
        return " OR ".join(parts) or "false"

    def _predicate(self, table: TableInfo, filters: Sequence[PolicyRow]) -> Predicate:
        if not filters:
            return ANYTHING
        try:
            return some(to_predicate(self._sql(policy, table, named=True), table.schema) for policy in filters)
        except PredicateError:
            return ANYTHING

    def _masks(self, table: TableInfo) -> dict[int, str]:
        """Return what masked columns show, by column id. NULL for a column that several masks of one's own are for."""
        found: dict[int, str] = {}
        for policy in self._mine(self._of(table, MASK)):
            for column in table.schema.columns:
                if self.names.masks(policy, table.id, column.id, column.name):
                    type_ = column.duckdb_type()
                    nothing = column.id in found or not self._applies(policy, table)
                    value = f"CAST(NULL AS {type_})" if nothing else tried(self._sql(policy, table), type_)
                    found[column.id] = value
        return found

    def _applies(self, policy: PolicyRow, table: TableInfo) -> bool:
        """Return whether a table has all columns that the expression of a policy names."""
        return columns_of(policy.columns, table.schema, by_id=policy.table_id == table.id) is not None

    # -- changes -------------------------------------------------------------------------------------------------------

    def check_create(self, schema_id: int, schema_name: str) -> None:
        """Raise ``NotPermittedError`` unless tables may be created in a schema, whatever is in it."""
        if not self.on_schema(Privilege.CREATE, schema_id):
            raise NotPermittedError(f'tables may not be created in the schema "{schema_name}"')

    def check_change(self, table: TableInfo, whole: TableInfo) -> None:
        """Raise ``NotPermittedError`` unless rows of a table may be changed in some way."""
        if whole.id >= 0 and not self._changes(whole):
            raise NotPermittedError(f"the rows of {table.qualified_name} may not be changed")
        columns = self._columns(whole)
        if columns and len(columns) < len(whole.schema.columns):
            raise NotPermittedError(
                f"the rows of {table.qualified_name} may not be changed, because some of its columns are hidden"
            )


def _is_audit(schema: str) -> bool:
    return fold(schema) == AUDIT_SCHEMA


def read_rules(reader: Reader, principal: str) -> PrincipalRules:
    """Return the rules of a principal as they are now. One that is unknown or disabled may do nothing."""
    if not access_tables.complete(reader):
        return PrincipalRules(principal)
    known = access_tables.entries(reader, Principal, name=principal)
    policies = tuple(access_tables.entries(reader, PolicyRow))
    names = policy_names(reader, policies)
    if not known or known[0].state != ENABLED:
        return PrincipalRules(principal, policies=policies, names=names)
    roles = roles_of(principal, access_tables.entries(reader, Member))
    mine = {principal, *roles}
    grants = tuple(grant for grant in access_tables.entries(reader, Grant) if grant.grantee in mine)
    return PrincipalRules(principal, roles, grants, policies, names)


def roles_of(principal: str, members: Iterable[Member]) -> frozenset[str]:
    """Return the roles of a principal, with those of which its roles are members."""
    above: dict[str, set[str]] = {}
    for entry in members:
        above.setdefault(entry.member, set()).add(entry.role)
    found: set[str] = set()
    level = {principal}
    for _ in range(_MAX_LEVELS):
        level = {role for name in level for role in above.get(name, ())} - found
        found |= level
    return frozenset(found)


def current_rules(catalog: Catalog, principal: str) -> PrincipalRules:
    """Return the rules of a principal of a lake as they are now."""
    with catalog.read() as reader:
        return read_rules(reader, principal)
