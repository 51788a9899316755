"""Who may use which catalog (tenant) of a shared lake on PostgreSQL, by the database's own rights."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from quacklake.format.names import check_name
from quacklake.maintenance.lake_maintenance import LakeMaintenance
from quacklake.operations.handles import LakeHandle
from quacklake.tenancy.tenancy import Tenancy

__all__ = ["Exposure", "TenantAccess"]


@dataclass(frozen=True, slots=True)
class Exposure:
    """A catalog that stock DuckDB reads: the schema to name as METADATA_SCHEMA and META_SCHEMA, and the SQL for it."""

    schema: str
    sql: tuple[str, ...]


class TenantAccess:
    """Roles of the database, each of which sees its own catalogs only. Only PostgreSQL has them."""

    _tenancy: Tenancy

    def open_handle(self, name: str, *, create: bool = False, read_only: bool = False, **settings: Any) -> LakeHandle:
        raise NotImplementedError

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

    def expose(self, name: str, role: str | None = None, *, writable: bool = False, dry_run: bool = False) -> Exposure:
        """Let stock DuckDB read one catalog, and write it if ``writable``, through a schema of its own.

        A role of the database may be given the right to it. The catalog's inlined rows become files, and it has none as
        long as it is exposed. Raises ``InputError`` when dropped tables still have some. Can be called again for
        another role.
        """
        row, tenancy = self._tenancy.get(name), self._tenancy
        if role is not None:
            check_name(role, "role")
        begun = tenancy.begin_exposing(row, dry_run=dry_run)
        try:
            if begun and not dry_run:
                with self.open_handle(name) as lake:
                    LakeMaintenance(lake).flush_inlined_data()
            made = tenancy.finish_exposing(row, role, writable=writable, fresh=bool(begun), dry_run=dry_run)
        except BaseException:
            if begun and not dry_run:
                tenancy.unexpose(row, dry_run=False)
            raise
        return Exposure(tenancy.exposure_schema(row.id), (*begun, *made))

    def unexpose(self, name: str, *, dry_run: bool = False) -> list[str]:
        """Take the schema of an exposed catalog away; returns the SQL, none when it is not exposed."""
        return self._tenancy.unexpose(self._tenancy.get(name), dry_run=dry_run)
