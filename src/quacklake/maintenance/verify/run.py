"""Run a verification."""

from __future__ import annotations

from quacklake.catalog import Catalog
from quacklake.catalog.checks.audit_rows import RowAudit
from quacklake.errors import NotFoundError
from quacklake.maintenance.verify.catalog_checks import CATALOG_CHECKS
from quacklake.maintenance.verify.context import Collector, Known
from quacklake.maintenance.verify.deep import DeepChecks, Reading
from quacklake.maintenance.verify.file_checks import FileChecks
from quacklake.maintenance.verify.findings import RULES, VerifyReport, finding
from quacklake.maintenance.verify.row_checks import ROW_CHECKS
from quacklake.progress import Progress, silent
from quacklake.storage import Store


def verify(catalog: Catalog, store: Store, engine: Reading | None, progress: Progress = silent) -> VerifyReport:
    """Check a lake against every rule; with an engine, also its data. Changes nothing.

    The catalog is checked in one consistent transaction, and files afterwards; files that a concurrent cleanup removes
    meanwhile are not reported as missing.
    """
    collector = Collector()
    try:
        known = _check_catalog(catalog, collector, progress)
    except NotFoundError as error:
        return VerifyReport(-1, engine is not None, (finding("V008", error.message),), checks=1)
    files = FileChecks(catalog, store, known, collector)
    files.run(progress)
    files.row_ids()
    if engine is not None:
        DeepChecks(catalog, store, engine, known, collector).run(progress)
    findings = sorted(
        set(collector.findings), key=lambda each: (each.code, each.table or "", each.file_id or 0, each.what)
    )
    skipped = (*collector.skipped, *collector.overflow())
    return VerifyReport(known.latest.id, engine is not None, tuple(findings), skipped, collector.files, len(RULES))


def _check_catalog(catalog: Catalog, collector: Collector, progress: Progress) -> Known:
    checks = (*CATALOG_CHECKS, *ROW_CHECKS)
    with catalog.read() as reader:
        audit = RowAudit.of(reader)
        known = Known(audit.snapshots.latest(), audit.table_names(), catalog.encrypted)
        for number, check in enumerate(checks):
            progress("checking the catalog", number, len(checks))
            collector.take(check(audit, known))
    return known
