"""Read a Delta table: as it is, as it was, or commit by commit.

With a change data feed the rows say how they changed. Without one they are those of the files that a commit added, and
a commit that also removed rows is an error unless ``on_change`` says otherwise.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from deltalake import DeltaTable

from quacklake.connectors.change_feed import KIND, feed_schema, shown
from quacklake.connectors.delta.tables import arrow_schema, failing, plain
from quacklake.connectors.object_store import delta_options, open_store
from quacklake.connectors.options import ConnectorOptions
from quacklake.connectors.table_source import ReadOptions, TableSource, Unit
from quacklake.errors import ConnectorError, CorruptFileError, SnapshotExpiredError

_ADOPT = "Adopt it (lake.adopt, or quacklake adopt), which knows these, or read it with Spark."
_KINDS = {"insert": 0, "update_preimage": 1, "update_postimage": 2, "delete": 3}


def source(options: Mapping[str, Any]) -> DeltaSource:
    """Return the source that options describe."""
    return DeltaSource(options)


class DeltaSource(TableSource):
    """One Delta table, in any of the four modes."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        read = ConnectorOptions("delta", options)
        self.location = read.text("location")
        storage = read.storage()
        super().__init__(ReadOptions.of(read))
        read.finish()
        self._storage = delta_options(storage)
        self._store = open_store(self.location, storage)

    def schema(self) -> pa.Schema:
        """Return the columns of the table, and those of its feed."""
        found = arrow_schema(self._table())
        return feed_schema(found, self.options.changelog) if self.options.feed else found

    def schema_at(self, version: int) -> pa.Schema:
        """Return the columns that the table had."""
        return arrow_schema(self._table(version))

    def identity(self) -> str:
        """Return the id that Delta gives a table when it is made."""
        return str(self._table().metadata().id)

    def newest(self) -> int:
        """Return the newest version."""
        return self._table().version()

    def version_at(self, moment: datetime) -> int:
        """Return the version that was the newest at a time."""
        return self._table(moment).version()

    def state(self, version: int) -> Sequence[Unit]:
        """Return the files of a version."""
        table = self._table(version)
        _check_vectors(table)
        names = ["path", "partition"] if table.metadata().partition_columns else ["path"]
        actions = pa.table(table.get_add_actions(flatten=False)).select(names).sort_by("path").to_pylist()
        return [self._file(table, unquote(each["path"]), each.get("partition") or {}) for each in actions]

    def commits(self, after: int, until: int) -> Iterator[tuple[int, Sequence[Unit]]]:
        """Yield each version with the rows that it added or changed."""
        for version in range(after + 1, until + 1):
            yield (
                version,
                [Unit("", partial(self._changes, version))] if self.options.feed else self._find_added(version),
            )

    def _table(self, version: int | datetime | None = None) -> DeltaTable:
        with failing("the Delta table cannot be opened"):
            table = DeltaTable(self.location, storage_options=self._storage)
            if version is not None:
                table.load_as_version(version)
            if table.metadata().configuration.get("delta.columnMapping.mode", "none") != "none":
                raise ConnectorError("the Delta table has a column mapping", hint=_ADOPT)
            return table

    def _find_added(self, version: int) -> Sequence[Unit]:
        """Return the files with new rows that a commit added."""
        actions = self._log(version)
        adds = [action["add"] for action in actions if "add" in action and action["add"].get("dataChange", True)]
        changed = any(action["remove"].get("dataChange", True) for action in actions if "remove" in action)
        if changed and self.options.on_change == "error":
            raise ConnectorError(
                f"version {version} of the Delta table changed or removed rows",
                hint="read its change data feed (change_data_feed=true), or set on_change='skip' or 'rows'",
            )
        if any(add.get("deletionVector") for add in adds):
            hint = "Read it with Spark, or read its change data feed."
            raise ConnectorError(f"version {version} of the Delta table has deletion vectors", hint=hint)
        if not adds or (changed and self.options.on_change == "skip"):
            return []
        table = self._table(version)
        return [self._file(table, unquote(add["path"]), add.get("partitionValues") or {}) for add in adds]

    def _log(self, version: int) -> list[dict[str, Any]]:
        try:
            text = self._store.read(f"_delta_log/{version:020}.json").decode()
        except CorruptFileError:
            raise SnapshotExpiredError(
                f"the log of version {version} of the Delta table has been removed", hint="begin without a checkpoint"
            ) from None
        return [json.loads(line) for line in text.splitlines() if line.strip()]

    def _file(self, table: DeltaTable, path: str, partition: Mapping[str, Any]) -> Unit:
        schema = arrow_schema(table)

        def read() -> Iterator[pa.RecordBatch]:
            with self._open_file(path, table.version()) as opened:
                for batch in pq.ParquetFile(opened).iter_batches(self.options.batch_rows):
                    columns = []
                    for field in schema:
                        if field.name in partition:
                            columns.append(pa.repeat(_parse_value(partition[field.name], field.type), batch.num_rows))
                        elif field.name in batch.schema.names:
                            columns.append(batch.column(field.name).cast(field.type))
                        else:
                            columns.append(pa.nulls(batch.num_rows, field.type))
                    yield pa.record_batch(columns, schema=schema)

        return Unit(path, read)

    def _open_file(self, path: str, version: int) -> pa.NativeFile:
        """Open a file of a version. Raise ``SnapshotExpiredError`` for one that a vacuum has removed."""
        try:
            return self._store.open_input(path)
        except CorruptFileError:
            # a file that the newest version has is missing for another reason
            if self._store.exists(path) or path in self._present_files():
                raise
            raise self._vacuumed_error(version) from None

    def _present_files(self) -> set[str]:
        actions = pa.table(self._table().get_add_actions(flatten=False))
        return {unquote(path) for path in actions.column("path").to_pylist()}

    def _vacuumed_error(self, version: int) -> SnapshotExpiredError:
        return SnapshotExpiredError(
            f"version {version} of the Delta table is gone: a vacuum has removed files of it",
            hint="begin without a checkpoint, or keep removed files for longer (delta.deletedFileRetentionDuration)",
        )

    def _changes(self, version: int) -> Sequence[pa.RecordBatch]:
        """Return the changes of one commit: what was there before what is there after."""
        try:
            with failing("the change data feed cannot be read"):
                # the library gives the rows of a commit in no order
                found = pa.table(self._table().load_cdf(starting_version=version, ending_version=version))
        except (pa.ArrowException, ConnectorError) as error:
            actions = (action for line in self._log(version) for action in map(line.get, ("add", "remove", "cdc")))
            if not all(self._store.exists(unquote(action["path"])) for action in actions if action is not None):
                raise self._vacuumed_error(version) from None
            if isinstance(error, ConnectorError):
                raise
            raise ConnectorError(f"the change data feed cannot be read: {str(error).splitlines()[0]}") from error
        found = found.cast(plain(found.schema))
        rank = pc.index_in(found.column(KIND), value_set=pa.array(_KINDS))
        found = found.take(pc.sort_indices(pa.table({"rank": rank}), [("rank", "ascending")]))
        schema = self.schema()
        return [shown(batch, schema) for batch in found.combine_chunks().to_batches(self.options.batch_rows)]


def _check_vectors(table: DeltaTable) -> None:
    """Raise ``ConnectorError`` for a version in which vectors delete rows of files."""
    if "deletionVectors" not in (table.protocol().reader_features or ()):
        return
    try:
        found = pa.table(table.deletion_vectors()).num_rows
    except Exception:  # the library has many, and reads no vector of a file without statistics
        found = 1
    if found:
        raise ConnectorError("the Delta table has deletion vectors", hint=_ADOPT)


def _parse_value(value: Any, kind: pa.DataType) -> pa.Scalar:
    """Return the value of a partition, which the log keeps as a text."""
    if value is None or value == "":
        return pa.scalar(None, kind)
    if isinstance(value, str):
        return pa.scalar(value.encode(), kind) if pa.types.is_binary(kind) else pa.scalar(value).cast(kind)
    return pa.scalar(value, kind)
