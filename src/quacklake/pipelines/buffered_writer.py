"""Collect rows from many threads and commit them in batches, by number or by time."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Self

import pyarrow as pa

from quacklake.config.values import parse_duration
from quacklake.errors import ConfigError, InputError, nearest
from quacklake.lake.lake import Lake
from quacklake.telemetry import error_facts

_log = logging.getLogger("quacklake.writer")


@dataclass
class _Buffer:
    """The rows that wait for one table, the oldest first."""

    rows: list[Mapping[str, Any]] = field(default_factory=list)
    since: float = 0.0
    writing: threading.Lock = field(default_factory=threading.Lock)


class BufferedWriter:
    """Writes single rows into tables of a lake, a commit for many of them.

    A table's rows are committed when there are ``batch_rows`` of them, or when the oldest has waited for
    ``flush_interval``. With ``keys``, rows are merged on them: a row that comes again replaces the first. ``write``
    waits while ``max_rows`` rows are kept. What fails is raised by the next call, and its rows are kept. A process that
    dies loses the rows that it had not flushed, and no others. A column that a row leaves out is NULL.
    """

    def __init__(
        self,
        lake: Lake,
        *,
        batch_rows: int = 1000,
        flush_interval: timedelta | str = timedelta(seconds=30),
        max_rows: int | None = None,
        keys: Mapping[str, Sequence[str]] | None = None,
    ) -> None:
        if batch_rows < 1:
            raise ConfigError(f"batch_rows must be at least 1, not {batch_rows}")
        self._limit = 10 * batch_rows if max_rows is None else max_rows
        if self._limit < batch_rows:
            raise ConfigError(f"max_rows must be at least batch_rows, which is {batch_rows}")
        try:
            self._interval = parse_duration(flush_interval, bare=False).total_seconds()
        except ValueError as error:
            raise ConfigError(f"flush_interval={flush_interval!r}: {error}") from None
        self._lake = lake
        self._batch = batch_rows
        self._keys = dict(keys or {})
        self._buffers: dict[str, _Buffer] = {}
        self._changed = threading.Condition()
        self._kept = 0
        self._error: Exception | None = None
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="quacklake writer", daemon=True)
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is None:
            self.close()
        else:
            with suppress(Exception):  # the error of the block is the one to hear of
                self.close()

    def write(self, table: str, row: Mapping[str, Any]) -> None:
        """Keep a row for a table. Waits while too many rows are kept; raises the error of an earlier flush."""
        if not isinstance(row, Mapping):
            raise InputError(f"a row is a mapping from columns to values, not {type(row).__name__}")
        with self._changed:
            self._raise()
            self._changed.wait_for(lambda: self._kept < self._limit or self._closed or self._error is not None)
            self._raise()
            buffer = self._buffers.setdefault(table, _Buffer())
            if not buffer.rows:
                buffer.since = time.monotonic()
            buffer.rows.append(row)
            self._kept += 1
            if len(buffer.rows) == 1 or len(buffer.rows) >= self._batch:
                self._changed.notify_all()

    async def write_async(self, table: str, row: Mapping[str, Any]) -> None:
        """Do as :meth:`write`, without keeping the event loop from others while it waits."""
        with self._changed:
            waits = self._kept >= self._limit
        if waits:
            await asyncio.to_thread(self.write, table, row)
        else:
            self.write(table, row)

    def flush(self, table: str) -> int:
        """Commit the rows of a table and return their number. Those that cannot be committed are kept."""
        with self._changed:
            buffer = self._buffers.get(table)
        if buffer is None:
            return 0
        with buffer.writing:  # one commit of a table at a time keeps its rows in order
            with self._changed:
                rows = list(buffer.rows)
            if not rows:
                return 0
            self._commit(table, rows)
            with self._changed:
                del buffer.rows[: len(rows)]
                buffer.since = time.monotonic()
                self._kept -= len(rows)
                self._changed.notify_all()
            return len(rows)

    def flush_all(self) -> int:
        """Commit all rows and return their number. Forgets the error of an earlier flush if this one succeeds."""
        with self._changed:
            tables = list(self._buffers)
        flushed = sum(self.flush(table) for table in tables)
        with self._changed:
            self._error = None
        return flushed

    async def flush_all_async(self) -> int:
        """Do as :meth:`flush_all`, in a thread."""
        return await asyncio.to_thread(self.flush_all)

    def close(self) -> None:
        """Commit all rows and end. Raise what keeps rows from being committed; they are lost then."""
        with self._changed:
            if self._closed:
                return
            self._closed = True
            self._changed.notify_all()
        self._thread.join()
        self.flush_all()

    @property
    def pending(self) -> int:
        """The number of rows that are kept."""
        with self._changed:
            return self._kept

    def _raise(self) -> None:
        if self._closed:
            raise InputError("the writer is closed")
        error, self._error = self._error, None
        if error is not None:
            raise error

    def _commit(self, table: str, rows: Sequence[Mapping[str, Any]]) -> None:
        target = self._lake.table(table)
        keys = self._keys.get(table)
        if keys:
            rows = list({tuple(row.get(key) for key in keys): row for row in rows}.values())
        schema = target.schema
        unknown = next((name for row in rows for name in row if name not in schema.names), None)
        if unknown is not None:
            raise InputError(f"{table} has no column {unknown!r}", hint=nearest(unknown, schema.names))
        given = pa.Table.from_pylist(list(rows), schema)
        if keys:
            target.merge(given, on=list(keys))
        else:
            target.append(given)

    def _run(self) -> None:
        """Flush tables that are full, or whose oldest row has waited long enough."""
        while True:
            with self._changed:
                now = time.monotonic()
                waiting = {name: buffer for name, buffer in self._buffers.items() if buffer.rows}
                due = [
                    name
                    for name, buffer in waiting.items()
                    if len(buffer.rows) >= self._batch or now - buffer.since >= self._interval
                ]
                if self._closed:
                    return
                if not due or self._error is not None:
                    oldest = min((buffer.since for buffer in waiting.values()), default=None)
                    rest = None if oldest is None else max(0.01, oldest + self._interval - now)
                    self._changed.wait(rest)
                    continue
            for name in due:
                try:
                    self.flush(name)
                except Exception as error:
                    _log.warning(
                        "rows of %s could not be committed", name, exc_info=True, extra=error_facts(error, table=name)
                    )
                    with self._changed:
                        self._error = error
                        self._changed.notify_all()
