"""Care for all catalogs (tenants) of a shared lake: round after round, each its turn."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal

from quacklake.config import Config
from quacklake.errors import InputError, UnsupportedFeatureError
from quacklake.lake.lake import Lake
from quacklake.maintenance.lake_maintenance import Maintainer
from quacklake.maintenance.policy import Policy
from quacklake.maintenance.reports import Progress, silent
from quacklake.maintenance.scheduler import MaintenanceReport
from quacklake.storage import S3Options, Store
from quacklake.tenancy.needs import CatalogNeed
from quacklake.tenancy.rounds import Bounds, Budget, RoundReport, Rounds
from quacklake.tenancy.tenancy import Tenancy

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["TenantMaintainer", "TenantUpkeep"]

Engine = Literal["duckdb", "spark"]
_LEAST_FILES = 2
"""A compaction has at least two files to make one of."""


class TenantMaintainer:
    """Looks after the catalogs of a shared lake by a policy: a round, or rounds until it is told to stop."""

    def __init__(
        self,
        tenancy: Tenancy,
        open_: Callable[..., Lake],
        config: Config,
        policy: Policy | None,
        bounds: Bounds | None,
        threads: int,
        engine: Engine,
        session: SparkSession | None,
    ) -> None:
        if engine not in ("duckdb", "spark"):
            raise InputError(f"engine must be duckdb or spark, not {engine!r}")
        if threads < 1:
            raise InputError(f"threads must be at least 1, not {threads}")
        if tenancy.database == "duckdb":
            threads = 1  # its file is open for one catalog at a time
        self.policy = policy or Policy()
        self._open = open_
        self._most_files = config.compaction_max_files
        self._spark = _Spark(session) if engine == "spark" else None
        self._rounds = Rounds(tenancy, self.policy, self._visit, bounds or Bounds(), threads)

    def due(self) -> list[str]:
        """The names of the catalogs that the next round would visit."""
        return self._rounds.due()

    def run_once(self, progress: Progress = silent, stop: threading.Event | None = None) -> RoundReport:
        """One round, which ends early, after what has begun, when ``stop`` is set."""
        return self._rounds.run_once(progress, stop)

    def run(self, stop: threading.Event, told: Callable[[RoundReport], None], progress: Progress = silent) -> None:
        """Round after round until ``stop`` is set, each report given to ``told``.

        The next one begins after the interval of the policy, or at once when there was more to do than fits into one.
        """
        self._rounds.run(stop, told, progress)

    def _visit(self, need: CatalogNeed, budget: Budget) -> MaintenanceReport:
        left = max(budget.files_left, _LEAST_FILES)
        files = min(left, self._most_files)
        with self._open(need.name, compaction_max_files=files) as lake:
            row = lake._shared.catalog.tenant_row
            if row is None or row.id != need.id:
                return MaintenanceReport()  # another has the name now; its turn comes
            table = None if self._spark is None else self._spark.tables(lake)
            return Maintainer(lake, self.policy, table, most_merges=max(left // files, 1)).run_once(stop=budget)


class _Spark:
    """One session of Spark, found or made when the first catalog needs it, for all of them."""

    def __init__(self, session: SparkSession | None) -> None:
        from quacklake.spark.datasource.registration import require_pyspark

        require_pyspark()
        self._session = session
        self._lock = threading.Lock()
        self._keys: dict[str, S3Options] = {}

    def tables(self, lake: Lake) -> Callable[[str], Any]:
        """The tables of a lake, as Spark compacts them.

        Raises ``UnsupportedFeatureError`` where two catalogs have keys of their own in one bucket.
        """
        from quacklake.spark.maintenance import compacted_by
        from quacklake.spark.runtime.session import add_keys

        with self._lock:
            self._note_keys(lake._shared.store)
            table, self._session = compacted_by(lake, self._session)
            add_keys(self._session, lake._shared.store)
        return table

    def _note_keys(self, store: Store) -> None:
        options, bucket = store.s3, store.root.partition("://")[2].partition("/")[0]
        if options is None or not options.scoped:
            return
        if self._keys.setdefault(bucket, options) != options:
            raise UnsupportedFeatureError(
                f"a session of Spark has one pair of keys for the bucket {bucket}, and catalogs there have their own",
                hint='maintain them with engine="duckdb"',
            )


class TenantUpkeep:
    """Care for all catalogs."""

    _tenancy: Tenancy
    _config: Config

    def open(self, name: str, *, create: bool = False, read_only: bool = False, **settings: Any) -> Lake:
        raise NotImplementedError

    def maintainer(
        self,
        policy: Policy | None = None,
        *,
        bounds: Bounds | None = None,
        threads: int = 1,
        engine: Engine = "duckdb",
        session: SparkSession | None = None,
    ) -> TenantMaintainer:
        """Something that looks after the catalogs for as long as it is wanted; see ``maintain``."""
        return TenantMaintainer(self._tenancy, self.open, self._config, policy, bounds, threads, engine, session)

    def maintain(
        self,
        policy: Policy | None = None,
        *,
        bounds: Bounds | None = None,
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
