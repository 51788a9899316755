"""Compaction beside writers: files are written first, then one short commit for each batch puts them in place.

A batch that another commit has overtaken is planned again, in smaller and smaller groups, and left alone after a few
tries. So writers never wait, those that are everywhere keep few files from it, and what is done stays done when the
process ends in between.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

import pyarrow as pa
import pyarrow.compute as pc

from quacklake import faults
from quacklake.catalog import Catalog, DatedDeletes
from quacklake.errors import CommitConflict
from quacklake.format.changes import ChangeKind
from quacklake.format.objects import TableInfo
from quacklake.format.shapes import stored_alike
from quacklake.format.snapshots import Snapshot
from quacklake.format.sorting import sort_of_stored
from quacklake.maintenance.planning import Group, batches
from quacklake.maintenance.reports import CompactionReport, Skipped
from quacklake.maintenance.sources import TableFiles, read_files
from quacklake.progress import Progress, silent
from quacklake.scan import ScanPlan, inlined
from quacklake.storage import Store
from quacklake.transaction import (
    FlushedRows,
    NewDataFile,
    PastDeleteFile,
    TableChange,
    TouchedFile,
    Transaction,
    touched_files,
)

__all__ = ["CompactionLimits", "Compactor", "Files"]

#: One transaction on a given snapshot: the work, then its commit.
Once = Callable[[Snapshot, Callable[[Transaction], None]], Snapshot]
#: The groups of a table's files that an operation works on.
Planner = Callable[[TableFiles], list[Group]]
#: What becomes of a group.
Work = Callable[[Transaction, TableFiles, Group], TableChange]

#: What a compaction that takes away or ends files says of itself. The flush is for stock clients: they let a small
#: delete of a file that a compaction has taken away go through, and lost, but not one beside a flush.
_MERGED = (ChangeKind.INLINE_FLUSH, ChangeKind.MERGE_ADJACENT)
_REWRITTEN = (ChangeKind.INLINE_FLUSH, ChangeKind.REWRITE_DELETE)


class Files(Protocol):
    """Writes the files of compactions."""

    def merge(
        self,
        tx: Transaction,
        table: TableInfo,
        plan: ScanPlan,
        folder: str,
        partition_id: int | None,
        partition_values: Mapping[int, str | None],
    ) -> list[NewDataFile]:
        """The rows of a plan as one file that has the history of them all."""
        ...

    def rewrite(self, tx: Transaction, table: TableInfo, plan: ScanPlan) -> list[NewDataFile]:
        """The live rows of a plan as files of the table."""
        ...

    def flush(
        self, tx: Transaction, table: TableInfo, rows: pa.Table
    ) -> tuple[list[NewDataFile], list[PastDeleteFile]]:
        """Inlined rows as files, with the deletes of those that are gone."""
        ...

    def dated_deletes(
        self, tx: Transaction, table: TableInfo, file_id: int, file: TouchedFile, dated: DatedDeletes
    ) -> PastDeleteFile:
        """All that was deleted of a data file up to now, with the snapshots."""
        ...


@dataclass(frozen=True, slots=True)
class CompactionLimits:
    """How much one commit does, and how often what was overtaken is planned again."""

    target_size: int
    max_files: int = 10_000
    max_rows: int = 1_000_000
    max_replans: int = 3
    hive: bool = True


@dataclass(frozen=True, slots=True, eq=False)
class _Window:
    """Inlined rows that become files together, laid out as ``table`` says."""

    table: TableInfo
    rows: pa.Table
    flushed: FlushedRows


@dataclass
class Compactor:
    """Compacts one table. ``latest`` and ``find`` give the newest snapshot and the table there, if it still is."""

    catalog: Catalog
    store: Store
    files: Files
    once: Once
    latest: Callable[[], Snapshot]
    find: Callable[[Snapshot], TableInfo | None]
    limits: CompactionLimits
    progress: Progress = silent
    _skipped: list[Skipped] = field(default_factory=list)
    _report: CompactionReport = field(default_factory=lambda: CompactionReport("", ""))

    # -- the operations ------------------------------------------------------------------------------------------------

    def merge(self, table: TableInfo, base: Snapshot, planner: Planner) -> CompactionReport:
        """Put small files together, history included; the files they come from leave the lake."""
        files = self._begin("merge_adjacent_files", table, base)
        small = [
            file for file in files.files.values() if file.version is not None and file.size < self.limits.target_size
        ]
        if small:
            newest = max(small, key=lambda file: (file.begin, file.id)).version
            apart = sum(file.version != newest for file in small)
            if apart:
                reason = (
                    "older snapshots show other columns: they can be merged with newer ones once those have expired"
                )
                self._skip(f"{apart} files", reason)
        return self._compact(files, planner, self._merged)

    def rewrite(
        self, operation: str, table: TableInfo, base: Snapshot, planner: Planner, as_table: TableInfo | None = None
    ) -> CompactionReport:
        """Write the live rows of files anew, laid out as ``as_table``; older snapshots keep the files as they are.

        With one, the files of a group stay together: they are to be in one order.
        """
        wanted = as_table or table
        files = self._begin(operation, table, base)

        def work(tx: Transaction, files: TableFiles, group: Group) -> TableChange:
            return self._rewritten(tx, files, group, wanted)

        return self._compact(files, planner, work, divisible=as_table is None)

    def flush(self, table: TableInfo, base: Snapshot) -> CompactionReport:
        """Move inlined rows and deletes into files."""
        self._report = CompactionReport("flush_inlined_data", table.qualified_name)
        self._skipped = []
        for attempt in range(self.limits.max_replans + 1):
            try:
                while self._flush_window(table, base):
                    pass
                self._flush_deletes(table, base, 2**attempt)
                break
            except CommitConflict as conflict:
                base = self.latest()
                found = self.find(base)
                if found is None:
                    self._skip(table.qualified_name, "the table was dropped")
                    break
                if attempt == self.limits.max_replans:
                    self._skip(table.qualified_name, f"others were faster each time: {conflict.message}")
                table = found
        return self._end()

    # -- batches -------------------------------------------------------------------------------------------------------

    def _compact(self, files: TableFiles, planner: Planner, work: Work, *, divisible: bool = True) -> CompactionReport:
        groups = planner(files)
        total, done = sum(len(group.files) for group in groups), 0
        what = f"{self._report.operation} {self._report.table}"
        limits = self.limits
        for batch in batches(groups, max_files=limits.max_files, max_bytes=limits.target_size):
            self.progress(what, done, total)
            if not self._try(files, batch, work):
                for group in batch:
                    self._retry(group, planner, work, divisible)
            done += sum(len(group.files) for group in batch)
        self.progress(what, done, total)
        return self._end()

    def _try(self, files: TableFiles, groups: Sequence[Group], work: Work) -> bool:
        """Write the files of some groups and commit them together; false when another commit has overtaken them."""
        changes: list[TableChange] = []

        def compact(tx: Transaction) -> None:
            for group in groups:
                faults.reach("compaction.group.before")
                changes.append(work(tx, files, group))
                faults.reach("compaction.group.after")
            tx.compact(_together(files.table, changes))

        try:
            self._committed(self.once(files.base, compact), groups, changes)
        except CommitConflict:
            return False
        return True

    def _retry(self, group: Group, planner: Planner, work: Work, divisible: bool) -> None:
        """What is still to be done for the files of a group after other commits."""
        waiting = [(part, 0) for part in _parts(group.ids, divisible)]
        changed = slower = 0
        while waiting:
            wanted, tries = waiting.pop()
            if tries == self.limits.max_replans:
                slower += len(wanted)
                continue
            base = self.latest()
            table = self.find(base)
            if table is None:
                left = len(wanted) + sum(len(part) for part, _ in waiting)
                self._skip(f"{left} files", "the table was dropped")
                return
            files = read_files(self.catalog, self.store, base, table)
            files = replace(files, files={id_: file for id_, file in files.files.items() if id_ in wanted})
            again = planner(files)
            changed += len(wanted) - sum(len(found.files) for found in again)
            for found in again:
                if not self._try(files, [found], work):
                    waiting += [(part, tries + 1) for part in _parts(found.ids, divisible)]
        if changed:
            self._skip(f"{changed} files", "another commit has changed them")
        if slower:
            self._skip(f"{slower} files", "others were faster each time")

    # -- what becomes of a group ---------------------------------------------------------------------------------------

    def _merged(self, tx: Transaction, files: TableFiles, group: Group) -> TableChange:
        first = group.files[0]
        assert first.version is not None
        plan = files.part_as_written(group.ids, first.version)
        current = files.table
        # an order may speak of columns that these files do not have, or have by another name
        schema, sort = sort_of_stored(current.sort, current.schema, plan.schema)
        plan = replace(plan, schema=schema)
        table = replace(current, schema=schema, sort=sort)
        partition_id, values = first.layout
        folder = files.folder(plan, first.layout, hive=self.limits.hive)
        new = [
            _not_before(file, files.since)
            for file in self.files.merge(tx, table, plan, folder, partition_id, dict(values))
        ]
        return TableChange(
            table=current,
            data_files=tuple(new),
            replaced_files=tuple(group.ids),
            touched=dict.fromkeys(group.ids),
            removed_bytes=group.size,
            compaction=_MERGED,
        )

    def _rewritten(self, tx: Transaction, files: TableFiles, group: Group, as_table: TableInfo) -> TableChange:
        plan = files.part(group.ids)
        laid_out = replace(files.table, sort=as_table.sort)
        new = self.files.rewrite(tx, laid_out, plan)
        touched = touched_files(plan, set(group.ids))
        past = self._dated(tx, files.table, touched)
        return TableChange(
            table=files.table,
            data_files=tuple(new),
            ended_files=tuple(group.ids),
            past_deletes=tuple(past),
            touched={id_: file.delete_file_id for id_, file in touched.items()},
            removed_bytes=group.size,
            compaction=_REWRITTEN,
        )

    def _dated(self, tx: Transaction, table: TableInfo, touched: Mapping[int, TouchedFile]) -> list[PastDeleteFile]:
        """Delete files for the data files that have deletes in the catalog, with those of the delete file they had."""
        wanted = {id_: file.delete_file_id for id_, file in touched.items() if file.inlined}
        if not wanted:
            return []
        with self.catalog.read() as reader:
            dated = reader.inlined.dated_deletes(tx.base, table.id, wanted)
        return [self.files.dated_deletes(tx, table, id_, touched[id_], dated[id_]) for id_ in wanted]

    # -- flush ---------------------------------------------------------------------------------------------------------

    def flush_within(self, tx: Transaction, table: TableInfo) -> CompactionReport:
        """Move inlined rows into files as part of an open transaction, which reads them there at once.

        ``table`` is as the transaction sees it. Of very many rows, and of deletes, those that are left stay.
        """
        self._report = CompactionReport("flush_inlined_data", table.qualified_name)
        self._skipped = []
        with self.catalog.read() as reader:
            versions = reader.inlined.tables(table.id)
        for version in versions:
            window = self._window(table, tx.base, (version,))
            if window is not None:
                change = self._flushed(tx, table, window)
                tx.flush(change)
                self._committed(tx.base, (), [change])
        return self._end()

    def _flush_window(self, table: TableInfo, base: Snapshot) -> bool:
        """Move the oldest inlined rows of one schema version into files; false when there are none."""
        window = self._window(table, base)
        if window is None:
            return False
        changes: list[TableChange] = []

        def work(tx: Transaction) -> None:
            changes.append(self._flushed(tx, table, window))
            tx.compact(changes[0])

        self._committed(self.once(base, work), (), changes)
        return True

    def _window(self, table: TableInfo, base: Snapshot, versions: Sequence[int] | None = None) -> _Window | None:
        """The oldest inlined rows of the first schema version that has any."""
        with self.catalog.read() as reader:
            found = None
            for version in reader.inlined.tables(table.id) if versions is None else versions:
                schema = (
                    table.schema if version == table.schema_version else reader.tables.columns_at(table.id, version)
                )
                found = reader.inlined.rows_until(table, version, schema, base.id, self.limits.max_rows)
                if found is not None:
                    break
            if found is None:
                return None
            through, stored = found
            first = pc.min(stored.rows.column("begin_snapshot")).as_py()
            then = table
            if not stored_alike(stored.schema, table.schema):
                # files of older columns are partitioned as the table was
                at = reader.tables.by_id(replace(base, id=first), table.id)
                partition = None if at is None else at.partition
                schema, sort = sort_of_stored(table.sort, table.schema, stored.schema)
                then = replace(table, schema=schema, partition=partition, sort=sort)
        rows = inlined.decode([stored], stored.schema, self.catalog.encoding, ends=True)
        assert rows is not None
        begin, end = rows.column("begin_snapshot"), rows.column("end_snapshot")
        rows = rows.filter(pc.fill_null(pc.not_equal(begin, end), True))  # others never were
        return _Window(then, rows, FlushedRows(stored.schema_version, through, stored.rows.num_rows))

    def _flushed(self, tx: Transaction, table: TableInfo, window: _Window) -> TableChange:
        """The rows of a window in files."""
        faults.reach("compaction.group.before")
        files, deletes = self.files.flush(tx, window.table, window.rows) if window.rows.num_rows else ([], [])
        faults.reach("compaction.group.after")
        return TableChange(
            table=table,
            data_files=tuple(files),
            dated_deletes=tuple(deletes),
            flushed=(window.flushed,),
            compaction=(ChangeKind.INLINE_FLUSH,),
        )

    def _flush_deletes(self, table: TableInfo, base: Snapshot, parts: int) -> None:
        """Move the inlined deletes of data files into delete files, in so many commits at least."""
        found = read_files(self.catalog, self.store, base, table)
        counts = found.plan.deleted_counts
        ids = sorted(counts)
        most = min(self.limits.max_files, max(1, -(-len(ids) // parts)))
        for start in range(0, len(ids), most):
            some = ids[start : start + most]
            touched = touched_files(found.part(some), set(some))
            changes: list[TableChange] = []

            def work(
                tx: Transaction, touched: Mapping[int, TouchedFile] = touched, changes: list[TableChange] = changes
            ) -> None:
                faults.reach("compaction.group.before")
                changes.append(
                    TableChange(
                        table=table,
                        dated_deletes=tuple(_with_last(file) for file in self._dated(tx, table, touched)),
                        touched={id_: file.delete_file_id for id_, file in touched.items()},
                        compaction=(ChangeKind.DELETED_FROM_TABLE, ChangeKind.INLINE_FLUSH),
                    )
                )
                faults.reach("compaction.group.after")
                tx.compact(changes[0])

            self._committed(self.once(base, work), (), changes)
            self._report = replace(self._report, rows=self._report.rows + sum(counts[id_] for id_ in some))

    # -- the report ----------------------------------------------------------------------------------------------------

    def _begin(self, operation: str, table: TableInfo, base: Snapshot) -> TableFiles:
        self._report = CompactionReport(operation, table.qualified_name)
        self._skipped = []
        return read_files(self.catalog, self.store, base, table)

    def _skip(self, what: str, reason: str) -> None:
        self._skipped.append(Skipped(what, reason))

    def _committed(self, snapshot: Snapshot, groups: Sequence[Group], changes: Sequence[TableChange]) -> None:
        new = [file for change in changes for file in change.data_files]
        report = self._report
        self._report = replace(
            report,
            snapshot=snapshot.id,
            files_before=report.files_before + sum(len(group.files) for group in groups),
            bytes_before=report.bytes_before + sum(group.size for group in groups),
            files_after=report.files_after + len(new),
            bytes_after=report.bytes_after + sum(file.file_size_bytes for file in new),
            rows=report.rows + sum(file.record_count for file in new),
            groups=(*report.groups, *_counts(groups, changes)),
        )

    def _end(self) -> CompactionReport:
        return replace(self._report, skipped=tuple(self._skipped))


def _parts(ids: Sequence[int], divisible: bool) -> list[set[int]]:
    """Files in two halves where that may be: a commit that overtakes one of them leaves the other."""
    middle = len(ids) // 2 if divisible else 0
    return [set(part) for part in (ids[:middle], ids[middle:]) if part]


def _with_last(file: PastDeleteFile) -> PastDeleteFile:
    """As stock has it, deletes that were in the catalog tell their last snapshot even where they have one only."""
    if file.format != "parquet":
        return file
    return replace(file, partial_max=file.partial_max or file.begin_snapshot)


def _counts(groups: Sequence[Group], changes: Sequence[TableChange]) -> list[tuple[int, int]]:
    return [(len(group.files), len(change.data_files)) for group, change in zip(groups, changes, strict=False)]


def _not_before(file: NewDataFile, since: int) -> NewDataFile:
    """A merged file that begins when the columns it has began, and not with rows that are older than all snapshots.

    Stock clients take the columns of a file from the snapshot it begins with: they would rewrite it without the others.
    """
    if file.begin_snapshot is None or file.partial_max is None or file.begin_snapshot >= since:
        return file
    return replace(file, begin_snapshot=since, partial_max=max(file.partial_max, since))


def _together(table: TableInfo, changes: Sequence[TableChange]) -> TableChange:
    """The changes of several groups of one table as one."""
    return TableChange(
        table=table,
        data_files=tuple(file for change in changes for file in change.data_files),
        ended_files=tuple(id_ for change in changes for id_ in change.ended_files),
        replaced_files=tuple(id_ for change in changes for id_ in change.replaced_files),
        past_deletes=tuple(file for change in changes for file in change.past_deletes),
        touched={id_: file for change in changes for id_, file in change.touched.items()},
        removed_bytes=sum(change.removed_bytes for change in changes),
        compaction=changes[0].compaction,
    )
