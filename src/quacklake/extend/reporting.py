"""Progress and reports of long work, and the steps at which tests of crashes stop a process."""

from quacklake.core.faults import reach
from quacklake.core.progress import Progress, Report, listen, silent

__all__ = ["Progress", "Report", "listen", "reach", "silent"]
