"""The uncommitted changes to one table, and a scan plan with them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from quacklake.core.catalog import DatedDeletes
from quacklake.core.format.bounds import Predicate, some
from quacklake.core.format.mappings import NameMapping
from quacklake.core.format.objects import TableInfo
from quacklake.core.scan.inlined_rows import local_rows
from quacklake.core.scan.plan import FILES, LOCAL_VERSION, ScanPlan
from quacklake.core.transaction.changeset import InlinedInsert, NewDataFile, NewDeleteFile, PastDeleteFile, TableChange
from quacklake.errors import InputError, NotPermittedError

if TYPE_CHECKING:
    from quacklake.core.transaction.transaction import Transaction


@dataclass(frozen=True, slots=True)
class DeleteTarget:
    """Rows to delete: positions in files (``file_id``, ``row_id``), inlined rows (``schema_version``, ``row_id``)."""

    positions: pa.Table
    inlined: pa.Table

    @property
    def count(self) -> int:
        return int(self.positions.num_rows + self.inlined.num_rows)


@dataclass(frozen=True, slots=True)
class TouchedFile:
    """A data file with deleted rows: its path, the delete file it had, how many rows it had left (None: unknown).

    ``inlined`` counts the rows deleted in the catalog; ``record_count`` all rows of the data file; ``delete_key`` opens
    the delete file of an encrypted lake.
    """

    path: str
    delete_file_id: int | None
    delete_path: str | None
    live: int | None
    inlined: int = 0
    delete_format: str | None = None
    record_count: int | None = None
    delete_key: str | None = field(default=None, repr=False)


@dataclass
class PendingTable:
    """The changes of a transaction to one table so far. Negative local row ids name uncommitted inlined rows."""

    table: TableInfo
    files: list[NewDataFile] = field(default_factory=list)
    inserts: list[InlinedInsert] = field(default_factory=list)
    local_ids: list[list[int]] = field(default_factory=list)
    deleted: list[pa.Table] = field(default_factory=list)
    ended_rows: dict[int, set[int]] = field(default_factory=dict)
    ended_files: set[int] = field(default_factory=set)
    touched: dict[int, TouchedFile] = field(default_factory=dict)
    mappings: list[NameMapping] = field(default_factory=list)
    reads: Predicate | None = None
    next_local_id: int = -1
    written_deletes: list[NewDeleteFile] = field(default_factory=list)

    def add_insert(self, insert: InlinedInsert) -> None:
        """Add inlined rows."""
        count = insert.rows.num_rows
        self.inserts.append(insert)
        self.local_ids.append(list(range(self.next_local_id, self.next_local_id - count, -1)))
        self.next_local_id -= count

    def progress(self) -> tuple[object, ...]:
        """Return how much has changed so far; nothing for a table that was only read."""
        ended = sum(map(len, self.ended_rows.values()))
        deleted = len(self.deleted), ended, len(self.ended_files), len(self.written_deletes)
        counts = (*deleted, len(self.files), self.next_local_id + 1, sum(map(len, self.local_ids)))
        return counts if any(counts) else ()

    def add_read(self, predicate: Predicate) -> None:
        """Note that the change depends on having read what matches a predicate."""
        self.reads = predicate if self.reads is None else some((self.reads, predicate))

    def delete(self, plan: ScanPlan, target: DeleteTarget) -> None:
        """Delete rows found by scanning ``plan``."""
        plan = plan.whole
        wanted = set(target.positions.column("file_id").unique().to_pylist()) - set(self.touched)
        self.touched.update(touched_files(plan, wanted))
        if target.positions.num_rows:
            self.deleted.append(target.positions)
        for version, row_id in _pairs(target.inlined):
            if version != LOCAL_VERSION:
                self.ended_rows.setdefault(version, set()).add(row_id)
                continue
            for index, ids in enumerate(self.local_ids):
                if row_id in ids:
                    at = ids.index(row_id)
                    ids.pop(at)
                    self.inserts[index] = _without(self.inserts[index], at)
                    break

    def delete_all(self, plan: ScanPlan) -> None:
        """Delete every row of the table without looking at any: whole files end."""
        if plan.restriction is not None:
            raise NotPermittedError("rows of the table are hidden, so that not every row of it can be deleted")
        wanted = set(plan.files.column("data_file_id").to_pylist())
        self.touched.update(touched_files(plan, wanted - set(self.touched)))
        self.ended_files |= {id_ for id_ in wanted if id_ >= 0}
        self.files.clear()
        self.inserts.clear()
        self.local_ids.clear()
        self.deleted.clear()
        if plan.inlined is not None:
            for version, row_id in _pairs(plan.inlined):
                if version != LOCAL_VERSION:
                    self.ended_rows.setdefault(version, set()).add(row_id)

    def end_files(self, plan: ScanPlan, ids: Iterable[int]) -> None:
        """Delete every row of some planned files without looking at any."""
        gone = set(ids)
        self.touched.update(touched_files(plan, gone - set(self.touched)))
        self.ended_files |= {id_ for id_ in gone if id_ >= 0}
        self.files = [file for file in self.files if file.id not in gone]
        chosen = pa.array(sorted(gone), pa.int64())
        kept = [part.filter(pc.invert(pc.is_in(part.column("file_id"), value_set=chosen))) for part in self.deleted]
        self.deleted = [part for part in kept if part.num_rows]

    def delete_by_files(self, plan: ScanPlan, files: Iterable[NewDeleteFile]) -> None:
        """Delete rows of planned files by delete files that are written already; nothing may read the table then."""
        new = list(files)
        self.touched.update(touched_files(plan, {file.data_file_id for file in new} - set(self.touched)))
        self.written_deletes += new

    def keep_inserts(self, inserts: list[InlinedInsert]) -> None:
        """Keep only these inlined inserts; the others have become files."""
        kept = [(insert, ids) for insert, ids in zip(self.inserts, self.local_ids, strict=True) if insert in inserts]
        self.inserts = [insert for insert, _ in kept]
        self.local_ids = [ids for _, ids in kept]

    def unplanned(self, plan: ScanPlan) -> list[int]:
        """Return the committed files with rows deleted here that a plan lacks: they are pruned, or compacted away."""
        return sorted({id_ for id_ in self.touched if id_ >= 0} - set(plan.files.column("data_file_id").to_pylist()))

    def flushed(self, plan: ScanPlan) -> bool:
        """Return whether a committed inlined row that is deleted here is not inlined any more."""
        ended = {(version, row) for version, rows in self.ended_rows.items() for row in rows}
        if not ended:
            return False
        return plan.inlined is None or not ended <= set(_pairs(plan.inlined))

    def overlay(self, plan: ScanPlan) -> ScanPlan:
        """Return the plan as the transaction sees it: its own files, rows and deletes included."""
        if self.written_deletes:
            raise InputError("a table with rows that Spark has deleted cannot be read before the commit")
        files = plan.files
        if self.ended_files:
            gone = pc.is_in(files.column("data_file_id"), value_set=pa.array(sorted(self.ended_files), pa.int64()))
            files = files.filter(pc.invert(gone))
        if self.files:
            files = pa.concat_tables([files, _file_rows(self.files, self.table)])
        deletes = plan.deletes
        if self.deleted or self.ended_files:
            deletes = pa.concat_tables([deletes, *self.deleted])
            planned = files.column("data_file_id").combine_chunks()
            deletes = deletes.filter(pc.is_in(deletes.column("file_id"), value_set=planned))
        ended = [(version, row) for version, rows in self.ended_rows.items() for row in rows]
        seen = plan.without_inlined(
            pa.table({"schema_version": [e[0] for e in ended], "row_id": [e[1] for e in ended]})
        )
        parts = [seen.inlined] if seen.inlined is not None else []
        for insert, ids in zip(self.inserts, self.local_ids, strict=True):
            if insert.rows.num_rows:
                parts.append(local_rows(insert.rows, ids, plan.schema, LOCAL_VERSION))
        rows = pa.concat_tables(parts, promote_options="permissive") if parts else None
        mappings = (*plan.mappings, *self.mappings)
        return replace(seen, files=files, deletes=deletes, inlined=rows, mappings=mappings)

    def deleted_positions(self) -> dict[int, pa.Array]:
        """Return the newly deleted positions of each data file, sorted."""
        return positions_by_file(pa.concat_tables(self.deleted)) if self.deleted else {}

    def known_row_ids(self) -> dict[int, int | None]:
        """Return by local row id the committed row id it keeps (an updated row), or None for a new row."""
        return {
            local: kept
            for insert, ids in zip(self.inserts, self.local_ids, strict=True)
            for local, kept in zip(ids, insert.row_ids, strict=True)
        }


def positions_by_file(places: pa.Table) -> dict[int, pa.Array]:
    """Return the positions (``row_id``) in each file (``file_id``), sorted."""
    order = places.sort_by([("file_id", "ascending"), ("row_id", "ascending")]).combine_chunks()
    runs = pc.run_end_encode(order.column("file_id").combine_chunks())
    positions = order.column("row_id").combine_chunks()
    by_file: dict[int, pa.Array] = {}
    start = 0
    for file, end in zip(runs.values.to_pylist(), runs.run_ends.to_pylist(), strict=True):
        by_file[file] = positions.slice(start, end - start)
        start = end
    return by_file


def touched_files(plan: ScanPlan, wanted: set[int]) -> dict[int, TouchedFile]:
    """Return the planned files with these ids, before anything in them is deleted by this transaction."""
    if not wanted:
        return {}
    names = ("data_file_id", "path", "delete_file_id", "delete_path", "delete_format", "delete_encryption_key")
    counts = ("record_count", "delete_count", "partial_max")
    touched: dict[int, TouchedFile] = {}
    for id_, path, delete_id, delete_path, format_, key, records, deleted, partial in zip(
        *(plan.files.column(name).to_pylist() for name in (*names, *counts)), strict=True
    ):
        if id_ in wanted:
            unknown = partial is not None or (delete_path is not None and deleted is None)
            live = None if unknown else records - (deleted or 0) - plan.deleted_counts.get(id_, 0)
            inlined = plan.deleted_counts.get(id_, 0)
            touched[id_] = TouchedFile(path, delete_id, delete_path, live, inlined, format_, records, key)
    return touched


def with_flushed(plan: ScanPlan, change: TableChange) -> ScanPlan:
    """Return a plan with inlined rows in the files to which an uncommitted flush has moved them."""
    rows = plan.inlined
    for flushed in change.flushed:
        if rows is not None:
            begin = rows.column("begin_snapshot")
            moved = pc.and_(
                pc.equal(rows.column("schema_version"), flushed.schema_version),
                pc.and_(pc.greater(begin, flushed.since), pc.less_equal(begin, flushed.through)),
            )
            if flushed.row_ids is not None:
                ids = pa.array(flushed.row_ids, pa.int64())
                moved = pc.and_(moved, pc.is_in(rows.column("row_id"), value_set=ids))
            rows = rows.filter(pc.invert(pc.fill_null(moved, False)))
    deletes = {file.data_file_id: file for file in change.dated_deletes}
    files = pa.concat_tables([plan.files, _file_rows(list(change.data_files), change.table, deletes)])
    return replace(plan, files=files, inlined=rows if rows is not None and rows.num_rows else None)


def _pairs(table: pa.Table) -> Iterable[tuple[int, int]]:
    return zip(table.column("schema_version").to_pylist(), table.column("row_id").to_pylist(), strict=True)


def _without(insert: InlinedInsert, at: int) -> InlinedInsert:
    """Return the insert less one row; its statistics stay: they are bounds."""
    rows = pa.concat_tables([insert.rows.slice(0, at), insert.rows.slice(at + 1)])
    return replace(
        insert,
        rows=rows,
        encoded=insert.encoded[:at] + insert.encoded[at + 1 :],
        row_ids=insert.row_ids[:at] + insert.row_ids[at + 1 :],
    )


def _file_rows(
    files: list[NewDataFile], table: TableInfo, deletes: Mapping[int, PastDeleteFile] | None = None
) -> pa.Table:
    rows: list[dict[str, object]] = [
        {
            **dict.fromkeys(FILES.names),
            "data_file_id": file.id,
            "path": table.location + file.path if file.location is None else file.location,
            "record_count": file.record_count,
            "file_size_bytes": file.file_size_bytes,
            "footer_size": file.footer_size,
            "begin_snapshot": file.begin_snapshot,
            "partial_max": file.partial_max,
            "encryption_key": file.encryption_key,
            "mapping_id": file.mapping_id,
            "partition_id": file.partition_id,
        }
        for file in files
    ]
    for row, file in zip(rows, files, strict=True):
        if (delete := (deletes or {}).get(file.id)) is not None:
            row["delete_path"] = table.location + delete.path
            row["delete_format"] = delete.format
            row["delete_count"] = delete.delete_count
            row["delete_encryption_key"] = delete.encryption_key
    return pa.Table.from_pylist(rows, schema=FILES)


class DeleteWriter(Protocol):
    """Writes the delete files of a transaction."""

    def write(
        self,
        tx: Transaction,
        table: TableInfo,
        file_id: int,
        file: TouchedFile,
        positions: pa.Array,
        begin_snapshot: int | None,
    ) -> NewDeleteFile:
        """Write all deletes of a data file, with the given positions; its delete file began at ``begin_snapshot``."""

    def write_past(
        self, tx: Transaction, table: TableInfo, file_id: int, file: TouchedFile, dated: DatedDeletes
    ) -> PastDeleteFile:
        """Write the deletes that a data file had before it ended."""

    def redate(self, tx: Transaction, table: TableInfo, file: NewDeleteFile, snapshot: int) -> NewDeleteFile:
        """Write the delete file again with another snapshot for its new deletes."""


def table_change(
    tx: Transaction, pending: PendingTable, writer: DeleteWriter, limit: Callable[[TableInfo], int]
) -> TableChange:
    """Return the changes of one table as immutable data. Up to ``limit`` deletes go to the catalog, more to files."""
    mapped = {file.mapping_id for file in pending.files}
    added = TableChange(
        table=pending.table,
        data_files=tuple(pending.files),
        inlined=tuple(insert for insert in pending.inserts if insert.rows.num_rows),
        reads=pending.reads,
        mappings=tuple(mapping for mapping in pending.mappings if mapping.id in mapped),
    )
    if not (pending.touched or pending.ended_files or pending.ended_rows or pending.written_deletes):
        return added
    new = {file.id for file in pending.files}
    deleted = pending.deleted_positions()
    dead = {id_ for id_, gone in deleted.items() if pending.touched[id_].live == len(gone)}
    partly = {id_: gone for id_, gone in deleted.items() if id_ not in dead}
    small = {id_: gone for id_, gone in partly.items() if id_ not in new}
    inlined: list[tuple[int, int]] = []
    if sum(len(gone) for gone in small.values()) <= limit(pending.table):
        inlined = [(id_, position) for id_, gone in small.items() for position in gone.to_pylist()]
        partly = {id_: gone for id_, gone in partly.items() if id_ in new}
    ended = sorted({id_ for id_ in dead if id_ >= 0} | pending.ended_files)
    touched = pending.touched
    # when rows were deleted of files that get another delete file, or end with deletes in the catalog
    wanted = [id_ for id_ in partly if id_ >= 0 and touched[id_].delete_file_id is not None]
    wanted += [id_ for id_ in ended if touched[id_].inlined]
    dated: dict[int, DatedDeletes] = {}
    if wanted:
        with tx.catalog.read() as reader:
            files = {id_: touched[id_].delete_file_id for id_ in wanted}
            dated = reader.inlined.dated_deletes(tx.base, pending.table.id, files)
    delete_files = [
        writer.write(tx, pending.table, id_, touched[id_], gone, dated[id_].file_begin if id_ in dated else None)
        for id_, gone in partly.items()
    ]
    past = [
        writer.write_past(tx, pending.table, id_, touched[id_], dated[id_]) for id_ in ended if touched[id_].inlined
    ]
    return replace(
        added,
        data_files=tuple(file for file in pending.files if file.id not in dead),
        delete_files=(*pending.written_deletes, *delete_files),
        inlined_deletes=tuple(inlined),
        ended_rows={version: tuple(sorted(rows)) for version, rows in pending.ended_rows.items() if rows},
        ended_files=tuple(ended),
        past_deletes=tuple(past),
        touched={id_: file.delete_file_id for id_, file in touched.items() if id_ >= 0},
    )
