"""The audit log: who read and changed which tables, as a table of the lake.

Records are kept in memory, at most ``_MAX_COUNT``, and appended in batches: when there are ``_BATCH`` of them, and when
the lake is closed. Nothing that fails here fails a statement. A record has a hash of a statement, never its text, which
may have values in it.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import logging
import threading
import weakref
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field

import pyarrow as pa

from quacklake import telemetry
from quacklake.core.format.access import AUDIT_SCHEMA, AUDIT_TABLE
from quacklake.core.format.schema import from_arrow
from quacklake.core.operations import dml, evolution
from quacklake.core.operations.context import LakeContext
from quacklake.core.operations.handles import LakeHandle
from quacklake.core.operations.reference import TableRef
from quacklake.core.operations.sources import Source
from quacklake.core.transaction import Transaction
from quacklake.errors import QuacklakeError

_log = logging.getLogger("quacklake.access")
_BATCH = 500
_MAX_COUNT = 10_000

SCHEMA = pa.schema(
    [
        ("time", pa.timestamp("us", tz="UTC")),
        ("principal", pa.string()),
        ("kind", pa.string()),
        ("statement_hash", pa.string()),
        ("tables_read", pa.list_(pa.string())),
        ("tables_changed", pa.list_(pa.string())),
        ("snapshot_id", pa.int64()),
        ("outcome", pa.string()),
    ]
)


@dataclass
class Record:
    """An entry of the log: one statement or call."""

    principal: str
    kind: str
    statement_hash: str | None = None
    tables_read: list[str] = field(default_factory=list)
    tables_changed: list[str] = field(default_factory=list)
    snapshot_id: int | None = None
    outcome: str = "ok"
    time: dt.datetime = field(default_factory=lambda: dt.datetime.now(dt.UTC))


_current: ContextVar[Record | None] = ContextVar("quacklake_audit_record", default=None)
_lock = threading.Lock()


class AuditLog:
    """The records of a lake that are not in its table yet. Safe to share between threads."""

    def __init__(self, context: LakeContext) -> None:
        self._context = weakref.ref(context)
        self._waiting: deque[Record] = deque(maxlen=_MAX_COUNT)
        self._lock = threading.Lock()
        self._writing = threading.Lock()

    def add(self, record: Record) -> None:
        """Keep a record, and write those that wait if there are many."""
        context = self._context()
        if context is None or not context.config.access_audit:
            return
        with self._lock:
            if len(self._waiting) == _MAX_COUNT:
                telemetry.count("audit.lost")
            self._waiting.append(record)
            many = len(self._waiting) >= _BATCH
        if many and self._writing.acquire(blocking=False):
            try:
                self._write(context)
            finally:
                self._writing.release()

    def flush(self) -> None:
        """Write the records that wait."""
        context = self._context()
        if context is not None:
            with self._writing:
                self._write(context)

    def _write(self, context: LakeContext) -> None:
        with self._lock:
            records = list(self._waiting)
            self._waiting.clear()
        if not records:
            return
        entries = [{name: getattr(record, name) for name in SCHEMA.names} for record in records]
        rows = pa.Table.from_pylist(entries, SCHEMA)
        try:
            LakeHandle(context).run(lambda tx: _append(context, tx, rows))
        except Exception as error:  # an audit log that cannot be written must not stop the work
            telemetry.count("audit.failures")
            _log.warning(
                "could not write %d records of the audit log: %s",
                len(records),
                error,
                extra=telemetry.error_facts(error),
            )
            with self._lock:
                room = max(0, _MAX_COUNT - len(self._waiting))
                self._waiting.extendleft(reversed(records[-room:] if room else []))


def _append(context: LakeContext, tx: Transaction, rows: pa.Table) -> None:
    tx.create_schema(AUDIT_SCHEMA, if_not_exists=True)
    table = tx.get_table(AUDIT_SCHEMA, AUDIT_TABLE)
    if table is None:
        table = evolution.create_table(context, tx, TableRef(AUDIT_SCHEMA, AUDIT_TABLE), from_arrow(SCHEMA), (), ())
    dml.append(context, tx, table, Source(rows.schema, rows))


def audit_of(context: LakeContext) -> AuditLog:
    """Return the log of an open lake."""
    with _lock:
        if context.audit is None:
            context.audit = AuditLog(context)
        log: AuditLog = context.audit
        return log


@contextmanager
def statement(context: LakeContext, principal: str, kind: str, text: str) -> Iterator[None]:
    """Record a statement with the tables that it reads and changes, and how it ended."""
    digest = hashlib.sha256(text.encode(errors="replace")).hexdigest()
    record = Record(principal, kind, digest)
    token = _current.set(record)
    try:
        yield
    except QuacklakeError as error:
        record.outcome = error.code
        raise
    except BaseException as error:
        record.outcome = type(error).__name__
        raise
    finally:
        _current.reset(token)
        audit_of(context).add(record)


def note_read(context: LakeContext, principal: str, table: str, columns: list[str], snapshot_id: int) -> None:
    """Record that columns of a table are read, in the record of the statement or in one of its own."""
    record = _current.get()
    shown = f"{table}({', '.join(columns)})"
    if record is None:
        audit_of(context).add(Record(principal, "READ", tables_read=[shown], snapshot_id=snapshot_id))
        return
    if shown not in record.tables_read:
        record.tables_read.append(shown)
    record.snapshot_id = snapshot_id if record.snapshot_id is None else record.snapshot_id


def note_change(context: LakeContext, principal: str, tables: list[str], snapshot_id: int) -> None:
    """Record that tables were changed, by a snapshot."""
    record = _current.get()
    if record is None:
        audit_of(context).add(Record(principal, "CHANGE", tables_changed=tables, snapshot_id=snapshot_id))
        return
    record.tables_changed += [table for table in tables if table not in record.tables_changed]
    record.snapshot_id = snapshot_id
