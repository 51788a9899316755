"""Who may use which catalog (tenant) of a shared lake on PostgreSQL, by the database's own rights."""

from __future__ import annotations

from quacklake.catalog import Tenancy
from quacklake.format.names import check_name

__all__ = ["TenantAccess"]


class TenantAccess:
    """Roles of the database, each of which sees its own catalogs only. Only PostgreSQL has them."""

    _tenancy: Tenancy

    def secure(self, *, dry_run: bool = False) -> list[str]:
        """Force row-level security on every table of the lake; returns the SQL, which ``dry_run`` does not run.

        Nothing changes for superusers and the owner of the tables. ``grant`` does it, too. Clients that are connected
        as another role than these should connect again.
        """
        return self._tenancy.secure(dry_run=dry_run)

    def grant(self, name: str, role: str, *, read_only: bool = False, dry_run: bool = False) -> list[str]:
        """Let a role of the database read and write one catalog, or only read it; returns the SQL.

        With its own credentials the role then opens this catalog, and even its raw SQL sees no row of another. Raises
        ``NotFoundError``, and ``InputError`` for a role that no policy can hold back.
        """
        return self._tenancy.grant(name, check_name(role, "role"), writable=not read_only, dry_run=dry_run)

    def revoke(self, name: str, role: str, *, dry_run: bool = False) -> list[str]:
        """Take back what ``grant`` gave; returns the SQL."""
        return self._tenancy.revoke(name, check_name(role, "role"), dry_run=dry_run)
