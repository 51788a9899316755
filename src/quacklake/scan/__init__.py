"""From a snapshot and a predicate to a scan plan."""

from typing import TYPE_CHECKING

from quacklake.lazy import lazily

if TYPE_CHECKING:
    from quacklake.scan.filters import Filter, to_predicate
    from quacklake.scan.plan import ScanPlan
    from quacklake.scan.planner import plan_scan
else:
    __getattr__ = lazily(
        __name__,
        {
            "quacklake.scan.filters": "Filter to_predicate",
            "quacklake.scan.plan": "ScanPlan",
            "quacklake.scan.planner": "plan_scan",
        },
    )

__all__ = ["Filter", "ScanPlan", "plan_scan", "to_predicate"]
