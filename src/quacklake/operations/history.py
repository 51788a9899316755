"""Return snapshots as Arrow tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa

from quacklake.format.names import fold
from quacklake.format.objects import TableInfo
from quacklake.format.snapshots import (
    Names,
    Naming,
    Operation,
    SnapshotInfo,
    describe,
    operation_of,
    renames,
    render_changes,
)
from quacklake.operations.context import LakeContext

_TEXTS = ("changes", "author", "commit_message", "commit_extra_info", "operation", "description")
_SCHEMA = pa.schema(
    [
        ("snapshot_id", pa.int64()),
        ("snapshot_time", pa.timestamp("us", tz="UTC")),
        ("schema_version", pa.int64()),
        *((name, pa.string()) for name in _TEXTS),
    ]
)


def lake_history(context: LakeContext) -> pa.Table:
    """Return every snapshot, oldest first."""
    with context.catalog.read() as reader:
        return _table(reader.snapshots.all(), reader.snapshots.operations(), reader.tables.all_names())


def _table(snapshots: Sequence[SnapshotInfo], asked: Mapping[int, Operation], names: Names) -> pa.Table:
    renamed = renames(names)

    def row(info: SnapshotInfo) -> tuple[object, ...]:
        operations, naming = asked.get(info.id, Operation.NONE), Naming(info.id, names, renamed)
        own = (info.id, info.time, info.schema_version, render_changes(info.changes))
        signed = (info.author, info.message, info.extra)
        told = (function(info.changes, operations, naming) for function in (operation_of, describe))
        return (*own, *signed, *told)

    rows = [dict(zip(_SCHEMA.names, row(info), strict=True)) for info in snapshots]
    return pa.Table.from_pylist(rows, schema=_SCHEMA)


def table_history(context: LakeContext, table: TableInfo) -> pa.Table:
    """Return the snapshots that changed a table, newest first."""
    with context.catalog.read() as reader:
        snapshots, asked, names = reader.snapshots.all(), reader.snapshots.operations(), reader.tables.all_names()
    name = (fold(table.schema_name), fold(table.name))
    mine = [
        info
        for info in snapshots
        if any(
            change.id == table.id
            if (change.name is None and "table" in change.kind.value)
            or change.kind.value.startswith(("inline", "merge", "rewrite"))
            else change.name is not None and (fold(change.schema or ""), fold(change.name)) == name
            for change in info.changes
        )
    ]
    return _table(mine[::-1], asked, names)
