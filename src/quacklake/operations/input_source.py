"""Rows on their way into a table: a table in memory, a stream that can be read once, or what can be opened anew."""

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
from quacklake.format.value_ranges import check_values
from quacklake.operations.arrow_forms import readable, readable_schema

__all__ = ["ROWS_TAKEN", "Input", "Reopened", "Source"]

ROWS_TAKEN = "input.rows"
"""The counter of rows of streams that an engine has taken, which tells how far a long write is."""

_READ_AHEAD_SECONDS = 1.0
"""Seconds to wait for threads that read ahead; one that waits for room asks for no more."""


class Input(Protocol):
    """Rows that a user has given, before it is known into which table they go."""

    @property
    def replayable(self) -> bool:
        """True when the rows can be read again after a lost race."""

    @property
    def empty(self) -> bool:
        """True for rows that are none and say nothing of their columns, such as an empty list."""

    def opened(self, wanted: TableSchema | None = None) -> Source:
        """Return the rows for a table with these columns; text is read with their types."""


@dataclass(frozen=True)
class Reopened:
    """Rows that are read anew each time: files, a dataset, a lazy frame."""

    open: Callable[[TableSchema | None], pa.RecordBatchReader]
    replayable: bool = True
    empty: bool = False

    def opened(self, wanted: TableSchema | None = None) -> Source:
        stream = self.open(wanted)
        return Source(stream.schema, stream=stream)


@dataclass
class Source:
    """Rows to be written: a table in memory, or a stream that can be read once."""

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
        """True when the rows can be read again after a lost race."""
        return self.table is not None

    @property
    def empty(self) -> bool:
        """True for rows that are none and say nothing of their columns, such as an empty list."""
        return self.table is not None and not self.table.num_rows and not self.schema.names

    def opened(self, wanted: TableSchema | None = None) -> Source:
        """Return itself: these rows have their types."""
        return self

    def first(self, limit: int) -> pa.Table | None:
        """All rows as a table when there are at most ``limit``, else None; a stream stays whole."""
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
        """The rows in memory. Raises ``ConstraintError`` for a value that cannot be stored as it is."""
        assert self.table is not None
        check_values(self.table)
        return self.table

    @contextmanager
    def lend(self) -> Iterator[pa.Table | pa.RecordBatchReader]:
        """What an engine registers, for as long as the block lasts.

        Arrow reads ahead in threads of its own, and a process that ends while they are in a Python iterator crashes. So
        when the block ends, early or not, they have been told that there is no more, and have taken note of it.
        An error of the stream itself is raised as it is, not as what the engine makes of it; so is ``ConstraintError``
        for a value that cannot be stored as it is.
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
        """The bytes in memory, when all rows are there."""
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
