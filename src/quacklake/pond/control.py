"""The control log: what each command was, when it began and how it ended. It is a small lake of its own.

The data of a pond carries the same facts in its snapshots, so that the log can be rebuilt after a crash.
"""

from __future__ import annotations

import datetime as dt
import json
import os
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from quacklake import faults
from quacklake.format.names import literal
from quacklake.lake.lake import Lake

TXNS = "pond.txns"
BEGIN, DATA_COMMITTED, COMPLETED, FAILED, SETTING = "begin", "data_committed", "completed", "failed", "setting"
PUSH_COMPLETED, PUSH_FAILED = "post_push_completed", "post_push_failed"
_ASIDE = (SETTING, PUSH_COMPLETED, PUSH_FAILED)
"""The kinds of records that say nothing of how a command ended."""
_TIME = pa.timestamp("us", "UTC")
_SCHEMA = pa.schema(
    [
        ("record_kind", pa.string()),
        ("txn_seq", pa.int64()),
        ("txn_id", pa.string()),
        ("ts", _TIME),
        ("duration_ms", pa.int64()),
        ("snapshot_id", pa.int64()),
        ("metadata_json", pa.string()),
    ]
)


@dataclass(frozen=True, slots=True)
class Transaction:
    """A command as the control log has it; ``state`` is begin, completed or failed."""

    txn_seq: int
    txn_id: str
    state: str
    begun: dt.datetime | None
    args: tuple[str, ...]
    duration_ms: int | None = None
    snapshot_id: int | None = None
    error: str | None = None
    recovered: bool = False
    process: str | None = None

    @property
    def command(self) -> str:
        """The command as it was typed."""
        return " ".join(self.args)


class ControlLog:
    """The control log of a pond."""

    def __init__(self, lake: Lake) -> None:
        self.lake = lake

    @classmethod
    def create(cls, lake: Lake) -> ControlLog:
        """Make the table of the log, unless it exists."""
        if TXNS not in lake:
            with lake.transaction() as tx:
                tx.create_schema("pond", if_not_exists=True)
                tx.create_table(TXNS, _SCHEMA)
        return cls(lake)

    def last_sequence(self, known: int = 0) -> int:
        """Return the largest number of a transaction from ``known`` on, which is one that there is."""
        newer = self.lake.table(TXNS).scan(["txn_seq"], f"txn_seq > {known}").to_arrow()
        return max(newer.column("txn_seq").to_pylist(), default=known)

    def pond_id(self) -> str:
        """Return what tells this pond from others: the id of its first transaction. Copies of a pond have the same."""
        found = self.lake.table(TXNS).scan(["txn_id", "ts"], "txn_seq = 1").to_arrow().sort_by("ts").column("txn_id")
        return str(found[0].as_py()) if len(found) else ""

    def has_completed(self, txn_id: str) -> bool:
        """Return whether the log has a transaction as completed."""
        where = f"txn_id = {literal(txn_id)} AND record_kind = {literal(COMPLETED)}"
        return bool(self.lake.table(TXNS).scan(["txn_id"], where).count())

    def begin(self, seq: int, txn_id: str, args: Sequence[str]) -> None:
        """Note that a command begins."""
        self._write([self._record(BEGIN, seq, txn_id, {"args": list(args), "process": _process()})])
        faults.reach("pond.control.begun")

    def completed(
        self, seq: int, txn_id: str, snapshot_id: int | None, duration_ms: int, *, args: Sequence[str] | None = None
    ) -> None:
        """Note that a command is done; ``args`` are given when its beginning was lost."""
        more: dict[str, Any] = {} if args is None else {"args": list(args), "recovered": True}
        kinds = [COMPLETED] if snapshot_id is None else [DATA_COMMITTED, COMPLETED]
        self._write([self._record(kind, seq, txn_id, more, duration_ms, snapshot_id) for kind in kinds])

    def failed(self, seq: int, txn_id: str, error: str, duration_ms: int) -> None:
        """Note that a command failed and changed nothing."""
        self._write([self._record(FAILED, seq, txn_id, {"error": error}, duration_ms)])

    def pushed(self, kind: str, seq: int, txn_id: str, facts: Mapping[str, Any]) -> None:
        """Note how a push to a remote ended."""
        self._write([self._record(kind, seq, txn_id, facts)])

    def set(self, name: str, value: str | None) -> None:
        """Keep a setting of the pond; None removes it."""
        self._write([self._record(SETTING, 0, "", {"name": name, "value": value})])

    def settings(self) -> dict[str, str]:
        """Return the settings of the pond."""
        rows = self.lake.table(TXNS).scan(["ts", "metadata_json"], f"record_kind = '{SETTING}'").to_arrow().to_pylist()
        found: dict[str, str] = {}
        for row in sorted(rows, key=lambda each: each["ts"]):
            fact = json.loads(row["metadata_json"])
            found.pop(fact["name"], None)
            if fact["value"] is not None:
                found[fact["name"]] = fact["value"]
        return found

    def records(self, where: str | None = None) -> pa.Table:
        """Return the log, or the records that a condition is true for, oldest first."""
        return self.lake.table(TXNS).scan(where=where).to_arrow().sort_by([("ts", "ascending")])

    def transactions(self, last: int | None = None) -> list[Transaction]:
        """Return what is known of every command, or of the ``last`` ones, oldest first."""
        where = None if last is None else f"txn_seq > {self.last_sequence() - last:d}"
        found: dict[str, dict[str, Any]] = {}
        for row in self.records(where).to_pylist():
            if row["record_kind"] in _ASIDE:
                continue
            facts = json.loads(row["metadata_json"] or "{}")
            known = found.setdefault(
                row["txn_id"], {"txn_seq": row["txn_seq"], "txn_id": row["txn_id"], "begun": row["ts"], "args": ()}
            )
            known["state"] = row["record_kind"]
            known["args"] = tuple(facts.get("args", known["args"]))
            known["duration_ms"] = row["duration_ms"]
            known["snapshot_id"] = row["snapshot_id"]
            known["error"] = facts.get("error")
            known["process"] = facts.get("process", known.get("process"))
            known["recovered"] = facts.get("recovered", False)
        done = sorted((Transaction(**facts) for facts in found.values()), key=lambda each: (each.txn_seq, each.txn_id))
        return done if last is None else done[-last:]

    def _record(
        self,
        kind: str,
        seq: int,
        txn_id: str,
        facts: Mapping[str, Any],
        duration_ms: int | None = None,
        snapshot_id: int | None = None,
    ) -> dict[str, Any]:
        values = (kind, seq, txn_id, dt.datetime.now(dt.UTC), duration_ms, snapshot_id, json.dumps(facts))
        return dict(zip(_SCHEMA.names, values, strict=True))

    def _write(self, records: list[dict[str, Any]]) -> None:
        self.lake.table(TXNS).append(pa.Table.from_pylist(records, _SCHEMA))


def _process() -> str:
    return f"{socket.gethostname()}:{os.getpid()}"


def is_running(process: str | None) -> bool:
    """Return whether the process that began a command runs on this machine, or may run on another."""
    host, _, pid = (process or "").rpartition(":")
    if host != socket.gethostname() or not pid.isdigit():
        return bool(host)
    try:
        os.kill(int(pid), 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return int(pid) != os.getpid()
