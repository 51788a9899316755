"""Maintenance of a lake: compaction, expiry, file removal, verification and backups."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from operator import methodcaller
from pathlib import Path
from typing import Any

from quacklake.core.engines.duckdb.audit import DuckDBAudit
from quacklake.core.format.names import quote
from quacklake.core.format.objects import TableInfo
from quacklake.core.lazy import provided
from quacklake.core.maintenance.backup import BackupInfo, BackupReport, back_up, list_backups
from quacklake.core.maintenance.backup.checking import BackupCheck, check_backup
from quacklake.core.maintenance.cleanup import CleanupReport, OnPath, Removal, cleanup_old_files, delete_orphaned_files
from quacklake.core.maintenance.expiry import ExpiryReport, ExpiryRequest, expire_snapshots
from quacklake.core.maintenance.policy import Policy
from quacklake.core.maintenance.reports import CompactionReport, Skipped
from quacklake.core.maintenance.scheduler import DELETE_AFTER, Maintainer, MaintenanceReport
from quacklake.core.maintenance.table_maintenance import TableMaintenance, check_sizes, check_threshold
from quacklake.core.maintenance.verify import Finding, RepairReport, VerifyReport, repair, verify
from quacklake.core.operations.context import LakeContext, boundary
from quacklake.core.operations.handles import Handle, LakeHandle
from quacklake.core.operations.reference import TableRef
from quacklake.core.operations.stores import open_backups
from quacklake.core.operations.times import Age, before, check_version
from quacklake.core.progress import Progress, Report, silent
from quacklake.core.scan import Filter
from quacklake.core.storage import Store
from quacklake.core.transaction import Transaction
from quacklake.errors import CommitConflict, ConstraintError, InputError, NotFoundError

_ATTEMPTS = 5


@dataclass(frozen=True, slots=True)
class CheckpointReport(Report):
    """Report of a checkpoint: the result of each operation by name, in the order they ran."""

    reports: dict[str, Any]


@boundary
class LakeMaintenance:
    """Maintains a lake, except tables with ``auto_compact`` false. ``table`` makes the compactor of another engine."""

    def __init__(
        self, handle: LakeHandle, table: Callable[[Handle, TableRef], TableMaintenance] = TableMaintenance
    ) -> None:
        handle.check_whole("maintenance")
        self.handle = handle
        self._table = table

    @property
    def _context(self) -> LakeContext:
        return self.handle.context

    def table(self, name: str) -> TableMaintenance:
        """Return the maintenance of one table."""
        return self._table(self.handle, TableRef.parse(name))

    def _of(self, info: TableInfo) -> TableMaintenance:
        return self._table(self.handle, TableRef(info.schema_name, info.name))

    def flush_inlined_data(
        self, schema: str | None = None, table: str | None = None, *, progress: Progress = silent
    ) -> list[CompactionReport]:
        """Move inlined rows and deletes from the catalog into files, table by table."""
        return self._each("flush_inlined_data", schema, table, progress=progress)

    def merge_adjacent_files(
        self,
        schema: str | None = None,
        table: str | None = None,
        *,
        max_compacted_files: int | None = None,
        min_file_size: int | None = None,
        max_file_size: int | None = None,
        where: Filter | None = None,
        progress: Progress = silent,
    ) -> list[CompactionReport]:
        """Merge many small files into few large ones, table by table, as ``Table.merge_adjacent_files`` does."""
        check_sizes(max_compacted_files, min_file_size, max_file_size)
        _check_where(where, table)
        sizes = {
            "max_compacted_files": max_compacted_files,
            "min_file_size": min_file_size,
            "max_file_size": max_file_size,
        }
        return self._each("merge_adjacent_files", schema, table, **sizes, where=where, progress=progress)

    def rewrite_data_files(
        self,
        schema: str | None = None,
        table: str | None = None,
        *,
        delete_threshold: float | None = None,
        where: Filter | None = None,
        progress: Progress = silent,
    ) -> list[CompactionReport]:
        """Rewrite files with many deleted rows, table by table, as ``Table.rewrite_data_files`` does."""
        check_threshold(delete_threshold)
        _check_where(where, table)
        chosen = {"delete_threshold": delete_threshold, "where": where}
        return self._each("rewrite_data_files", schema, table, **chosen, progress=progress)

    def flush_within(self, tx: Transaction, tables: Sequence[TableInfo]) -> tuple[list[CompactionReport], list[int]]:
        """Flush tables as part of an open transaction; also return the ids of tables that must wait for its commit."""
        reports, waiting = [], []
        for info in tables:
            report = self._of(info).flush_within(tx, info)
            if report is None:
                waiting.append(info.id)
            else:
                reports.append(report)
        return reports, waiting

    def flush_tables(self, ids: Sequence[int]) -> None:
        """Flush the given tables that still exist."""
        for info in self.handle.view().tables():
            if info.id in ids:
                self._of(info).flush_inlined_data()

    def _each(self, operation: str, schema: str | None, table: str | None, **options: Any) -> list[CompactionReport]:
        work = methodcaller(operation, **options)
        if table is not None:
            return [work(self.table(table if schema is None else f"{quote(schema)}.{quote(table)}"))]
        view = self.handle.view()
        owner = None if schema is None else view.find_schema(schema)
        reports = []
        for info in view.tables():
            if owner is not None and info.schema_id != owner.id:
                continue
            try:
                if self._context.option("auto_compact", info):
                    reports.append(work(self._of(info)))
                    continue
                reason = "its option auto_compact is false"
            except NotFoundError:
                reason = "the table was dropped"
            except ConstraintError as error:  # rows that files cannot hold stay in the catalog
                reason = error.message
            skipped = Skipped(info.qualified_name, reason)
            reports.append(CompactionReport(operation, info.qualified_name, skipped=(skipped,)))
        return reports

    def expire_snapshots(
        self,
        older_than: Age | None = None,
        *,
        versions: Iterable[int] | None = None,
        keep_last: int | None = None,
        dry_run: bool = False,
        progress: Progress = silent,
    ) -> ExpiryReport:
        """Remove snapshots and the data that only they can see; ``cleanup_old_files`` then removes the files.

        ``older_than`` is a time (naive times are UTC) or a span such as ``"7 days"``. Without arguments, the option
        ``expire_older_than`` applies; if it is not set, nothing expires. ``versions`` selects snapshots by id instead.
        At least ``keep_last`` snapshots stay; if no age is given or set, all others expire.

        The newest snapshot, tagged snapshots and those that a table retains (``set_retention``) stay, as reported.
        Raise ``InputError`` when one of them is in ``versions``, ``NotFoundError`` for a version that does not exist.
        """
        if versions is not None and (older_than is not None or keep_last is not None):
            raise InputError(
                "expire_snapshots cannot specify both 'versions' and 'older_than' or 'keep_last'",
                hint="pass versions= alone",
            )
        if keep_last is not None and check_version(keep_last) < 1:
            raise InputError(f"keep_last must be a number from 1, not {keep_last!r}")
        named = None if versions is None else tuple(check_version(version) for version in versions)
        limit = None if named is not None else self._limit(older_than, "expire_older_than")
        request = ExpiryRequest(limit, named, keep_last)
        return expire_snapshots(self._context, request, dry_run=dry_run, progress=progress)

    def _limit(self, older_than: Age | None, option: str) -> dt.datetime | None:
        """Return the cutoff time: the given one, else the lake's option, else None."""
        if older_than is not None:
            return before(older_than)
        self._context.forget_options()
        age = self._context.effective(option, None, None)
        return None if age is None else before(age)

    def cleanup_old_files(
        self,
        older_than: Age | None = None,
        *,
        cleanup_all: bool = False,
        dry_run: bool = False,
        on_path: OnPath | None = None,
        progress: Progress = silent,
    ) -> CleanupReport:
        """Remove the files that no snapshot needs any more after expiry and compaction.

        A file must have been scheduled before ``older_than`` (default: the option ``delete_older_than``, else two
        days), so that running reads can finish; ``cleanup_all`` removes all. A file that a table still has, or that is
        outside the data path, is never removed. Files that cannot be removed now stay for the next run. The report
        lists the first paths; ``on_path`` is called with every path, also in a dry run.
        """
        limit = self._removal_limit(older_than, cleanup_all)
        if limit is None and not cleanup_all:
            limit = before(DELETE_AFTER)
        return cleanup_old_files(Removal(self._context, dry_run, on_path), limit, progress)

    def delete_orphaned_files(
        self,
        older_than: Age | None = None,
        *,
        cleanup_all: bool = False,
        dry_run: bool = False,
        on_path: OnPath | None = None,
        progress: Progress = silent,
    ) -> CleanupReport:
        """Remove files below the data path that the catalog does not know, left by crashes and failed commits.

        A file must have been written before ``older_than`` (default: the setting ``orphan_grace``, or the option
        ``delete_older_than`` if longer). The files of an open transaction are not in the catalog yet: allow it time to
        end, and use ``cleanup_all`` only when nobody writes. Only files in the lake's own folders, with names that the
        lake gives, are removed. ``on_path`` is called with every path.
        """
        limit = self._removal_limit(older_than, cleanup_all)
        if older_than is None and not cleanup_all:
            grace = before(self._context.config.orphan_grace)
            limit = grace if limit is None else min(limit, grace)
        return delete_orphaned_files(Removal(self._context, dry_run, on_path), limit, progress)

    def _removal_limit(self, older_than: Age | None, cleanup_all: bool) -> dt.datetime | None:
        if self._context.catalog.read_only:
            raise self._context.catalog.refusal()
        if cleanup_all and older_than is not None:
            raise InputError("pass older_than= or cleanup_all=True, not both")
        return None if cleanup_all else self._limit(older_than, "delete_older_than")

    def verify(self, deep: bool = False, progress: Progress = silent) -> VerifyReport:
        """Check the lake against every rule of the format: catalog, files and footers; ``deep`` also reads all rows.

        Nothing is changed, and other clients may write meanwhile. Each problem is in the report's ``findings`` with a
        stable code; a report is ``ok`` when there are none.
        """
        context = self._context
        report = verify(context.catalog, context.store, DuckDBAudit(context.engine) if deep else None, progress)
        if deep and report.snapshot >= 0:
            report = with_views(self.handle, report, progress)
        return report

    def repair(
        self,
        findings: VerifyReport | Sequence[Finding] | None = None,
        dry_run: bool = True,
        progress: Progress = silent,
    ) -> RepairReport:
        """Repair findings that can be fixed without losing data; ``dry_run``, the default, only reports them.

        ``findings`` are some or all findings of a verification, which may be a deep one; without them the lake is
        verified first. The repair is one snapshot. It drops wrong statistics, raises counters and removes meaningless
        rows; it never touches data. Raise ``CommitConflict`` when another commit came in between.
        """
        context = self._context
        for attempt in range(_ATTEMPTS):
            report = findings if isinstance(findings, VerifyReport) else self.verify(progress=progress)
            chosen = None if findings is None or isinstance(findings, VerifyReport) else tuple(findings)
            try:
                done = repair(context.catalog, report, chosen, dry_run=dry_run)
            except CommitConflict:
                if findings is not None or attempt == _ATTEMPTS - 1:
                    raise
                continue
            context.forget()
            return done
        raise CommitConflict("the lake changed during every repair", hint="try again when less is written")

    def backup(self, to: str | Path, progress: Progress = silent) -> BackupReport:
        """Back up the lake to a folder or ``s3://`` URL: the catalog as it is now, and files not yet copied there.

        Backups in one place share their files. An interrupted backup does not exist, and the next one reuses the files
        it has copied. The setting ``backup_key`` encrypts all of it. ``quacklake.restore_backup`` restores a backup
        into any kind of database. The image of an
        encrypted lake's catalog contains the keys of its files. Files outside the data path are not copied. Raise
        ``InputError`` for a place inside the lake's own data path, or inside that of its shared lake.
        """
        context = self._context
        target = open_backups(str(to), context.config)
        if context.store.hides(target.root):
            raise InputError(
                f"the backup would be in {target.root}, where catalogs of the shared lake have their files",
                hint="name another folder or bucket",
            )
        return back_up(context.catalog, context.store, target, progress)

    def backups(self, place: str | Path) -> list[BackupInfo]:
        """Return the backups of this lake in a folder or at an ``s3://`` URL, oldest first; others are left out."""
        return self._own_backups(open_backups(str(place), self._context.config))

    def check_backup(self, place: str | Path, id_: str, progress: Progress = silent) -> BackupCheck:
        """Read all of a backup of this lake, and compare it with its hashes. Raise ``NotFoundError``."""
        store = open_backups(str(place), self._context.config)
        found = next((info for info in self._own_backups(store) if info.id == id_), None)
        if found is None:
            raise NotFoundError("there is no such backup", hint="lake.maintenance.backups(place) lists them")
        return check_backup(store, found, progress)

    def _own_backups(self, store: Store) -> list[BackupInfo]:
        return [info for info in list_backups(store) if info.data_path == self._context.store.root]

    def maintainer(self, policy: Policy | None = None) -> Maintainer:
        """Return a maintainer that runs passes by a policy until it is stopped."""
        return Maintainer(self, policy)

    def maintain(self, policy: Policy | None = None, *, progress: Progress = silent) -> MaintenanceReport:
        """Run the maintenance that is due under a policy. Raise ``LeaseHeldError`` while another process does."""
        return self.maintainer(policy).run_once(progress)

    def checkpoint(self, *, progress: Progress = silent) -> CheckpointReport:
        """Run every kind of maintenance now, due or not, in the order of DuckLake's own ``CHECKPOINT``.

        The options ``expire_older_than`` and ``delete_older_than`` decide what expires and what is removed.
        """
        steps: dict[str, Callable[[], Any]] = {
            "flush_inlined_data": self.flush_inlined_data,
            "expire_snapshots": self.expire_snapshots,
            "merge_adjacent_files": self.merge_adjacent_files,
            "rewrite_data_files": self.rewrite_data_files,
            "cleanup_old_files": self.cleanup_old_files,
            "delete_orphaned_files": self.delete_orphaned_files,
        }
        reports: dict[str, Any] = {}
        for number, (name, step) in enumerate(steps.items()):
            progress(name, number, len(steps))
            reports[name] = step()
        return CheckpointReport(reports)


def _check_where(where: Filter | None, table: str | None) -> None:
    if where is not None and table is None:
        raise InputError("where= is about the columns of one table", hint="pass table=, too")


@provided
def with_views(handle: LakeHandle, report: VerifyReport, progress: Progress) -> VerifyReport:
    """Return a report of a verification with what a comparison of the materialized views finds."""
    raise NotImplementedError
