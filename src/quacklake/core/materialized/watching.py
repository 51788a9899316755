"""Let a verification of the lake include its materialized views."""

from __future__ import annotations

from dataclasses import replace

from quacklake.core.maintenance.reports import Skipped
from quacklake.core.maintenance.verify import VerifyReport
from quacklake.core.maintenance.verify.findings import finding
from quacklake.core.materialized.views import MaterializedViews
from quacklake.core.operations.handles import LakeHandle
from quacklake.core.progress import Progress


def with_views(handle: LakeHandle, report: VerifyReport, progress: Progress) -> VerifyReport:
    """Return a report of a verification with what a comparison of the materialized views finds."""
    progress("comparing materialized views", 0, 1)
    findings, skipped = list(report.findings), list(report.skipped)
    for each in MaterializedViews(handle).verify():
        if each.problem is not None:
            skipped.append(Skipped(f"the materialized view {each.view}", each.problem))
        elif not each.ok:
            detail = f"{each.missing} rows are missing and {each.unexpected} are not in the answer"
            findings.append(finding("V090", f"{each.view}, {detail}", table=each.view))
    return replace(report, findings=tuple(findings), skipped=tuple(skipped))
