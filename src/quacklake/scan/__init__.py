"""From a snapshot and a predicate to a scan plan."""

from quacklake.scan.filters import Filter, to_predicate
from quacklake.scan.plan import ScanPlan
from quacklake.scan.planner import plan_scan

__all__ = ["Filter", "ScanPlan", "plan_scan", "to_predicate"]
