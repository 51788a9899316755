"""Write an Iceberg table in two phases.

Files are written below the table and committed by ``pyiceberg``: one snapshot, and in the same commit a property of the
table with the number of the checkpoint. A checkpoint that the table has already is not committed again, whoever asks.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.exceptions import CommitFailedException, NamespaceAlreadyExistsError
from pyiceberg.io.pyarrow import (
    compute_statistics_plan,
    data_file_statistics_from_parquet_metadata,
    parquet_path_to_id_mapping,
    schema_to_pyarrow,
)
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.refs import MAIN_BRANCH

from quacklake.connectors.iceberg.catalogs import IcebergTable, failing
from quacklake.connectors.iceberg.partitions import iceberg_split, partition_record, partition_spec
from quacklake.connectors.options import ConnectorOptions
from quacklake.connectors.protocols import CommitInfo, PreparedCommit, WrittenFile
from quacklake.connectors.staging import FileStage
from quacklake.errors import ConfigError, ConnectorError, NotFoundError, SchemaMismatchError
from quacklake.faults import reach
from quacklake.storage import Store

MODES = ("append", "overwrite", "upsert")
_TARGET = 128 * 1000**2


def sink(options: Mapping[str, Any]) -> IcebergSink:
    """Return the sink that options describe."""
    return IcebergSink(options)


class IcebergSink:
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
        read.finish()
        if self.mode == "upsert" and not self.key:
            raise ConfigError("iceberg: the mode upsert needs a key", hint="key='id'")
        self._stage: FileStage | None = None

    @property
    def _mark(self) -> str:
        return f"quacklake.checkpoint.{self.writer_id}"

    def initialize(self, schema: pa.Schema) -> None:
        """Create the table unless it is there; otherwise check that rows of the schema fit."""
        unknown = next((name for name in self.key if name not in schema.names), None)
        if unknown is not None:
            known = ", ".join(schema.names)
            raise SchemaMismatchError(f"the rows have no column {unknown!r}", hint=f"They have {known}.")
        with failing("the Iceberg table cannot be opened"):
            try:
                table = self._place.load()
            except NotFoundError:
                table = self._create(schema)
            self._check(table, schema)
        written = schema_to_pyarrow(table.schema().select(*schema.names))
        self._stage = FileStage(
            Store.open(table.location()),
            folder="data/" if self.mode != "upsert" else "quacklake/",
            split=iceberg_split(table.spec(), table.schema()) if self.mode != "upsert" else None,
            target_bytes=self._target,
            compression=self._compression,
            schema=written,
        )

    @property
    def stage(self) -> FileStage:
        """The files of the next commit."""
        if self._stage is None:
            raise ConnectorError("the sink is not initialized", hint="Call initialize(schema) first.")
        return self._stage

    def write_batch(self, batch: pa.RecordBatch) -> None:
        """Keep a batch; write files when they would have the target size."""
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
        """Commit a snapshot with the files, unless this writer has got so far already."""
        with failing("the commit to the Iceberg table failed"):
            for attempt in range(self._retries + 1):
                table = self._place.load()
                if self._last_checkpoint(table) >= prepared.checkpoint_id:
                    break
                try:
                    reach("connector.iceberg.commit.before")
                    self._commit(table, prepared)
                    reach("connector.iceberg.commit.after")
                    break
                except CommitFailedException:
                    # whoever was quicker may have committed this very checkpoint: look again
                    if attempt == self._retries:
                        raise
            table = self._place.load()
        if self.mode == "upsert":
            Store.open(table.location()).delete(file.path for file in prepared.data_files)
        snapshot = table.current_snapshot()
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
        if self._last_checkpoint(table) < prepared.checkpoint_id:
            Store.open(table.location()).delete(file.path for file in prepared.data_files)

    def close(self) -> None:
        """Forget what was not prepared."""
        if self._stage is not None:
            self._stage.discard()
        self._stage = None

    def _create(self, schema: pa.Schema) -> Table:
        catalog, numbered = self._place.catalog, _with_ids(schema)
        spec = partition_spec(self._partition_by, numbered)
        with suppress(NamespaceAlreadyExistsError):
            catalog.create_namespace(self._place.namespace)
        return catalog.create_table_if_not_exists(self._place.identifier, numbered, partition_spec=spec)

    def _last_checkpoint(self, table: Table) -> int:
        return int(table.properties.get(self._mark, -1))

    def _check(self, table: Table, schema: pa.Schema) -> None:
        there = {field.name: field for field in table.schema().fields}
        for field in _with_ids(schema).fields:
            found = there.get(field.name)
            if found is None or found.field_type != field.field_type:
                kind = "no such column" if found is None else f"the type {found.field_type}"
                given = f'a column "{field.name}" of the type {field.field_type}'
                raise SchemaMismatchError(f"the rows have {given}, the Iceberg table has {kind}")
        needed = [field.name for field in there.values() if field.required and field.name not in schema.names]
        if needed:
            raise SchemaMismatchError(f'the rows lack the column "{needed[0]}", which the Iceberg table requires')
        if self._partition_by:
            wanted = partition_spec(self._partition_by, table.schema())
            if not wanted.compatible_with(table.spec()):
                raise ConfigError(
                    f"the Iceberg table has other partitions: {table.spec()}", hint="Leave out partition_by."
                )

    def _commit(self, table: Table, prepared: PreparedCommit) -> None:
        # The library would try a lost race again by itself, and so add the rows of a checkpoint twice.
        properties = {**table.metadata.properties, "commit.retry.num-retries": "0"}
        table.metadata = table.metadata.model_copy(update={"properties": properties})
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
                with transaction.update_snapshot(snapshot_properties=marks, branch=MAIN_BRANCH).fast_append() as append:
                    for file in prepared.data_files:
                        append.append_data_file(_data_file(table, file))

    def _rows(self, table: Table, files: tuple[WrittenFile, ...]) -> pa.Table:
        store = Store.open(table.location())
        parts = []
        for file in files:
            with store.open_input(file.path) as source:
                parts.append(pq.read_table(source))
        if not parts:
            return pa.schema([]).empty_table()
        return pa.concat_tables(parts)


def _with_ids(schema: pa.Schema) -> Schema:
    """Return the Iceberg form of a schema of Arrow, with numbers for its columns."""
    from pyiceberg.io.pyarrow import _pyarrow_to_schema_without_ids
    from pyiceberg.schema import assign_fresh_schema_ids

    try:
        return assign_fresh_schema_ids(_pyarrow_to_schema_without_ids(schema, downcast_ns_timestamp_to_us=True))
    except (TypeError, ValueError) as error:
        raise SchemaMismatchError(f"Iceberg cannot keep the rows: {error}") from error


def _data_file(table: Table, file: WrittenFile) -> DataFile:
    store = Store.open(table.location())
    with store.open_input(file.path) as source:
        metadata = pq.read_metadata(source)
    statistics = data_file_statistics_from_parquet_metadata(
        metadata,
        stats_columns=compute_statistics_plan(table.schema(), table.properties),
        parquet_column_mapping=parquet_path_to_id_mapping(table.schema()),
    )
    return DataFile.from_args(
        content=DataFileContent.DATA,
        file_path=f"{table.location().rstrip('/')}/{file.path}",
        file_format=FileFormat.PARQUET,
        partition=partition_record(file, table.spec(), table.schema()),
        file_size_in_bytes=file.bytes,
        sort_order_id=None,
        spec_id=table.spec().spec_id,
        equality_ids=None,
        key_metadata=None,
        **statistics.to_serialized_dict(),
    )
