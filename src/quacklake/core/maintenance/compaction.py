"""Compaction beside writers: write the files first, then put each batch in place with one short commit.

A batch that loses against another commit is planned again, in smaller and smaller groups, and is skipped after a few
tries. So writers never wait, busy writers hold up only a few files, and finished batches stay if the process ends.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import pyarrow.compute as pc

from quacklake.core import faults
from quacklake.core.engines.duckdb.compaction import CompactionFiles
from quacklake.core.format.layout import sort_of_stored
from quacklake.core.format.objects import TableInfo
from quacklake.core.format.schema import stored_alike
from quacklake.core.format.snapshots import ChangeKind, Snapshot
from quacklake.core.maintenance.planning import Group, TableFiles, batches, read_files
from quacklake.core.maintenance.reports import CompactionReport, Skipped
from quacklake.core.operations.handles import Handle
from quacklake.core.progress import Progress, silent
from quacklake.core.scan.inlined_rows import decode_marked
from quacklake.core.transaction import (
    FlushedRows,
    NewDataFile,
    PastDeleteFile,
    TableChange,
    TouchedFile,
    Transaction,
    touched_files,
)
from quacklake.errors import CommitConflict

#: Returns the groups of a table's files that an operation works on.
Planner = Callable[[TableFiles], list[Group]]
#: Compacts one group and returns the change.
Work = Callable[[TableFiles, Group, Transaction], TableChange]
#: Writes the files of a change in a transaction, and returns the change.
Write = Callable[[Transaction], TableChange]

#: The changes that a compaction records when it removes or ends files. The flush protects stock clients: their small
#: delete of a file that a compaction has removed would succeed and be lost, but it conflicts with a flush.
_MERGED = (ChangeKind.INLINE_FLUSH, ChangeKind.MERGE_ADJACENT)
_REWRITTEN = (ChangeKind.INLINE_FLUSH, ChangeKind.REWRITE_DELETE)


@dataclass(frozen=True, slots=True)
class _Window:
    """Inlined rows of a schema version up to a snapshot: the flush of those that go, the number of those that stay."""

    version: int
    through: int
    kept: int
    write: Write | None


class Compactor:
    """Compacts one table."""

    def __init__(self, handle: Handle, table: TableInfo, files: CompactionFiles, progress: Progress = silent) -> None:
        context = handle.context
        self.files = files
        self.target_size = int(context.option("target_file_size", table))
        self.max_files: int = context.config.compaction_max_files
        self._handle, self._context, self._table, self._progress = handle, context, table, progress
        self._replans: int = context.config.compaction_max_replans
        self._skipped: list[Skipped] = []
        self._report = CompactionReport("", table.qualified_name)

    def _read(self, base: Snapshot, table: TableInfo) -> TableFiles:
        return read_files(self._context.catalog, self._context.store, base, table)

    def _newest(self) -> tuple[Snapshot, TableInfo | None]:
        """Return the newest snapshot, and the table in it, or None if it was dropped."""
        base = self._context.latest()
        with self._context.catalog.read() as reader:
            return base, reader.tables.by_id(base, self._table.id)

    def merge(self, table: TableInfo, base: Snapshot, planner: Planner) -> CompactionReport:
        """Merge small files with their history; the old files leave the lake."""
        self._begin("merge_adjacent_files")
        files = self._read(base, table)
        small = [file for file in files.files.values() if file.version is not None and file.size < self.target_size]
        if small:
            newest = max(small, key=lambda file: (file.begin, file.id)).version
            apart = sum(file.version != newest for file in small)
            if apart:
                reason = (
                    "older snapshots show other columns: they can be merged with newer ones once those have expired"
                )
                self._skip(f"{apart} files", reason)
        return self._compact(files, planner, self._merge_group)

    def rewrite(
        self, operation: str, table: TableInfo, base: Snapshot, planner: Planner, as_table: TableInfo | None = None
    ) -> CompactionReport:
        """Rewrite live rows, in the order of ``as_table`` without splitting groups; older snapshots keep the files."""
        sort = (as_table or table).sort
        self._begin(operation)

        def work(files: TableFiles, group: Group, tx: Transaction) -> TableChange:
            plan = files.plan.of_files(group.ids)
            new = self.files.rewrite(tx, replace(files.table, sort=sort), plan)
            touched = touched_files(plan, set(group.ids))
            return TableChange(
                table=files.table,
                data_files=tuple(new),
                ended_files=tuple(group.ids),
                past_deletes=tuple(self._write_inlined_deletes(tx, files.table, touched)),
                touched={id_: file.delete_file_id for id_, file in touched.items()},
                removed_bytes=group.size,
                compaction=_REWRITTEN,
            )

        files = self._read(base, table)
        return self._compact(files, planner, work, divisible=as_table is None)

    def flush(self, table: TableInfo, base: Snapshot) -> CompactionReport:
        """Move inlined rows and deletes into files."""
        self._begin("flush_inlined_data")
        passed: dict[int, int] = {}
        for attempt in range(self._replans + 1):
            try:
                while (window := self._window(table, base, passed)) is not None:
                    if window.write is not None:
                        self._commit(base, [window.write])
                    passed[window.version] = window.through
                    self._skip_kept(window.kept)
                self._flush_deletes(table, base, 2**attempt)
                break
            except CommitConflict as conflict:
                base, found = self._newest()
                if found is None:
                    self._skip(table.qualified_name, "the table was dropped")
                    break
                if attempt == self._replans:
                    self._skip(table.qualified_name, f"others were faster each time: {conflict.message}")
                table = found
        return self._end()

    def _compact(self, files: TableFiles, planner: Planner, work: Work, *, divisible: bool = True) -> CompactionReport:
        groups = planner(files)
        total, done = sum(len(group.files) for group in groups), 0
        what = f"{self._report.operation} {self._report.table}"
        for batch in batches(groups, max_files=self.max_files, max_bytes=self.target_size):
            self._progress(what, done, total)
            if not self._try(files, batch, work):
                for group in batch:
                    self._retry(group, planner, work, divisible)
            done += sum(len(group.files) for group in batch)
        self._progress(what, done, total)
        return self._end()

    def _try(self, files: TableFiles, groups: Sequence[Group], work: Work) -> bool:
        """Write the files of some groups and commit them together; return False on a conflict with another commit."""
        try:
            self._commit(files.base, [partial(work, files, group) for group in groups], groups)
        except CommitConflict:
            return False
        return True

    def _retry(self, group: Group, planner: Planner, work: Work, divisible: bool) -> None:
        """Plan the files of a group again after a conflict, until they are compacted or skipped."""
        waiting = [(part, 0) for part in _parts(group.ids, divisible)]
        changed = slower = 0
        while waiting:
            wanted, tries = waiting.pop()
            if tries == self._replans:
                slower += len(wanted)
                continue
            base, table = self._newest()
            if table is None:
                left = len(wanted) + sum(len(part) for part, _ in waiting)
                self._skip(f"{left} files", "the table was dropped")
                return
            files = self._read(base, table)
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

    def _merge_group(self, files: TableFiles, group: Group, tx: Transaction) -> TableChange:
        first = group.files[0]
        assert first.version is not None
        plan = files.part_as_written(group.ids, first.version)
        current = files.table
        # The sort order may use columns that these files lack or have under another name.
        schema, sort = sort_of_stored(current.sort, current.schema, plan.schema)
        plan = replace(plan, schema=schema)
        table = replace(current, schema=schema, sort=sort)
        partition_id, values = first.layout
        folder = files.folder(plan, first.layout, hive=self._context.hive(current))
        new = [
            replace(_not_before(file, files.since), partition_id=partition_id, partition_values=dict(values))
            for file in self.files.merge(tx, table, plan, folder)
        ]
        return TableChange(
            table=current,
            data_files=tuple(new),
            replaced_files=tuple(group.ids),
            touched=dict.fromkeys(group.ids),
            removed_bytes=group.size,
            compaction=_MERGED,
        )

    def _write_inlined_deletes(
        self, tx: Transaction, table: TableInfo, touched: Mapping[int, TouchedFile]
    ) -> list[PastDeleteFile]:
        """Write inlined deletes to delete files, merged with the existing delete file of each data file."""
        wanted = {id_: file.delete_file_id for id_, file in touched.items() if file.inlined}
        if not wanted:
            return []
        with self._context.catalog.read() as reader:
            dated = reader.inlined.dated_deletes(tx.base, table.id, wanted)
        return [self.files.dated_deletes(tx, table, id_, touched[id_], dated[id_]) for id_ in wanted]

    def flush_within(self, tx: Transaction, table: TableInfo) -> CompactionReport:
        """Flush inlined rows within a transaction, which then reads files. Inlined deletes and many rows stay."""
        self._begin("flush_inlined_data")
        with self._context.catalog.read() as reader:
            versions = reader.inlined.tables(table.id)
        for version in versions:
            window = self._window(table, tx.base, {}, (version,))
            if window is not None and window.write is not None:
                change = _write_group(window.write, tx)
                tx.flush(change)
                self._commit_groups(tx.base, (), [change])
            if window is not None:
                self._skip_kept(window.kept)
        return self._end()

    def _skip_kept(self, count: int) -> None:
        if count:
            reason = "they stay in the catalog: a file would change a value of each, or it cannot be read"
            self._skip(f"{count} rows", reason)

    def _window(
        self, table: TableInfo, base: Snapshot, passed: Mapping[int, int], versions: Sequence[int] | None = None
    ) -> _Window | None:
        """Return the flush of the oldest inlined rows of the first schema version that has any, or None.

        ``passed`` are the snapshots up to which the rows of schema versions are flushed, or stay.
        """
        most = self._context.config.compaction_max_rows
        with self._context.catalog.read() as reader:
            found = None
            for version in reader.inlined.tables(table.id) if versions is None else versions:
                same = version == table.schema_version
                schema = table.schema if same else reader.tables.columns_at(table.id, version)
                since = passed.get(version, -1)
                found = reader.inlined.rows_until(table, version, schema, base.id, most, since=since)
                if found is not None:
                    break
            if found is None:
                return None
            through, stored = found
            first = pc.min(stored.rows.column("begin_snapshot")).as_py()
            then = table
            if not stored_alike(stored.schema, table.schema):
                # Files with older columns use the partitioning of that time.
                at = reader.tables.by_id(replace(base, id=first), table.id)
                partition = None if at is None else at.partition
                schema, sort = sort_of_stored(table.sort, table.schema, stored.schema)
                then = replace(table, schema=schema, partition=partition, sort=sort)
        rows = decode_marked([stored], stored.schema, self._context.catalog.encoding, ends=True)
        assert rows is not None
        kept = self.files.unwritable(replace(then, schema=stored.schema), rows)
        row_ids: tuple[int, ...] | None = None
        if len(kept):
            rows = rows.filter(pc.invert(pc.is_in(rows.column("row_id"), value_set=kept)))
            row_ids = tuple(rows.column("row_id").unique().to_pylist())
        begin, end = rows.column("begin_snapshot"), rows.column("end_snapshot")
        rows = rows.filter(pc.fill_null(pc.not_equal(begin, end), True))  # drop rows that no snapshot shows
        flushed = FlushedRows(stored.schema_version, through, stored.rows.num_rows, since, row_ids)

        def write(tx: Transaction) -> TableChange:
            files, deletes = self.files.flush(tx, then, rows) if rows.num_rows else ([], [])
            return TableChange(
                table=table,
                data_files=tuple(files),
                dated_deletes=tuple(deletes),
                flushed=(flushed,),
                compaction=(ChangeKind.INLINE_FLUSH,),
            )

        return _Window(stored.schema_version, through, len(kept), None if row_ids == () else write)

    def _flush_deletes(self, table: TableInfo, base: Snapshot, parts: int) -> None:
        """Flush the inlined deletes of data files into delete files, in at least ``parts`` commits."""
        found = self._read(base, table)
        counts = found.plan.deleted_counts
        ids = sorted(counts)
        most = min(self.max_files, max(1, -(-len(ids) // parts)))
        for start in range(0, len(ids), most):
            some = ids[start : start + most]
            self._commit(
                base, [partial(self._deletes_change, table, touched_files(found.plan.of_files(some), set(some)))]
            )
            self._report = replace(self._report, rows=self._report.rows + sum(counts[id_] for id_ in some))

    def _deletes_change(self, table: TableInfo, touched: Mapping[int, TouchedFile], tx: Transaction) -> TableChange:
        deletes = [
            # the last snapshot even if there is only one, as stock clients do
            replace(file, partial_max=file.partial_max or file.begin_snapshot) if file.format == "parquet" else file
            for file in self._write_inlined_deletes(tx, table, touched)
        ]
        return TableChange(
            table=table,
            dated_deletes=tuple(deletes),
            touched={id_: file.delete_file_id for id_, file in touched.items()},
            compaction=(ChangeKind.DELETED_FROM_TABLE, ChangeKind.INLINE_FLUSH),
        )

    def _commit(self, base: Snapshot, writes: Sequence[Write], groups: Sequence[Group] = ()) -> None:
        """Write the files of some changes of the table, and commit them together."""
        changes: list[TableChange] = []

        def compact(tx: Transaction) -> None:
            changes.extend(_write_group(write, tx) for write in writes)
            tx.compact(_together(changes))

        self._commit_groups(self._handle.once(base, compact), groups, changes)

    def _begin(self, operation: str) -> None:
        self._report, self._skipped = CompactionReport(operation, self._table.qualified_name), []

    def _skip(self, what: str, reason: str) -> None:
        self._skipped.append(Skipped(what, reason))

    def _commit_groups(self, snapshot: Snapshot, groups: Sequence[Group], changes: Sequence[TableChange]) -> None:
        new = [file for change in changes for file in change.data_files]
        report = self._report
        counts = [(len(group.files), len(change.data_files)) for group, change in zip(groups, changes, strict=False)]
        self._report = replace(
            report,
            snapshot=snapshot.id,
            files_before=report.files_before + sum(len(group.files) for group in groups),
            bytes_before=report.bytes_before + sum(group.size for group in groups),
            files_after=report.files_after + len(new),
            bytes_after=report.bytes_after + sum(file.file_size_bytes for file in new),
            rows=report.rows + sum(file.record_count for file in new),
            groups=(*report.groups, *counts),
        )

    def _end(self) -> CompactionReport:
        return replace(self._report, skipped=tuple(self._skipped))


def _parts(ids: Sequence[int], divisible: bool) -> list[set[int]]:
    """Split files into halves where allowed, so that a conflict over one half leaves the other."""
    middle = len(ids) // 2 if divisible else 0
    return [set(part) for part in (ids[:middle], ids[middle:]) if part]


def _not_before(file: NewDataFile, since: int) -> NewDataFile:
    """Start a merged file no earlier than its columns, even if it has rows older than every snapshot.

    Stock clients read the columns of a file as of its first snapshot, and would rewrite the file without newer columns.
    """
    if file.begin_snapshot is None or file.partial_max is None or file.begin_snapshot >= since:
        return file
    return replace(file, begin_snapshot=since, partial_max=max(file.partial_max, since))


def _write_group(write: Write, tx: Transaction) -> TableChange:
    faults.reach("compaction.group.before")
    change = write(tx)
    faults.reach("compaction.group.after")
    return change


def _together(changes: Sequence[TableChange]) -> TableChange:
    if len(changes) == 1:
        return changes[0]
    return TableChange(
        table=changes[0].table,
        data_files=tuple(file for change in changes for file in change.data_files),
        ended_files=tuple(id_ for change in changes for id_ in change.ended_files),
        replaced_files=tuple(id_ for change in changes for id_ in change.replaced_files),
        past_deletes=tuple(file for change in changes for file in change.past_deletes),
        touched={id_: file for change in changes for id_, file in change.touched.items()},
        removed_bytes=sum(change.removed_bytes for change in changes),
        compaction=changes[0].compaction,
    )
