"""Rows to write: a table in memory, a stream that can be read once, or an input that can be opened again."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa

from quacklake import telemetry
from quacklake.format.schema import TableSchema
from quacklake.format.stats import check_values
from quacklake.operations.arrow_forms import readable, readable_schema

ROWS_TAKEN = "input.rows"
"""The counter of stream rows that an engine has consumed; it shows the progress of a long write."""

_READ_AHEAD_SECONDS = 1.0
"""Seconds to wait for threads that read ahead; a thread that waits for room requests no more rows."""


class Input(Protocol):
    """Rows from a user, before their table is known."""

    @property
    def replayable(self) -> bool:
        """True when the rows can be read again after a conflict."""

    @property
    def empty(self) -> bool:
        """True for input without rows and without columns, such as an empty list."""

    def opened(self, wanted: TableSchema | None = None) -> Source:
        """Return the rows for a table with these columns; text is read with their types."""


@dataclass(frozen=True)
class Reopened:
    """Rows that are read again each time: files, a dataset or a lazy frame."""

    open: Callable[[TableSchema | None], pa.RecordBatchReader]
    replayable: bool = True
    empty: bool = False

    def opened(self, wanted: TableSchema | None = None) -> Source:
        stream = self.open(wanted)
        return Source(stream.schema, stream=stream)


@dataclass
class Source:
    """Rows to write: a table in memory, or a stream that can be read once."""

    schema: pa.Schema
    table: pa.Table | None = None
    stream: pa.RecordBatchReader | None = None

    def __post_init__(self) -> None:
        given, self.schema = self.schema, readable_schema(self.schema)
        if self.schema is not given and self.table is not None:
            self.table = readable(self.table, self.schema)
        elif self.schema is not given and self.stream is not None:
            batches = (readable(batch, self.schema) for batch in self.stream)
            self.stream = pa.RecordBatchReader.from_batches(self.schema, batches)

    @property
    def replayable(self) -> bool:
        """True when the rows can be read again after a conflict."""
        return self.table is not None

    @property
    def empty(self) -> bool:
        """True for input without rows and without columns, such as an empty list."""
        return self.table is not None and not self.table.num_rows and not self.schema.names

    def opened(self, wanted: TableSchema | None = None) -> Source:
        """Return itself, because these rows already have types."""
        return self

    def first(self, limit: int) -> pa.Table | None:
        """Return all rows as a table if there are at most ``limit``, else None; a stream stays complete."""
        if self.table is not None:
            return self._checked() if self.table.num_rows <= limit else None
        assert self.stream is not None
        taken: list[pa.RecordBatch] = []
        rows = 0
        for batch in self.stream:
            taken.append(batch)
            rows += batch.num_rows
            if rows > limit:
                rest = self.stream
                self.stream = pa.RecordBatchReader.from_batches(self.schema, itertools.chain(taken, rest))
                return None
        self.table, self.stream = pa.Table.from_batches(taken, self.schema), None
        return self._checked()

    def _checked(self) -> pa.Table:
        """Return the rows in memory. Raises ``ConstraintError`` for a value that cannot be stored unchanged."""
        assert self.table is not None
        check_values(self.table)
        return self.table

    @contextmanager
    def lend(self) -> Iterator[pa.Table | pa.RecordBatchReader]:
        """Yield the rows for an engine to register during the block.

        Arrow reads ahead in its own threads, and a process that exits while one is in a Python iterator crashes. So the
        end of the block, early or not, tells these threads to stop and waits for them. An error of the stream itself is
        raised unchanged, not as the engine reports it; so is ``ConstraintError`` for a value that cannot be stored
        unchanged.
        """
        if self.table is not None:
            yield self._checked()
            return
        assert self.stream is not None
        stopped, ended = threading.Event(), threading.Event()
        failures: list[BaseException] = []
        batches = _until(stopped, self.stream, ended, failures)
        try:
            yield pa.RecordBatchReader.from_batches(self.schema, batches)
        except GeneratorExit:
            raise
        except BaseException:
            if failures:
                raise failures[0] from None
            raise
        finally:
            stopped.set()
            ended.wait(_READ_AHEAD_SECONDS)

    @property
    def size(self) -> int | None:
        """The size in bytes when all rows are in memory."""
        return None if self.table is None else self.table.nbytes


def _until(
    stopped: threading.Event, batches: Iterable[pa.RecordBatch], ended: threading.Event, failures: list[BaseException]
) -> Iterator[pa.RecordBatch]:
    try:
        for batch in batches:
            if stopped.is_set():
                return
            check_values(batch)
            yield batch
            telemetry.count(ROWS_TAKEN, batch.num_rows)
    except GeneratorExit:
        raise
    except BaseException as error:
        failures.append(error)
        raise
    finally:
        ended.set()
