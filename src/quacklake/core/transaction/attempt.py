"""One attempt at a commit: check what was committed since, assign ids, insert.

The transaction is short: first the reads, then what may be a conflict, then rows in bulk, last single rows together.
"""

from __future__ import annotations

import datetime as dt
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from quacklake.core.catalog import Catalog, TableTotals, Totals, Writer, own_tables
from quacklake.core.catalog.reading.health import live_bytes, usage
from quacklake.core.catalog.statements import InlinedTable
from quacklake.core.catalog.writing.files import read_totals, write_totals
from quacklake.core.catalog.writing.writer import end_named
from quacklake.core.format.evolution import difference
from quacklake.core.format.mappings import NameMapping
from quacklake.core.format.objects import Checkpoint, DataFile, DeleteFile, StreamMark, TableInfo, marked
from quacklake.core.format.schema import flatten
from quacklake.core.format.snapshots import Snapshot
from quacklake.core.format.stats import ColumnStats, TableColumnStats, keeps_bounds, merge
from quacklake.core.transaction.changeset import ChangeSet, NewDeleteFile, PastDeleteFile, PendingMark, TableChange
from quacklake.errors import CatalogError, StreamBatchDoneError, TenantBusyError, TenantLimitError

#: Inlined rows of a table: the schema version they are of, their encoded values and their ids.
_Inlined = tuple[TableInfo, int, list[tuple[object, ...]], list[int]]


@dataclass
class _MetadataRows:
    """The rows of the metadata tables that a commit inserts, with their real ids."""

    files: list[DataFile] = field(default_factory=list)
    stats: list[tuple[int, int, ColumnStats]] = field(default_factory=list)
    partition_values: list[tuple[int, int, int, str | None]] = field(default_factory=list)
    deletes: list[DeleteFile] = field(default_factory=list)
    mappings: list[tuple[int, NameMapping]] = field(default_factory=list)
    totals: dict[int, Totals] = field(default_factory=dict)
    inlined: list[_Inlined] = field(default_factory=list)


def _check_limits(writer: Writer, changes: ChangeSet) -> bool:
    """Check the limits of a catalog, if it has any, before anything is written; return whether to weigh files after.

    Commits of one catalog come one after the other. A change set that only moves rows (a compaction, a flush) always
    passes. Raise ``TenantLimitError`` or ``TenantBusyError``.
    """
    limits, pace = writer.limits, writer.limits.pace
    tables = limits.tables is not None and changes.more_tables > 0
    size = limits.bytes is not None and changes.adds_rows
    if changes.only_moves or not (tables or size or pace or limits.snapshots is not None):
        return False
    commits = None if pace is None else pace[0]
    used = usage(writer, snapshots=limits.snapshots is not None, tables=tables, size=size, commits=commits)
    if pace is not None and used.paced is not None:
        passed = (dt.datetime.now(dt.UTC) - used.paced).total_seconds()
        # ignore clocks that differ by more than that
        if -pace[1] < passed < pace[1]:
            after = min(pace[1] - passed, pace[1])
            raise TenantBusyError(
                f"the catalog may make {limits.commits_per_second:g} commits per second",
                limit="commits_per_second",
                after=after,
                hint=f"try again in {after:.1f} s, commit more at a time, or raise limit_wait_ms to wait longer",
            )
    if limits.snapshots is not None and (used.snapshots or 0) >= limits.snapshots:
        raise _limit_error("snapshots", limits.snapshots, "snapshots", "lake.expire_snapshots() removes old ones")
    if tables and (used.tables or 0) + changes.more_tables > (limits.tables or 0):
        raise _limit_error("tables", limits.tables or 0, "tables", "drop tables that are not needed")
    # the totals of tables are cheap and never too low; sum up the files only if they exceed the limit
    enough = (used.bytes or 0) + changes.added_bytes <= (limits.bytes or 0)
    return size and not (enough and not changes.revived_tables)


def _limit_error(limit: str, number: int, what: str, hint: str) -> TenantLimitError:
    return TenantLimitError(
        f"the catalog may have at most {number:,} {what}",
        limit=limit,
        hint=f"{hint}; the operator of the shared lake can raise the limit",
    )


class Attempt:
    """Applies a change set inside an open commit transaction."""

    def __init__(self, writer: Writer, catalog: Catalog, changes: ChangeSet, dated: Callable[[int], ChangeSet]) -> None:
        self.writer = writer
        self.catalog = catalog
        self.changes = changes
        self.dated = dated
        self.latest = writer.snapshots.latest()
        # the marks of streams as they are to be; raises when a batch must not be committed
        self._marks = [self._update_mark(given) for given in changes.marks if given.once is None]
        self._new_marks = [
            StreamMark(m.stream, m.once, m.run, m.epoch, m.position) for m in changes.marks if m.once is not None
        ]
        if self._new_marks and own_tables.known_streams(writer, [mark.name for mark in self._new_marks]):
            raise StreamBatchDoneError("the request was done already")
        self.ids: dict[int, int] = {}
        self._inlined: dict[int, int | None] = {}
        self._written: dict[int, Totals] = {}
        self._catalog_ids = itertools.count(self.latest.next_catalog_id)
        self._file_ids = itertools.count(self.latest.next_file_id)

    def apply(self) -> Snapshot:
        """Write everything the change set says, as the snapshot after the latest one; return that snapshot."""
        writer = self.writer
        if self.changes.empty:
            with writer.backend.batch(writer.connection):
                self._put_marks(self.latest)
            return self.latest
        must_weigh = _check_limits(writer, self.changes)
        changes = self.changes = self.dated(self.latest.id + 1)
        created = changes.new_ids() if changes.alters_schema else []
        self.ids = dict(zip(created, self._catalog_ids, strict=False))
        tables = [replace(change, table=self._real(change.table)) if self.ids else change for change in changes.tables]
        self._inlined = self._inlined_versions(tables)
        # stock clients cache the inlined tables of a schema version: another table needs another version
        alters = changes.alters_schema or None in self._inlined.values()
        version = self.latest.schema_version + (1 if alters else 0)
        draft = Snapshot(
            id=self.latest.id + 1,
            time=_now(self.latest),
            schema_version=version,
            next_catalog_id=self.latest.next_catalog_id + len(created),
            next_file_id=self.latest.next_file_id,
        )
        retyped = self._find_retyped()
        inserting = {change.table.id for change in tables if change.data_files or change.inlined}
        counted = sorted(inserting | set(retyped))
        remembered = self.catalog.totals.known(self.latest.id, counted) if counted else {}
        known: Mapping[int, Totals] = read_totals(writer, counted) if remembered is None else remembered
        left = {id_: _without(known[id_], retyped.get(id_, ())) for id_ in known} if retyped else known
        rows = self._plan_rows(tables, draft, left)
        rows.totals |= {id_: left[id_] for id_ in retyped if id_ in left.keys() - rows.totals}
        adds = changes.only_adds and not alters
        if not adds:
            self._make_tables(tables, draft)
            if alters:
                self._end_objects(draft)
            self._end_rows(tables, draft)
        next_file_id = next(self._file_ids)
        snapshot = Snapshot(draft.id, draft.time, draft.schema_version, draft.next_catalog_id, next_file_id)
        if alters:
            self._insert_objects(draft)
        if rows.files or not adds:
            self._insert_rows(tables, rows, draft)
        most = writer.limits.bytes or 0
        if must_weigh and live_bytes(writer) > most:
            hint = "delete rows or drop tables, then rewrite_data_files() makes room"
            raise _limit_error("bytes", most, "bytes of data", hint)
        few = writer.backend.batch_rows
        self._insert_inlined([part for part in rows.inlined if len(part[2]) > few], draft)
        with writer.backend.batch(writer.connection):
            self._insert_inlined([part for part in rows.inlined if len(part[2]) <= few], draft)
            write_totals(writer, rows.totals, known)
            writer.snapshots.add(snapshot, changes.changes(self.ids), changes.signature)
            self._put_marks(snapshot)
        self._written = rows.totals
        return snapshot

    def _update_mark(self, given: PendingMark) -> tuple[StreamMark, bool]:
        """Return the mark of a stream as it is to be, and whether the stream is new."""
        known = own_tables.find_stream(self.writer, given.stream)
        new = known is None and given.starts is not None
        if known is None and given.starts is not None:
            known = StreamMark(given.stream, given.starts, given.run)
        epoch, content = given.epoch, given.content
        mark = marked(known, given.stream, given.run, epoch, given.position, gaps=given.gaps, content=content)
        return mark, new

    def _put_marks(self, snapshot: Snapshot) -> None:
        """Write the marks of streams and the token, which tell later that this was committed."""
        for mark, new in self._marks:
            own_tables.put_stream(self.writer, replace(mark, snapshot_id=snapshot.id), new=new)
        for stream in self.changes.forgotten:
            own_tables.remove_stream(self.writer, stream)
        if self._new_marks:
            own_tables.add_streams(self.writer, [replace(mark, snapshot_id=snapshot.id) for mark in self._new_marks])
        for given in self.changes.marks:
            if given.manifest is not None:
                state = Checkpoint.FINISHED if given.finished else Checkpoint.CONFIRMED
                made = Checkpoint(given.stream, given.epoch, state, given.manifest, _now(self.latest))
                own_tables.put_checkpoint(self.writer, made, given.keep)
        if self.catalog.has_tokens:
            self.writer.snapshots.add_token(self.changes.token, snapshot.id)

    def remember(self, snapshot: Snapshot) -> None:
        """Remember the totals after the commit went through, which spares the next one some reading."""
        self.catalog.totals.remember(self.latest.id, snapshot.id, self._written)

    def _find_retyped(self) -> dict[int, list[int]]:
        """Return by table the columns whose bounds do not outlive a change of their type, as in 1.1."""
        retyped: dict[int, list[int]] = {}
        for table in self.changes.altered_tables if self.catalog.is_next else ():
            before, after = table.before.schema.leaf_types, table.after.schema.leaf_types
            lost = [id_ for id_, type_ in after.items() if not keeps_bounds(before.get(id_, type_), type_)]
            if lost:
                retyped[table.id] = lost
        return retyped

    def _real(self, table: TableInfo) -> TableInfo:
        if not self.ids:
            return table
        partition, sort = table.partition, table.sort
        return replace(
            table,
            id=self.ids.get(table.id, table.id),
            schema_id=self.ids.get(table.schema_id, table.schema_id),
            partition=partition and replace(partition, id=self.ids.get(partition.id, partition.id)),
            sort=sort and replace(sort, id=self.ids.get(sort.id, sort.id)),
        )

    def _inlined_versions(self, tables: list[TableChange]) -> dict[int, int | None]:
        """Return the version of the inlined table for each table that needs one; None when it has to be made.

        A new table gets one at once: stock clients that have to make it later forget to note its columns.
        """
        versions: dict[int, int | None] = {self.ids.get(id_, id_): None for id_ in self.changes.inlining}
        altered = {self._real(table).id for table in self.changes.created_tables}
        altered |= {revived.id for revived in self.changes.revived_tables}
        altered |= {table.id for table in self.changes.altered_tables if table.renamed or table.stored_otherwise}
        for change in tables:
            if change.inlined:
                id_ = change.table.id
                versions[id_] = None if id_ in altered else self.writer.inlined.version_for(change.table)
        return versions

    # -- planning ----------------------------------------------------------------------------------------------------

    def _plan_rows(self, tables: list[TableChange], snapshot: Snapshot, known: Mapping[int, Totals]) -> _MetadataRows:
        rows = _MetadataRows()
        for change in tables:
            id_ = change.table.id
            if change.data_files or change.inlined:
                before = known.get(id_)
                total = TableTotals() if before is None else before.table
                total = self._plan_files(change, total, snapshot, rows)
                total = self._plan_inlined(change, total, snapshot, rows)
                if not change.compaction:
                    rows.totals[id_] = Totals(total, _merge_statistics(change, before))
                elif before is not None:
                    size = max(total.file_size_bytes - change.removed_bytes, 0)
                    rows.totals[id_] = Totals(replace(total, file_size_bytes=size), before.columns)
        for change in tables:
            rows.deletes.extend(self._plan_deletes(change, snapshot))
        return rows

    def _plan_files(
        self, change: TableChange, total: TableTotals, snapshot: Snapshot, rows: _MetadataRows
    ) -> TableTotals:
        """Give new data files their ids and row ids; return the table's new totals."""
        for mapping in change.mappings:
            # stock clients count mappings with the files
            id_ = self.ids[mapping.id] = next(self._file_ids)
            rows.mappings.append((change.table.id, replace(mapping, id=id_)))
        records, next_row, size = total.record_count, total.next_row_id, total.file_size_bytes
        for file in change.data_files:
            id_ = self.ids[file.id] = next(self._file_ids)
            # a partitioning that the transaction itself replaced never existed: its files have no partition
            partition_id = None if file.partition_id is None else self.ids.get(file.partition_id, file.partition_id)
            if partition_id is not None and partition_id >= 0:
                values = file.partition_values.items()
                rows.partition_values.extend((id_, change.table.id, index, text) for index, text in values)
            else:
                partition_id = None
            rows.files.append(
                DataFile(
                    id=id_,
                    table_id=change.table.id,
                    begin_snapshot=snapshot.id if file.begin_snapshot is None else file.begin_snapshot,
                    end_snapshot=None,
                    path=file.path,
                    path_is_relative=file.location is None,
                    record_count=file.record_count,
                    file_size_bytes=file.file_size_bytes,
                    footer_size=file.footer_size,
                    row_id_start=None if file.moved else next_row,
                    encryption_key=file.encryption_key,
                    mapping_id=None if file.mapping_id is None else self.ids.get(file.mapping_id, file.mapping_id),
                    partition_id=partition_id,
                    partial_max=file.partial_max,
                    row_groups=file.row_groups,
                )
            )
            rows.stats.extend((id_, change.table.id, column) for column in file.stats)
            size += file.file_size_bytes
            if not file.moved:
                next_row += file.record_count
                records += file.record_count
        return TableTotals(records, next_row, size)

    def _plan_inlined(
        self, change: TableChange, total: TableTotals, snapshot: Snapshot, rows: _MetadataRows
    ) -> TableTotals:
        if not change.inlined:
            return total
        if not change.data_files:
            # stock clients cache the totals of a table until this counter changes
            next(self._file_ids)
        next_row = total.next_row_id
        encoded: list[tuple[object, ...]] = []
        row_ids: list[int] = []
        for batch in change.inlined:
            encoded.extend(batch.encoded)
            for given in batch.row_ids:
                row_ids.append(next_row if given is None else given)
                next_row += 1 if given is None else 0
        version = self._inlined[change.table.id]
        rows.inlined.append((change.table, snapshot.schema_version if version is None else version, encoded, row_ids))
        return TableTotals(total.record_count + len(encoded), next_row, total.file_size_bytes)

    def _plan_deletes(self, change: TableChange, snapshot: Snapshot) -> Iterator[DeleteFile]:
        ends: list[tuple[NewDeleteFile | PastDeleteFile, int | None]] = [(file, None) for file in change.delete_files]
        ends += [(file, snapshot.id) for file in change.past_deletes]
        ends += [(file, None) for file in change.dated_deletes]
        for file, end in ends:
            yield DeleteFile(
                id=next(self._file_ids),
                table_id=change.table.id,
                data_file_id=self.ids.get(file.data_file_id, file.data_file_id),
                begin_snapshot=snapshot.id if file.begin_snapshot is None else file.begin_snapshot,
                end_snapshot=end,
                path=file.path,
                path_is_relative=True,
                format=file.format,
                delete_count=file.delete_count,
                file_size_bytes=file.file_size_bytes,
                footer_size=file.footer_size,
                encryption_key=file.encryption_key,
                partial_max=file.snapshot if isinstance(file, NewDeleteFile) else file.partial_max,
                row_groups=file.row_groups,
            )

    # -- writing -----------------------------------------------------------------------------------------------------

    def _end_objects(self, snapshot: Snapshot) -> None:
        """End the tables, columns and others that end with this snapshot; one that has ended already is a conflict."""
        changes, writer = self.changes, self.writer
        renamed = [table.id for table in changes.altered_tables if table.renamed]
        end_named(writer, "table", renamed, changes.base.id, snapshot.id)
        for table in changes.altered_tables:
            writer.tables.end_columns(table.id, difference(table.before.schema, table.after.schema).ended, snapshot.id)
            kept = {node.id for node in table.after.schema.walk()}
            dropped = [node.id for node in table.before.schema.walk() if node.id not in kept]
            writer.tables.end_column_tags(table.id, dropped, snapshot.id)
        writer.tables.end_layouts(
            [table.id for table in changes.altered_tables if table.repartitioned],
            [table.id for table in changes.altered_tables if table.resorted],
            snapshot.id,
        )
        for revived in changes.revived_tables:
            writer.tables.check_dropped(revived.id, revived.dropped_at)
            writer.files.revive(revived.id, revived.dropped_at, revived.data_files, revived.delete_files)
        if changes.dropped_tables:
            writer.tables.end_tables([table.id for table in changes.dropped_tables], snapshot.id)
        changes.objects.end(writer, changes.base.id, snapshot.id)
        writer.tables.end_schemas([schema.id for schema in changes.dropped_schemas], snapshot.id)

    def _end_rows(self, tables: list[TableChange], snapshot: Snapshot) -> None:
        """End the files and rows that end with this snapshot; one that has ended already is a conflict."""
        changes, writer = self.changes, self.writer
        for change in tables:
            dated = (*change.past_deletes, *change.dated_deletes)
            replaced = [new.replaces for new in change.delete_files] + [past.replaces for past in dated]
            writer.files.retire_delete_files(change.table, [id_ for id_ in replaced if id_ is not None], snapshot.time)
            flushed = [file.data_file_id for file in dated if file.data_file_id >= 0]
            writer.inlined.remove_deletes(change.table.id, flushed)
            writer.files.remove_data_files(change.table, change.replaced_files, snapshot.time)
            for rows in change.flushed:
                writer.inlined.need_table(change.table.id, rows.schema_version)
                target = self._inlined_table(change.table, rows.schema_version)
                writer.inlined.remove_rows(target, rows.since, rows.through, rows.count, changes.base.id, rows.row_ids)
            if change.flushed and not change.ended_rows:
                writer.inlined.drop_emptied_tables(change.table.id)
        stale = changes.base.id + 1 != snapshot.id
        writer.files.end_data_files([id_ for change in tables for id_ in change.ended_files], snapshot.id)
        for change in tables:
            for version, row_ids in change.ended_rows.items():
                if stale:
                    writer.inlined.need_table(change.table.id, version)
                target = self._inlined_table(change.table, version)
                writer.inlined.end_rows(target, row_ids, snapshot.id, changes.base.id)

    def _inlined_table(self, table: TableInfo, version: int) -> InlinedTable:
        same = version == table.schema_version
        schema = table.schema if same else self.writer.tables.columns_at(table.id, version)
        return self.writer.inlined.table(table.id, version, schema)

    def _make_tables(self, tables: list[TableChange], snapshot: Snapshot) -> None:
        """Create the tables inside the catalog that this commit is the first to need.

        Before anything else is written: where creating a table commits what came before (MySQL), that must be nothing.
        """
        known = [change.table for change in tables] + [self._real(table) for table in self.changes.created_tables]
        known += [self._real(table.after) for table in self.changes.altered_tables]
        known += [self._real(revived.table) for revived in self.changes.revived_tables]
        missing = {table.id: table for table in known if self._inlined.get(table.id, 0) is None}
        for table in missing.values():
            self.writer.inlined.add_table(table.id, snapshot.schema_version, table.schema)
        for change in tables:
            if change.inlined_deletes:
                self.writer.inlined.need_delete_table(change.table.id)

    def _insert_objects(self, snapshot: Snapshot) -> None:
        changes, writer = self.changes, self.writer
        schemas = [
            replace(schema, id=self.ids[schema.id], parent_id=self.ids.get(schema.parent_id or 0, schema.parent_id))
            for schema in changes.created_schemas
        ]
        writer.tables.add_schemas(schemas, snapshot.id)
        created = [self._real(table) for table in changes.created_tables]
        created += [self._real(revived.table) for revived in changes.revived_tables]
        renamed = [self._real(table.after) for table in changes.altered_tables if table.renamed]
        writer.tables.add_tables([*created, *renamed], snapshot.id)
        columns = [(table.id, row) for table in created for row in flatten(table.schema)]
        for altered in changes.altered_tables:
            started = difference(altered.before.schema, altered.after.schema).started
            columns += [(altered.id, row) for row in started]
        writer.tables.add_columns(columns, snapshot.id)
        partitioned = created + [self._real(table.after) for table in changes.altered_tables if table.repartitioned]
        ordered = created + [self._real(table.after) for table in changes.altered_tables if table.resorted]
        partitions = [(table.id, table.partition) for table in partitioned if table.partition is not None]
        sorts = [(table.id, table.sort) for table in ordered if table.sort is not None]
        known = range(self.latest.next_catalog_id)
        writer.tables.add_partitions(partitions, snapshot.id, known)
        writer.tables.add_sorts(sorts, snapshot.id, known)
        # stock clients look up here which columns an inlined table has
        inlined = [id_ for id_, version in self._inlined.items() if version is None]
        reshaped = [table.id for table in changes.altered_tables if table.reshaped]
        changed = dict.fromkeys([*(table.id for table in (*created, *renamed)), *reshaped, *inlined])
        writer.tables.add_schema_versions(list(changed), snapshot)
        writer.inlined.register_tables(inlined, snapshot.schema_version)
        changes.objects.insert(writer, self.ids, snapshot.id)

    def _insert_rows(self, tables: list[TableChange], rows: _MetadataRows, snapshot: Snapshot) -> None:
        writer = self.writer
        writer.files.add_name_mappings(rows.mappings)
        writer.files.add_data_files(rows.files)
        writer.files.unschedule_named([file.path for file in rows.files if file.mapping_id is not None])
        writer.files.add_file_stats(rows.stats)
        writer.files.add_partition_values(rows.partition_values)
        writer.files.add_delete_files(rows.deletes)
        for change in tables:
            if change.inlined_deletes:
                pairs = [(self.ids.get(file, file), position) for file, position in change.inlined_deletes]
                writer.inlined.add_deletes(change.table.id, pairs, snapshot.id)

    def _insert_inlined(self, rows: list[_Inlined], snapshot: Snapshot) -> None:
        for table, version, encoded, row_ids in rows:
            target = self.writer.inlined.table(table.id, version, table.schema)
            self.writer.inlined.add_rows(target, encoded, row_ids, snapshot.id)


def _without(totals: Totals, columns: Iterable[int]) -> Totals:
    """Return totals without the bounds of some columns."""
    lost = {id_: totals.columns[id_] for id_ in columns if id_ in totals.columns}
    if not lost:
        return totals
    bare = {
        id_: stats._replace(min=None, max=None, min_exact=None, max_exact=None, extra=None)
        for id_, stats in lost.items()
    }
    return replace(totals, columns={**totals.columns, **bare})


def _merge_statistics(change: TableChange, before: Totals | None) -> dict[int, TableColumnStats]:
    """Return the table-level statistics after an insert; ``before`` is None for a table that had no rows yet."""
    types = change.table.schema.leaf_types
    merged = {} if before is None else dict(before.columns)
    for stats in (*(file.stats for file in change.data_files), *(insert.stats for insert in change.inlined)):
        for column in stats:
            id_ = column.column_id
            type_ = types.get(id_)
            if type_ is not None:
                old = merged.get(id_)
                merged[id_] = merge(old, column, type_, first=old is None and before is None)
    return merged


def _now(latest: Snapshot) -> dt.datetime:
    """Return the time of the new snapshot: now, but never before its predecessor, so that time travel is monotonic."""
    now = dt.datetime.now(dt.UTC)
    if latest.time is None or now > latest.time:
        return now
    try:
        return latest.time + dt.timedelta(microseconds=1)
    except OverflowError:
        raise CatalogError(
            f"the snapshot {latest.id} has the time {latest.time}, and none can come after it",
            hint="restore the lake from a backup",
        ) from None
