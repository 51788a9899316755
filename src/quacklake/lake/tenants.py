"""The ``Tenants`` class: the catalogs of a shared lake."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from quacklake.core.lazy import provided
from quacklake.core.maintenance.policy import Policy
from quacklake.core.operations.context import boundary
from quacklake.core.operations.handles import LakeHandle
from quacklake.core.progress import Progress, silent
from quacklake.core.tenancy.tenants import TenantCatalogs, open_tenants
from quacklake.errors import InputError
from quacklake.lake.lake import Lake
from quacklake.lake.tenant_maintenance import RoundLimits, RoundReport, TenantMaintainer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from quacklake.core.access import TenantTokens
    from quacklake.core.maintenance.lake_maintenance import LakeMaintenance

Engine = Literal["duckdb", "spark"]


@boundary
class Tenants(TenantCatalogs):
    """The catalogs of a shared lake. Safe to share between threads; also a context manager."""

    @cached_property
    def tokens(self) -> TenantTokens:
        """The tokens and users of all catalogs, for who lets requests in: checking one opens no catalog."""
        from quacklake.core.access import TenantTokens

        return TenantTokens(self._tenancy)

    def open(self, name: str, *, create: bool = False, read_only: bool = False, **settings: Any) -> Lake:
        """Open a catalog as a lake, with the settings of this object; see ``quacklake.connect``."""
        return Lake(self.open_handle(name, create=create, read_only=read_only, **settings))

    def maintainer(
        self,
        policy: Policy | None = None,
        *,
        bounds: RoundLimits | None = None,
        threads: int = 1,
        engine: Engine = "duckdb",
        session: SparkSession | None = None,
    ) -> TenantMaintainer:
        """Return a maintainer that runs rounds over the catalogs until it is stopped; see ``maintain``."""
        if engine not in ("duckdb", "spark"):
            raise InputError(f"engine must be duckdb or spark, not {engine!r}")
        if engine == "duckdb":
            return TenantMaintainer(
                self._tenancy, self.open_handle, self._config, policy, bounds, threads, refresh=_refresh_due
            )
        compactors = build_compactors(session)
        return TenantMaintainer(
            self._tenancy, self.open_handle, self._config, policy, bounds, threads, compactors, _refresh_due
        )

    def maintain(
        self,
        policy: Policy | None = None,
        *,
        bounds: RoundLimits | None = None,
        threads: int = 1,
        engine: Engine = "duckdb",
        session: SparkSession | None = None,
        progress: Progress = silent,
    ) -> RoundReport:
        """Run one round: maintain the catalogs that need it, each as ``Lake.maintain`` does; refresh their views.

        The round continues where the last one stopped, even one by another process, and ends when every catalog has had
        its turn or ``bounds`` are reached. ``threads`` catalogs run at a time. With ``engine="spark"``, Spark compacts,
        always in one session: ``session``, else the active one, else a new one. A failure in one catalog is in the
        report and does not stop the others. Raise ``InputError`` or ``MissingExtraError``.
        """
        found = self.maintainer(policy, bounds=bounds, threads=threads, engine=engine, session=session)
        return found.run_once(progress)


def _refresh_due(handle: LakeHandle) -> None:
    from quacklake.core.materialized.views import MaterializedViews

    MaterializedViews(handle).refresh_due()


def tenants(
    url: str | None = None,
    data_path: str | Path | None = None,
    *,
    create: bool | None = None,
    convert: str | None = None,
    migrate: bool = True,
    config_file: str | Path | None = None,
    **settings: Any,
) -> Tenants:
    """Open the shared lake at a URL; create it if there is none and ``data_path`` is given.

    ``create=False`` forbids creating it. ``convert`` turns a plain lake into a shared one whose first catalog, 0, has
    this name; its files stay, new catalogs keep theirs in ``data_path``, and stock DuckDB can no longer open the lake.
    A shared lake in an older layout is migrated unless ``migrate`` is false. Raise ``NotFoundError``, or
    ``ConfigError`` when the lake is a plain one.
    """
    return open_tenants(
        url,
        data_path,
        create=create,
        convert=convert,
        migrate=migrate,
        config_file=config_file,
        kind=Tenants,
        **settings,
    )


@provided
def build_compactors(session: SparkSession | None) -> Callable[[LakeHandle], LakeMaintenance]:
    """Return what makes the maintenance of a lake that compacts with Spark, all in one session."""
    raise NotImplementedError
