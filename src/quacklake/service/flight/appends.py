"""Rows that clients send: appends, exactly once where a key asks for it, and the bulk ingestion of Flight SQL."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from concurrent.futures import Future
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
from pyarrow import flight

from quacklake import LakeTransaction, Session
from quacklake.errors import (
    AlreadyExistsError,
    CancelledError,
    InputError,
    NotFoundError,
    ResultTooLargeError,
    StreamBatchDoneError,
    UnsupportedFeatureError,
)
from quacklake.extend.names import TableRef
from quacklake.extend.sql import write_in
from quacklake.service.appends import Append, GroupCommits
from quacklake.service.digests import RowsDigest
from quacklake.service.expansion import plain_batch, plain_schema, too_large, unpacked_size
from quacklake.service.flight.callers import Caller
from quacklake.service.flight.scans import table_name
from quacklake.service.flight.settings import FlightSettings
from quacklake.service.idempotency import ForgetKeys, Key, key_of, known_answers
from quacklake.service.identity import Role

_ALIGNED = 8
_FORMAT = "flight"
"""The format that rows of a stream have for keys."""


@dataclass(frozen=True)
class Ingestion:
    """A table that rows go into, and what to do when it exists or not."""

    ref: TableRef
    create: bool = False
    append: bool = True
    replace: bool = False

    @property
    def role(self) -> Role:
        """The role that this needs. To replace a table also drops its grants and its history under that name."""
        return Role.ADMIN if self.replace else Role.WRITER

    @property
    def joins(self) -> bool:
        """True when the rows are added to a table that exists, and so can be committed with those of others."""
        return self.append and not self.create and not self.replace

    @property
    def action(self) -> str:
        """The action that an idempotency key stands for; an append is the same by HTTP."""
        return "replace" if self.replace else "append"

    def into(self, tx: LakeTransaction, rows: pa.RecordBatchReader) -> int:
        """Write the rows in a transaction; return how many. Raise ``AlreadyExistsError`` or ``NotFoundError``."""
        name, tables = table_name(self.ref), tx.handle.view()
        exists = tables.get_table(self.ref.schema, self.ref.name) is not None
        if exists and not (self.append or self.replace):
            raise AlreadyExistsError(f"the table {name} exists", hint="append to it, or replace it")
        if not exists and not self.create:
            tables.find_table(self.ref.schema, self.ref.name)
        if not exists or self.replace:
            tx.create_table(name, rows.schema, replace=self.replace and exists)
        return tx.table(name).append(rows)


#: The words of the protocol: what to do when the table does not exist, and when it does.
_CREATE, _FAIL_MISSING = 1, 2
_FAIL, _APPEND, _REPLACE = 1, 2, 3


def ingestion_of(command: Any, schema: str | None) -> Ingestion:
    """Return what a ``CommandStatementIngest`` asks for. Raise ``UnsupportedFeatureError`` or ``InputError``."""
    if command.temporary:
        raise UnsupportedFeatureError("a lake has no temporary tables")
    if not command.table:
        raise InputError("the name of the table is missing")
    if command.HasField("catalog") and command.catalog not in ("", "lake"):
        raise NotFoundError("there is no such catalog", hint='the catalog of a lake is called "lake"')
    options = command.table_definition_options
    if options.if_not_exist not in (_CREATE, _FAIL_MISSING) or options.if_exists not in (_FAIL, _APPEND, _REPLACE):
        raise InputError("the command does not say what to do when the table exists, or when it does not")
    chosen = command.schema if command.HasField("schema") and command.schema else schema or "main"
    return Ingestion(
        TableRef(chosen, command.table),
        create=options.if_not_exist == _CREATE,
        append=options.if_exists == _APPEND,
        replace=options.if_exists == _REPLACE,
    )


def read_chunk(reader: Any) -> Any:
    """Return the next batch that a client sends, with its metadata. Raise ``InputError`` for one that is damaged."""
    try:
        return reader.read_chunk()
    except flight.FlightError:
        raise
    except (OSError, MemoryError):  # the size of a compressed buffer is what the client says of it
        raise InputError("the stream of the client is no valid Arrow data") from None


class Upload:
    """The rows of a ``do_put``, at most as many bytes as the settings allow."""

    def __init__(self, reader: Any, context: Any, settings: FlightSettings) -> None:
        self._reader = reader
        self._context = context
        self._most = settings.size("max_put_bytes")
        self._most_at_once = settings.size("max_unpacked")
        self._most_body = settings.most_body
        self.schema: pa.Schema = plain_schema(reader.schema)
        self.rows_read = 0
        self.digest, self.keyed = RowsDigest(), False
        self._few = settings.size("group_bytes")
        self._first = self._next()
        self._rest: Iterator[pa.RecordBatch] = self._batches()
        self.key = self._first[1] if self._first is not None else None
        """The application metadata of the first batch, if it has any."""

    def _next(self) -> tuple[pa.RecordBatch, str | None] | None:
        try:
            chunk = read_chunk(self._reader)
        except StopIteration:
            return None
        metadata = chunk.app_metadata
        try:
            return chunk.data, None if metadata is None else metadata.to_pybytes().decode() or None
        except UnicodeDecodeError:
            raise InputError("the application metadata of the first batch is the key of an append, a text") from None

    def _batches(self) -> Iterator[pa.RecordBatch]:
        size, body, found = 0, 0, self._first
        self._first = None
        while found is not None:
            batch = found[0]
            if batch is not None:
                batch.validate(full=True)  # offsets that point elsewhere would show the memory of the service
                body += _count_arrived(batch)
                if self._most_body is not None and body > self._most_body:
                    raise _too_large(self._most_body)
                unpacked = max(batch.num_rows, sum(map(unpacked_size, batch.columns)))
                size += unpacked
                if size > self._most:
                    raise _too_large(self._most)
                if unpacked > self._most_at_once:
                    raise too_large()
                self.rows_read += batch.num_rows
                if self.keyed:
                    self.digest.add(batch)
                yield plain_batch(_align_buffers(batch), self.schema)
            found = self._next()

    def rows(self) -> pa.RecordBatchReader:
        """Return the rows as a stream, once."""
        return pa.RecordBatchReader.from_batches(self.schema, self._rest)

    def few(self) -> pa.Table | None:
        """Return all rows if they are few enough to wait for those of others; None for more, which stay to be read."""
        held: list[pa.RecordBatch] = []
        size = 0
        for batch in self._rest:
            held.append(batch)
            size += sum(map(unpacked_size, batch.columns))
            if size > self._few:
                self._rest = itertools.chain(held, self._rest)
                return None
        return pa.Table.from_batches(held, self.schema)

    def skip(self) -> int:
        """Read the rows to their end, and count them: the client sends all before it looks at the answer."""
        for _ in self._rest:
            pass
        return self.rows_read

    def check_whole(self) -> None:
        """Raise ``CancelledError`` when the client has gone: what came may be a part of what it has."""
        if self._context.is_cancelled():
            raise CancelledError("the client has gone before the append was committed")


def _count_arrived(batch: pa.RecordBatch) -> int:
    """Return the bytes of a batch as it came: a dictionary may have come with an earlier one."""
    return sum(buffer.size for column in batch.columns for buffer in column.buffers() if buffer is not None)


def _too_large(most: int) -> ResultTooLargeError:
    return ResultTooLargeError(f"an append has at most {most} bytes", hint="send it in parts")


def _align_buffers(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return a batch whose buffers lie where processors like them: those of a message of gRPC may lie anywhere."""
    buffers = [buffer for column in batch.columns for buffer in column.buffers() if buffer is not None]
    if all(buffer.address % _ALIGNED == 0 for buffer in buffers):
        return batch
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return pa.ipc.open_stream(sink.getvalue()).read_next_batch()


def append(
    caller: Caller, upload: Upload, ingestion: Ingestion, forget: ForgetKeys, commits: GroupCommits
) -> dict[str, Any]:
    """Write the rows of an upload in one snapshot; return ``rows``, ``snapshot`` and whether it was ``repeated``.

    With a key, from the header or the first batch, a repeat of the append changes nothing and returns the same. A few
    rows are committed together with those of other appends that come at once.
    """
    caller.identity.require(ingestion.role)
    lake, given = caller.identity.lake, caller.key or upload.key
    name = table_name(ingestion.ref)
    key = key_of(given, caller.identity.user, ingestion.action, name, format=_FORMAT)
    upload.keyed = key is not None
    if ingestion.joins and (few := upload.few()) is not None:
        upload.check_whole()
        waiting: Future[dict[str, Any]] = Future()
        read = None if key is None else _of(key, upload)
        return commits.commit(lake, Append(name, b"", _FORMAT, read, waiting, few, caller.principal))
    if key is not None and (known := known_answers(lake, [key]).get(key.name)) is not None:
        rows = upload.skip()
        return _of(key, upload).answer(known, rows)
    try:
        with lake.transaction(author=caller.principal) as tx:
            rows = ingestion.into(tx, upload.rows())
            if key is not None:
                _of(key, upload).mark(tx, {"rows": rows})
            upload.check_whole()
    except StreamBatchDoneError:  # the same append was faster
        known = None if key is None else known_answers(lake, [key]).get(key.name)
        if key is None or known is None:
            raise
        return _of(key, upload).answer(known, upload.rows_read)
    if key is not None:
        forget(lake)
    assert tx.snapshot is not None
    return {"rows": rows, "snapshot": tx.snapshot.id, "repeated": False}


def _of(key: Key, upload: Upload) -> Key:
    """Return a key with the digest of the rows that were read."""
    return replace(key, rows=upload.digest.text())


def append_in(session: Session, catalog: str, upload: Upload, ingestion: Ingestion) -> int:
    """Write the rows of an upload in the open transaction of a session; return how many."""

    def work(tx: LakeTransaction) -> int:
        rows = ingestion.into(tx, upload.rows())
        upload.check_whole()
        return rows

    return write_in(session, work, catalog)
