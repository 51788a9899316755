"""Read transactions from NATS and write them into a lake: each message counts once, whatever ends the program."""

from __future__ import annotations

import hashlib
import json
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import pyarrow as pa

from quacklake import Lake, LakeTransaction
from quacklake.connectors import SourceCheckpoint
from quacklake.connectors.nats import NatsSource
from quacklake.errors import InputError, StreamBatchDoneError
from quacklake.extend import reporting
from quacklake.extend.marks import Mark
from quacklake_ekko.settings import WriterSettings
from quacklake_ekko.table import KEY, TABLE
from quacklake_ekko.transactions import ROWS, NodeConfig, create_table, merge_newest, transaction_row

REJECTED = "blockchain.rejected_messages"
_REJECTED = pa.schema(
    [
        ("stream", pa.string()),
        ("sequence", pa.int64()),
        ("subject", pa.string()),
        ("stored_at", pa.timestamp("us", "UTC")),
        ("data", pa.binary()),
        ("reason", pa.string()),
    ]
)
_SUBJECTS = {
    ("transactions", 4): (2, 3, 1),  # transactions.{vm}.{network}.{subnet}
    ("ekko", 5): (1, 2, 3),  # ekko.{network}.{subnet}.{vm}.persistence
}
"""The places of network, subnet and vm_type in subjects, by their first word and their length."""
_POLL = 0.05


@dataclass
class WriterReport:
    """The work of a writer so far."""

    messages: int = 0
    rejected: int = 0
    commits: int = 0
    sequence: int = 0


def run_writer(
    settings: WriterSettings,
    lake: Lake | None = None,
    *,
    stop: threading.Event | None = None,
    until_idle: bool = False,
    watch: Callable[[WriterReport], None] = lambda report: None,
) -> WriterReport:
    """Write the transactions of a NATS stream until ``stop`` is set, or with ``until_idle`` until it has no more.

    A batch is committed with the sequence of its last message, so a writer that was killed goes on behind the last
    commit. A message that is no transaction goes into ``blockchain.rejected_messages`` with the reason. ``watch`` is
    told of every commit. A second writer of the same stream takes over, and the first raises ``StreamFencedError``.
    Raise what NATS or the lake raises; nothing is lost then.
    """
    if lake is None:
        with settings.connect() as opened:
            return run_writer(settings, opened, stop=stop, until_idle=until_idle, watch=watch)
    source = NatsSource(
        {
            "servers": settings.nats_url,
            "stream": settings.nats_stream,
            "subject": list(settings.nats_subjects),
            "format": "raw",
            "max_messages": settings.batch_size,
            "poll_interval": f"{min(_POLL, settings.flush_interval.total_seconds())}s",
        }
    )
    try:
        return _BatchWriter(settings, lake, source, watch).run(stop or threading.Event(), until_idle)
    finally:
        source.close()


def node_of(subject: str, message: Mapping[str, Any]) -> NodeConfig:
    """Return the node of a message: by its own fields, or else by its subject. Raise ``InputError``."""
    words = subject.split(".")
    places = _SUBJECTS.get((words[0], len(words)))
    named = (
        {} if places is None else dict(zip(("network", "subnet", "vm_type"), (words[p] for p in places), strict=True))
    )
    return NodeConfig.of(
        {**named, **{name: message[name] for name in ("network", "subnet", "vm_type") if name in message}}
    )


@dataclass
class _BatchWriter:
    settings: WriterSettings
    lake: Lake
    source: NatsSource
    watch: Callable[[WriterReport], None]
    report: WriterReport = field(default_factory=WriterReport)
    _rows: dict[str, dict[str, Any]] = field(default_factory=dict)
    _rejected: list[dict[str, Any]] = field(default_factory=list)
    _collected: int = 0
    _since: float = 0.0

    def run(self, stop: threading.Event, until_idle: bool) -> WriterReport:
        create_table(self.lake)
        if REJECTED not in self.lake:
            self.lake.run(_create_rejected, "create blockchain.rejected_messages")
        mark = self._claim()
        epoch = mark.epoch
        while True:
            batch = self.source.poll_next()
            if batch is not None:
                self._collect(batch)
            waited = time.monotonic() - self._since
            ends = stop.is_set() or (until_idle and batch is None)
            full = self._collected >= self.settings.batch_size
            if self._collected and (ends or full or waited >= self.settings.flush_interval.total_seconds()):
                epoch += 1
                self._commit(mark, epoch)
            if ends:
                return self.report

    def _claim(self) -> Mark:
        """Take the stream over, and begin behind what is in the lake."""
        settings = self.settings
        subjects = hashlib.sha256(",".join(settings.nats_subjects).encode()).hexdigest()[:16]
        name = f"nats {settings.nats_stream[:64]} {subjects}"
        mark = self.lake.streams.claim(name, f"nats {settings.nats_stream} {','.join(settings.nats_subjects)}")
        self.source.start(None if mark.position is None else SourceCheckpoint.from_json(mark.position))
        return mark

    def _collect(self, batch: pa.RecordBatch) -> None:
        if not self._collected:
            self._since = time.monotonic()
        for message in batch.to_pylist():
            try:
                row = _row(message["_subject"], message["_data"], message["_time"])
                self._rows[row[KEY]] = row  # the last one of a transaction counts
            except InputError as error:
                self._rejected.append(
                    {
                        "stream": self.settings.nats_stream,
                        "sequence": message["_sequence"],
                        "subject": message["_subject"],
                        "stored_at": message["_time"],
                        "data": message["_data"],
                        "reason": error.message,
                    }
                )
        self._collected += batch.num_rows

    def _commit(self, mark: Mark, epoch: int) -> None:
        position = self.source.current_checkpoint()

        def work(transaction: LakeTransaction) -> None:
            if self._rows:
                merge_newest(transaction.table(TABLE), pa.Table.from_pylist(list(self._rows.values()), ROWS))
            if self._rejected:
                transaction.table(REJECTED).append(pa.Table.from_pylist(self._rejected, _REJECTED))
            transaction.mark(mark.name, epoch, mark.run, position.to_json())

        reporting.reach("nats_writer.commit.before")
        with suppress(StreamBatchDoneError):  # the answer to an earlier try was lost
            self.lake.run(work, f"transactions of NATS up to {position.offsets['sequence']}")
        reporting.reach("nats_writer.commit.after")
        self.report.messages += self._collected
        self.report.rejected += len(self._rejected)
        self.report.commits += 1
        self.report.sequence = int(position.offsets["sequence"])
        self._rows, self._rejected, self._collected = {}, [], 0
        self.watch(self.report)


def _row(subject: str, data: bytes, stored: datetime) -> dict[str, Any]:
    try:
        message = json.loads(data)
    except (ValueError, RecursionError):
        raise InputError("the message is not JSON") from None
    if not isinstance(message, dict):
        raise InputError("the message is not a JSON object")
    # Ekko's transactions do not always have the time of their block; the old writer took its own clock then
    timed = message.get("timestamp", message.get("blockTime")) is not None
    return transaction_row(message, node_of(subject, message), block_time=None if timed else stored, now=stored)


def _create_rejected(transaction: LakeTransaction) -> None:
    if REJECTED not in transaction:
        transaction.create_table(REJECTED, _REJECTED)
