"""Maintain all catalogs (tenants) of a shared lake in rounds."""

from __future__ import annotations

import threading
from collections.abc import Callable

from quacklake.config import Config
from quacklake.errors import InputError
from quacklake.maintenance.lake_maintenance import LakeMaintenance
from quacklake.maintenance.policy import Policy
from quacklake.maintenance.scheduler import Maintainer, MaintenanceReport
from quacklake.operations.handles import LakeHandle
from quacklake.progress import Progress, silent
from quacklake.tenancy.maintenance_needs import CatalogNeed
from quacklake.tenancy.rounds import RoundBudget, RoundLimits, RoundReport, Rounds
from quacklake.tenancy.tenancy import Tenancy

_LEAST_FILES = 2
"""The fewest files that a compaction can merge."""


class TenantMaintainer:
    """Maintains the catalogs of a shared lake by a policy, in one round or in rounds until stopped.

    ``maintenance`` makes the maintenance object of a catalog when DuckDB is not the engine.
    """

    def __init__(
        self,
        tenancy: Tenancy,
        open_: Callable[..., LakeHandle],
        config: Config,
        policy: Policy | None,
        bounds: RoundLimits | None,
        threads: int,
        maintenance: Callable[[LakeHandle], LakeMaintenance] = LakeMaintenance,
    ) -> None:
        if threads < 1:
            raise InputError(f"threads must be at least 1, not {threads}")
        if tenancy.database == "duckdb":
            threads = 1  # a database file is open for one catalog at a time
        self.policy = policy or Policy()
        self._open = open_
        self._most_files = config.compaction_max_files
        self._maintenance = maintenance
        self._rounds = Rounds(tenancy, self.policy, self._visit, bounds or RoundLimits(), threads)

    def due(self) -> list[str]:
        """Return the names of the catalogs that the next round would visit."""
        return self._rounds.due()

    def run_once(self, progress: Progress = silent, stop: threading.Event | None = None) -> RoundReport:
        """Run one round; if ``stop`` is set, finish the running visits and end early."""
        return self._rounds.run_once(progress, stop)

    def run(self, stop: threading.Event, told: Callable[[RoundReport], None], progress: Progress = silent) -> None:
        """Run rounds until ``stop`` is set, and call ``told`` with each report.

        The next round starts after the policy's interval, or at once if one round was not enough for all the work.
        """
        self._rounds.run(stop, told, progress)

    def _visit(self, need: CatalogNeed, budget: RoundBudget) -> MaintenanceReport:
        left = max(budget.files_left, _LEAST_FILES)
        files = min(left, self._most_files)
        with self._open(need.name, compaction_max_files=files) as lake:
            row = lake.context.catalog.tenant_row
            if row is None or row.id != need.id:
                return MaintenanceReport()  # another catalog has this name now; it has its own turn
            maintainer = Maintainer(self._maintenance(lake), self.policy, most_merges=max(left // files, 1))
            return maintainer.run_once(stop=budget)
