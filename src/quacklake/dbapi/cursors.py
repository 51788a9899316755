"""Cursors: run statements and fetch their rows."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Self, TypeVar

import pyarrow as pa

from quacklake import errors
from quacklake.dbapi.failures import InterfaceError, translated
from quacklake.format.names import quote
from quacklake.sql.result import Result
from quacklake.sql.words import words_of

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
        bulk, rows, changed = _bulk(sql), iter(parameters), 0
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


class BulkInsert:
    """An ``INSERT INTO … VALUES (?, …)`` whose values can come from a table."""

    def __init__(self, sql: str, head: str, width: int) -> None:
        self.sql, self._head, self._width = sql, head, width

    def from_table(self, name: str) -> str:
        """Return the statement that inserts the rows of a registered table."""
        return f"{self._head} SELECT * FROM {quote(name)}"

    def from_lists(self) -> str:
        """Return the statement that inserts the rows of a list of values for each column."""
        return f"{self._head} SELECT {', '.join(['unnest(?)'] * self._width)}"

    def columns(self, rows: list[Any]) -> list[list[Any]] | None:
        """Return the values of each column; None where one has no common type, or a row not the right length.

        A 5 would become 5.0 beside a 1.5, which is another text.
        """
        if not all(isinstance(row, list | tuple) and len(row) == self._width for row in rows):
            return None
        given = [list(column) for column in zip(*rows, strict=True)]
        return None if any(len(set(_kinds(column))) > 1 for column in given) else given

    def table(self, rows: list[Any]) -> pa.Table | None:
        """Return rows as a table, or None as ``columns`` does."""
        given = self.columns(rows)
        if given is None:
            return None
        try:
            columns = [pa.array(column) for column in given]
        except (pa.ArrowException, OverflowError, ValueError, TypeError):
            return None
        return pa.table(columns, names=[f"c{number}" for number in range(self._width)])


def _kinds(value: Any) -> Iterator[tuple[type, bool]]:
    """Yield the types of the values in a value, without that of NULL, and whether they are local times."""
    if isinstance(value, list | tuple | dict):
        for each in value.values() if isinstance(value, dict) else value:
            yield from _kinds(each)
    elif value is not None:
        yield type(value), getattr(value, "tzinfo", None) is None


def _bulk(sql: str) -> BulkInsert | None:
    """Return the statement if it inserts one row of parameters and does nothing else."""
    try:
        words = words_of(sql)
    except errors.SqlError:
        return None
    while words and words[-1].text == ";":
        words.pop()
    at = next((place for place, word in enumerate(words) if word.upper == "VALUES"), None)
    if at is None or [word.upper for word in words[:2]] != ["INSERT", "INTO"]:
        return None
    texts = [word.text for word in words[at + 1 :]]
    width = len(texts) // 2
    if width == 0 or texts != ["(", *",".join("?" * width), ")"]:
        return None
    return BulkInsert(sql, sql[: words[at].start], width)
