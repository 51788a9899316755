"""Verifying and repairing a lake."""

from __future__ import annotations

from collections.abc import Sequence

from quacklake.engines.duckdb.audit import DuckDBAudit
from quacklake.errors import CommitConflict
from quacklake.maintenance.reports import Progress, silent
from quacklake.maintenance.verify import Finding, RepairReport, VerifyReport, repair, verify
from quacklake.operations.context import Shared
from quacklake.operations.handles import Handle

__all__ = ["Verifying"]

_ATTEMPTS = 5


class Verifying:
    """Whether a lake is whole."""

    handle: Handle

    @property
    def _shared(self) -> Shared:
        return self.handle.shared

    def verify(self, deep: bool = False, progress: Progress = silent) -> VerifyReport:
        """Hold the lake against every rule of its format: catalog, files and footers; with ``deep`` all rows too.

        Nothing is changed. What is wrong is in the report's ``findings``, each with a stable code; a report is ``ok``
        when there are none. Other clients may write meanwhile.
        """
        shared = self._shared
        return verify(shared.catalog, shared.store, DuckDBAudit(shared.engine) if deep else None, progress)

    def repair(
        self,
        findings: VerifyReport | Sequence[Finding] | None = None,
        dry_run: bool = True,
        progress: Progress = silent,
    ) -> RepairReport:
        """Mend what can be mended without losing anything; with ``dry_run``, the default, only say what that is.

        ``findings`` are those of a verification, which may be a deep one, or some of them; without any the lake is
        verified first. Everything is one snapshot. Statistics that are wrong are dropped, counters are raised, rows
        that mean nothing are removed; data is never touched. Raises ``CommitConflict`` when another commit came in
        between.
        """
        shared = self._shared
        for attempt in range(_ATTEMPTS):
            report = findings if isinstance(findings, VerifyReport) else self.verify(progress=progress)
            chosen = None if findings is None or isinstance(findings, VerifyReport) else tuple(findings)
            try:
                done = repair(shared.catalog, report, chosen, dry_run=dry_run)
            except CommitConflict:
                if findings is not None or attempt == _ATTEMPTS - 1:
                    raise
                continue
            shared.forget()
            return done
        raise CommitConflict("the lake changed during every repair", hint="try again when less is written")
