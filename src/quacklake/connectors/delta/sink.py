"""Write a Delta table in two phases.

Files are written below the table and committed by ``deltalake`` together with a transaction of Delta's own: the id of
the writer and the number of the checkpoint. A checkpoint that the log has already is not committed again, whoever asks.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from deltalake import CommitProperties, DeltaTable, Transaction
from deltalake.exceptions import DeltaError
from deltalake.transaction import AddAction

from quacklake.connectors.options import ConnectorOptions
from quacklake.connectors.protocols import CommitInfo, PreparedCommit
from quacklake.connectors.staging import FileStage, hive_split
from quacklake.connectors.stores import open_store
from quacklake.errors import ConfigError, ConnectorError, ConnectorUnavailableError, SchemaMismatchError
from quacklake.faults import reach

MODES = ("append", "overwrite", "upsert")
_TARGET = 128 * 1000**2
_LONGEST_BOUND = 64


def sink(options: Mapping[str, Any]) -> DeltaSink:
    """Return the sink that options describe."""
    return DeltaSink(options)


class DeltaSink:
    """One Delta table. ``writer_id`` names the writer in the log; one name is one sequence of checkpoints."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        read = ConnectorOptions("delta", options)
        self.location = read.text("location")
        self.writer_id = read.text("writer_id", "quacklake")
        self.mode = read.choice("mode", MODES, "append")
        self.key = read.names("key")
        self._partition_by = read.names("partition_by")
        self._target = read.size("target_file_size", _TARGET)
        self._compression = read.text("compression", "zstd")
        self._storage = read.storage()
        read.finish()
        if self.mode == "upsert" and not self.key:
            raise ConfigError("delta: the mode upsert needs a key", hint="key='id'")
        self._store = open_store(self.location, self._storage)
        self._stage: FileStage | None = None
        self._schema: pa.Schema | None = None

    def initialize(self, schema: pa.Schema) -> None:
        """Create the table unless it is there; otherwise check that rows of the schema fit."""
        unknown = next((name for name in [*self._partition_by, *self.key] if name not in schema.names), None)
        if unknown is not None:
            raise SchemaMismatchError(
                f"the rows have no column {unknown!r}", hint=f"They have {', '.join(schema.names)}."
            )
        self._schema = pa.schema([pa.field(field.name, delta_type(field), field.nullable) for field in schema])
        with failing("the Delta table cannot be opened"):
            if not DeltaTable.is_deltatable(self.location, storage_options=self._storage):
                DeltaTable.create(
                    self.location,
                    self._schema,
                    mode="ignore",
                    partition_by=self._partition_by or None,
                    storage_options=self._storage,
                )
            self._check(self._table())
        staged = self.mode == "upsert"
        self._stage = FileStage(
            self._store,
            folder="_quacklake/" if staged else "",
            split=hive_split(self._partition_by) if self._partition_by and not staged else None,
            target_bytes=self._target,
            compression=self._compression,
            statistics=None if staged else statistics,
        )

    def write_batch(self, batch: pa.RecordBatch) -> None:
        """Keep a batch; write files when they would have the target size."""
        if self._stage is None:
            raise ConnectorError("the sink is not initialized", hint="Call initialize(schema) first.")
        self._stage.add(batch)

    def prepare_commit(self, checkpoint_id: int) -> PreparedCommit:
        """Write what is left, and return what the commit will add."""
        if self._stage is None:
            raise ConnectorError("the sink is not initialized", hint="Call initialize(schema) first.")
        reach("connector.delta.prepare.before")
        files = self._stage.take()
        reach("connector.delta.prepare.after")
        return PreparedCommit(
            checkpoint_id, files, sum(file.bytes for file in files), sum(file.records for file in files)
        )

    def finalize_commit(self, prepared: PreparedCommit) -> CommitInfo:
        """Add the files to the log, unless this writer has got so far already."""
        with failing("the commit to the Delta table failed"):
            table = self._table()
            if self._last_checkpoint(table) < prepared.checkpoint_id:
                reach("connector.delta.commit.before")
                self._commit(table, prepared)
                reach("connector.delta.commit.after")
                table = self._table()
        if self.mode == "upsert":
            self._store.delete(file.path for file in prepared.data_files)
        return CommitInfo(prepared.checkpoint_id, table.version(), datetime.now(UTC))

    def abort(self, prepared: PreparedCommit | None = None) -> None:
        """Remove the files of a commit that the log does not have, and whatever was kept."""
        if self._stage is not None:
            self._stage.discard()
        if prepared is None:
            return
        with failing("the Delta table cannot be opened"):
            there = DeltaTable.is_deltatable(self.location, storage_options=self._storage)
            if there and self._last_checkpoint(self._table()) >= prepared.checkpoint_id:
                return
        self._store.delete(file.path for file in prepared.data_files)

    def close(self) -> None:
        """Forget what was not prepared."""
        if self._stage is not None:
            self._stage.discard()
        self._stage = None

    def _table(self) -> DeltaTable:
        return DeltaTable(self.location, storage_options=self._storage)

    def _last_checkpoint(self, table: DeltaTable) -> int:
        """Return the last checkpoint of this writer that the log has, -1 for none."""
        found = table.transaction_version(self.writer_id)
        return -1 if found is None else found

    def _check(self, table: DeltaTable) -> None:
        assert self._schema is not None
        there = pa.schema(table.schema().to_arrow())
        for field in self._schema:
            found = there.get_field_index(field.name)
            if found < 0 or delta_type(there.field(found)) != field.type:
                kind = "no such column" if found < 0 else f"the type {there.field(found).type}"
                raise SchemaMismatchError(
                    f'the rows have a column "{field.name}" of the type {field.type}, the Delta table has {kind}'
                )
        partitions = table.metadata().partition_columns
        if self._partition_by and partitions != self._partition_by:
            raise ConfigError(
                f"the Delta table is partitioned by {', '.join(partitions) or 'nothing'}",
                hint="Leave out partition_by.",
            )
        self._partition_by = partitions
        if table.metadata().configuration.get("delta.columnMapping.mode", "none") != "none":
            raise ConnectorError("the Delta table maps its columns to other names, which a sink cannot write")

    def _commit(self, table: DeltaTable, prepared: PreparedCommit) -> None:
        properties = CommitProperties(
            custom_metadata={"quacklake.checkpoint": str(prepared.checkpoint_id)},
            app_transactions=[Transaction(self.writer_id, prepared.checkpoint_id)],
        )
        if self.mode == "upsert":
            self._merge(table, prepared, properties)
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
            partition_by=self._partition_by or None,
            commit_properties=properties,
        )

    def _merge(self, table: DeltaTable, prepared: PreparedCommit, properties: CommitProperties) -> None:
        schema = pa.schema(table.schema().to_arrow())
        paths = [file.path for file in prepared.data_files]

        failures: list[Exception] = []

        def rows() -> Iterator[pa.RecordBatch]:
            try:
                for path in paths:
                    with self._store.open_input(path) as source:
                        yield from pq.ParquetFile(source).iter_batches()
            except Exception as error:  # the library would tell of it in its own words
                failures.append(error)
                raise

        names = (self._schema or schema).names
        source = pa.RecordBatchReader.from_batches(pa.schema([schema.field(name) for name in names]), rows())
        same = " AND ".join(f't."{name}" = s."{name}"' for name in self.key)
        merge = table.merge(source, same, source_alias="s", target_alias="t", commit_properties=properties)
        try:
            merge.when_matched_update_all().when_not_matched_insert_all().execute()
        except DeltaError:
            if failures:
                raise failures[0] from None
            raise


@contextmanager
def failing(what: str) -> Iterator[None]:
    """Turn the errors of the library into ours."""
    try:
        yield
    except DeltaError as error:
        raise ConnectorError(f"{what}: {error}") from error
    except OSError as error:
        raise ConnectorUnavailableError(f"{what}: {error}") from error


def delta_type(field: pa.Field) -> pa.DataType:
    """Return the type as Delta keeps it: microseconds, and no types that Arrow alone has."""
    kind = field.type
    if pa.types.is_timestamp(kind):
        return pa.timestamp("us", "UTC" if kind.tz else None)
    if pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return pa.string()
    if pa.types.is_large_binary(kind) or pa.types.is_binary_view(kind):
        return pa.binary()
    if pa.types.is_dictionary(kind):
        return delta_type(pa.field(field.name, kind.value_type))
    return kind


def statistics(rows: pa.Table) -> str:
    """Return the statistics of a file in the form of Delta's log.

    A bound that could be wrong is left out: those of columns with NaN, and of texts that are long.
    """
    least: dict[str, Any] = {}
    most: dict[str, Any] = {}
    nulls: dict[str, int] = {}
    for field, column in zip(rows.schema, rows.columns, strict=True):
        if pa.types.is_nested(field.type):
            continue
        nulls[field.name] = column.null_count
        if not _has_bounds(field.type) or column.null_count == len(column):
            continue
        if pa.types.is_floating(field.type) and pc.any(pc.is_nan(column)).as_py():
            continue
        bounds = pc.min_max(column)
        low, high = (_bound(bounds[name]) for name in ("min", "max"))
        if len(str(low)) <= _LONGEST_BOUND and len(str(high)) <= _LONGEST_BOUND:
            least[field.name], most[field.name] = low, high
    found = {"numRecords": rows.num_rows, "minValues": least, "maxValues": most, "nullCount": nulls}
    return json.dumps(found, default=str)


def _has_bounds(kind: pa.DataType) -> bool:
    tests = (pa.types.is_integer, pa.types.is_floating, pa.types.is_string, pa.types.is_date, pa.types.is_timestamp)
    return any(test(kind) for test in tests)


def _bound(value: pa.Scalar) -> Any:
    if pa.types.is_timestamp(value.type):
        text = value.cast(pa.timestamp("us")).as_py().isoformat(timespec="microseconds")
        return f"{text}Z" if value.type.tz else text
    return value.as_py()
