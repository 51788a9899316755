"""Read an Iceberg table: as it is, as it was, or snapshot by snapshot.

A version is the id of a snapshot. The rows of a snapshot are those of the files that it added; one that also removed
rows is an error unless ``on_change`` says otherwise, and one that only moved rows (a compaction) has none. With
``change_data_feed`` the rows say how they changed, which a comparison of files finds out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from itertools import groupby
from typing import Any

import pyarrow as pa
from pyiceberg.expressions import AlwaysTrue
from pyiceberg.io.pyarrow import ArrowScan
from pyiceberg.manifest import DataFile, ManifestContent, ManifestEntryStatus
from pyiceberg.table import FileScanTask, Table
from pyiceberg.table.snapshots import Operation, Snapshot, ancestors_of

from quacklake.connectors.change_feed import feed_schema, shown, with_commit
from quacklake.connectors.evolution import conformed
from quacklake.connectors.iceberg.catalogs import IcebergTable, Place, failing
from quacklake.connectors.iceberg.changes import changed_files, compared
from quacklake.connectors.options import ConnectorOptions
from quacklake.connectors.protocols import SourceCheckpoint
from quacklake.connectors.table_source import NOTHING, ReadOptions, TableSource, Unit
from quacklake.errors import ConfigError, ConnectorError, NotFoundError, SnapshotExpiredError, nearest


def source(options: Mapping[str, Any]) -> IcebergSource:
    """Return the source that options describe."""
    return IcebergSource(options)


class IcebergSource(TableSource):
    """One Iceberg table, in any of the four modes."""

    def __init__(self, options: Mapping[str, Any], place: Place | None = None) -> None:
        read = ConnectorOptions("iceberg", options)
        self._place: Place = IcebergTable.of(read) if place is None else place
        super().__init__(ReadOptions.of(read))
        self._key = read.names("key")
        read.finish()
        if self._key and not self.options.feed:
            raise ConfigError("iceberg: a source has a key for its change data feed only", hint="change_data_feed=true")

    def schema(self) -> pa.Schema:
        """Return the columns of the table, and those of its changes. Raise ``ConfigError`` for an unknown key."""
        found = self._place.load().schema().as_arrow()
        unknown = next((name for name in self._key if name not in found.names), None)
        if unknown is not None:
            raise ConfigError(
                f"iceberg: the table has no column {unknown!r}", hint=nearest(unknown, found.names) or None
            )
        return feed_schema(found, self.options.changelog) if self.options.feed else found

    def start(self, checkpoint: SourceCheckpoint | None = None) -> None:
        """Begin behind a checkpoint, without one at the beginning."""
        self.schema()
        super().start(checkpoint)

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
                if after == NOTHING:
                    raise SnapshotExpiredError(
                        "the first snapshots of the Iceberg table have expired, so that its changes do not begin with"
                        " an empty table",
                        hint="mode='batch' reads the rows of now; mode='incremental' with a version, what came after",
                    )
                raise SnapshotExpiredError(
                    f"the snapshot {after} of the Iceberg table has expired, or the table was rolled back behind it",
                    hint="begin without a checkpoint",
                )
        for group in _commits(reversed(passed)):
            if self.options.feed:
                yield group[-1].snapshot_id, self._changes(table, group)
            else:
                yield group[-1].snapshot_id, [unit for snapshot in group for unit in self._find_added(table, snapshot)]

    def _changes(self, table: Table, group: Sequence[Snapshot]) -> Sequence[Unit]:
        """Return what a commit changed."""
        operations = {_operation(snapshot) for snapshot in group}
        if operations == {Operation.REPLACE}:
            return []
        before, after = group[0].parent_snapshot_id, group[-1]
        time, schema = datetime.fromtimestamp(after.timestamp_ms / 1000, UTC), self.schema()

        def labelled(read: Callable[[], Iterable[pa.RecordBatch]], kind: str | None) -> Iterator[pa.RecordBatch]:
            for batch in read():
                yield shown(with_commit(batch, after.snapshot_id, time, kind), schema)

        if operations == {Operation.APPEND}:
            files = [file for snapshot in group for file in self._added_files(table, snapshot)]
            units = (self._file(table, FileScanTask(file)) for file in files)
            return [Unit(unit.name, partial(labelled, unit.read, "insert")) for unit in units]
        if before is not None and table.snapshot_by_id(before) is None:
            raise SnapshotExpiredError(
                f"the snapshot {before} of the Iceberg table has expired, and {after.snapshot_id} changed its rows",
                hint="begin without a checkpoint",
            )
        return [Unit("", partial(labelled, partial(self._compare, table, before, after.snapshot_id), None))]

    def _compare(self, table: Table, before: int | None, after: int) -> Iterator[pa.RecordBatch]:
        schema = table.schema()
        scan, shape = ArrowScan(table.metadata, table.io, schema, AlwaysTrue()), schema.as_arrow()

        def rows(tasks: Sequence[FileScanTask]) -> Iterator[pa.RecordBatch]:
            return (conformed(batch, shape) for batch in scan.to_record_batches(tasks))

        key = self._key or sorted(schema.identifier_field_names())
        with failing("the changes of the Iceberg table cannot be read"):
            gone, come = changed_files(table, before, after)
            yield from compared(rows(gone), rows(come), shape, key, self.options.batch_rows)

    def _find_added(self, table: Table, snapshot: Snapshot) -> Sequence[Unit]:
        operation = _operation(snapshot)
        if operation == Operation.REPLACE:
            return []
        if operation != Operation.APPEND and self.options.on_change == "error":
            raise ConnectorError(
                f"the snapshot {snapshot.snapshot_id} of the Iceberg table changed or removed rows",
                hint="set on_change='skip' or 'rows'",
            )
        if operation != Operation.APPEND and self.options.on_change == "skip":
            return []
        return [self._file(table, FileScanTask(file)) for file in self._added_files(table, snapshot)]

    def _added_files(self, table: Table, snapshot: Snapshot) -> Sequence[DataFile]:
        with failing("the Iceberg table cannot be read"):
            files = [
                entry.data_file
                for manifest in snapshot.manifests(table.io)
                if manifest.added_snapshot_id == snapshot.snapshot_id and manifest.content == ManifestContent.DATA
                for entry in manifest.fetch_manifest_entry(table.io)
                if entry.status == ManifestEntryStatus.ADDED and entry.snapshot_id == snapshot.snapshot_id
            ]
        return sorted(files, key=lambda file: file.file_path)

    def _file(self, table: Table, task: FileScanTask) -> Unit:
        def read() -> Iterable[pa.RecordBatch]:
            schema = table.schema().as_arrow()
            scan = ArrowScan(table.metadata, table.io, table.schema(), AlwaysTrue())
            with failing("a file of the Iceberg table cannot be read"):
                for batch in scan.to_record_batches([task]):
                    for first in range(0, batch.num_rows, self.options.batch_rows):
                        part = batch.slice(first, self.options.batch_rows)
                        yield part.select(schema.names).cast(schema)

        return Unit(task.file.file_path, read)


def _operation(snapshot: Snapshot) -> Operation:
    return Operation.APPEND if snapshot.summary is None else snapshot.summary.operation


def _commits(snapshots: Iterable[Snapshot]) -> Iterator[list[Snapshot]]:
    """Yield snapshots that were committed together: an upsert of a sink has several, with the same marks."""

    def marks(snapshot: Snapshot) -> object:
        known = {} if snapshot.summary is None else snapshot.summary.additional_properties
        mark = (known.get("quacklake.writer"), known.get("quacklake.checkpoint"))
        return snapshot.snapshot_id if None in mark else mark

    for _, group in groupby(snapshots, key=marks):
        yield list(group)
