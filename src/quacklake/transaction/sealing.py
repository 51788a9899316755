"""Turning a transaction's changes to one table into immutable data, and writing its delete files."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import pyarrow as pa

from quacklake.catalog import Catalog, DatedDeletes
from quacklake.format.mappings import NameMapping
from quacklake.format.objects import TableInfo
from quacklake.format.snapshots import Snapshot
from quacklake.transaction.changeset import NewDeleteFile, PastDeleteFile, TableChange
from quacklake.transaction.pending import PendingTable, TouchedFile

#: Writes all deletes of a data file: its id, the file, the new positions and the begin of its delete file.
WriteDeletes = Callable[[TableInfo, int, TouchedFile, pa.Array, int | None], NewDeleteFile]
#: Writes the deletes that a data file had before it ended.
WritePastDeletes = Callable[[TableInfo, int, TouchedFile, DatedDeletes], PastDeleteFile]


def table_change(
    catalog: Catalog,
    base: Snapshot,
    pending: PendingTable,
    write: WriteDeletes,
    write_past: WritePastDeletes,
    limit: int,
) -> TableChange:
    """Return the changes of one table as immutable data. Up to ``limit`` deletes go to the catalog, more to files."""
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
    dated = _dated_deletes(catalog, base, pending, partly, ended)
    delete_files = [
        write(pending.table, id_, pending.touched[id_], gone, _begin(dated.get(id_))) for id_, gone in partly.items()
    ]
    past = [
        write_past(pending.table, id_, pending.touched[id_], dated[id_])
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
    catalog: Catalog, base: Snapshot, pending: PendingTable, partly: Iterable[int], ended: Iterable[int]
) -> dict[int, DatedDeletes]:
    """Return when rows were deleted of files that get another delete file, or end with deletes in the catalog."""
    touched = pending.touched
    wanted = [id_ for id_ in partly if id_ >= 0 and touched[id_].delete_file_id is not None]
    wanted += [id_ for id_ in ended if touched[id_].inlined]
    if not wanted:
        return {}
    files = {id_: touched[id_].delete_file_id for id_ in wanted}
    with catalog.read() as reader:
        return reader.inlined.dated_deletes(base, pending.table.id, files)


def _used(pending: PendingTable) -> tuple[NameMapping, ...]:
    """Return the new name mappings that a file still has."""
    used = {file.mapping_id for file in pending.files}
    return tuple(mapping for mapping in pending.mappings if mapping.id in used)


def _begin(dated: DatedDeletes | None) -> int | None:
    return None if dated is None else dated.file_begin
