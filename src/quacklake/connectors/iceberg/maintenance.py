"""Upkeep of an Iceberg table: compact small files, forget old snapshots and the files that only they needed."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from datetime import datetime

from pyiceberg.exceptions import CommitFailedException
from pyiceberg.expressions import AlwaysTrue
from pyiceberg.io.pyarrow import ArrowScan, schema_to_pyarrow
from pyiceberg.manifest import ManifestEntryStatus
from pyiceberg.table import FileScanTask, Table
from pyiceberg.table.snapshots import Snapshot

from quacklake.connectors.evolution import conformed
from quacklake.connectors.iceberg.files import ReplaceFiles, data_file
from quacklake.connectors.iceberg.partitions import partition_record
from quacklake.connectors.protocols import WrittenFile
from quacklake.connectors.staging import FileStage, staged_before
from quacklake.extend.reporting import reach
from quacklake.extend.stores import Store

_MARKS = {"quacklake.maintenance": "compaction"}


def small_files(table: Table, target_bytes: int, min_files: int) -> list[list[FileScanTask]]:
    """Return the files below the target size of each partition that has enough of them.

    Files with deleted rows are left out: the library cannot remove the delete files.
    """
    groups: dict[object, list[FileScanTask]] = defaultdict(list)
    for task in table.scan().plan_files():
        file = task.file
        if file.file_size_in_bytes < target_bytes and not task.delete_files and file.spec_id == table.spec().spec_id:
            groups[file.partition].append(task)
    return [group for group in groups.values() if len(group) >= min_files]


def compact(table: Table, store: Store, stage: FileStage, groups: Iterable[list[FileScanTask]]) -> tuple[int, int]:
    """Write the rows of files into fewer; return how many files were replaced, and by how many.

    Raise ``CommitFailedException`` when another writer was quicker; the new files are removed then. Memory is bounded
    by the target size of the stage.
    """
    replaced = [task for group in groups for task in group]
    files = _rewritten(table, stage, groups)
    try:
        with table.transaction() as transaction, ReplaceFiles.of(transaction, _MARKS) as update:
            for task in replaced:
                update.delete_data_file(task.file)
            for file in files:
                record = partition_record(file, table.spec(), table.schema())
                update.append_data_file(data_file(store, file.path, file.bytes, record, table.metadata))
            reach("connector.iceberg.compact.before")
    except CommitFailedException:
        store.delete(file.path for file in files)
        raise
    reach("connector.iceberg.compact.after")
    return len(replaced), len(files)


def _rewritten(table: Table, stage: FileStage, groups: Iterable[list[FileScanTask]]) -> tuple[WrittenFile, ...]:
    schema = schema_to_pyarrow(table.schema(), include_field_ids=False)
    scan = ArrowScan(table.metadata, table.io, table.schema(), AlwaysTrue())
    try:
        for group in groups:
            for batch in scan.to_record_batches(group):
                stage.add(conformed(batch, schema))
            stage.flush()
    except BaseException:
        stage.discard()
        raise
    return stage.take()


def expire(table: Table, store: Store, before: datetime) -> int:
    """Forget the snapshots before a time, and remove the files that only they needed. Return how many files those were.

    Branches, tags and what was added from outside the folder of the table are left alone.
    """
    if table.properties.get("gc.enabled", "true").lower() == "false":
        return 0
    kept = {reference.snapshot_id for reference in table.metadata.refs.values()}
    old = [
        snapshot
        for snapshot in table.snapshots()
        if snapshot.timestamp_ms < before.timestamp() * 1000 and snapshot.snapshot_id not in kept
    ]
    if not old:
        return 0
    files = _files(table, old)
    table.maintenance.expire_snapshots().by_ids([snapshot.snapshot_id for snapshot in old]).commit()
    table.refresh()
    files -= _files(table, table.snapshots())
    root = f"{table.location().rstrip('/')}/"
    return store.delete(sorted(path.removeprefix(root) for path in files if path.startswith(root)))


def remove_orphans(table: Table, store: Store, before: datetime) -> int:
    """Remove files of sinks that died before their commit, if they are older than a time, and return how many."""
    root = f"{table.location().rstrip('/')}/"
    old = [path for folder in ("data/", "quacklake/") for path in staged_before(store, folder, before)]
    if not old:
        return 0
    needed = {path.removeprefix(root) for path in _files(table, table.snapshots())}
    return store.delete([path for path in old if path not in needed])


def _files(table: Table, snapshots: Iterable[Snapshot]) -> set[str]:
    """Return the manifests and the live files of snapshots."""
    found: set[str] = set()
    for snapshot in snapshots:
        found.add(snapshot.manifest_list)
        for manifest in snapshot.manifests(table.io):
            if manifest.manifest_path not in found:
                found.add(manifest.manifest_path)
                entries = manifest.fetch_manifest_entry(table.io)
                found |= {e.data_file.file_path for e in entries if e.status != ManifestEntryStatus.DELETED}
    return found
