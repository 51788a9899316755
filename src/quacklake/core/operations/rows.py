"""Rows in the forms that people use: pandas, polars, Arrow, lists."""

from __future__ import annotations

import importlib
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import pyarrow as pa

from quacklake.core.lazy import provided
from quacklake.errors import InputError, MissingExtraError

if TYPE_CHECKING:
    import pandas
    import polars
    from _typeshed import DataclassInstance

Row = TypeVar("Row", bound="DataclassInstance")
_Instance = TypeVar("_Instance", bound="DataclassInstance", covariant=True)


class RowMapping(Protocol[_Instance]):
    """The mapping between rows and instances of a dataclass."""

    def match(self, names: Sequence[str]) -> list[str]:
        """Return the names of columns that have a field. Raise ``SchemaMismatchError`` for a missing column."""

    def from_batches(self, batches: Iterable[pa.RecordBatch]) -> Iterator[_Instance]:
        """Yield the rows of Arrow batches as instances, a batch at a time."""


@provided
def map_rows(row: type[Row]) -> RowMapping[Row]:
    """Return the mapping of a dataclass. Raise ``InputError`` for a field whose type no column has."""
    raise NotImplementedError


class Rows(ABC):
    """Rows that subclasses provide as Arrow, and that this class converts to every other format."""

    @abstractmethod
    def to_arrow(self) -> pa.Table:
        """Return the rows as an Arrow table."""

    def to_pandas(self, *, dtype_backend: str | None = None, **options: Any) -> pandas.DataFrame:
        """Return the rows as a pandas frame; other options go to ``pyarrow.Table.to_pandas``.

        With ``dtype_backend="pyarrow"``, columns keep their Arrow types, and the memory that was read. A column of
        intervals without months is one of ``Timedelta``, any other one of ``DateOffset``.
        """
        module = need("pandas")
        if dtype_backend == "pyarrow":
            options = {"types_mapper": module.ArrowDtype, **options}
        elif dtype_backend is not None:
            raise InputError(
                f"there is no dtype_backend {dtype_backend!r}", hint='leave it out, or write dtype_backend="pyarrow"'
            )
        frame: pandas.DataFrame = _with_durations(self.to_arrow()).to_pandas(**options)
        return frame

    def to_polars(self) -> polars.DataFrame:
        """Return the rows as a polars frame, intervals as durations. Raise ``InputError`` for one with months."""
        rows = for_polars(self.to_arrow())
        frame: polars.DataFrame = need("polars").from_arrow(rows)
        return frame

    def arrow(self) -> pa.Table:
        """Return the rows as an Arrow table; DuckDB's name for ``to_arrow``."""
        return self.to_arrow()

    def df(self) -> pandas.DataFrame:
        """Return the rows as a pandas frame; DuckDB's name for ``to_pandas``."""
        return self.to_pandas()

    def pl(self) -> polars.DataFrame:
        """Return the rows as a polars frame; DuckDB's name for ``to_polars``."""
        return self.to_polars()

    def to_pylist(self) -> list[dict[str, Any]]:
        """Return the rows as dictionaries; for small results. A value that Python lacks is its text."""
        from quacklake.core.operations.python_values import python_values

        table = self.to_arrow()
        columns = [python_values(column) for column in table.columns]
        return [dict(zip(table.column_names, row, strict=True)) for row in zip(*columns, strict=True)]


def for_polars(rows: pa.Table) -> pa.Table:
    """Return rows with durations in place of intervals, which polars does not have.

    Raise ``InputError`` for a column of intervals with months.
    """
    from quacklake.core.format.intervals import holds_intervals

    found = _with_durations(rows)
    for field in found.schema:
        if holds_intervals(field.type):  # polars would end with a panic, which no handler of exceptions sees
            raise InputError(
                f'polars has no type for the intervals of the column "{field.name}", which are nested or have months',
                hint=f'cast them: SELECT CAST("{field.name}" AS VARCHAR) …, or leave the column out',
            )
    return found


def _with_durations(rows: pa.Table) -> pa.Table:
    from quacklake.core.format.intervals import INTERVAL, to_durations

    for place, field in enumerate(rows.schema):
        if field.type == INTERVAL:
            chunks = [to_durations(chunk) for chunk in rows.column(place).chunks]
            found = [chunk for chunk in chunks if chunk is not None]
            if len(found) == len(chunks):
                column = pa.chunked_array(found, pa.duration("us"))
                rows = rows.set_column(place, field.with_type(column.type), column)
    return rows


def need(name: str) -> Any:
    """Import an optional package. Raise ``MissingExtraError``."""
    try:
        return importlib.import_module(name)
    except ImportError:
        raise MissingExtraError(
            f"this needs the Python package {name}", hint=f'pip install "quacklake[{name}]"'
        ) from None
