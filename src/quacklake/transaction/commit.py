"""Committing a change set: one short database transaction, replayed when a race is lost, never applied twice."""

from __future__ import annotations

import datetime as dt
import logging
import random
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace

from quacklake import telemetry
from quacklake.catalog import Catalog, TableTotals, Writer
from quacklake.errors import CatalogUnavailableError, CommitConflict, CommitUnknown
from quacklake.format.conflicts import Check, compare, explain
from quacklake.format.measure import of_array
from quacklake.format.objects import DataFile, DeleteFile, TableInfo
from quacklake.format.predicate import ANYTHING, Bounds, columns_of, may_match
from quacklake.format.snapshots import Snapshot
from quacklake.format.stats import ColumnStats, TableColumnStats, merge
from quacklake.scan import inlined
from quacklake.scan.plan import column_key
from quacklake.transaction.changeset import ChangeSet, TableChange

__all__ = ["Retry", "commit"]

_log = logging.getLogger("quacklake.commit")


@dataclass(frozen=True, slots=True)
class Retry:
    """How often and how long to try again: exponential backoff with full jitter."""

    count: int = 10
    wait_ms: float = 100
    backoff: float = 1.5
    max_wait_ms: float = 5_000

    def pause(self, attempt: int) -> None:
        """Sleep before the next attempt."""
        limit = min(self.wait_ms * self.backoff**attempt, self.max_wait_ms)
        time.sleep(random.uniform(0, limit) / 1000)


def commit(catalog: Catalog, changes: ChangeSet, retry: Retry) -> Snapshot:
    """Commit a change set and return its snapshot.

    Raises ``CommitConflict`` when another commit excludes it (nothing is changed) and ``CommitUnknown`` when the
    database's answer was lost and could not be found again.
    """
    with telemetry.timed("commit"):
        for attempt in range(retry.count + 1):
            try:
                with catalog.commit() as writer:
                    snapshot = _Commit(writer, catalog, changes).apply()
            except CommitUnknown:
                found = _recover(catalog, changes, retry)
                if found is not None:
                    return found
            except CatalogUnavailableError:
                if attempt == retry.count:
                    raise
            else:
                return snapshot
            telemetry.count("commit.retries")
            _log.debug("commit %s: attempt %d lost, trying again", changes.token, attempt + 1)
            retry.pause(attempt)
    raise CommitConflict("the commit lost every race for its turn", hint="try again, or raise ducklake_max_retry_count")


def _recover(catalog: Catalog, changes: ChangeSet, retry: Retry) -> Snapshot | None:
    """After a lost answer: the snapshot the commit made, or None when it made none."""
    telemetry.count("commit.recoveries")
    for attempt in range(retry.count + 1):
        try:
            version = catalog.find_commit(changes.token)
            if version is None:
                return None
            with catalog.read() as reader:
                return reader.at_version(version)
        except CatalogUnavailableError:
            retry.pause(attempt)
    raise CommitUnknown(
        "the connection was lost during the commit, and the database could not be asked again",
        hint="compare lake.snapshots() with what you wrote before trying again",
    )


class _Commit:
    """One attempt: check against what was committed since, give out ids, insert."""

    def __init__(self, writer: Writer, catalog: Catalog, changes: ChangeSet) -> None:
        self.writer = writer
        self.catalog = catalog
        self.changes = changes
        self.latest = writer.latest()
        self.ids: dict[int, int] = {}
        self.next_catalog_id = self.latest.next_catalog_id
        self.next_file_id = self.latest.next_file_id

    def apply(self) -> Snapshot:
        changes, writer = self.changes, self.writer
        self._check_conflicts()
        snapshot_id = self.latest.id + 1
        version = self.latest.schema_version + (1 if changes.alters_schema else 0)
        for thing in (*changes.created_schemas, *changes.created_tables):
            self.ids[thing.id] = self._catalog_id()
        draft = Snapshot(snapshot_id, _now(self.latest), version, self.next_catalog_id, self.next_file_id)
        self._write_objects(draft)
        self._write_rows(draft)
        snapshot = replace(draft, next_file_id=self.next_file_id)
        writer.add_snapshot(snapshot, changes.changes(self.ids), changes.author, changes.message, changes.extra)
        if self.catalog.has_tokens:
            writer.add_token(changes.token, snapshot_id)
        return snapshot

    def _catalog_id(self) -> int:
        self.next_catalog_id += 1
        return self.next_catalog_id - 1

    def _file_id(self) -> int:
        self.next_file_id += 1
        return self.next_file_id - 1

    # -- conflicts ---------------------------------------------------------------------------------------------------

    def _check_conflicts(self) -> None:
        changes, base = self.changes, self.changes.base
        if self.latest.id == base.id:
            return
        if self.latest.id < base.id:
            raise CommitConflict("the lake is older than the transaction's snapshot", hint="was it restored from a backup?")
        blind = all(not table.touched and not table.ended_rows and table.reads is None for table in changes.tables)
        if blind and not changes.alters_schema and self.latest.schema_version == base.schema_version:
            return  # inserts exclude only changes of the schema
        mine = changes.changes()
        by_id = {table.table.id: table for table in changes.tables}
        checks: dict[int, set[Check]] = {}
        for _, others in self.writer.changes_since(base.id):
            for other in others:
                for change in mine:
                    table = by_id.get(change.id) if change.id is not None else None
                    reads = table is not None and table.reads is not None
                    check = compare(change, other, reads=reads, schema_ids=changes.schema_ids)
                    if check is Check.CONFLICT:
                        raise CommitConflict(explain(change, other), hint="run the operation again on the new state")
                    if table is not None and check is not Check.OK:
                        checks.setdefault(table.table.id, set()).add(check)
        for table_id, needed in checks.items():
            if Check.SAME_FILE in needed:
                self._check_files(by_id[table_id])
            if Check.READ in needed:
                self._check_reads(by_id[table_id])

    def _check_files(self, table: TableChange) -> None:
        """Every touched file must still be live with the deletes it had; inlined rows are checked when they end."""
        files = [id_ for id_ in table.touched if id_ >= 0]
        if not files:
            return
        live = self.writer.live_files(table.table.id, files)
        for id_ in files:
            if id_ not in live or live[id_] != table.touched[id_]:
                raise _lost(table.table, "a file of it was changed")
        if self.writer.inlined_deletes_since(table.table.id, files, self.changes.base.id):
            raise _lost(table.table, "rows of the same file were deleted")

    def _check_reads(self, table: TableChange) -> None:
        """Rows that others inserted must not be among those this change depends on having read."""
        reads = table.reads
        if reads is None:
            return
        base = self.changes.base.id
        files = self.writer.files(self.latest, table.table, reads)
        if any(begin > base for begin in files.column("begin_snapshot").to_pylist()):
            raise _lost(table.table, "rows it depends on were inserted")
        found = self.writer.inlined_rows(self.latest, table.table, since=base)
        rows = inlined.decode(found, table.table.schema, self.catalog.database)
        if rows is None:
            return
        wanted = columns_of(reads)
        bounds: dict[int, Bounds] = {}
        for column in table.table.schema.columns:
            if column.id in wanted:
                stats = of_array(rows.column(column_key(column)), column)[0]
                bounds[column.id] = Bounds.of(stats, column.type)
        if reads == ANYTHING or may_match(reads, bounds):
            raise _lost(table.table, "rows it depends on were inserted")

    # -- objects -----------------------------------------------------------------------------------------------------

    def _write_objects(self, snapshot: Snapshot) -> None:
        changes, writer = self.changes, self.writer
        writer.add_schemas([replace(schema, id=self.ids[schema.id]) for schema in changes.created_schemas], snapshot.id)
        created = [self._real(table) for table in changes.created_tables]
        renamed = [self._real(table) for table in changes.renamed_tables]
        writer.end_table_rows([table.id for table in renamed], snapshot.id)
        writer.add_tables([*created, *renamed], snapshot.id)
        writer.add_columns(created, snapshot.id)
        writer.add_schema_versions([table.id for table in (*created, *renamed)], snapshot)
        if changes.dropped_tables:
            writer.end_tables([table.id for table in changes.dropped_tables], snapshot.id)
        writer.end_schemas([schema.id for schema in changes.dropped_schemas], snapshot.id)

    def _real(self, table: TableInfo) -> TableInfo:
        return replace(table, id=self.ids.get(table.id, table.id), schema_id=self.ids.get(table.schema_id, table.schema_id))

    # -- rows --------------------------------------------------------------------------------------------------------

    def _write_rows(self, snapshot: Snapshot) -> None:
        writer = self.writer
        changes = [replace(change, table=self._real(change.table)) for change in self.changes.tables]
        inserting = [change.table.id for change in changes if change.data_files or change.inlined]
        known = writer.totals(inserting) if inserting else {}
        known_columns = writer.column_totals(inserting) if inserting else {}
        totals: dict[int, TableTotals] = {}
        columns: dict[tuple[int, int], TableColumnStats] = {}
        files: list[DataFile] = []
        file_stats: list[tuple[int, int, ColumnStats]] = []
        deletes: list[DeleteFile] = []
        for change in changes:
            if change.table.id in inserting:
                total = known.get(change.table.id, TableTotals())
                total = self._plan_files(change, total, snapshot, files, file_stats)
                total = self._insert_inlined(change, total, snapshot)
                totals[change.table.id] = total
                columns.update(_merged(change, known_columns, first=change.table.id not in known))
            deletes.extend(self._plan_deletes(change, snapshot))
        writer.add_data_files(files)
        writer.add_file_stats(file_stats)
        writer.end_data_files([id_ for change in changes for id_ in change.ended_files], snapshot.id)
        replaced = [file.replaces for change in changes for file in change.delete_files if file.replaces is not None]
        writer.end_delete_files(replaced, snapshot.id)
        writer.add_delete_files(deletes)
        for change in changes:
            self._delete_inlined(change, snapshot)
        if totals:
            writer.put_totals(totals, known)
            writer.put_column_totals(columns, known_columns)

    def _plan_files(
        self,
        change: TableChange,
        total: TableTotals,
        snapshot: Snapshot,
        files: list[DataFile],
        stats: list[tuple[int, int, ColumnStats]],
    ) -> TableTotals:
        """Give new data files their ids and row ids; returns the table's new totals."""
        records, next_row, size = total.record_count, total.next_row_id, total.file_size_bytes
        for file in change.data_files:
            id_ = self.ids[file.id] = self._file_id()
            files.append(
                DataFile(
                    id=id_,
                    table_id=change.table.id,
                    begin_snapshot=snapshot.id,
                    end_snapshot=None,
                    path=file.path,
                    path_is_relative=True,
                    record_count=file.record_count,
                    file_size_bytes=file.file_size_bytes,
                    footer_size=file.footer_size,
                    row_id_start=next_row,
                )
            )
            stats.extend((id_, change.table.id, column) for column in file.stats)
            next_row += file.record_count
            records += file.record_count
            size += file.file_size_bytes
        return TableTotals(records, next_row, size)

    def _plan_deletes(self, change: TableChange, snapshot: Snapshot) -> list[DeleteFile]:
        return [
            DeleteFile(
                id=self._file_id(),
                table_id=change.table.id,
                data_file_id=self.ids.get(file.data_file_id, file.data_file_id),
                begin_snapshot=snapshot.id,
                end_snapshot=None,
                path=file.path,
                path_is_relative=True,
                format="parquet",
                delete_count=file.delete_count,
                file_size_bytes=file.file_size_bytes,
                footer_size=file.footer_size,
            )
            for file in change.delete_files
        ]

    def _insert_inlined(self, change: TableChange, total: TableTotals, snapshot: Snapshot) -> TableTotals:
        if not change.inlined:
            return total
        table = change.table
        # a renamed or new table starts a schema version with this very snapshot
        altered = {self.ids.get(other.id, other.id) for other in (*self.changes.created_tables, *self.changes.renamed_tables)}
        version = snapshot.schema_version if table.id in altered else table.schema_version
        if version not in self.writer.inlined_tables(table.id):
            self.writer.add_inlined_table(table.id, version, table.schema)
        target = self.writer.inlined_table(table.id, version, table.schema)
        next_row, records = total.next_row_id, total.record_count
        rows: list[tuple[object, ...]] = []
        row_ids: list[int] = []
        for batch in change.inlined:
            rows.extend(batch.encoded)
            for given in batch.row_ids:
                row_ids.append(next_row if given is None else given)
                next_row += 1 if given is None else 0
        self.writer.add_inlined_rows(target, rows, row_ids, snapshot.id)
        return TableTotals(records + len(rows), next_row, total.file_size_bytes)

    def _delete_inlined(self, change: TableChange, snapshot: Snapshot) -> None:
        if change.inlined_deletes:
            pairs = [(self.ids.get(file, file), position) for file, position in change.inlined_deletes]
            self.writer.add_inlined_deletes(change.table.id, pairs, snapshot.id)
        for version, row_ids in change.ended_rows.items():
            same = version == change.table.schema_version
            schema = change.table.schema if same else self.writer.columns_at(change.table.id, version)
            target = self.writer.inlined_table(change.table.id, version, schema)
            self.writer.end_inlined_rows(target, row_ids, snapshot.id)


def _merged(
    change: TableChange, known: Mapping[tuple[int, int], TableColumnStats], *, first: bool
) -> dict[tuple[int, int], TableColumnStats]:
    """The table-level statistics after an insert."""
    table = change.table
    batches = [file.stats for file in change.data_files] + [insert.stats for insert in change.inlined]
    types = {column.id: column.type for column in table.schema.leaves()}
    merged: dict[tuple[int, int], TableColumnStats] = {}
    for stats in batches:
        for column in stats:
            type_ = types.get(column.column_id)
            if type_ is None:
                continue
            key = (table.id, column.column_id)
            old = merged.get(key, known.get(key))
            merged[key] = merge(old, column, type_, first=first and key not in merged)
    return merged


def _lost(table: TableInfo, why: str) -> CommitConflict:
    return CommitConflict(
        f"the change to {table.qualified_name} was overtaken: {why} by another commit",
        hint="run the operation again on the new state",
    )


def _now(latest: Snapshot) -> dt.datetime:
    """The time of the new snapshot: now, but never before its predecessor, so that time travel is monotonic."""
    now = dt.datetime.now(dt.UTC)
    return now if latest.time is None or now > latest.time else latest.time + dt.timedelta(microseconds=1)
