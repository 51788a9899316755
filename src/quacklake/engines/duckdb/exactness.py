"""Whole numbers of 128 bits in files: Parquet has none, and DuckDB writes them as doubles.

A double holds every whole number up to 2**53 and some beyond. Whatever it would round is refused, since nobody could
tell later that it was another number. Rows in the catalog keep every digit.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from quacklake.format.names import literal, quote
from quacklake.format.schema import Column, TableSchema

__all__ = ["ROUNDED", "huge_columns", "unrounded"]

ROUNDED = "would be rounded in a file, which holds it as a double"
"""What every error about such a number says."""
_HUGE = ("int128", "uint128")


def huge_columns(schema: TableSchema) -> list[Column]:
    """Return the columns that hold whole numbers of 128 bits, alone or inside of others."""
    return [column for column in schema.columns if _holds(column)]


def unrounded(query: str, columns: Sequence[Column], names: Sequence[str]) -> str:
    """Return a query for the same rows that ends with an error at a number which a file would round."""
    checked = {column.name: _checked(column) for column in columns}
    select = ", ".join(f"{checked[name]} AS {quote(name)}" if name in checked else quote(name) for name in names)
    return f"SELECT {select} FROM ({query})"


def _checked(column: Column) -> str:
    name, kind = quote(column.name), column.duckdb_type()
    stored = _stored(column).duckdb_type()
    message = literal(f'a value of the column "{column.name}" {ROUNDED}')
    back = f"TRY_CAST(TRY_CAST({name} AS {stored}) AS {kind})"
    return f"CASE WHEN {back} IS NOT DISTINCT FROM {name} THEN {name} ELSE error({message}) END"


def _holds(column: Column) -> bool:
    return column.type in _HUGE or any(map(_holds, column.children))


def _stored(column: Column) -> Column:
    """A column as files hold it."""
    kind = "float64" if column.type in _HUGE else column.type
    return replace(column, type=kind, children=tuple(map(_stored, column.children)))
