"""Check a lake against the rules of its format (``findings`` lists them), and repair it where possible."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from dataclasses import replace

from quacklake.core.catalog import Catalog
from quacklake.core.catalog.checks.audit_rows import RowAudit
from quacklake.core.catalog.checks.repairs import Repairs
from quacklake.core.catalog.writing.files import TotalsCache
from quacklake.core.engines.duckdb.audit import DuckDBAudit
from quacklake.core.format.signatures import Signature
from quacklake.core.format.snapshots import Snapshot
from quacklake.core.maintenance.verify.catalog_checks import CHECKS
from quacklake.core.maintenance.verify.file_checks import DeepChecks
from quacklake.core.maintenance.verify.findings import (
    RULES,
    Collector,
    Finding,
    Known,
    RepairReport,
    VerifyReport,
    finding,
)
from quacklake.core.progress import Progress, silent
from quacklake.core.storage import Store
from quacklake.errors import CommitConflict, NotFoundError

__all__ = ["RULES", "Finding", "RepairReport", "VerifyReport", "repair", "verify"]


def verify(catalog: Catalog, store: Store, engine: DuckDBAudit | None, progress: Progress = silent) -> VerifyReport:
    """Check a lake against every rule, with an engine also its data, and change nothing.

    The catalog is checked in one transaction, files afterwards, except those that a cleanup removes meanwhile.
    """
    collector = Collector()
    try:
        with catalog.read() as reader:
            audit = RowAudit.of(reader)
            known = Known(
                audit.snapshots.latest(), audit.table_names(), catalog.encrypted, catalog.registered_data_path
            )
            for number, check in enumerate(CHECKS):
                progress("checking the catalog", number, len(CHECKS))
                collector.take(check(audit, known))
    except NotFoundError as error:
        return VerifyReport(-1, engine is not None, (finding("V008", error.message),), checks=1)
    files = DeepChecks(catalog, store, known, collector)
    files.run(progress)
    files.row_ids()
    if engine is not None:
        files.read(engine, progress)
    findings = sorted(
        set(collector.findings), key=lambda each: (each.code, each.table or "", each.file_id or 0, each.what)
    )
    skipped = (*collector.skipped, *collector.overflow())
    return VerifyReport(known.latest.id, engine is not None, tuple(findings), skipped, collector.files, len(RULES))


MESSAGE = "quacklake repair"
"""The commit message of the snapshot that a repair makes."""


def repair(
    catalog: Catalog, report: VerifyReport, findings: Sequence[Finding] | None, *, dry_run: bool
) -> RepairReport:
    """Repair findings of a report, in one snapshot; clients that cache totals or counters then read them again.

    Raise ``CommitConflict`` when another commit came after the report.
    """
    chosen = tuple(report.findings if findings is None else findings)
    mended = tuple(each for each in chosen if each.fix is not None)
    left = tuple(each for each in chosen if each.fix is None)
    if dry_run or not mended:
        return RepairReport(dry_run, mended, left)
    with catalog.commit() as writer:
        latest = writer.snapshots.latest()
        if latest.id != report.snapshot:
            raise CommitConflict("the lake has changed since it was verified", hint="verify it again")
        repairs = Repairs.of(writer)
        for fix in dict.fromkeys(each.fix for each in mended if each.fix is not None):
            repairs.apply(fix.action, fix.values)
        snapshot = _following(latest, mended)
        writer.snapshots.add(snapshot, (), Signature(message=MESSAGE))
    catalog.totals = TotalsCache()
    return RepairReport(dry_run, mended, left, snapshot.id)


def _following(latest: Snapshot, mended: Sequence[Finding]) -> Snapshot:
    """Return the next snapshot, with counters above everything in use."""
    now = dt.datetime.now(dt.UTC)
    time = now if latest.time is None else max(now, latest.time)
    snapshot = replace(latest, id=latest.id + 1, time=time)
    for each in mended:
        if each.fix is not None and each.fix.action == "counter":
            _, name, value = each.fix.values
            snapshot = replace(snapshot, **{name: max(value, getattr(snapshot, name) or 0)})
    # Stock clients cache the totals of a table until this counter changes.
    return replace(snapshot, next_file_id=snapshot.next_file_id + 1)
