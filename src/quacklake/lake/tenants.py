"""The catalogs (tenants) of a shared lake, as their operator holds them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from quacklake.errors import InputError
from quacklake.lake.lake import Lake
from quacklake.maintenance.policy import Policy
from quacklake.operations.boundary import boundary
from quacklake.progress import Progress, silent
from quacklake.tenancy.maintenance import TenantMaintainer
from quacklake.tenancy.rounds import RoundLimits, RoundReport
from quacklake.tenancy.tenants import TenantCatalogs, open_tenants

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["Tenants", "tenants"]

Engine = Literal["duckdb", "spark"]


@boundary
class Tenants(TenantCatalogs):
    """The catalogs of a shared lake. Safe to share between threads; also a context manager."""

    def open(self, name: str, *, create: bool = False, read_only: bool = False, **settings: Any) -> Lake:
        """A catalog as a lake, with the settings that were given for all; see ``quacklake.connect``."""
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
        """Something that looks after the catalogs for as long as it is wanted; see ``maintain``."""
        if engine not in ("duckdb", "spark"):
            raise InputError(f"engine must be duckdb or spark, not {engine!r}")
        if engine == "duckdb":
            return TenantMaintainer(self._tenancy, self.open_handle, self._config, policy, bounds, threads)
        from quacklake.spark.maintenance import SparkCompactors

        compactors = SparkCompactors(session)
        return TenantMaintainer(self._tenancy, self.open_handle, self._config, policy, bounds, threads, compactors)

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
        """One round: do what is due by a policy in the catalogs that want care, as ``Lake.maintain`` does in each.

        It goes on where the last one stopped, whoever made that, and ends when all had their turn or ``bounds`` are
        reached. ``threads`` catalogs are visited at a time. With ``engine="spark"`` Spark compacts, all in one session:
        ``session``, else the active one, or a new one. What goes wrong with one is in the report and keeps no other
        from its turn. Raises ``InputError`` and ``MissingExtraError``.
        """
        found = self.maintainer(policy, bounds=bounds, threads=threads, engine=engine, session=session)
        return found.run_once(progress)


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
    """The catalogs (tenants) of the shared lake at a URL, which is made when ``data_path`` is given and there is none.

    ``create=False`` forbids that. With ``convert`` a plain lake there becomes a shared one, whose first catalog, 0, has
    this name; its files stay, and new catalogs have theirs in ``data_path``. Stock DuckDB cannot open it any more. A
    shared lake of an older layout is migrated, unless ``migrate`` is false. Raises ``NotFoundError``, and
    ``ConfigError`` when the lake there is a plain one.
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
