"""Progress and reports of long work, tables for notebooks, and the steps at which tests of crashes stop a process."""

from quacklake.core.faults import reach
from quacklake.core.operations.cells import html_table
from quacklake.core.progress import Progress, Report, listen, silent

__all__ = ["Progress", "Report", "html_table", "listen", "reach", "silent"]
