"""Write an Iceberg table in two phases.

Files are written below the table and committed by ``pyiceberg``: one snapshot, and in the same commit a property of the
table with the number of the checkpoint. A checkpoint that the table has already is not committed again, whoever asks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.exceptions import CommitFailedException, NamespaceAlreadyExistsError
from pyiceberg.table import Table
from pyiceberg.table.refs import MAIN_BRANCH
from pyiceberg.table.snapshots import Snapshot

from quacklake.connectors.evolution import EvolvingSink
from quacklake.connectors.iceberg import maintenance
from quacklake.connectors.iceberg.catalogs import IcebergTable, failing
from quacklake.connectors.iceberg.files import data_file, iceberg_stage, stage_folder, storage_of
from quacklake.connectors.iceberg.partitions import partition_record, partition_spec
from quacklake.connectors.iceberg.schemas import fit, with_ids
from quacklake.connectors.maintenance import MaintenanceOptions, MaintenanceReport
from quacklake.connectors.object_store import open_store
from quacklake.connectors.options import ConnectorOptions
from quacklake.connectors.protocols import CommitInfo, PreparedCommit, WrittenFile
from quacklake.connectors.staging import FileStage, check_staged
from quacklake.connectors.upserts import check_key, last_rows
from quacklake.errors import ConfigError, NotFoundError, SchemaMismatchError
from quacklake.extend.reporting import reach
from quacklake.extend.stores import Store

MODES = ("append", "overwrite", "upsert")
_TARGET = 128 * 1000**2


def sink(options: Mapping[str, Any]) -> IcebergSink:
    """Return the sink that options describe."""
    return IcebergSink(options)


class IcebergSink(EvolvingSink):
    """One Iceberg table. ``writer_id`` names the writer; one name is one sequence of checkpoints."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        read = ConnectorOptions("iceberg", options)
        self._place = IcebergTable.of(read)
        self.writer_id = read.text("writer_id", "quacklake")
        self.mode = read.choice("mode", MODES, "append")
        self.key = read.names("key")
        self._partition_by = read.names("partition_by")
        self._target = read.size("target_file_size", _TARGET)
        self._retries = read.number("max_commit_retries", 5) or 0
        self._compression = read.text("compression", "zstd")
        self._evolution = read.boolean("schema_evolution", False)
        self._maintenance = MaintenanceOptions.of(read)
        read.finish()
        if self.mode == "upsert" and not self.key:
            raise ConfigError("iceberg: the mode upsert needs a key", hint="key='id'")
        self._given = pa.schema([])
        self._maintained: datetime | None = None
        self._swept: datetime | None = None

    @property
    def _mark(self) -> str:
        return f"quacklake.checkpoint.{self.writer_id}"

    def initialize(self, schema: pa.Schema) -> None:
        """Create the table unless it is there; otherwise check that rows of the schema fit, or add their columns."""
        unknown = next((name for name in self.key if name not in schema.names), None)
        if unknown is not None:
            known = ", ".join(schema.names)
            raise SchemaMismatchError(f"the rows have no column {unknown!r}", hint=f"they have {known}")
        with failing("the Iceberg table cannot be opened"):
            try:
                table = self._place.load()
            except NotFoundError:
                table = self._create(schema)
            self._check(table)
            fit(table, schema, evolve=self._evolution)
        self._given = schema
        self._stage = self._new_stage(table, schema.names)

    def last_checkpoint(self) -> int:
        """Return the last checkpoint of this writer that the table has, -1 for none. Raise ``NotFoundError``."""
        with failing("the Iceberg table cannot be opened"):
            return self._last_checkpoint(self._place.load())

    def write_batch(self, batch: pa.RecordBatch) -> None:
        """Keep a batch; write files when they would have the target size."""
        if not batch.schema.equals(self._given):
            batch = self._follow(batch)
        if self.mode == "upsert":
            check_key(batch, self.key)
        self.stage.add(batch)

    def prepare_commit(self, checkpoint_id: int) -> PreparedCommit:
        """Write what is left, and return what the commit will add."""
        stage = self.stage
        reach("connector.iceberg.prepare.before")
        files = stage.take()
        reach("connector.iceberg.prepare.after")
        return PreparedCommit(
            checkpoint_id, files, sum(file.bytes for file in files), sum(file.records for file in files)
        )

    def finalize_commit(self, prepared: PreparedCommit) -> CommitInfo:
        """Commit a snapshot with the files, unless this writer has done so already."""
        with failing("the commit to the Iceberg table failed"):
            for attempt in range(self._retries + 1):
                table = _without_retries(self._place.load())
                self._check_staged(table, prepared)
                if self._last_checkpoint(table) >= prepared.checkpoint_id:
                    break
                try:
                    reach("connector.iceberg.commit.before")
                    self._commit(table, prepared)
                    reach("connector.iceberg.commit.after")
                    break
                except CommitFailedException:
                    # the faster writer may have committed this very checkpoint: look again
                    if attempt == self._retries:
                        raise
        if self.mode == "upsert":
            _store(table).delete(file.path for file in prepared.data_files)
        snapshot = self._find_commit(table, prepared.checkpoint_id)
        time = datetime.now(UTC) if snapshot is None else datetime.fromtimestamp(snapshot.timestamp_ms / 1000, UTC)
        return CommitInfo(prepared.checkpoint_id, 0 if snapshot is None else snapshot.snapshot_id, time)

    def abort(self, prepared: PreparedCommit | None = None) -> None:
        """Remove the files of a commit that the table does not have, and whatever was kept."""
        if self._stage is not None:
            self._stage.discard()
        if prepared is None:
            return
        with failing("the Iceberg table cannot be opened"):
            try:
                table = self._place.load()
            except NotFoundError:
                return
        self._check_staged(table, prepared)
        if self._last_checkpoint(table) < prepared.checkpoint_id:
            _store(table).delete(file.path for file in prepared.data_files)

    def maintain(self, now: datetime | None = None) -> MaintenanceReport:
        """Compact small files and forget old snapshots if that is due. Rows and checkpoints stay as they are."""
        now = now or datetime.now(UTC)
        if not self._maintenance.is_due(self._maintained, now):
            return MaintenanceReport()
        self._maintained = now
        with failing("the upkeep of the Iceberg table failed"):
            table = _without_retries(self._place.load())
            groups = maintenance.small_files(table, self._target, self._maintenance.min_files)
            replaced = written = 0
            try:
                if groups:
                    replaced, written = maintenance.compact(table, _store(table), self._new_stage(table), groups)
                table = _without_retries(self._place.load())
                removed = maintenance.expire(table, _store(table), now - self._maintenance.retention)
                if self._maintenance.is_sweep_due(self._swept, now):
                    self._swept = now
                    removed += maintenance.remove_orphans(table, _store(table), now - self._maintenance.orphan_age)
            except CommitFailedException:
                return MaintenanceReport(True, replaced, written, conflict=True)
        return MaintenanceReport(True, replaced, written, removed)

    def close(self) -> None:
        """Forget what was not prepared."""
        if self._stage is not None:
            self._stage.discard()
        self._stage = None

    def _check_staged(self, table: Table, prepared: PreparedCommit) -> None:
        check_staged(_store(table), stage_folder(upsert=self.mode == "upsert"), prepared)

    def _new_stage(self, table: Table, columns: Sequence[str] | None = None) -> FileStage:
        """Return a stage for rows of the sink, or without ``columns`` for whole rows of the table."""
        return iceberg_stage(
            table.location(),
            storage_of(table),
            table.schema(),
            table.spec(),
            columns=columns or [field.name for field in table.schema().fields],
            upsert=columns is not None and self.mode == "upsert",
            target_bytes=self._target,
            compression=self._compression,
        )

    def _create(self, schema: pa.Schema) -> Table:
        catalog, numbered = self._place.catalog, with_ids(schema)
        spec = partition_spec(self._partition_by, numbered)
        with suppress(NamespaceAlreadyExistsError):
            catalog.create_namespace(self._place.namespace)
        return catalog.create_table_if_not_exists(self._place.identifier, numbered, partition_spec=spec)

    def _last_checkpoint(self, table: Table) -> int:
        return int(table.properties.get(self._mark, -1))

    def _find_commit(self, table: Table, checkpoint_id: int) -> Snapshot | None:
        """Return the snapshot of a checkpoint, the current one when that has expired or there was nothing to add."""
        marks = {"quacklake.writer": self.writer_id, "quacklake.checkpoint": str(checkpoint_id)}
        found = [
            snapshot
            for snapshot in table.snapshots()
            if snapshot.summary is not None and marks.items() <= snapshot.summary.additional_properties.items()
        ]
        return found[-1] if found else table.current_snapshot()

    def _check(self, table: Table) -> None:
        if self._partition_by:
            wanted = partition_spec(self._partition_by, table.schema())
            if not wanted.compatible_with(table.spec()):
                raise ConfigError(
                    f"the Iceberg table has other partitions: {table.spec()}", hint="leave out partition_by"
                )

    def _commit(self, table: Table, prepared: PreparedCommit) -> None:
        marks = {"quacklake.writer": self.writer_id, "quacklake.checkpoint": str(prepared.checkpoint_id)}
        with table.transaction() as transaction:
            transaction.set_properties({self._mark: str(prepared.checkpoint_id)})
            if self.mode == "upsert":
                rows = self._rows(table, prepared.data_files)
                if rows.num_rows:
                    transaction.upsert(rows, self.key, snapshot_properties=marks)
                return
            if self.mode == "overwrite" and table.current_snapshot() is not None:
                transaction.delete("true", snapshot_properties=marks)
            if prepared.data_files:
                store = _store(table)
                with transaction.update_snapshot(snapshot_properties=marks, branch=MAIN_BRANCH).fast_append() as append:
                    for file in prepared.data_files:
                        record = partition_record(file, table.spec(), table.schema())
                        append.append_data_file(data_file(store, file.path, file.bytes, record, table.metadata))

    def _rows(self, table: Table, files: tuple[WrittenFile, ...]) -> pa.Table:
        store = _store(table)
        parts = []
        for file in files:
            with store.open_input(file.path) as source:
                parts.append(pq.read_table(source))
        if not parts:
            return pa.schema([]).empty_table()
        rows = pa.concat_tables(parts, promote_options="default")
        return pa.Table.from_batches(last_rows(rows.to_batches(), rows.schema, self.key), rows.schema)


def _store(table: Table) -> Store:
    """Return the store of a table, with the credentials of its catalog."""
    return open_store(table.location(), storage_of(table))


def _without_retries(table: Table) -> Table:
    """Have the library give up a lost race: tried again by itself, it would add the rows of a checkpoint twice."""
    properties = {**table.metadata.properties, "commit.retry.num-retries": "0"}
    table.metadata = table.metadata.model_copy(update={"properties": properties})
    return table
