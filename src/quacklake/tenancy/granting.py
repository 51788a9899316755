"""Grant PostgreSQL roles access to catalogs of a secured shared lake."""

from __future__ import annotations

from typing import Any

from sqlalchemy.engine import Connection

from quacklake.catalog.shared_lake import SharedPlace, rows_of
from quacklake.errors import InputError, NotFoundError
from quacklake.format.names import literal, quote
from quacklake.tenancy.role_limits import timeouts
from quacklake.tenancy.row_security import GRANTS


def need_role(connection: Connection, role: str) -> None:
    """Raise ``NotFoundError`` for a missing role."""
    if not _has_role(connection, role):
        raise NotFoundError(f"the database has no role '{role}'", hint="CREATE ROLE … LOGIN makes one")


def _has_role(connection: Connection, role: str) -> bool:
    return bool(rows_of(connection, f"SELECT 1 FROM pg_roles WHERE rolname = {literal(role)}"))


def check_role(connection: Connection, place: SharedPlace, role: str) -> None:
    """Like ``need_role``, and raise ``InputError`` for a role that bypasses policies."""
    need_role(connection, role)
    above = f"rolsuper OR rolbypassrls OR pg_has_role(oid, {literal(place.owner)}, 'MEMBER')"
    if rows_of(connection, f"SELECT 1 FROM pg_roles WHERE rolname = {literal(role)} AND ({above})"):
        raise InputError(
            f"the role '{role}' sees every catalog: it is a superuser, bypasses row-level security or owns the tables",
            hint="give each tenant a role without such rights",
        )


def grant(connection: Connection, place: SharedPlace, role: str, catalog_id: int, *, writable: bool) -> list[str]:
    """Return statements that let a role read the rows of a catalog, and write them if ``writable``."""
    writes = writable or bool(_others(connection, place, role, catalog_id, writable=True))
    return [
        *belong(connection, place, role, reads=True, writes=writes),
        f"INSERT INTO {place.name(GRANTS)} (role_name, role_id, catalog_id, writable)"
        f" SELECT rolname, oid, {catalog_id:d}, {str(writable).lower()} FROM pg_roles WHERE rolname = {literal(role)}"
        " ON CONFLICT (role_name, role_id, catalog_id) DO UPDATE SET writable = excluded.writable",
        timeouts(role),
    ]


def revoke(connection: Connection, place: SharedPlace, role: str, catalog_id: int) -> list[str]:
    """Return statements that undo a grant; none if nothing was ever granted on this lake."""
    if not place.secured:
        return []
    reads = bool(_others(connection, place, role, catalog_id, writable=False))
    writes = bool(_others(connection, place, role, catalog_id, writable=True))
    mine = f"role_name = {literal(role)} AND catalog_id = {catalog_id:d}"
    statements = [f"DELETE FROM {place.name(GRANTS)} WHERE {mine}"]
    if _has_role(connection, role):
        statements += belong(connection, place, role, reads=reads, writes=writes)
    return statements


def written_by(connection: Connection, place: SharedPlace) -> dict[str, bool]:
    """Return the roles with a grant on any catalog, and whether they may write one."""
    query = (
        f"SELECT g.role_name, bool_or(g.writable) FROM {place.name(GRANTS)} g JOIN pg_roles r ON r.oid = g.role_id"
        " AND r.rolname = g.role_name GROUP BY 1 ORDER BY 1"
    )
    return {str(role): bool(writes) for role, writes in rows_of(connection, query)}


def _others(connection: Connection, place: SharedPlace, role: str, catalog_id: int, *, writable: bool) -> list[Any]:
    """Return a row if a role has a grant on another catalog; with ``writable``, a grant to write."""
    if not place.secured:
        return []
    mine = f"g.role_name = {literal(role)} AND g.catalog_id <> {catalog_id:d} AND (g.writable OR {not writable})"
    same = "r.oid = g.role_id AND r.rolname = g.role_name"
    return rows_of(connection, f"SELECT 1 FROM {place.name(GRANTS)} g JOIN pg_roles r ON {same} WHERE {mine} LIMIT 1")


def belong(connection: Connection, place: SharedPlace, role: str, *, reads: bool, writes: bool) -> list[str]:
    """Return statements that make a role a member of the reading or writing group, and of no other."""
    query = (
        "SELECT g.rolname FROM pg_auth_members m JOIN pg_roles g ON g.oid = m.roleid JOIN pg_roles r"
        f" ON r.oid = m.member WHERE r.rolname = {literal(role)}"
    )
    have = {name for (name,) in rows_of(connection, query)}
    wanted = {place.group: reads and not writes, place.writers: writes}
    return [
        *(f"GRANT {quote(name)} TO {quote(role)}" for name, is_wanted in wanted.items() if is_wanted),
        *(f"REVOKE {quote(n)} FROM {quote(role)}" for n, is_wanted in wanted.items() if n in have and not is_wanted),
    ]
