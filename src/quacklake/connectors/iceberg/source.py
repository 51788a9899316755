"""Read an Iceberg table: as it is, as it was, or snapshot by snapshot.

A version is the id of a snapshot. The rows of a snapshot are those of the files that it added; one that also removed
rows is an error unless ``on_change`` says otherwise, and one that only moved rows (a compaction) has none.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

import pyarrow as pa
from pyiceberg.expressions import AlwaysTrue
from pyiceberg.io.pyarrow import ArrowScan
from pyiceberg.manifest import ManifestContent, ManifestEntryStatus
from pyiceberg.table import FileScanTask, Table
from pyiceberg.table.snapshots import Operation, Snapshot, ancestors_of

from quacklake.connectors.iceberg.catalogs import IcebergTable, failing
from quacklake.connectors.options import ConnectorOptions
from quacklake.connectors.table_source import NOTHING, ReadOptions, TableSource, Unit
from quacklake.errors import ConfigError, ConnectorError, NotFoundError, SnapshotExpiredError


def source(options: Mapping[str, Any]) -> IcebergSource:
    """Return the source that options describe."""
    return IcebergSource(options)


class IcebergSource(TableSource):
    """One Iceberg table, in any of the four modes."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        read = ConnectorOptions("iceberg", options)
        self._place = IcebergTable.of(read)
        super().__init__(ReadOptions.of(read))
        read.finish()
        if self.options.feed:
            raise ConfigError("iceberg: a change data feed is read with Spark only", hint="Leave out change_data_feed.")

    def schema(self) -> pa.Schema:
        """Return the columns of the table."""
        return self._place.load().schema().as_arrow()

    def identity(self) -> str:
        """Return the id that Iceberg gives a table when it is made."""
        return str(self._place.load().metadata.table_uuid)

    def newest(self) -> int:
        """Return the id of the current snapshot."""
        snapshot = self._place.load().current_snapshot()
        return NOTHING if snapshot is None else snapshot.snapshot_id

    def version_at(self, moment: datetime) -> int:
        """Return the snapshot that was the current one at a time."""
        found = self._place.load().snapshot_as_of_timestamp(int(moment.timestamp() * 1000))
        if found is None:
            raise NotFoundError(f"the Iceberg table had no snapshot at {moment}")
        return found.snapshot_id

    def state(self, version: int) -> Sequence[Unit]:
        """Return the files of a snapshot."""
        with failing("the Iceberg table cannot be read"):
            table = self._place.load()
            tasks = table.scan(snapshot_id=version).plan_files()
            return [self._file(table, task) for task in sorted(tasks, key=lambda task: task.file.file_path)]

    def commits(self, after: int, until: int) -> Iterator[tuple[int, Sequence[Unit]]]:
        """Yield each snapshot with the files that it added."""
        table = self._place.load()
        passed: list[Snapshot] = []
        for snapshot in ancestors_of(table.snapshot_by_id(until), table.metadata):
            if snapshot.snapshot_id == after:
                break
            passed.append(snapshot)
        else:
            if after != NOTHING or (passed and passed[-1].parent_snapshot_id is not None):
                raise SnapshotExpiredError(
                    f"the snapshot {after} of the Iceberg table has expired, or the table was rolled back behind it",
                    hint="Begin without a checkpoint.",
                )
        for snapshot in reversed(passed):
            yield snapshot.snapshot_id, self._added(table, snapshot)

    def _added(self, table: Table, snapshot: Snapshot) -> Sequence[Unit]:
        operation = Operation.APPEND if snapshot.summary is None else snapshot.summary.operation
        if operation == Operation.REPLACE:
            return []
        if operation != Operation.APPEND and self.options.on_change == "error":
            raise ConnectorError(
                f"the snapshot {snapshot.snapshot_id} of the Iceberg table changed or removed rows",
                hint="Say on_change='skip' or 'rows'.",
            )
        if operation != Operation.APPEND and self.options.on_change == "skip":
            return []
        with failing("the Iceberg table cannot be read"):
            files = [
                entry.data_file
                for manifest in snapshot.manifests(table.io)
                if manifest.added_snapshot_id == snapshot.snapshot_id and manifest.content == ManifestContent.DATA
                for entry in manifest.fetch_manifest_entry(table.io)
                if entry.status == ManifestEntryStatus.ADDED and entry.snapshot_id == snapshot.snapshot_id
            ]
        return [self._file(table, FileScanTask(file)) for file in sorted(files, key=lambda file: file.file_path)]

    def _file(self, table: Table, task: FileScanTask) -> Unit:
        def read() -> Iterable[pa.RecordBatch]:
            schema = self.schema()
            scan = ArrowScan(table.metadata, table.io, table.schema(), AlwaysTrue())
            with failing("a file of the Iceberg table cannot be read"):
                for batch in scan.to_record_batches([task]):
                    for first in range(0, batch.num_rows, self.options.batch_rows):
                        part = batch.slice(first, self.options.batch_rows)
                        yield part.select(schema.names).cast(schema)

        return Unit(task.file.file_path, read)
