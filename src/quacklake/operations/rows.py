"""Rows in the forms that people use: pandas, polars, Arrow, lists."""

from __future__ import annotations

import importlib
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from quacklake.errors import InputError, MissingExtraError

if TYPE_CHECKING:
    import pandas
    import polars


class Rows(ABC):
    """Rows that subclasses provide as Arrow, and that this class converts to every other format."""

    @abstractmethod
    def to_arrow(self) -> pa.Table:
        """Return the rows as an Arrow table."""

    def to_pandas(self, *, dtype_backend: str | None = None, **options: Any) -> pandas.DataFrame:
        """Return the rows as a pandas frame; other options go to ``pyarrow.Table.to_pandas``.

        With ``dtype_backend="pyarrow"``, columns keep their Arrow types, and the memory that was read.
        """
        module = need("pandas")
        if dtype_backend == "pyarrow":
            options = {"types_mapper": module.ArrowDtype, **options}
        elif dtype_backend is not None:
            raise InputError(
                f"there is no dtype_backend {dtype_backend!r}", hint='leave it out, or write dtype_backend="pyarrow"'
            )
        frame: pandas.DataFrame = self.to_arrow().to_pandas(**options)
        return frame

    def to_polars(self) -> polars.DataFrame:
        """Return the rows as a polars frame."""
        frame: polars.DataFrame = need("polars").from_arrow(self.to_arrow())
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
        from quacklake.operations.python_values import python_values

        table = self.to_arrow()
        columns = [python_values(column) for column in table.columns]
        return [dict(zip(table.column_names, row, strict=True)) for row in zip(*columns, strict=True)]


def need(name: str) -> Any:
    """Import an optional package. Raises ``MissingExtraError``."""
    try:
        return importlib.import_module(name)
    except ImportError:
        raise MissingExtraError(
            f"this needs the Python package {name}", hint=f'pip install "quacklake[{name}]"'
        ) from None
