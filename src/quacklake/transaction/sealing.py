"""The end of a transaction's changes to one table: what was noted becomes immutable data, its delete files written."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Protocol

import pyarrow as pa

from quacklake.catalog import DatedDeletes
from quacklake.format.mappings import NameMapping
from quacklake.format.objects import TableInfo
from quacklake.transaction.changeset import NewDeleteFile, PastDeleteFile, TableChange
from quacklake.transaction.pending import PendingTable, TouchedFile

if TYPE_CHECKING:
    from quacklake.transaction.transaction import Transaction

__all__ = ["DeleteWriter", "table_change"]


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
        """All deletes of a data file, given positions among them; ``begin_snapshot`` is that of its delete file."""
        ...

    def write_past(
        self, tx: Transaction, table: TableInfo, file_id: int, file: TouchedFile, dated: DatedDeletes
    ) -> PastDeleteFile:
        """The deletes that a data file had before it ended."""
        ...

    def redate(self, tx: Transaction, table: TableInfo, file: NewDeleteFile, snapshot: int) -> NewDeleteFile:
        """The same delete file with another snapshot for its new deletes."""
        ...


def table_change(tx: Transaction, pending: PendingTable, writer: DeleteWriter, limit: int) -> TableChange:
    """The changes of one table as immutable data; up to ``limit`` deletes go into the catalog, others into files."""
    new = {file.id for file in pending.files}
    deleted = pending.deleted_positions()
    dead = {id_ for id_, gone in deleted.items() if pending.touched[id_].live == len(gone)}
    partly = {id_: gone for id_, gone in deleted.items() if id_ not in dead}
    small = {id_: gone for id_, gone in partly.items() if id_ not in new}
    inlined: list[tuple[int, int]] = []
    if sum(len(gone) for gone in small.values()) <= limit:
        inlined = [(id_, position) for id_, gone in small.items() for position in gone.to_pylist()]
        partly = {id_: gone for id_, gone in partly.items() if id_ in new}
    ended = sorted({id_ for id_ in dead if id_ >= 0} | pending.ended_files)
    dated = _dated_deletes(tx, pending, partly, ended)
    delete_files = [
        writer.write(tx, pending.table, id_, pending.touched[id_], gone, _begin(dated.get(id_)))
        for id_, gone in partly.items()
    ]
    past = [
        writer.write_past(tx, pending.table, id_, pending.touched[id_], dated[id_])
        for id_ in ended
        if pending.touched[id_].inlined
    ]
    return TableChange(
        table=pending.table,
        data_files=tuple(file for file in pending.files if file.id not in dead),
        inlined=tuple(insert for insert in pending.inserts if insert.rows.num_rows),
        delete_files=(*pending.written_deletes, *delete_files),
        inlined_deletes=tuple(inlined),
        ended_rows={version: tuple(sorted(rows)) for version, rows in pending.ended_rows.items() if rows},
        ended_files=tuple(ended),
        past_deletes=tuple(past),
        touched={id_: file.delete_file_id for id_, file in pending.touched.items() if id_ >= 0},
        reads=pending.reads,
        mappings=_used(pending),
    )


def _dated_deletes(
    tx: Transaction, pending: PendingTable, partly: Iterable[int], ended: Iterable[int]
) -> dict[int, DatedDeletes]:
    """When rows were deleted of files that get another delete file, or end with deletes in the catalog."""
    touched = pending.touched
    wanted = [id_ for id_ in partly if id_ >= 0 and touched[id_].delete_file_id is not None]
    wanted += [id_ for id_ in ended if touched[id_].inlined]
    if not wanted:
        return {}
    files = {id_: touched[id_].delete_file_id for id_ in wanted}
    with tx.catalog.read() as reader:
        return reader.inlined.dated_deletes(tx.base, pending.table.id, files)


def _used(pending: PendingTable) -> tuple[NameMapping, ...]:
    """The new name mappings that a file still has."""
    used = {file.mapping_id for file in pending.files}
    return tuple(mapping for mapping in pending.mappings if mapping.id in used)


def _begin(dated: DatedDeletes | None) -> int | None:
    return None if dated is None else dated.file_begin
