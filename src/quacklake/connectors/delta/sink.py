"""Write a Delta table in two phases.

Files are written below the table and committed by ``deltalake`` together with a transaction of Delta's own: the id of
the writer and the number of the checkpoint. A checkpoint that the log has already is not committed again, whoever asks.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from itertools import chain
from typing import Any

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Transaction
from deltalake.exceptions import CommitFailedError
from deltalake.transaction import AddAction

from quacklake.connectors.delta import maintenance
from quacklake.connectors.delta.files import delta_stage, stage_folder
from quacklake.connectors.delta.formats import UniformOption, is_uniform, property_value, set_uniform
from quacklake.connectors.delta.merges import merge
from quacklake.connectors.delta.schemas import delta_schema, fitted
from quacklake.connectors.delta.tables import failing, plain
from quacklake.connectors.evolution import EvolvingSink
from quacklake.connectors.maintenance import MaintenanceOptions, MaintenanceReport
from quacklake.connectors.object_store import delta_options, open_store
from quacklake.connectors.options import ConnectorOptions
from quacklake.connectors.protocols import CommitInfo, PreparedCommit
from quacklake.connectors.staging import check_staged
from quacklake.connectors.upserts import check_key
from quacklake.errors import ConfigError, ConnectorError, NotFoundError, SchemaMismatchError
from quacklake.extend.reporting import reach

MODES = ("append", "overwrite", "upsert")
_TARGET = 128 * 1000**2
_LOOKED_AT = (1, 100)
"""The number of commits searched for that of a checkpoint; it is nearly always the last."""


def sink(options: Mapping[str, Any]) -> DeltaSink:
    """Return the sink that options describe."""
    return DeltaSink(options)


class DeltaSink(EvolvingSink):
    """One Delta table. ``writer_id`` names the writer in the log; one name is one sequence of checkpoints."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        read = ConnectorOptions("delta", options)
        self.location = read.text("location")
        self.writer_id = read.text("writer_id", "quacklake")
        self.mode = read.choice("mode", MODES, "append")
        self.key = read.names("key")
        self._partition_by = read.names("partition_by")
        self._target = read.size("target_file_size", _TARGET)
        self._retries = read.number("max_commit_retries", 5) or 0
        self._compression = read.text("compression", "zstd")
        self._uniform = UniformOption.of(read)
        self._evolution = read.boolean("schema_evolution", False)
        self._maintenance = MaintenanceOptions.of(read)
        self._zorder_by = read.names("zorder_by")
        self._given_storage = read.storage()
        read.finish()
        if self.mode == "upsert" and not self.key:
            raise ConfigError("delta: the mode upsert needs a key", hint="key='id'")
        self._storage = delta_options(self._given_storage)
        self._store = open_store(self.location, self._given_storage)
        self._given = pa.schema([])
        self._maintained: datetime | None = None
        self._swept: datetime | None = None

    @property
    def _folder(self) -> str:
        return stage_folder(upsert=self.mode == "upsert")

    def initialize(self, schema: pa.Schema) -> None:
        """Create the table unless it is there; otherwise check that rows of the schema fit, or add their columns."""
        named = [*self._partition_by, *self.key, *self._zorder_by]
        unknown = next((name for name in named if name not in schema.names), None)
        if unknown is not None:
            raise SchemaMismatchError(
                f"the rows have no column {unknown!r}", hint=f"they have {', '.join(schema.names)}"
            )
        with failing("the Delta table cannot be opened"):
            table = self._open(plain(schema))
            self._check(table)
            written = fitted(table, plain(schema), evolve=self._evolution)
            if self._uniform.given is not None:
                set_uniform(table, self._uniform.given)
        self._given = schema
        self._stage = delta_stage(
            self.location,
            self._given_storage,
            written,
            upsert=self.mode == "upsert",
            partition_by=self._partition_by,
            target_bytes=self._target,
            compression=self._compression,
        )

    def last_checkpoint(self) -> int:
        """Return the last checkpoint of this writer that the log has, -1 for none. Raise ``NotFoundError``."""
        with failing("the Delta table cannot be opened"):
            if not DeltaTable.is_deltatable(self.location, storage_options=self._storage):
                raise NotFoundError("there is no Delta table", hint="initialize makes it")
            return self._last_checkpoint(self._table())

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
        reach("connector.delta.prepare.before")
        files = stage.take()
        reach("connector.delta.prepare.after")
        return PreparedCommit(
            checkpoint_id, files, sum(file.bytes for file in files), sum(file.records for file in files)
        )

    def finalize_commit(self, prepared: PreparedCommit) -> CommitInfo:
        """Add the files to the log, unless this writer has done so already; then update the Iceberg metadata."""
        check_staged(self._store, self._folder, prepared)
        with failing("the commit to the Delta table failed"):
            for attempt in range(self._retries + 1):
                table = self._table()
                uniform = self._keeps_iceberg(table)
                if self._last_checkpoint(table) >= prepared.checkpoint_id:
                    break
                try:
                    reach("connector.delta.commit.before")
                    self._commit(table, prepared)
                    reach("connector.delta.commit.after")
                    table.update_incremental()
                    break
                except CommitFailedError:
                    # the faster writer may have committed this very checkpoint: look again
                    if attempt == self._retries:
                        raise
            info = self._find_commit(table, prepared.checkpoint_id)
        if uniform:
            self._write_iceberg()
        if self.mode == "upsert":
            self._store.delete(file.path for file in prepared.data_files)
        return info

    def abort(self, prepared: PreparedCommit | None = None) -> None:
        """Remove the files of a commit that the log does not have, and whatever was kept."""
        if self._stage is not None:
            self._stage.discard()
        if prepared is None:
            return
        check_staged(self._store, self._folder, prepared)
        with failing("the Delta table cannot be opened"):
            there = DeltaTable.is_deltatable(self.location, storage_options=self._storage)
            if there and self._last_checkpoint(self._table()) >= prepared.checkpoint_id:
                return
        self._store.delete(file.path for file in prepared.data_files)

    def maintain(self, now: datetime | None = None) -> MaintenanceReport:
        """Compact small files and remove old ones if that is due. Rows and checkpoints stay as they are."""
        now = now or datetime.now(UTC)
        if not self._maintenance.is_due(self._maintained, now):
            return MaintenanceReport()
        self._maintained = now
        with failing("the upkeep of the Delta table failed"):
            table = self._table()
            uniform = self._keeps_iceberg(table)
            replaced = written = 0
            if maintenance.small_files(table, self._target) >= self._maintenance.min_files:
                if uniform:
                    self._write_iceberg()
                try:
                    replaced, written = maintenance.compact(table, self._target, self._zorder_by)
                except CommitFailedError:
                    return MaintenanceReport(due=True, conflict=True)
            removed = maintenance.vacuum(table, self._maintenance.retention)
            if self._maintenance.is_sweep_due(self._swept, now):
                self._swept = now
                removed += maintenance.remove_orphans(table, self._store, self._maintenance.orphan_age)
        if uniform:
            removed += self._write_iceberg(now - self._maintenance.retention)
        return MaintenanceReport(True, replaced, written, removed)

    def close(self) -> None:
        """Forget what was not prepared."""
        if self._stage is not None:
            self._stage.discard()
        self._stage = None

    def _table(self) -> DeltaTable:
        return DeltaTable(self.location, storage_options=self._storage)

    def _open(self, schema: pa.Schema) -> DeltaTable:
        """Return the table, which is created unless it is there."""
        if not DeltaTable.is_deltatable(self.location, storage_options=self._storage):
            DeltaTable.create(
                self.location,
                delta_schema(schema),
                mode="ignore",
                partition_by=self._partition_by or None,
                configuration=property_value(self._uniform.for_new_tables),
                storage_options=self._storage,
                raise_if_key_not_exists=False,  # the library does not know the property
            )
        return self._table()

    def _check(self, table: DeltaTable) -> None:
        partitions = table.metadata().partition_columns
        if self._partition_by and partitions != self._partition_by:
            raise ConfigError(
                f"the Delta table is partitioned by {', '.join(partitions) or 'nothing'}",
                hint="leave out partition_by",
            )
        self._partition_by = partitions
        if table.metadata().configuration.get("delta.columnMapping.mode", "none") != "none":
            raise ConnectorError("the Delta table maps its columns to other names, which a sink cannot write")
        if self._uniform.applies(table):
            from quacklake.connectors.delta.uniform import check_types

            check_types(table)

    def _last_checkpoint(self, table: DeltaTable) -> int:
        """Return the last checkpoint of this writer that the log has, -1 for none."""
        found = table.transaction_version(self.writer_id)
        return -1 if found is None else found

    def _find_commit(self, table: DeltaTable, checkpoint_id: int) -> CommitInfo:
        """Return the commit of a checkpoint that the log has; the newest when that was long ago."""
        for commit in chain.from_iterable(map(table.history, _LOOKED_AT)):
            marks = (commit.get("quacklake.writer"), commit.get("quacklake.checkpoint"))
            if marks == (self.writer_id, str(checkpoint_id)):
                return CommitInfo(
                    checkpoint_id, commit["version"], datetime.fromtimestamp(commit["timestamp"] / 1000, UTC)
                )
        return CommitInfo(checkpoint_id, table.version(), datetime.now(UTC))

    def _keeps_iceberg(self, table: DeltaTable) -> bool:
        """Return whether the table has Iceberg metadata to keep. Raise ``ConnectorError`` where it cannot."""
        return self._uniform.applies(table) and is_uniform(table)

    def _write_iceberg(self, before: datetime | None = None) -> int:
        """Bring Iceberg's metadata to the newest version; forget what is older than a time, and return how much."""
        from quacklake.connectors.delta import uniform

        with failing("the Delta table cannot be opened"):
            uniform.write_metadata(self._table(), self._store)
        return 0 if before is None else uniform.prune_metadata(self._store, before)

    def _commit(self, table: DeltaTable, prepared: PreparedCommit) -> None:
        checkpoint = str(prepared.checkpoint_id)
        properties = CommitProperties(
            custom_metadata={"quacklake.checkpoint": checkpoint, "quacklake.writer": self.writer_id},
            app_transactions=[Transaction(self.writer_id, prepared.checkpoint_id)],
        )
        if self.mode == "upsert":
            merge(table, self._store, [file.path for file in prepared.data_files], self.key, properties)
            return
        now = int(datetime.now(UTC).timestamp() * 1000)
        actions: list[Any] = [
            AddAction(file.path, file.bytes, dict(file.partition), now, True, file.statistics or "{}")
            for file in prepared.data_files
        ]
        table.create_write_transaction(
            list(actions),
            self.mode,
            table.schema(),
            partition_by=table.metadata().partition_columns or None,
            commit_properties=properties,
        )
