"""Read a Hudi table: as it is, as it was, or commit by commit, copy-on-write and merge-on-read.

A version is the instant of a commit, as a number. The rows of a commit are those that it wrote, also where it rewrote a
file with others beside them. A commit that changed or removed rows is an error unless ``on_change`` says otherwise, and
one that only moved rows (a compaction or a clustering) has none.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from hudi import HudiFileSlice, HudiReadOptions

from quacklake.connectors.hudi.timeline import Commit, Timeline, failing
from quacklake.connectors.object_store import open_store
from quacklake.connectors.options import ConnectorOptions
from quacklake.connectors.protocols import SourceCheckpoint
from quacklake.connectors.table_source import NOTHING, ReadOptions, TableSource, Unit
from quacklake.errors import (
    ConfigError,
    ConnectorError,
    NotFoundError,
    QuacklakeError,
    SnapshotExpiredError,
    StreamMismatchError,
    UnsupportedFeatureError,
)

_TIME, _NUMBER, _KEY = "_hoodie_commit_time", "_hoodie_commit_seqno", "_hoodie_record_key"


def source(options: Mapping[str, Any]) -> HudiSource:
    """Return the source that options describe."""
    return HudiSource(options)


class HudiSource(TableSource):
    """One Hudi table, in any of the four modes."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        read = ConnectorOptions("hudi", options)
        self.location = read.text("location")
        self._storage = read.storage()
        super().__init__(ReadOptions.of(read))
        read.finish()
        if self.options.feed:
            raise ConfigError("hudi: a change data feed is read with Spark only", hint="leave out change_data_feed")
        self._store = open_store(self.location, self._storage)

    def schema(self) -> pa.Schema:
        """Return the columns of the table, without Hudi's own."""
        return self._schema(self._load())

    def identity(self) -> str:
        """Return the name of the table. Hudi gives a table no id: :meth:`start` looks for the commit as well."""
        return str(self._load().table.table_name)

    def start(self, checkpoint: SourceCheckpoint | None = None) -> None:
        """Begin behind a checkpoint; without one at the beginning, which the mode decides."""
        super().start(checkpoint)
        position = NOTHING if checkpoint is None else checkpoint.offsets.get("state", checkpoint.table_version)
        if position > 0:
            try:
                self._find(position)
            except QuacklakeError:
                self.close()
                raise

    def newest(self) -> int:
        """Return the instant of the commit that was completed last."""
        return self._load().newest

    def version_at(self, moment: datetime) -> int:
        """Return the commit that was the last to be completed at a time."""
        found = self._load().at(moment)
        if found is None:
            raise NotFoundError(f"the timeline of the Hudi table has no commit from before {moment}")
        return found

    def state(self, version: int) -> Sequence[Unit]:
        """Return the groups of files of a version, as they were then."""
        timeline = self._load()
        later = timeline.after(version)
        slices = self._slices(timeline, version)
        known: set[str] = set()
        for commit in later:
            for file in commit.files:
                if file.is_log or file.group in known:
                    continue
                known.add(file.group)
                there = slices.get(file.group)
                if file.previous is None:
                    # the commit began before the version, and was completed after it
                    slices.pop(file.group, None)
                elif there is None or there.creation_instant_time != file.previous:
                    raise _cleaned_error(version)
            if not commit.replaced <= known | set(slices):
                raise _cleaned_error(version)
        return [self._unit(timeline, version, each) for each in _sort_slices(slices.values())]

    def commits(self, after: int, until: int) -> Iterator[tuple[int, Sequence[Unit]]]:
        """Yield each commit with the rows that it wrote."""
        timeline = self._load()
        for commit in timeline.after(after):
            yield commit.version, self._find_written(timeline, commit)
            if commit.version == until:
                return

    def _find(self, position: int) -> None:
        """Raise ``StreamMismatchError`` or ``SnapshotExpiredError`` when the timeline does not have a commit."""
        timeline = self._load()
        first = timeline.commits[0].version if timeline.commits else None
        if (first is None or position < first) and not timeline.archived:
            hint = "Begin without a checkpoint."
            raise StreamMismatchError("the table is not the one that was read before", hint=hint)
        timeline.after(position)

    def _load(self) -> Timeline:
        timeline = Timeline.load(self.location, self._store, self._storage, settled=True)
        if timeline.options.get("hoodie.populate.meta.fields", "true") != "true":
            raise UnsupportedFeatureError(
                "the Hudi table does not write down which commit wrote a row (hoodie.populate.meta.fields=false)",
                hint="read it with Spark",
            )
        return timeline

    def _schema(self, timeline: Timeline) -> pa.Schema:
        with failing("the schema of the Hudi table cannot be read"):
            return pa.schema(timeline.table.get_schema())

    def _slices(self, timeline: Timeline, version: int) -> dict[str, HudiFileSlice]:
        with failing("the Hudi table cannot be read"):
            found = timeline.table.get_file_slices(_as_of(version))
        return {each.file_id: each for each in found}

    def _find_written(self, timeline: Timeline, commit: Commit) -> Sequence[Unit]:
        """Return the groups of files that a commit wrote rows into."""
        if commit.moves_only:
            return []
        if commit.changes_rows and self.options.on_change == "error":
            raise ConnectorError(
                f"the commit {commit.version} of the Hudi table changed or removed rows",
                hint="set on_change='rows' to read the rows that it wrote, or 'skip'",
            )
        if commit.changes_rows and self.options.on_change == "skip":
            return []
        slices = self._slices(timeline, commit.version)
        groups: dict[str, HudiFileSlice] = {}
        for file in commit.files:
            there = slices.get(file.group)
            if there is None or file.path not in (there.base_file_relative_path(), *there.log_files_relative_paths()):
                raise _cleaned_error(commit.version)
            groups[file.group] = there
        return [self._unit(timeline, commit.version, each, commit.instant) for each in _sort_slices(groups.values())]

    def _unit(self, timeline: Timeline, version: int, files: HudiFileSlice, written: str | None = None) -> Unit:
        read = partial(self._read_slice, timeline, version, files, written)
        return Unit(f"{files.partition_path}/{files.file_id}", read)

    def _read_slice(
        self, timeline: Timeline, version: int, files: HudiFileSlice, written: str | None
    ) -> Iterable[pa.RecordBatch]:
        """Yield the rows of a group of files at a version; with ``written``, those of this commit alone."""
        schema, limit = self._schema(timeline), self.options.batch_rows
        options = _as_of(version).with_batch_size(limit)
        with failing("a file of the Hudi table cannot be read"):
            reader = timeline.table.create_file_group_reader_with_options(options)
            batches: Iterable[pa.RecordBatch] = reader.read_file_slice_stream(files, options)
            if timeline.table.is_mor:
                # A position counts rows, and rows that are merged with logs come in no order. Later commits may add
                # logs, so that files without one are sorted, too.
                merged = pa.Table.from_batches(batches).sort_by([(_KEY, "ascending"), (_NUMBER, "ascending")])
                batches = merged.combine_chunks().to_batches(limit)
            for batch in batches:
                rows = batch if written is None else batch.filter(pc.equal(batch.column(_TIME), written))
                yield _fit_batch(rows, schema)


def _as_of(version: int) -> HudiReadOptions:
    return HudiReadOptions().with_as_of_timestamp(str(version))


def _sort_slices(slices: Iterable[HudiFileSlice]) -> list[HudiFileSlice]:
    return sorted(slices, key=lambda each: (each.partition_path, each.file_id))


def _fit_batch(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Return the columns of a schema; those that a file does not have yet are NULL."""
    columns = [
        batch.column(field.name).cast(field.type)
        if field.name in batch.schema.names
        else pa.nulls(batch.num_rows, field.type)
        for field in schema
    ]
    return pa.record_batch(columns, schema=schema)


def _cleaned_error(version: int) -> SnapshotExpiredError:
    return SnapshotExpiredError(
        f"Hudi has removed files of the commit {version}",
        hint="begin without a checkpoint, or keep commits for longer",
    )
