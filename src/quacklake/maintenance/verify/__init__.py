"""Check a lake against the rules of its format, and repair it where possible.

======================  ==========================================================
module                  contents
======================  ==========================================================
:mod:`.findings`        the rules with their codes, and the report
:mod:`.catalog_checks`  checks of the catalog
:mod:`.row_checks`      checks of totals, statistics and inlined rows
:mod:`.file_checks`     checks of files and their footers
:mod:`.deep`            checks of the data itself
:mod:`.run`             a whole verification
:mod:`.repair`          the repair
======================  ==========================================================
"""

from quacklake.maintenance.verify.findings import RULES, Finding, RepairReport, VerifyReport
from quacklake.maintenance.verify.repair import repair
from quacklake.maintenance.verify.run import verify

__all__ = ["RULES", "Finding", "RepairReport", "VerifyReport", "repair", "verify"]
