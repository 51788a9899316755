"""Refresh views while something else runs, and let a verification of the lake include them."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

from quacklake.core.maintenance.reports import Skipped
from quacklake.core.maintenance.verify import VerifyReport
from quacklake.core.maintenance.verify.findings import finding
from quacklake.core.materialized.definition import RefreshReport
from quacklake.core.materialized.views import MaterializedViews
from quacklake.core.operations.handles import LakeHandle
from quacklake.core.progress import Progress
from quacklake.errors import QuacklakeError
from quacklake.telemetry import error_facts

_log = logging.getLogger("quacklake.materialized")
_POLL = 1.0
"""Seconds between looks at what is due."""


@contextmanager
def refreshing(views: MaterializedViews, done: Callable[[RefreshReport], None], poll: float = _POLL) -> Iterator[None]:
    """Refresh what is due, in a thread of its own, for as long as the block runs. A failure is logged."""
    stop = threading.Event()

    def run() -> None:
        while not stop.is_set():
            try:
                for report in views.refresh_due():
                    done(report)
            except QuacklakeError as error:
                _log.warning("could not look for views that are due: %s", error.message, extra=error_facts(error))
            stop.wait(poll)

    thread = threading.Thread(target=run, name="quacklake-views")
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


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
