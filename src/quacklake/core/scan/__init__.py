"""From a snapshot and a predicate to a scan plan."""

from typing import TYPE_CHECKING

from quacklake.core.lazy import lazily

if TYPE_CHECKING:
    from quacklake.core.scan.plan import ScanPlan
    from quacklake.core.scan.planner import Filter, as_filter, plan_scan, to_predicate
else:
    __getattr__ = lazily(
        __name__,
        {
            "quacklake.core.scan.plan": "ScanPlan",
            "quacklake.core.scan.planner": "Filter as_filter plan_scan to_predicate",
        },
    )

__all__ = ["Filter", "ScanPlan", "as_filter", "plan_scan", "to_predicate"]
