"""Write a Hudi table in two phases.

The first phase writes Parquet files below the table where no reader looks; the second has Spark write their rows. The
commit has the id of the writer and the number of the checkpoint in its metadata, and a checkpoint that the table has is
not written again, whoever asks.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa

from quacklake.connectors.hudi.marks import FOLDER, Mark, WriterMarks
from quacklake.connectors.hudi.session import active_session, writing
from quacklake.connectors.hudi.shape import TABLE_TYPES, Shape
from quacklake.connectors.hudi.timeline import PROPERTIES, Timeline, failing
from quacklake.connectors.hudi.types import check_fit, hudi_schema
from quacklake.connectors.object_store import open_store
from quacklake.connectors.options import ConnectorOptions
from quacklake.connectors.protocols import CommitInfo, PreparedCommit
from quacklake.connectors.staging import FileStage, StagedSink, check_staged
from quacklake.connectors.table_source import NOTHING
from quacklake.errors import CommitUnknown, ConfigError, SchemaMismatchError
from quacklake.extend.reporting import reach
from quacklake.spark.runtime.settings import spark_path, spark_uri

OPERATIONS = {"append": "insert", "overwrite": "insert_overwrite_table", "upsert": "upsert"}
"""The modes, and the operations of Hudi's that they are."""
_TARGET = 120 << 20
_STAGED = f"{FOLDER}staged/"


def sink(options: Mapping[str, Any]) -> HudiSink:
    """Return the sink that options describe."""
    return HudiSink(options)


class HudiSink(StagedSink):
    """One Hudi table. ``writer_id`` names the writer in the timeline; one name is one sequence of checkpoints."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        read = ConnectorOptions("hudi", options)
        self.location = read.text("location")
        self.writer_id = read.text("writer_id", "quacklake")
        self.mode = read.choice("mode", tuple(OPERATIONS), "append")
        self._storage = read.storage()
        self._store = open_store(self.location, self._storage)
        self._table_type = read.optional("table_type")
        self._shape = Shape(
            read.text("table_name", self._store.root.rstrip("/").rpartition("/")[2]),
            read.choice("table_type", TABLE_TYPES, TABLE_TYPES[0]),
            tuple(read.names("key")),
            tuple(read.names("partition_by")),
        )
        self._order_by = read.names("order_by")
        self._target = read.size("target_file_size", _TARGET)
        self._compression = read.text("compression", "zstd")
        self._settings = read.prefixed("hoodie.")
        read.finish()
        if self.mode == "upsert" and not self._shape.key:
            raise ConfigError("hudi: the mode upsert needs a key", hint="key='id'")
        self._marks = WriterMarks(self._store, self.writer_id)
        taken = next((name for name in self._own_settings(self._shape, 0) if name in self._settings), None)
        if taken is not None:
            raise ConfigError(f"hudi: {taken} is set by the sink", hint="leave it out, and use the options of the sink")

    def initialize(self, schema: pa.Schema) -> None:
        """Check that the rows fit the table, if it is there. The first commit creates it otherwise."""
        wanted = [*self._shape.key, *self._shape.partition_by, *self._order_by]
        unknown = next((name for name in wanted if name not in schema.names), None)
        if unknown is not None:
            hint = f"They have {', '.join(schema.names)}."
            raise SchemaMismatchError(f"the rows have no column {unknown!r}", hint=hint)
        staged = hudi_schema(schema)
        timeline = self._timeline()
        if timeline is not None:
            ours, kind = self._shape, self._table_type and self._shape.table_type
            Shape.of(timeline.options).check(key=ours.key, partition_by=ours.partition_by, table_type=kind)
            if timeline.commits:
                with failing("the schema of the Hudi table cannot be read"):
                    there = pa.schema(timeline.table.get_schema())
                check_fit(staged, there)
        self._stage = FileStage(
            self._store,
            folder=_STAGED,
            target_bytes=self._target,
            compression=self._compression,
            schema=staged,
            # Readers that list the folders of a table take every .parquet for a file of it.
            ending=".staged",
        )

    def last_checkpoint(self) -> int:
        """Return the last checkpoint of this writer that the table has, -1 for none and before the first commit."""
        return self._marks.last(self._timeline()).checkpoint

    def write_batch(self, batch: pa.RecordBatch) -> None:
        """Keep a batch; write files when they would have the target size."""
        self.stage.add(batch)

    def prepare_commit(self, checkpoint_id: int) -> PreparedCommit:
        """Write what is left, and return what the commit will add."""
        stage = self.stage
        reach("connector.hudi.prepare.before")
        timeline = self._timeline()
        files = stage.take()
        reach("connector.hudi.prepare.after")
        written, records = sum(file.bytes for file in files), sum(file.records for file in files)
        state = {"newest": NOTHING if timeline is None else timeline.newest}
        return PreparedCommit(checkpoint_id, files, written, records, state)

    def finalize_commit(self, prepared: PreparedCommit) -> CommitInfo:
        """Let Spark write the rows, unless this writer has done so already."""
        check_staged(self._store, _STAGED, prepared)
        timeline = self._timeline()
        last = self._marks.last(timeline)
        if last.checkpoint < prepared.checkpoint_id:
            self._refuse_unknown(timeline, prepared)
            reach("connector.hudi.commit.before")
            self._write(timeline, prepared)
            reach("connector.hudi.commit.after")
            timeline = self._timeline()
            last = Mark(prepared.checkpoint_id, NOTHING if timeline is None else timeline.newest)
        version = self._marks.versions(timeline).get(prepared.checkpoint_id, last.version)
        self._marks.keep(Mark(last.checkpoint, version) if last.checkpoint == prepared.checkpoint_id else last)
        reach("connector.hudi.kept.after")
        self._store.delete(file.path for file in prepared.data_files)
        return CommitInfo(prepared.checkpoint_id, version, datetime.now(UTC))

    def abort(self, prepared: PreparedCommit | None = None) -> None:
        """Remove the files of a commit that was not made, and whatever was kept."""
        if self._stage is not None:
            self._stage.discard()
        if prepared is None:
            return
        check_staged(self._store, _STAGED, prepared)
        if self._marks.last(self._timeline()).checkpoint < prepared.checkpoint_id:
            self._store.delete(file.path for file in prepared.data_files)

    def close(self) -> None:
        """Forget what was not prepared."""
        if self._stage is not None:
            self._stage.discard()
        self._stage = None

    def _timeline(self) -> Timeline | None:
        """Return the table as it is now, None when it is not there yet."""
        if not self._store.exists(PROPERTIES):
            return None
        return Timeline.load(self.location, self._store, self._storage)

    def _refuse_unknown(self, timeline: Timeline | None, prepared: PreparedCommit) -> None:
        """Raise ``CommitUnknown`` when the archive may have the commit: it began behind what the timeline has left."""
        if timeline is None:
            return
        known = int(prepared.state.get("newest", NOTHING))
        if known not in {commit.version for commit in timeline.commits} and timeline.archived:
            raise CommitUnknown(
                f"Hudi has archived the commits since the checkpoint {prepared.checkpoint_id} was prepared, and the "
                "rows may be in one of them",
                hint="look for the rows in the table; then write them again, or abort the checkpoint",
            )

    def _own_settings(self, shape: Shape, checkpoint: int) -> dict[str, str]:
        """Return the settings of a write that are not for the user to change."""
        order = {"hoodie.datasource.write.precombine.field": ",".join(self._order_by)} if self._order_by else {}
        operation = {"hoodie.datasource.write.operation": OPERATIONS[self.mode]}
        return shape.settings() | order | operation | self._marks.settings(checkpoint)

    def _write(self, timeline: Timeline | None, prepared: PreparedCommit) -> None:
        if not prepared.data_files and (timeline is None or not timeline.commits or self.mode != "overwrite"):
            return
        session = active_session()
        new = {
            "hoodie.datasource.write.hive_style_partitioning": "true",
            "hoodie.table.timeline.timezone": "UTC",
        }
        shape, usual = (self._shape, new) if timeline is None else (Shape.of(timeline.options), {})
        usual |= {
            "hoodie.merge.allow.duplicate.on.inserts": "true",
            "hoodie.parquet.max.file.size": str(self._target),
            "hoodie.parquet.compression.codec": self._compression,
        }
        settings = {**usual, **self._settings, **self._own_settings(shape, prepared.checkpoint_id)}
        with writing():
            if prepared.data_files:
                paths = [spark_path(self._store.url(file.path)) for file in prepared.data_files]
                frame = session.read.parquet(*paths)
            else:
                frame = session.read.format("hudi").load(spark_uri(self._store.root)).limit(0)
                frame = frame.drop(*(name for name in frame.columns if name.startswith("_hoodie_")))
            frame.write.format("hudi").options(**settings).mode("append").save(spark_uri(self._store.root))
