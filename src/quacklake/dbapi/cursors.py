"""Cursors: run statements and fetch their rows."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Self, TypeVar

import pyarrow as pa

from quacklake import Result
from quacklake.dbapi.bulk_inserts import BulkInsert, bulk_insert
from quacklake.dbapi.failures import InterfaceError, translated

if TYPE_CHECKING:
    import pandas as pd

    from quacklake.dbapi.connections import Connection

T = TypeVar("T")
Parameters = Sequence[Any] | Mapping[str, Any] | None


class Cursor:
    """Runs statements and fetches their rows. Iterating over it yields the rows that are left."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.arraysize = 1000
        self.rowcount = -1
        self.lastrowid = None
        self._result: Result | None = None
        self._closed = False

    @property
    def description(self) -> list[tuple[str, str, None, None, None, None, None]] | None:
        """Name and type of each column of the rows; None when the statement has none."""
        return None if self._result is None else self._result.description

    def execute(self, sql: str, parameters: Parameters = None) -> Self:
        """Run a statement with values for its parameters."""
        self._check_open()
        self._result, self.rowcount = None, -1
        result = self.connection.run(sql, parameters or None)
        self.rowcount = result.rowcount
        if result.columns and not (result.rowcount >= 0 and result.columns == ["Count"]):
            self._result = result
        return self

    def executemany(self, sql: str, parameters: Iterable[Sequence[Any] | Mapping[str, Any]]) -> Self:
        """Run a statement once for each row of values, all in one transaction.

        Rows for ``INSERT INTO … VALUES (?, …)`` go in thousands at a time.
        """
        self._check_open()
        bulk, rows, changed = bulk_insert(sql), iter(parameters), 0
        with self.connection.several():
            while chunk := list(itertools.islice(rows, self.connection.chunk_rows)):
                changed += self._insert(bulk, chunk) if bulk is not None else self._each(sql, chunk)
        self._result, self.rowcount = None, changed
        return self

    def _each(self, sql: str, rows: Iterable[Sequence[Any] | Mapping[str, Any]]) -> int:
        return sum(max(0, self.execute(sql, row).rowcount) for row in rows)

    def _insert(self, bulk: BulkInsert, rows: list[Sequence[Any] | Mapping[str, Any]]) -> int:
        """Insert rows by one statement, or one by one where their values have no common type."""
        self._result = None
        result = self.connection.insert(bulk, rows)
        return self._each(bulk.sql, rows) if result is None else result.rowcount

    def fetchone(self) -> tuple[Any, ...] | None:
        """Return the next row, or None."""
        return self._fetch(lambda result: result.fetchone())

    def fetchmany(self, size: int | None = None) -> list[tuple[Any, ...]]:
        """Return the next rows, ``arraysize`` unless told otherwise."""
        return self._fetch(lambda result: result.fetchmany(self.arraysize if size is None else size))

    def fetchall(self) -> list[tuple[Any, ...]]:
        """Return the rows that are left."""
        return self._fetch(lambda result: result.fetchall())

    def fetch_arrow_table(self) -> pa.Table:
        """Return the rows that are left as an Arrow table."""
        return self._fetch(lambda result: result.to_arrow())

    def fetch_record_batch(self) -> pa.RecordBatchReader:
        """Return the rows that are left as a stream of Arrow batches."""
        return self._fetch(lambda result: result.to_reader())

    def fetch_df(self) -> pd.DataFrame:
        """Return the rows that are left as a pandas DataFrame."""
        return self._fetch(lambda result: result.to_pandas())

    def _fetch(self, read: Callable[[Result], T]) -> T:
        self._check_open()
        if self._result is None:
            raise InterfaceError("there are no rows to fetch: run a query first")
        with translated():
            return read(self._result)

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        return iter(partial(self.fetchone), None)

    def close(self) -> None:
        """Close the cursor; its rows cannot be fetched any more."""
        self._closed, self._result = True, None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        changed = f", {self.rowcount} rows changed" if self.rowcount >= 0 else ""
        return f"<quacklake.dbapi.Cursor{', closed' if self._closed else changed}>"

    def setinputsizes(self, sizes: Sequence[Any]) -> None:
        """Do nothing, as PEP 249 allows."""

    def setoutputsize(self, size: int, column: int | None = None) -> None:
        """Do nothing, as PEP 249 allows."""

    def _check_open(self) -> None:
        self.connection.check_open()
        if self._closed:
            raise InterfaceError("the cursor is closed")
