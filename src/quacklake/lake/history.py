"""Snapshots as Arrow tables."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from quacklake.format.changes import render
from quacklake.format.names import fold
from quacklake.format.objects import TableInfo
from quacklake.format.snapshots import SnapshotInfo
from quacklake.lake.settings import Shared

__all__ = ["snapshot_table", "table_history"]

_SCHEMA = pa.schema(
    [
        ("snapshot_id", pa.int64()),
        ("snapshot_time", pa.timestamp("us", tz="UTC")),
        ("schema_version", pa.int64()),
        ("changes", pa.string()),
        ("author", pa.string()),
        ("commit_message", pa.string()),
        ("commit_extra_info", pa.string()),
    ]
)


def snapshot_table(snapshots: Sequence[SnapshotInfo]) -> pa.Table:
    """Snapshots as rows, in the order given."""
    rows = [
        (info.id, info.time, info.schema_version, render(info.changes), info.author, info.message, info.extra)
        for info in snapshots
    ]
    return pa.Table.from_pylist([dict(zip(_SCHEMA.names, row, strict=True)) for row in rows], schema=_SCHEMA)


def table_history(shared: Shared, table: TableInfo) -> pa.Table:
    """The snapshots that changed a table, newest first."""
    with shared.catalog.read() as reader:
        snapshots = reader.snapshots()
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
    return snapshot_table(mine[::-1])
