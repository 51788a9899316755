"""Lazy reads: some columns and rows of a table, read again each time they are used."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Self

import pyarrow as pa

from quacklake.core.engines.duckdb import RunningScan
from quacklake.core.engines.duckdb.engine import ROW_ID
from quacklake.core.operations.handles import Handle
from quacklake.core.operations.reference import TableRef
from quacklake.core.operations.rows import Row, Rows, map_rows
from quacklake.core.scan import Filter, as_filter

_SHOWN_ROWS = 10


@dataclass(frozen=True, repr=False)
class Frame(Rows):
    """A lazy read, run again each time it is used. Also an Arrow stream for other libraries."""

    _handle: Handle
    _ref: TableRef
    _columns: tuple[str, ...] | None = field(default=None, kw_only=True)
    _where: Filter | None = field(default=None, kw_only=True)
    _limit: int | None = field(default=None, kw_only=True)

    def __repr__(self) -> str:
        columns = "" if self._columns is None else f" [{', '.join(self._columns)}]"
        where = "" if self._where is None else f" WHERE {self._where}"
        limit = "" if self._limit is None else f" LIMIT {self._limit}"
        return f"<{type(self).__name__} {self._ref.schema}.{self._ref.name}{columns}{self._range}{where}{limit}>"

    _range = ""

    def select(self, *columns: str) -> Self:
        """Return only these columns, in this order."""
        return replace(self, _columns=tuple(columns))

    def where(self, condition: Filter) -> Self:
        """Return only the rows that match a condition: SQL text, ``pyarrow.compute`` or a Spark column."""
        return replace(self, _where=both(self._where, condition))

    def limit(self, rows: int) -> Self:
        """Return at most this many rows."""
        return replace(self, _limit=rows)

    @abstractmethod
    def scan(self, batch_rows: int | None = None) -> RunningScan:
        """Start a scan that can be cancelled."""

    @property
    @abstractmethod
    def schema(self) -> pa.Schema:
        """The Arrow schema of the rows."""

    @abstractmethod
    def count(self) -> int:
        """Return the number of rows."""

    def to_reader(self, batch_rows: int | None = None) -> pa.RecordBatchReader:
        """Return the rows as a stream of Arrow batches, in bounded memory."""
        return self.scan(batch_rows).reader

    def to_batches(self, batch_rows: int | None = None) -> Iterator[pa.RecordBatch]:
        """Yield the rows as Arrow batches, one at a time."""
        yield from self.to_reader(batch_rows)

    def rows(self, row: type[Row], batch_rows: int | None = None) -> Iterator[Row]:
        """Yield the rows as instances of a dataclass, read in batches; see ``quacklake.RowType``.

        Only the columns that it has fields for are read. Raise ``SchemaMismatchError`` for values that do not fit.
        """
        mapping = map_rows(row)
        names = mapping.match(self.schema.names)
        frame = self if ROW_ID.name in names else self.select(*names)  # the row id is no column to select
        return mapping.from_batches(frame.to_batches(batch_rows))

    def to_arrow(self) -> pa.Table:
        """Return the rows as an Arrow table."""
        return self.to_reader().read_all()

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        return self.to_reader().__arrow_c_stream__(requested_schema)

    def head(self, rows: int = _SHOWN_ROWS) -> pa.Table:
        """Return the first rows as an Arrow table."""
        return self.limit(rows).to_arrow()

    def show(self, rows: int = _SHOWN_ROWS) -> None:
        """Print the first rows as a table."""
        from quacklake.core.operations.display import print_table

        print_table(self.head(rows), total=self.count())

    def _repr_html_(self) -> str:
        from quacklake.core.operations.cells import html_table

        return html_table(self.head())


def both(first: Filter | None, second: Filter) -> Filter:
    """Combine two filters with AND. Raise ``TypeError`` for SQL text and an Arrow expression."""
    second = as_filter(second)
    if first is None:
        return second
    if isinstance(first, str) and isinstance(second, str):
        return f"({first}) AND ({second})"
    if not isinstance(first, str) and not isinstance(second, str):
        return first & second
    raise TypeError("conditions as SQL text and as Arrow expressions cannot be mixed")
