"""The dead letters of a pipeline: messages that are not rows, with the reason, and publishing them again.

To replay means to take letters out of their table and to publish them to the stream that they came from, where the
pipeline reads them as new messages. Both happen once or not at all, by the barrier of pipelines: the messages are
staged, one transaction removes the letters and confirms that, then the messages are published. Whoever replays next
publishes what is confirmed and not published yet.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing, nullcontext
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any

import pyarrow as pa

from quacklake.connectors.nats.decoding import REJECTED
from quacklake.connectors.nats.sink import NatsSink
from quacklake.errors import ConfigError, InputError, NotFoundError
from quacklake.extend.checkpoints import Checkpoint, Checkpoints
from quacklake.extend.names import TableRef, quote
from quacklake.extend.writes import Change
from quacklake.lake import Lake
from quacklake.pipelines.barrier import Barrier
from quacklake.pipelines.checkpoints import Manifest, unfinished
from quacklake.pipelines.definition import PipelineDefinition
from quacklake.pipelines.lake_tables import Counts
from quacklake.pipelines.sinks import folder

__all__ = ["DeadLetters", "Letter"]

_CONNECTION = (
    "servers stream user password token nkey_seed ca_file cert_file key_file timeout max_retries".split()  # noqa: SIM905
)
"""The options of a source that also connect a sink."""
_SINK = "stream"
_HASH = "dead letters"
MAX_AT_ONCE = 10_000


@dataclass(frozen=True)
class Letter:
    """A message that is not a row. ``data`` has its first bytes, of ``size`` in all."""

    row: int
    sequence: int
    subject: str
    time: datetime | None
    reason: str | None
    data: bytes
    size: int


class DeadLetters:
    """The dead letters of one pipeline."""

    def __init__(self, lake: Lake, definition: PipelineDefinition) -> None:
        self._lake = lake
        self._definition = definition
        self._checkpoints = Checkpoints.of_letters(lake, definition.name)

    @property
    def table(self) -> TableRef | None:
        """The table of the letters; None when the pipeline has none, or has not made it yet."""
        if self._definition.dead_letters is None:
            return None
        ref = TableRef.parse(self._definition.dead_letters)
        return None if self._lake.handle.view().get_table(ref.schema, ref.name) is None else ref

    def count(self) -> int:
        """Return how many letters there are."""
        ref = self.table
        return 0 if ref is None else self._lake.table(str(self._definition.dead_letters)).count()

    def pending(self) -> int:
        """Return how many messages were taken out of the table and are not published yet."""
        waiting = [each for each in self._checkpoints.list() if each.state == Checkpoint.CONFIRMED]
        manifests = [Manifest.from_json(each.manifest) for each in waiting]
        return sum(commit.records_written for manifest in manifests for commit in manifest.prepared.values())

    def page(self, after: int, most: int, most_bytes: int) -> list[Letter]:
        """Return letters behind a row id, in order, each with so many bytes of its body at most."""
        ref = self.table
        if ref is None:
            return []
        found = self._lake.sql(
            "SELECT rowid, _sequence, _subject, _time, _reason, CAST(_data AS BLOB)[1:$most_bytes] AS data,"
            f" octet_length(_data) AS size FROM {quote(ref.schema)}.{quote(ref.name)}"
            " WHERE rowid > $after ORDER BY rowid LIMIT $most",
            {"after": after, "most": most, "most_bytes": most_bytes},
        ).fetchall()
        return [
            Letter(row, sequence, subject or "", time, reason, data or b"", size or 0)
            for row, sequence, subject, time, reason, data, size in found
        ]

    def replay(self, rows: Sequence[int]) -> int:
        """Publish letters again, by their row ids, after those of a replay that was cut off. Return how many.

        Raise ``NotFoundError`` when one of them is not there, and ``StreamFencedError`` when another replay has begun
        since; nothing is published then.
        """
        wanted = sorted(set(rows))
        if len(wanted) > MAX_AT_ONCE:
            raise InputError(f"more than {MAX_AT_ONCE:,} dead letters at once", hint="replay them in parts")
        if self._definition.source.type != "nats":
            if not wanted:
                return 0
            raise ConfigError(f'the pipeline "{self._definition.name}" has no source of messages')
        claim = self._checkpoints.claim(_HASH, accept=True)
        with closing(self._sink(claim.incarnation)) as sink:
            sink.initialize(pa.schema([REJECTED.field("_subject"), REJECTED.field("_data")]))
            author = f"pipeline {self._definition.name}"
            lake = self._lake.signed(f"Replay {len(wanted):,} dead letters", author)
            barrier = Barrier(lake, self._checkpoints, claim, {_SINK: sink})
            before = sum(each.records_written for one in unfinished(claim) for each in one.prepared.values())
            barrier.recover()
            if not wanted:
                return before
            letters = self._read(wanted)

            def prepare(checkpoint_id: int) -> Any:
                for batch in letters.to_batches():
                    sink.write_batch(batch)
                return sink.prepare_commit(checkpoint_id)

            removal = nullcontext(partial(self._remove, wanted))
            barrier.commit(barrier.last + 1, "{}", {"letters": removal}, {_SINK: prepare})
        return before + len(wanted)

    def _read(self, rows: Sequence[int]) -> pa.Table:
        ref = self.table
        found = pa.table({"rowid": pa.array([], pa.int64())})
        if ref is not None:
            found = self._lake.sql(
                f"SELECT _subject, CAST(_data AS BLOB) AS _data, rowid FROM {quote(ref.schema)}.{quote(ref.name)}"
                " WHERE list_contains($rows::BIGINT[], rowid) ORDER BY rowid",
                {"rows": list(rows)},
            ).to_arrow()
        gone = set(rows) - set(found.column("rowid").to_pylist())
        if gone:
            raise NotFoundError(f"there is no dead letter {min(gone)}", hint="it may have been replayed already")
        kept = found.select(["_subject", "_data"])
        return kept.cast(pa.schema([("_subject", pa.string()), ("_data", pa.binary())]))

    def _remove(self, rows: Sequence[int], change: Change) -> Counts:
        listed = ", ".join(f"{row:d}" for row in rows)
        removed = change.transaction.table(str(self._definition.dead_letters)).delete(f"rowid IN ({listed})")
        if removed != len(rows):
            raise NotFoundError("some of the dead letters were removed meanwhile", hint="look at them again")
        return {"rows": removed}

    def _sink(self, incarnation: str) -> NatsSink:
        name, given = self._definition.name, self._definition.source.options
        options = {key: value for key, value in given.items() if key.strip().lower() in _CONNECTION}
        return NatsSink(
            {
                **options,
                "subject": "{_subject}",
                "format": "raw",
                "writer_id": f"{name}:dead letters:{incarnation}",
                "staging": f"{self._lake.data_path.rstrip('/')}/{folder(name)}dead_letters",
            },
            whole_subjects=True,
        )
