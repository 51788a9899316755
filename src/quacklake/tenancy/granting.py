"""Which roles of PostgreSQL may use which catalogs of a shared lake that is secured."""

from __future__ import annotations

from typing import Any

from sqlalchemy.engine import Connection

from quacklake.catalog.shared_lake import SharedPlace, rows_of
from quacklake.errors import InputError, NotFoundError
from quacklake.format.names import literal, quote
from quacklake.tenancy.role_limits import timeouts
from quacklake.tenancy.row_security import GRANTS

__all__ = ["belong", "check_role", "grant", "need_role", "revoke", "written_by"]


def need_role(connection: Connection, role: str) -> None:
    """Raises ``NotFoundError`` for a role that is not there."""
    if not _has_role(connection, role):
        raise NotFoundError(f"the database has no role '{role}'", hint="CREATE ROLE … LOGIN makes one")


def _has_role(connection: Connection, role: str) -> bool:
    return bool(rows_of(connection, f"SELECT 1 FROM pg_roles WHERE rolname = {literal(role)}"))


def check_role(connection: Connection, place: SharedPlace, role: str) -> None:
    """The same, and raises ``InputError`` for a role that no policy holds back."""
    need_role(connection, role)
    above = f"rolsuper OR rolbypassrls OR pg_has_role(oid, {literal(place.owner)}, 'MEMBER')"
    if rows_of(connection, f"SELECT 1 FROM pg_roles WHERE rolname = {literal(role)} AND ({above})"):
        raise InputError(
            f"the role '{role}' sees every catalog: it is a superuser, bypasses row-level security or owns the tables",
            hint="give each tenant a role without such rights",
        )


def grant(connection: Connection, place: SharedPlace, role: str, catalog_id: int, *, writable: bool) -> list[str]:
    """What lets a role read, and write if ``writable``, the rows of a catalog."""
    writes = writable or bool(_others(connection, place, role, catalog_id, writable=True))
    return [
        *belong(connection, place, role, reads=True, writes=writes),
        f"INSERT INTO {place.name(GRANTS)} (role_name, role_id, catalog_id, writable)"
        f" SELECT rolname, oid, {catalog_id:d}, {str(writable).lower()} FROM pg_roles WHERE rolname = {literal(role)}"
        " ON CONFLICT (role_name, role_id, catalog_id) DO UPDATE SET writable = excluded.writable",
        timeouts(role),
    ]


def revoke(connection: Connection, place: SharedPlace, role: str, catalog_id: int) -> list[str]:
    """What takes that back; none when nothing on this lake was ever granted."""
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
    """Return the roles that were given any catalog, and whether they may write one."""
    query = (
        f"SELECT g.role_name, bool_or(g.writable) FROM {place.name(GRANTS)} g JOIN pg_roles r ON r.oid = g.role_id"
        " AND r.rolname = g.role_name GROUP BY 1 ORDER BY 1"
    )
    return {str(role): bool(writes) for role, writes in rows_of(connection, query)}


def _others(connection: Connection, place: SharedPlace, role: str, catalog_id: int, *, writable: bool) -> list[Any]:
    """Look for another catalog that a role was given, to be written if ``writable``."""
    if not place.secured:
        return []
    mine = f"g.role_name = {literal(role)} AND g.catalog_id <> {catalog_id:d} AND (g.writable OR {not writable})"
    same = "r.oid = g.role_id AND r.rolname = g.role_name"
    return rows_of(connection, f"SELECT 1 FROM {place.name(GRANTS)} g JOIN pg_roles r ON {same} WHERE {mine} LIMIT 1")


def belong(connection: Connection, place: SharedPlace, role: str, *, reads: bool, writes: bool) -> list[str]:
    """Return what makes a role a member of those that read or write, and of no others."""
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
