"""Plans as the core makes them, for an engine that runs a whole plan at once or sends parts of it to its tasks.

``reads.plan_read`` shows a plan file by file, which is enough for most engines.
"""

from quacklake.core.scan.feed import FeedPlan
from quacklake.core.scan.plan import ScanPlan

__all__ = ["FeedPlan", "ScanPlan"]
