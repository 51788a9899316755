"""Progress of long work, and the steps at which tests of crashes stop a process."""

from quacklake.core.faults import reach
from quacklake.core.progress import Progress, silent

__all__ = ["Progress", "reach", "silent"]
