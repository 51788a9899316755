"""Limits of the catalogs (tenants) of a shared lake, set by its operator."""

from __future__ import annotations

from typing import TypedDict, Unpack

from quacklake.format.objects import Limits
from quacklake.tenancy.tenancy import Tenancy


class _Given(TypedDict, total=False):
    commits_per_second: float | None
    concurrent_scans: int | None
    bytes: int | None
    tables: int | None
    snapshots: int | None


class TenantLimits:
    """Sets and returns the limits of catalogs."""

    _tenancy: Tenancy

    def limit(self, name: str | None = None, *, reset: bool = False, **limits: Unpack[_Given]) -> Limits:
        """Set limits of a catalog and return the limits that now apply to it.

        The limits are ``commits_per_second``, ``concurrent_scans`` (per process), ``bytes`` (of data files at the
        newest snapshot), ``tables`` and ``snapshots``. Limits that are not given stay, None removes a limit, and
        ``reset`` first removes all limits set before. Without a name, they apply to every catalog without limits of its
        own. They take effect with the next commit or scan, also for clients that have the catalog open. Raises
        ``NotFoundError`` or ``InputError``.
        """
        return self._tenancy.set_limits(name, limits, reset=reset)

    def limits(self, name: str | None = None) -> Limits:
        """Return the limits of a catalog; without a name, those of every catalog without limits of its own."""
        return self._tenancy.limits(name)
