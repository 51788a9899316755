"""Upkeep of a Delta table: compact small files, remove those that no version needs."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable

from quacklake.connectors.staging import is_staged, staged_before
from quacklake.extend.stores import Store

_MARK = CommitProperties(custom_metadata={"quacklake.maintenance": "compaction"})


def small_files(table: DeltaTable, target_bytes: int) -> int:
    """Return how many files are below the target size, in the partition that has most of them."""
    actions = pa.table(table.get_add_actions(flatten=False))
    partitions = actions.column("partition").to_pylist() if table.metadata().partition_columns else ()
    sizes = actions.column("size_bytes").to_pylist()
    counts = Counter(
        str(partitions[place] if partitions else "") for place, size in enumerate(sizes) if size < target_bytes
    )
    return max(counts.values(), default=0)


def compact(table: DeltaTable, target_bytes: int, zorder_by: Sequence[str]) -> tuple[int, int]:
    """Rewrite small files, or all by a Z-order of columns; return how many files were replaced, and by how many."""
    optimize = table.optimize
    metrics = (
        optimize.z_order(zorder_by, target_size=target_bytes, commit_properties=_MARK)
        if zorder_by
        else optimize.compact(target_size=target_bytes, commit_properties=_MARK)
    )
    return int(metrics["numFilesRemoved"]), int(metrics["numFilesAdded"])


def vacuum(table: DeltaTable, retention: timedelta) -> int:
    """Remove the files that the log gave up before the retention, and return how many.

    Files that the log never had are left alone: they may belong to a commit that is being prepared.
    """
    hours = math.ceil(retention / timedelta(hours=1))
    if not table.vacuum(hours, dry_run=True, enforce_retention_duration=False):
        return 0
    return len(table.vacuum(hours, dry_run=False, enforce_retention_duration=False))


def remove_orphans(table: DeltaTable, store: Store, age: timedelta) -> int:
    """Remove files of sinks that died before their commit, and return how many.

    The library finds them among all files that the log does not need. What others have left is not touched, above all
    not the metadata of Iceberg.
    """
    hours = math.ceil(age / timedelta(hours=1))
    unknown = table.vacuum(hours, dry_run=True, enforce_retention_duration=False, full=True)
    aside = staged_before(store, "_quacklake/", datetime.now(UTC) - age)
    return store.delete([*filter(is_staged, unknown), *aside])
