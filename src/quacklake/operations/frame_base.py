"""Rows in the forms that people want them in."""

from __future__ import annotations

import importlib
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from quacklake.errors import MissingExtraError

if TYPE_CHECKING:
    import pandas
    import polars

__all__ = ["Rows", "need"]


class Rows(ABC):
    """Something that has rows, and can give them as Arrow: then it can give them in every other form, too."""

    @abstractmethod
    def to_arrow(self) -> pa.Table:
        """The rows as an Arrow table."""

    def to_pandas(self, **options: Any) -> pandas.DataFrame:
        """The rows as a pandas frame; options go to ``pyarrow.Table.to_pandas``."""
        need("pandas")
        frame: pandas.DataFrame = self.to_arrow().to_pandas(**options)
        return frame

    def to_polars(self) -> polars.DataFrame:
        """The rows as a polars frame."""
        frame: polars.DataFrame = need("polars").from_arrow(self.to_arrow())
        return frame

    def arrow(self) -> pa.Table:
        """Return the rows like ``to_arrow``, by DuckDB's name for it."""
        return self.to_arrow()

    def df(self) -> pandas.DataFrame:
        """Return the rows like ``to_pandas``, by DuckDB's name for it."""
        return self.to_pandas()

    def pl(self) -> polars.DataFrame:
        """Return the rows like ``to_polars``, by DuckDB's name for it."""
        return self.to_polars()

    def to_pylist(self) -> list[dict[str, Any]]:
        """The rows as dictionaries; for small results."""
        rows: list[dict[str, Any]] = self.to_arrow().to_pylist()
        return rows


def need(name: str) -> Any:
    """An optional package. Raises ``MissingExtraError``."""
    try:
        return importlib.import_module(name)
    except ImportError:
        raise MissingExtraError(
            f"this needs the Python package {name}", hint=f'pip install "quacklake[{name}]"'
        ) from None
