"""What the catalogs (tenants) of a shared lake may take: said by its operator, told to everybody."""

from __future__ import annotations

from typing import TypedDict, Unpack

from quacklake.format.limits import Limits
from quacklake.tenancy.tenancy import Tenancy

__all__ = ["TenantLimits"]


class _Given(TypedDict, total=False):
    commits_per_second: float | None
    concurrent_scans: int | None
    bytes: int | None
    tables: int | None
    snapshots: int | None


class TenantLimits:
    """The limits of catalogs."""

    _tenancy: Tenancy

    def limit(self, name: str | None = None, *, reset: bool = False, **limits: Unpack[_Given]) -> Limits:
        """Say what a catalog may take at most; returns what holds for it then.

        Limits are ``commits_per_second``, ``concurrent_scans`` (in one process), ``bytes`` (of data files at the newest
        snapshot), ``tables`` and ``snapshots``. One that is not given stays as it is, None stands for no limit,
        ``reset`` forgets first what was said. Without a name they hold for every catalog for which nothing else is
        said. They hold from the next commit or scan on, for whoever has the catalog open, too. Raises ``NotFoundError``
        and ``InputError``.
        """
        return self._tenancy.set_limits(name, limits, reset=reset)

    def limits(self, name: str | None = None) -> Limits:
        """What a catalog may take, or without a name, each for which nothing else is said."""
        return self._tenancy.limits(name)
