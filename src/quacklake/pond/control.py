"""The control log: the table ``pond.txns``, with a row for each command that changed the pond, or failed.

The row of a command is part of the commit that changes the pond, so neither is there without the other. A command that
failed has changed nothing; its row is a commit of its own, and so is that of a push.
"""

from __future__ import annotations

import datetime as dt
import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from quacklake.errors import QuacklakeError
from quacklake.extend.names import literal, uuid7
from quacklake.lake.lake import Lake, LakeTransaction
from quacklake.lake.writing import LakeReader
from quacklake.pond.backend import STATE, last_sequence
from quacklake.pond.nodes import NODES, ROOT_ID, SETTINGS

TXNS = "pond.txns"
"""The table of the log."""
COMPLETED, FAILED = "completed", "failed"
PUSH_COMPLETED, PUSH_FAILED = "post_push_completed", "post_push_failed"
COLUMNS = {
    "record_kind": "VARCHAR NOT NULL",
    "txn_seq": "BIGINT NOT NULL",
    "txn_id": "VARCHAR NOT NULL",
    "ts": "TIMESTAMPTZ NOT NULL",
    "duration_ms": "BIGINT",
    "metadata_json": "VARCHAR NOT NULL",
}
"""The columns of the log; ``ts`` is when a command began, or a push ended."""
_SCHEMA = pa.schema(
    [
        pa.field("record_kind", pa.string(), nullable=False),
        pa.field("txn_seq", pa.int64(), nullable=False),
        pa.field("txn_id", pa.string(), nullable=False),
        pa.field("ts", pa.timestamp("us", "UTC"), nullable=False),
        pa.field("duration_ms", pa.int64()),
        pa.field("metadata_json", pa.string(), nullable=False),
    ]
)
_SNAPSHOT = "snapshot_id"
_PAGE = 20
"""The newest transactions, among which the last one that completed mostly is."""


@dataclass
class Command:
    """A command that runs: its id, its words, when it began, and the number that it would be committed with."""

    args: tuple[str, ...]
    txn_id: str = field(default_factory=lambda: str(uuid7()))
    begun: dt.datetime = field(default_factory=lambda: dt.datetime.now(dt.UTC))
    txn_seq: int = 0
    _clock: float = field(default_factory=time.monotonic)

    @classmethod
    def of(cls, args: Sequence[str]) -> Command:
        """Return a command that begins now. What a database cannot hold of its words is escaped."""
        return cls(tuple(_storable(word) for word in args))

    @property
    def text(self) -> str:
        """The command as it was typed."""
        return " ".join(self.args)

    def row(self, kind: str, facts: Mapping[str, Any]) -> pa.Table:
        """Return the record of how the command ended."""
        duration = round((time.monotonic() - self._clock) * 1000)
        return _row(kind, self.txn_seq, self.txn_id, self.begun, duration, {"args": self.args, **facts})


@dataclass(frozen=True, slots=True)
class Transaction:
    """A command as the control log has it; ``state`` is completed or failed. ``snapshot_id`` is what it changed."""

    txn_seq: int
    txn_id: str
    state: str
    begun: dt.datetime
    args: tuple[str, ...]
    duration_ms: int | None = None
    snapshot_id: int | None = None
    error: str | None = None

    @classmethod
    def of(cls, row: Mapping[str, Any]) -> Transaction:
        """Return the transaction of a record."""
        facts, state = json.loads(row["metadata_json"]), row["record_kind"]
        return cls(
            row["txn_seq"],
            row["txn_id"],
            state,
            row["ts"],
            tuple(facts["args"]),
            row["duration_ms"],
            row[_SNAPSHOT] if state == COMPLETED else None,
            facts.get("error"),
        )

    @property
    def command(self) -> str:
        """The command as it was typed."""
        return " ".join(self.args)


class ControlLog:
    """The control log of the pond in a lake."""

    def __init__(self, lake: Lake) -> None:
        self.lake = lake

    # -- writing -------------------------------------------------------------------------------------------------------

    @staticmethod
    def complete(tx: LakeTransaction, command: Command, changed: Mapping[str, int]) -> None:
        """Note in the transaction of a command that it is done, and how many nodes it changed."""
        tx.table(TXNS).append(command.row(COMPLETED, {"nodes": changed}))

    def fail(self, command: Command, error: BaseException) -> None:
        """Note that a command failed and changed nothing."""
        message = error.message if isinstance(error, QuacklakeError) else str(error)
        facts = {"error": _storable(f"{type(error).__name__}: {message}")}

        def work(tx: LakeTransaction) -> None:
            if _has_completed(tx, command.txn_id):
                return  # it was interrupted after its commit
            command.txn_seq = last_sequence(tx) + 1
            # a row more, with no lower number: commands that run meanwhile do not conflict with it
            tx.table(STATE).append([{"txn_seq": command.txn_seq}])
            tx.table(TXNS).append(command.row(FAILED, facts))

        self.lake.run(work, message=f"{command.text} (failed)")

    def note_push(self, kind: str, pushed: tuple[int, str], facts: Mapping[str, Any]) -> None:
        """Note how a push of a transaction, told by its number and id, to a remote ended."""
        row = _row(kind, *pushed, dt.datetime.now(dt.UTC), None, facts)
        self.lake.run(lambda tx: tx.table(TXNS).append(row), message=f"pond push {facts['remote']} ({kind})")

    # -- reading -------------------------------------------------------------------------------------------------------

    def records(self, where: str | None = None) -> pa.Table:
        """Return the log with the snapshot of each record, or the records of a condition, oldest first."""
        return _read(self.lake, where).sort_by([("ts", "ascending")])

    def transactions(self, last: int | None = None) -> list[Transaction]:
        """Return every command that changed the pond or failed, or the ``last`` ones, oldest first."""
        since = "" if last is None else f" AND txn_seq > {last_sequence(self.lake) - last:d}"
        found = _transactions(self.lake, f"record_kind IN ('{COMPLETED}', '{FAILED}'){since}")
        return found if last is None else found[-last:]

    def commits(self, last: int | None = None) -> list[Transaction]:
        """Return the commands that changed the pond, or about the ``last`` ones, oldest first."""
        return [each for each in self.transactions(last) if each.state == COMPLETED]

    def last_commit(self, reader: LakeReader | None = None) -> Transaction:
        """Return the last command that changed the pond, as it is now or at a state."""
        reader = reader or self.lake
        newest = f"record_kind = '{COMPLETED}' AND txn_seq > {last_sequence(reader) - _PAGE}"
        return (_transactions(reader, newest) or _transactions(reader, f"record_kind = '{COMPLETED}'"))[-1]

    def has_completed(self, txn_id: str) -> bool:
        """Return whether a transaction is part of the pond."""
        return _has_completed(self.lake, txn_id)

    def pond_id(self) -> str:
        """Return what tells this pond from others: the id of its first transaction. Copies of a pond have the same."""
        found = self.lake.table(TXNS).scan(["txn_id"], f"txn_seq = 1 AND record_kind = '{COMPLETED}'").to_arrow()
        return str(found.column("txn_id")[0])

    def settings(self) -> dict[str, str]:
        """Return the settings of the pond, which its root directory keeps."""
        found = self.lake.table(NODES).scan(["extended_attributes"], f"node_id = {literal(ROOT_ID)}").to_arrow()
        settings: dict[str, str] = json.loads(found.column(0)[0].as_py() or "{}").get(SETTINGS, {})
        return settings


def create(tx: LakeTransaction) -> None:
    """Make the table of the log."""
    tx.create_table(TXNS, dict(COLUMNS))


def _read(reader: LakeReader, where: str | None) -> pa.Table:
    return reader.table(TXNS).scan([*_SCHEMA.names, _SNAPSHOT], where).to_arrow()


def _has_completed(reader: LakeReader, txn_id: str) -> bool:
    where = f"txn_id = {literal(txn_id)} AND record_kind = '{COMPLETED}'"
    return bool(reader.table(TXNS).scan(["txn_id"], where).count())


def _transactions(reader: LakeReader, where: str) -> list[Transaction]:
    found = [Transaction.of(row) for row in _read(reader, where).to_pylist()]
    return sorted(found, key=lambda each: (each.txn_seq, each.txn_id))


def _row(
    kind: str, seq: int, txn_id: str, moment: dt.datetime, duration_ms: int | None, facts: Mapping[str, Any]
) -> pa.Table:
    values = (kind, seq, txn_id, moment, duration_ms, json.dumps(facts))
    return pa.Table.from_pylist([dict(zip(_SCHEMA.names, values, strict=True))], _SCHEMA)


def _storable(text: str) -> str:
    """Return a text without what is no Unicode, as in the names of files, and without NUL."""
    return text.encode("utf-8", "backslashreplace").decode().replace("\0", "\\x00")
