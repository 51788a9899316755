"""Write a JetStream stream in two phases.

Prepared rows are messages in staged files, which no stream knows. To finalize means to publish them: each names its
writer, its checkpoint and its number, so that whoever begins again publishes only what the stream does not have. A
small file beside the staged ones keeps the last checkpoint that is published whole.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote

import pyarrow as pa
import pyarrow.parquet as pq

from quacklake.connectors.nats.connection import NatsConnection
from quacklake.connectors.nats.decoding import FORMATS
from quacklake.connectors.nats.encoding import MESSAGES, Encoder, SubjectTemplate, encoded_rows
from quacklake.connectors.nats.publishing import Done, Label, Progress, Publisher, checked
from quacklake.connectors.nats.stream import NatsStream, StreamRange
from quacklake.connectors.object_store import check_s3, open_store
from quacklake.connectors.options import ConnectorOptions
from quacklake.connectors.protocols import CommitInfo, PreparedCommit, WrittenFile
from quacklake.connectors.staging import FileStage, StagedSink, check_staged
from quacklake.errors import ConfigError, CorruptFileError, InputError, NotFoundError
from quacklake.extend.reporting import reach
from quacklake.extend.stores import Store

_TARGET = 32 * 1000**2
_BATCH_BYTES = 8 << 20
_HEADER_ROOM = 256
_MAX_NAME = 200


def sink(options: Mapping[str, Any]) -> NatsSink:
    """Return the sink that options describe."""
    return NatsSink(options)


class NatsSink(StagedSink):
    """One stream. ``writer_id`` names the writer; one name is one sequence of checkpoints."""

    def __init__(self, options: Mapping[str, Any], *, whole_subjects: bool = False) -> None:
        read = ConnectorOptions("nats", options)
        self.stream = NatsStream.of(read)
        if len(self.stream.subjects) != 1:
            raise ConfigError("nats: a sink needs one subject", hint="subject='orders.{region}'")
        self._subject = SubjectTemplate(self.stream.subjects[0], whole_subjects)
        self._form = read.choice("format", FORMATS, "json")
        self._id_column = read.optional("dedup_id_column")
        self.writer_id = _name(read.text("writer_id", "quacklake"))
        self._staging = read.text("staging")
        self._window = read.number("max_in_flight", 1000, least=1) or 1
        self._trusting = read.choice("on_expired", ("error", "publish"), "error") == "publish"
        self._target = read.size("target_file_size", _TARGET)
        self._compression = read.text("compression", "zstd")
        storage = read.storage()
        read.finish()
        check_s3(storage)
        self._store = open_store(self._staging, storage)
        writer = quote(self.writer_id, safe="").replace("%", "=").replace(".", "=2E")
        self._folder = f"{self.stream.name}/{writer}/"
        self._connection: NatsConnection | None = None
        self._fresh: set[str] = set()

    def initialize(self, schema: pa.Schema) -> None:
        """Check that the stream is there and can take the rows. Nothing is created."""
        there = self._look()
        largest = int(self._connect().info.get("max_payload", 1 << 20))
        limit = int(there.config.get("max_msg_size", -1))
        names = len(self.stream.name) + 2 * len(self.writer_id.encode())
        largest = (min(largest, limit) if limit > 0 else largest) - _HEADER_ROOM - names
        if largest <= 0:
            raise ConfigError(f"the NATS stream {self.stream.name!r} takes messages of {limit} bytes only")
        encoder = Encoder(self._form, self._subject, self._id_column, largest)
        encoder.check(schema)
        self._stage = FileStage(
            self._store,
            folder=self._folder,
            split=lambda rows: [("", {}, encoder.messages(rows))],
            count=encoded_rows,
            target_bytes=self._target,
            compression=self._compression,
            schema=schema,
        )

    def last_checkpoint(self) -> int | None:
        """Return the last checkpoint that is known to be published; None where none is."""
        last = self._find_published(self._look().created)[0]
        return None if last < 0 else last

    def write_batch(self, batch: pa.RecordBatch) -> None:
        """Keep a batch; write files when they would have the target size."""
        self.stage.add(batch)

    def prepare_commit(self, checkpoint_id: int) -> PreparedCommit:
        """Write what is left, and return what will be published."""
        stage = self.stage
        there = self._look()  # first: what fails after the files were taken would lose them
        reach("connector.nats.prepare.before")
        prepared = self._prepare_commit(checkpoint_id, stage.take(), there)
        reach("connector.nats.prepare.after")
        return prepared

    def finalize_commit(self, prepared: PreparedCommit) -> CommitInfo:
        """Publish the messages that the stream does not have, then remove the staged files."""
        check_staged(self._store, self._folder, prepared)
        created, after, window = _state(prepared)
        connection = self._connect()
        checked(self.stream, self.stream.look(connection), created, after)
        checkpoint, version = self._find_published(created)
        if checkpoint < prepared.checkpoint_id:
            version = self._publish(prepared, created, after, window)
            reach("connector.nats.commit.after")
        self._store.delete(file.path for file in prepared.data_files)
        reach("connector.nats.clean.after")
        return CommitInfo(prepared.checkpoint_id, version, datetime.now(UTC))

    def abort(self, prepared: PreparedCommit | None = None) -> None:
        """Remove the files of a commit of which nothing is published, and whatever was kept."""
        if self._stage is not None:
            self._stage.discard()
        if prepared is None:
            return
        check_staged(self._store, self._folder, prepared)
        if self._has_begun(prepared):
            return
        self._store.delete(file.path for file in prepared.data_files)

    def close(self) -> None:
        """Forget what was not prepared, and close the connection."""
        if self._stage is not None:
            self._stage.discard()
        if self._connection is not None:
            self._connection.close()
        self._stage = self._connection = None

    def _prepare_commit(self, checkpoint_id: int, files: tuple[WrittenFile, ...], there: StreamRange) -> PreparedCommit:
        prepared = PreparedCommit(
            checkpoint_id,
            files,
            sum(file.bytes for file in files),
            sum(file.records for file in files),
            {"created": there.created, "sequence": there.last, "window": self._window},
        )
        self._fresh.add(prepared.to_json())
        return prepared

    def _look(self) -> StreamRange:
        """Return what the stream has.

        Refuse one that forgets messages as soon as they are read: a repeat could not tell what it has had.
        """
        there = self.stream.look(self._connect())
        retention = there.config.get("retention", "limits")
        if retention != "limits":
            raise ConfigError(
                f"the NATS stream {self.stream.name!r} has the retention {retention!r}",
                hint="write to a stream with the retention 'limits', and let the other one take from it",
            )
        return there

    def _connect(self) -> NatsConnection:
        if self._connection is None:
            self._connection = self.stream.connect()
        return self._connection

    def _publish(self, prepared: PreparedCommit, created: str, after: int, window: int) -> int:
        text = prepared.to_json()
        fresh = text in self._fresh  # nobody has begun to publish it
        self._fresh.discard(text)
        try:
            messages = _StagedMessages(self._store, prepared.data_files)
            progress = Progress(messages.total, after, window, fresh=fresh)
            version = max(after, self._publisher(prepared).publish(progress, messages.read))
        except CorruptFileError:
            checkpoint, version = self._find_published(created)
            if checkpoint < prepared.checkpoint_id:
                raise
            return version  # another process was quicker, and has removed the files
        self._remember(created, prepared.checkpoint_id, version)
        return version

    def _publisher(self, prepared: PreparedCommit) -> Publisher:
        label = Label(self.writer_id, prepared.checkpoint_id)
        has_ids = self._id_column is not None
        created = _state(prepared)[0]
        return Publisher(self.stream, self._connect(), label, created, has_ids=has_ids, trusting=self._trusting)

    def _has_begun(self, prepared: PreparedCommit) -> bool:
        """Return whether the stream has anything of a commit. One that was recreated has nothing."""
        created, after, _ = _state(prepared)
        try:
            there = self.stream.look(self._connect())
        except NotFoundError:
            return False
        if there.created != created or there.last < after:
            return False
        if self._find_published(created)[0] >= prepared.checkpoint_id:
            return True
        return len(self._publisher(prepared).look(after).own_numbers) > 0

    def _find_published(self, created: str) -> tuple[int, int]:
        """Return the last checkpoint that is published whole and the sequence of its end, -1 and 0 for none."""
        path = f"{self._folder}published.json"
        if not self._store.exists(path):
            return -1, 0
        try:
            kept = json.loads(self._store.read(path))
            return (int(kept["checkpoint"]), int(kept["sequence"])) if kept["created"] == created else (-1, 0)
        except (ValueError, KeyError, TypeError) as error:
            raise CorruptFileError(f"{self._staging}/{path} is not what the sink wrote") from error

    def _remember(self, created: str, checkpoint: int, version: int) -> None:
        kept = {"created": created, "checkpoint": checkpoint, "sequence": version}
        self._store.write(f"{self._folder}published.json", json.dumps(kept).encode())


class _StagedMessages:
    """The messages of staged files, numbered through all of them."""

    def __init__(self, store: Store, files: tuple[WrittenFile, ...]) -> None:
        self._store = store
        self._files = files
        self.total = 0
        for file in files:
            with self._open_file(file) as parquet:
                self.total += parquet.metadata.num_rows

    def read(self, done: Done) -> Iterator[tuple[int, pa.RecordBatch]]:
        """Yield the messages with the number of the first; files of which all are done are left out."""
        number = 0
        for file in self._files:
            with self._open_file(file) as parquet:
                metadata = parquet.metadata
                if done[number : number + metadata.num_rows].all():
                    number += metadata.num_rows
                    continue
                size = sum(metadata.row_group(group).total_byte_size for group in range(metadata.num_row_groups))
                rows = max(1, min(10_000, _BATCH_BYTES * metadata.num_rows // max(1, size)))
                batches = parquet.iter_batches(rows, columns=MESSAGES.names)
                while (batch := self._next(batches, file)) is not None:
                    yield number, batch
                    number += batch.num_rows

    @contextmanager
    def _open_file(self, file: WrittenFile) -> Iterator[pq.ParquetFile]:
        with self._store.open_input(file.path) as source:
            try:
                parquet = pq.ParquetFile(source)
            except (OSError, pa.ArrowException) as error:
                raise CorruptFileError(f"the staged file {file.path} is damaged: {error}") from error
            yield parquet

    def _next(self, batches: Iterator[pa.RecordBatch], file: WrittenFile) -> pa.RecordBatch | None:
        """Return the next batch. What is wrong with a file must not look like a broken connection."""
        try:
            return next(batches, None)
        except (OSError, pa.ArrowException) as error:
            raise CorruptFileError(f"the staged file {file.path} is damaged: {error}") from error


def _state(prepared: PreparedCommit) -> tuple[str, int, int]:
    try:
        return str(prepared.state["created"]), int(prepared.state["sequence"]), int(prepared.state["window"])
    except (KeyError, TypeError, ValueError) as error:
        raise InputError("this commit was not prepared by a sink of NATS") from error


def _name(text: str) -> str:
    if not text or text != text.strip() or len(text) > _MAX_NAME or not text.isprintable():
        raise ConfigError(f"nats: {text[:80]!r} cannot be a writer_id", hint="writer_id='shop'")
    return text
