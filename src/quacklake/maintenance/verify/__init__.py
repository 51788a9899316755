"""Check a lake against the rules of its format (``findings`` lists them), and repair it where possible."""

from quacklake.maintenance.verify.findings import RULES, Finding, RepairReport, VerifyReport
from quacklake.maintenance.verify.run import repair, verify

__all__ = ["RULES", "Finding", "RepairReport", "VerifyReport", "repair", "verify"]
