"""The result of a statement: rows that are read once, or any number of times once they are kept in memory."""

from __future__ import annotations

import datetime as dt
import itertools
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import duckdb
import pyarrow as pa

from quacklake.core.duckdb_versions import run
from quacklake.core.engines.duckdb.carrying import carried_value
from quacklake.core.format.names import quote
from quacklake.core.operations.rows import Row, Rows, map_rows

_BATCH_ROWS = 122_880
_ODD = re.compile(
    r"variant|hugeint|bignum|varint|interval|timetz|\btime\s+with\s+time\s+zone|\bto_\w*seconds|\bto_(?:hours|minutes)",
    re.IGNORECASE,
)
"""Words for types that Arrow cannot carry without loss, and for functions that make values of them."""


def _time_of_day(text: str) -> Any:
    """Return a time with its zone; the text of one that Python lacks, such as 24:00."""
    try:
        return dt.time.fromisoformat(text)
    except ValueError:
        return text


_PYTHON: Mapping[str, Callable[[Any], Any]] = {
    "HUGEINT": int,
    "UHUGEINT": int,
    "TIME WITH TIME ZONE": lambda value: _time_of_day(value) if isinstance(value, str) else value,
}
"""The Python values of columns that Arrow has in another type."""


@dataclass
class _PartlyReadBatch:
    """A batch whose rows have been fetched in part."""

    batch: pa.RecordBatch
    rows: Iterator[tuple[Any, ...]]
    used: int = 0


class Result(Rows):
    """The rows of one statement.

    ``fetchone``, ``fetchmany``, ``fetchall``, ``to_batches`` and iteration read the rows once, with one batch in memory
    at a time. ``df``, ``pl``, ``arrow``, every other ``to_…`` and ``show`` keep the remaining rows in memory, so you
    can call them any number of times. When a session runs its next statement, the unread rows of the previous result
    are kept in memory too.
    """

    def __init__(
        self,
        reader: pa.RecordBatchReader | pa.Table | None = None,
        *,
        types: tuple[str, ...] = (),
        rowcount: int = -1,
    ) -> None:
        if isinstance(reader, pa.Table):
            reader = reader.to_reader()
        self._reader = pa.RecordBatchReader.from_batches(pa.schema([]), []) if reader is None else reader
        self._types = types
        self._begun: _PartlyReadBatch | None = None
        self._kept: pa.Table | None = None
        self.rowcount = rowcount
        """The rows that a statement changed; -1 when it changed none or that is not known."""

    @property
    def schema(self) -> pa.Schema:
        """The Arrow schema of the rows."""
        return self._reader.schema

    @property
    def columns(self) -> list[str]:
        """The names of the columns."""
        return list(self.schema.names)

    @property
    def types(self) -> list[str]:
        """The types of the columns as DuckDB names them, or Arrow's names where DuckDB was not asked."""
        return list(self._types) or [str(field.type) for field in self.schema]

    @property
    def description(self) -> list[tuple[str, str, None, None, None, None, None]]:
        """Name and type of each column, as Python's database interface (PEP 249) defines it."""
        return [(name, type_, *[None] * 5) for name, type_ in zip(self.columns, self.types, strict=True)]  # type: ignore[misc]

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        return self

    def __next__(self) -> tuple[Any, ...]:
        while True:
            row = None if self._begun is None else next(self._begun.rows, None)
            if row is not None and self._begun is not None:
                self._begun.used += 1
                return row
            self._begun = None
            self._begun = self._begin(next(self._batches()))

    def _begin(self, batch: pa.RecordBatch) -> _PartlyReadBatch:
        """Convert the rows of a batch to Python values."""
        from quacklake.core.operations.python_values import python_values

        columns = [python_values(column) for column in batch.columns]
        for index, type_ in enumerate(self._types):
            made = _PYTHON.get(type_)
            if made is not None:
                columns[index] = [None if value is None else made(value) for value in columns[index]]
        return _PartlyReadBatch(batch, zip(*columns, strict=True))

    def fetchone(self) -> tuple[Any, ...] | None:
        """Return the next row, or None."""
        return next(self, None)

    def fetchmany(self, size: int = 1) -> list[tuple[Any, ...]]:
        """Return the next rows, at most ``size``."""
        return list(itertools.islice(self, size))

    def fetchall(self) -> list[tuple[Any, ...]]:
        """Return the remaining rows."""
        return list(self)

    def to_batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the remaining rows as Arrow batches, one at a time."""
        begun, self._begun = self._begun, None
        if begun is not None and begun.used < begun.batch.num_rows:
            yield begun.batch.slice(begun.used)
        yield from self._batches()

    def _batches(self) -> Iterator[pa.RecordBatch]:
        # the reader changes when the rows are kept in the meantime
        while (batch := next(self._reader, None)) is not None:
            yield batch

    def to_reader(self) -> pa.RecordBatchReader:
        """Return the rows as a stream of Arrow batches."""
        return pa.RecordBatchReader.from_batches(self.schema, self.to_batches())

    def rows(self, row: type[Row]) -> Iterator[Row]:
        """Yield the remaining rows as instances of a dataclass, a batch at a time; see ``quacklake.RowType``."""
        return map_rows(row).from_batches(self.to_batches())

    def to_arrow(self) -> pa.Table:
        """Return the remaining rows as an Arrow table, and keep it."""
        return self._keep(self.to_batches())

    def _keep(self, batches: Iterable[pa.RecordBatch]) -> pa.Table:
        self._kept = pa.Table.from_batches(list(batches), self.schema)
        self._reader = self._kept.to_reader(_BATCH_ROWS)
        return self._kept

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        return self.to_reader().__arrow_c_stream__(requested_schema)

    def show(self, rows: int = 10) -> None:
        """Print the first rows as a table. They stay readable."""
        from quacklake.core.operations.display import print_table

        table = self.to_arrow()
        print_table(table.slice(0, rows), total=table.num_rows)

    def __repr__(self) -> str:
        from quacklake.core.operations.display import text_table

        table = self.to_arrow() if self.columns else None
        return "<Result without rows>" if table is None else text_table(table.slice(0, 10), total=table.num_rows)

    def _repr_html_(self) -> str:
        from quacklake.core.operations.cells import html_table

        table = self.to_arrow() if self.columns else None
        return "<p>no rows</p>" if table is None else html_table(table.slice(0, 10), total=table.num_rows)

    def keep(self) -> pa.Table:
        """Read the remaining rows into memory and return them. They can still be read from there."""
        return self._keep(self._reader) if self._kept is None else self._kept

    def fail(self, error: Exception) -> None:
        """Raise this error when the remaining rows are read."""
        self._reader = pa.RecordBatchReader.from_batches(self.schema, map(_raise, [error]))


def _raise(error: Exception) -> pa.RecordBatch:
    raise error


def run_query(
    connection: duckdb.DuckDBPyConnection, sql: str, values: Any, *, odd: bool, batch_rows: int
) -> tuple[tuple[str, ...], pa.RecordBatchReader | None]:
    """Run a query; return the types of its columns and its rows, in which values that Arrow would change are texts.

    ``odd`` says that such values are likely. An interval that Arrow cannot hold is an error of DuckDB.
    """
    if not odd and _ODD.search(sql) is None:
        types, reader = run(connection, sql, values, batch_rows=batch_rows)
        if reader is None or not any(map(_ODD.search, types)):
            return types, reader
        reader.close()  # nothing has been read: the odd columns came from a view or a macro
    types, text = _exportable(connection, sql, values)
    found, reader = run(connection, text, values, batch_rows=batch_rows)
    return types or found, reader


def _exportable(connection: duckdb.DuckDBPyConnection, sql: str, values: Any) -> tuple[tuple[str, ...], str]:
    """Return the types of a query, and the query with columns that Arrow carries; no types where it cannot be asked."""
    try:
        described = connection.execute(f"DESCRIBE {sql}", values).fetchall()
    except duckdb.Error:
        return (), sql
    columns = [(name, str(type_)) for name, type_, *_ in described]
    if not any(_ODD.search(type_) for _, type_ in columns):
        return (), sql
    chosen = (f"{carried_value(f'c{place}', type_)} AS {quote(name)}" for place, (name, type_) in enumerate(columns))
    names = ", ".join(f"c{place}" for place in range(len(columns)))
    types = tuple(type_ for _, type_ in columns)
    return types, f"SELECT {', '.join(chosen)} FROM ({sql}\n) AS found({names})"
