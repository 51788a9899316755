"""Access of PostgreSQL roles to the catalogs (tenants) of a shared lake."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from quacklake.format.names import check_name
from quacklake.maintenance.lake_maintenance import LakeMaintenance
from quacklake.operations.handles import LakeHandle
from quacklake.tenancy.tenancy import Tenancy


@dataclass(frozen=True, slots=True)
class Exposure:
    """A catalog exposed to stock DuckDB: the schema to use as METADATA_SCHEMA and META_SCHEMA, and the SQL for it."""

    schema: str
    sql: tuple[str, ...]


class TenantAccess:
    """Manages database roles that each see only their own catalogs. PostgreSQL only."""

    _tenancy: Tenancy

    def open_handle(self, name: str, *, create: bool = False, read_only: bool = False, **settings: Any) -> LakeHandle:
        raise NotImplementedError

    def secure(self, *, dry_run: bool = False) -> list[str]:
        """Force row-level security on every table of the lake; return the SQL, which ``dry_run`` does not run.

        Superusers and the tables' owner are not affected. ``grant`` also does this. Clients of other roles should
        reconnect.
        """
        return self._tenancy.secure(dry_run=dry_run)

    def grant(self, name: str, role: str, *, read_only: bool = False, dry_run: bool = False) -> list[str]:
        """Let a database role read and write one catalog, or with ``read_only`` only read it; return the SQL.

        The role then opens this catalog with its own credentials, and even its raw SQL sees no row of another. Raises
        ``NotFoundError``, or ``InputError`` for a role that bypasses policies.
        """
        return self._tenancy.grant(name, check_name(role, "role"), writable=not read_only, dry_run=dry_run)

    def revoke(self, name: str, role: str, *, dry_run: bool = False) -> list[str]:
        """Undo ``grant``; return the SQL."""
        return self._tenancy.revoke(name, check_name(role, "role"), dry_run=dry_run)

    def expose(self, name: str, role: str | None = None, *, writable: bool = False, dry_run: bool = False) -> Exposure:
        """Let stock DuckDB read one catalog, and write it if ``writable``, through a schema of its own.

        ``role`` optionally gives a database role access to it. The catalog's inlined rows are flushed to files, and it
        inlines none while it is exposed. Raises ``InputError`` when dropped tables still have inlined rows. Can be
        called again for another role.
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
        """Remove the schema of an exposed catalog; return the SQL, none if it is not exposed."""
        return self._tenancy.unexpose(self._tenancy.get(name), dry_run=dry_run)
