"""Scans as lazy frames of polars: columns, predicates and limits reach the files."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from quacklake.core.format.intervals import INTERVAL, holds_intervals
from quacklake.core.format.schema import TableSchema
from quacklake.core.operations.rows import for_polars, need
from quacklake.errors import InputError, UnsupportedFeatureError
from quacklake.lake.polars_filters import to_sql

if TYPE_CHECKING:
    import polars

    from quacklake.lake.table_scan import TableScan


Part = Callable[[Sequence[str], Callable[[TableSchema], str | None], int | None], "TableScan"]
"""Returns the scan of some columns, under a condition and with a limit; see ``TableScan``."""


def lazy_frame(schema: pa.Schema, part: Part) -> polars.LazyFrame:
    """Return a lazy frame that runs a scan each time it is collected. Raise ``InputError``."""
    pl = need("polars")
    source = _Source(schema, part, pl)
    frame: polars.LazyFrame = _register(pl)(source.read, schema=source.types)
    return frame


def _register(pl: Any) -> Callable[..., Any]:
    try:
        from polars.io.plugins import register_io_source
    except ImportError:
        raise UnsupportedFeatureError(
            f"polars {pl.__version__} has no sources of lazy frames", hint='pip install --upgrade "polars>=1.20"'
        ) from None
    return register_io_source


class _Source:
    """The source of a lazy frame; polars calls ``read`` for each scan of a plan."""

    def __init__(self, schema: pa.Schema, part: Part, pl: Any) -> None:
        self._schema = schema
        self._part = part
        self._pl = pl
        self.types: dict[str, Any] = {field.name: self._type(field) for field in schema}

    def _type(self, field: pa.Field) -> Any:
        if field.type == INTERVAL:
            return self._pl.Duration("us")
        if holds_intervals(field.type):
            raise InputError(
                f'polars has no type for the column "{field.name}", which is {field.type}',
                hint="leave it out: scan_polars(columns=[…])",
            )
        return self._pl.from_arrow(pa.schema([field]).empty_table()).schema[field.name]

    def read(
        self, columns: list[str] | None, predicate: Any, rows: int | None, _: int | None
    ) -> Iterator[polars.DataFrame]:
        """Yield the frames of a scan; ``rows`` limits them before the predicate is applied.

        The size of a batch is that of the lake's settings, so that they bound the memory.
        """
        names = self._schema.names if columns is None else columns
        scan = self._part(names, lambda schema: self._condition(predicate, schema), rows)
        wanted = pa.schema([self._schema.field(name) for name in names])
        with scan.to_reader() as reader:
            if reader.schema != wanted:
                raise InputError(
                    "the columns of the table have other types than when the lazy frame was created",
                    hint="call scan_polars again",
                )
            for batch in reader:
                frame = self._frame(batch)
                yield frame if predicate is None else frame.filter(predicate)

    def _condition(self, predicate: Any, schema: TableSchema) -> str | None:
        return None if predicate is None else to_sql(predicate, schema, self.types)

    def _frame(self, batch: pa.RecordBatch) -> polars.DataFrame:
        found: polars.DataFrame = self._pl.from_arrow(for_polars(pa.Table.from_batches([batch])))
        return found
