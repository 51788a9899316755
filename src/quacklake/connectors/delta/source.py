"""Read a Delta table: as it is, as it was, or commit by commit.

Commits are read from the table's log one at a time, each whole before the next, so that a position is a version and the
files of the version behind it. With a change data feed the rows say how they changed; without one they are those of the
files that a commit added, and a commit that also removed rows is an error unless ``on_change`` says otherwise.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple, TypeAlias
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from deltalake import DeltaTable

from quacklake.connectors.delta.sink import failing
from quacklake.connectors.options import ConnectorOptions
from quacklake.connectors.protocols import ReadMode, SourceCheckpoint
from quacklake.errors import ConfigError, ConnectorError, CorruptFileError, SnapshotExpiredError, StreamMismatchError
from quacklake.storage import Store

_KINDS = {"insert": 0, "update_preimage": 1, "update_postimage": 2, "delete": 3}
_OPS = {"insert": "I", "update_postimage": "U", "delete": "D"}
_FEED = ("_change_type", "_commit_version", "_commit_timestamp")
_STAMP = pa.timestamp("us", "UTC")
_Step: TypeAlias = tuple[pa.RecordBatch | None, SourceCheckpoint]
"""Rows, if any, and the position behind them."""


def source(options: Mapping[str, Any]) -> DeltaSource:
    """Return the source that options describe."""
    return DeltaSource(options)


class DeltaSource:
    """One Delta table, in any of the four modes."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        read = ConnectorOptions("delta", options)
        self.location = read.text("location")
        stamp = read.optional("timestamp")
        try:
            moment = None if stamp is None else datetime.fromisoformat(stamp)
        except ValueError:
            raise ConfigError(f"delta: timestamp={stamp!r} is no time", hint="2024-01-01T12:00:00+00:00") from None
        self.mode = ReadMode.parse(
            read.choice("mode", ReadMode.KINDS, "batch"),
            version=read.number("version"),
            timestamp=moment if moment is None or moment.tzinfo else moment.replace(tzinfo=UTC),
            poll_interval=read.duration("poll_interval", timedelta(seconds=1)),
        )
        self.feed = read.boolean("change_data_feed", False)
        self.changelog = read.choice("changelog", ("rows", "op"), "rows")
        self.on_change = read.choice("on_change", ("error", "skip", "rows"), "error")
        self._batch_rows = read.number("batch_rows", 100_000, least=1) or 1
        self._storage = read.storage()
        read.finish()
        if self.feed and self.mode.kind in ("batch", "snapshot"):
            kind = self.mode.kind
            raise ConfigError(f"delta: the mode {kind} does not read a change data feed", hint="mode='continuous'")
        self._store = Store.open(self.location)
        self._table_id: str | None = None
        self._position = SourceCheckpoint()
        self._batches: Iterator[_Step] = iter(())
        self._checked = 0.0
        self._started = False

    def schema(self) -> pa.Schema:
        """Return the columns of the table, and those of its feed."""
        found = _plain(pa.schema(self._table().schema().to_arrow()))
        if not self.feed:
            return found
        if self.changelog == "op":
            return found.append(pa.field("_op", pa.string()))
        kinds = (pa.string(), pa.int64(), _STAMP)
        for name, kind in zip(_FEED, kinds, strict=True):
            found = found.append(pa.field(name, kind))
        return found

    def start(self, checkpoint: SourceCheckpoint | None = None) -> None:
        """Begin behind a checkpoint; without one at the beginning, which the mode decides."""
        table = self._table()
        self._table_id = str(table.metadata().id)
        known = None if checkpoint is None else checkpoint.offsets.get("table")
        if known is not None and known != self._table_id:
            raise StreamMismatchError(
                f"the Delta table at {self.location} is not the one that was read before",
                hint="Begin without a checkpoint.",
            )
        self._position = self._at(-1) if checkpoint is None else checkpoint
        self._batches = self._read(table)
        self._started = True

    def poll_next(self) -> pa.RecordBatch | None:
        """Return the next rows; None at the end, or when the table has nothing new (after the poll interval)."""
        if not self._started:
            raise ConnectorError("the source is not started", hint="Call start(checkpoint) first.")
        while True:
            for batch, position in self._batches:
                self._position = position
                if batch is not None and batch.num_rows:
                    return batch
            if self.mode.bounded:
                return None
            wait = self._checked + self.mode.poll_interval.total_seconds() - time.monotonic()
            if wait > 0:
                time.sleep(wait)
            self._checked = time.monotonic()
            newest = self._table().version()
            if newest <= self._position.table_version:
                return None
            self._batches = self._commits(newest)

    def current_checkpoint(self) -> SourceCheckpoint:
        """Return how far the batches have come that were returned."""
        return self._position

    def commit(self, checkpoint: SourceCheckpoint) -> None:
        """Do nothing: a Delta table forgets by itself, not because it was read."""

    def close(self) -> None:
        """Forget what has not been read."""
        self._batches, self._started = iter(()), False

    def _table(self, version: int | datetime | None = None) -> DeltaTable:
        with failing("the Delta table cannot be opened"):
            table = DeltaTable(self.location, storage_options=self._storage)
            if version is not None:
                table.load_as_version(version)
            return table

    def _at(self, version: int, files: tuple[str, ...] = (), **offsets: Any) -> SourceCheckpoint:
        return SourceCheckpoint(version, files, None, {"table": self._table_id, **offsets})

    def _read(self, table: DeltaTable) -> Iterator[_Step]:
        """Yield what there is to read now, each batch with the position behind it."""
        mode, position = self.mode, self._position
        if mode.kind == "incremental" and position.table_version < 0:
            self._position = position = self._at(mode.version or 0)
        if mode.kind == "snapshot" and mode.version is None:
            assert mode.timestamp is not None
            table = self._table(mode.timestamp)
        elif mode.kind == "snapshot":
            table = self._table(mode.version)
        target = table.version()
        state = position.offsets.get("state")
        whole = mode.kind in ("batch", "snapshot") or (mode.kind == "continuous" and not self.feed)
        if whole and (position.table_version < 0 or state is not None):
            yield from self._state(table if state is None else self._table(state))
        elif mode.kind == "incremental" or (mode.kind == "continuous" and position.table_version < target):
            yield from self._commits(target)

    def _state(self, table: DeltaTable) -> Iterator[_Step]:
        """Yield all rows of one version."""
        names = ["path", "partition"] if table.metadata().partition_columns else ["path"]
        actions = pa.table(table.get_add_actions(flatten=False)).select(names).sort_by("path").to_pylist()
        files = [_File(unquote(each["path"]), each.get("partition") or {}) for each in actions]
        yield from self._files(table, files, state=table.version())
        yield None, self._at(table.version())

    def _commits(self, until: int) -> Iterator[_Step]:
        """Yield the rows of each commit behind the position."""
        for version in range(self._position.table_version + 1, until + 1):
            if self.feed:
                yield from self._changes(version)
            elif files := self._added(version):
                yield from self._files(self._table(version), files)
            yield None, self._at(version)

    def _files(self, table: DeltaTable, files: Sequence[_File], **offsets: int) -> Iterator[_Step]:
        """Yield the rows of files, without those that the position is behind."""
        base, done = self._position.table_version, list(self._position.files_processed)
        skipped = int(self._position.offsets.get("rows", 0))
        for file in files:
            if file.path in done:
                continue
            returned = 0
            for batch in self._rows(table, file):
                rest = batch.slice(max(0, skipped - returned))
                returned += batch.num_rows
                if rest.num_rows:
                    yield rest, self._at(base, tuple(done), rows=returned, **offsets)
            skipped = 0
            done.append(file.path)
            yield None, self._at(base, tuple(done), **offsets)

    def _added(self, version: int) -> list[_File]:
        """Return the files with new rows that a commit added."""
        actions = self._log(version)
        adds = [action["add"] for action in actions if "add" in action and action["add"].get("dataChange", True)]
        changed = any(action["remove"].get("dataChange", True) for action in actions if "remove" in action)
        if changed and self.on_change == "error":
            raise ConnectorError(
                f"version {version} of the Delta table changed or removed rows",
                hint="Read its change data feed (change_data_feed=true), or say on_change='skip' or 'rows'.",
            )
        if any(add.get("deletionVector") for add in adds):
            hint = "Read it with Spark, or read its change data feed."
            raise ConnectorError(f"version {version} of the Delta table has deletion vectors", hint=hint)
        if changed and self.on_change == "skip":
            return []
        return [_File(unquote(add["path"]), add.get("partitionValues") or {}) for add in adds]

    def _log(self, version: int) -> list[dict[str, Any]]:
        try:
            text = self._store.read(f"_delta_log/{version:020}.json").decode()
        except CorruptFileError:
            raise SnapshotExpiredError(
                f"the log of version {version} of the Delta table has been removed", hint="Begin without a checkpoint."
            ) from None
        return [json.loads(line) for line in text.splitlines() if line.strip()]

    def _rows(self, table: DeltaTable, file: _File) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a file with the columns of the table, also those of its partition."""
        schema = _plain(pa.schema(table.schema().to_arrow()))
        with self._store.open_input(file.path) as opened:
            for batch in pq.ParquetFile(opened).iter_batches(self._batch_rows):
                columns = []
                for field in schema:
                    if field.name in file.partition:
                        columns.append(pa.repeat(_typed(file.partition[field.name], field.type), batch.num_rows))
                    elif field.name in batch.schema.names:
                        columns.append(batch.column(field.name).cast(field.type))
                    else:
                        columns.append(pa.nulls(batch.num_rows, field.type))
                yield pa.record_batch(columns, schema=schema)

    def _changes(self, version: int) -> Iterator[_Step]:
        """Yield the changes of one commit: what was there before what is there after."""
        with failing("the change data feed cannot be read"):
            # the library gives the rows of a commit in no order
            found = pa.table(self._table().load_cdf(starting_version=version, ending_version=version))
            found = found.cast(_plain(found.schema))
        rank = pc.index_in(found.column("_change_type"), value_set=pa.array(_KINDS))
        found = found.take(pc.sort_indices(pa.table({"rank": rank}), [("rank", "ascending")]))
        if self.changelog == "op":
            places = pc.index_in(found.column("_change_type"), value_set=pa.array(_OPS))
            found = found.append_column("_op", pc.take(pa.array(_OPS.values()), places)).filter(pc.is_valid(places))
        schema, base = self.schema(), self._position.table_version
        returned = int(self._position.offsets.get("rows", 0))
        rest = found.select(schema.names).cast(schema).slice(returned)
        for batch in rest.combine_chunks().to_batches(self._batch_rows):
            returned += batch.num_rows
            yield batch, self._at(base, rows=returned)


class _File(NamedTuple):
    path: str
    partition: Mapping[str, Any]


def _plain(schema: pa.Schema) -> pa.Schema:
    """Return a schema with times in microseconds and without the types that only some libraries have."""
    from quacklake.connectors.delta.sink import delta_type

    return pa.schema([pa.field(field.name, delta_type(field), field.nullable) for field in schema])


def _typed(value: Any, kind: pa.DataType) -> pa.Scalar:
    """Return the value of a partition, which the log keeps as a text."""
    if value is None or value == "":
        return pa.scalar(None, kind)
    if isinstance(value, str):
        return pa.scalar(value).cast(kind) if not pa.types.is_binary(kind) else pa.scalar(value.encode(), kind)
    return pa.scalar(value, kind)
