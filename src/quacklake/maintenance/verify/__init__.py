"""Whether a lake is what its format promises, and mending what can be mended.

======================  ==================================================================
module                  what it holds
======================  ==================================================================
:mod:`.findings`        the rules with their codes, and what a verification reports
:mod:`.catalog_checks`  what the catalog says of itself
:mod:`.row_checks`      totals, statistics and inlined rows
:mod:`.file_checks`     files and their footers
:mod:`.deep`            the data itself
:mod:`.run`             all of it
:mod:`.repair`          mending
======================  ==================================================================
"""

from quacklake.maintenance.verify.findings import RULES, Finding, RepairReport, VerifyReport
from quacklake.maintenance.verify.repair import repair
from quacklake.maintenance.verify.run import verify

__all__ = ["RULES", "Finding", "RepairReport", "VerifyReport", "repair", "verify"]
