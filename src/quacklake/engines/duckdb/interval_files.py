"""Intervals in files: Parquet has months, days and milliseconds, each 32 bits and none below zero.

DuckDB cuts off the microseconds of others, and lets 50 days of milliseconds begin at 0 again. Whatever a file would not
give back is refused; rows in the catalog keep every interval.
"""

from __future__ import annotations

from collections.abc import Sequence

from quacklake.format.names import literal, quote
from quacklake.format.schema import Column, TableSchema

__all__ = ["CUT", "interval_columns", "uncut"]

CUT = "is an interval that a file cannot hold"
"""What every error about such an interval says."""


def interval_columns(schema: TableSchema) -> list[Column]:
    """Return the columns that hold intervals, alone or inside of others."""
    return [column for column in schema.columns if any(node.type == "interval" for node in column.walk())]


def uncut(query: str, columns: Sequence[Column], names: Sequence[str]) -> str:
    """Return a query for the same rows that ends with an error at an interval which a file would change."""
    checked = {column.name: _checked(column) for column in columns}
    select = ", ".join(f"{checked[name]} AS {quote(name)}" if name in checked else quote(name) for name in names)
    return f"SELECT {select} FROM ({query})"


def _checked(column: Column) -> str:
    name = quote(column.name)
    message = literal(f'a value of the column "{column.name}" {CUT}')
    return f"CASE WHEN {_fits(column, name, 0)} THEN {name} ELSE error({message}) END"


def _fits(column: Column, value: str, depth: int) -> str:
    """An expression that is true when a file holds all intervals of a value."""
    if column.type == "interval":
        micros = f"(hour({value}) * 3600000000 + minute({value}) * 60000000 + microsecond({value}))"
        parts = (
            f"year({value}) * 12 + month({value}) >= 0",
            f"day({value}) >= 0",
            f"{micros} BETWEEN 0 AND 4294967295999",
            f"{micros} % 1000 = 0",
        )
        return f"coalesce({' AND '.join(parts)}, true)"
    if not any(node.type == "interval" for node in column.walk()):
        return "true"
    if column.type == "struct":
        return " AND ".join(_fits(child, f"({value}).{quote(child.name)}", depth) for child in column.children)
    if column.type == "map":
        sides = zip(column.children, (f"map_keys({value})", f"map_values({value})"), strict=True)
        return " AND ".join(_each(child, side, depth) for child, side in sides)
    return _each(column.children[0], value, depth)


def _each(column: Column, values: str, depth: int) -> str:
    name = f"x{depth}"
    return f"coalesce(list_bool_and(list_transform({values}, lambda {name}: {_fits(column, name, depth + 1)})), true)"
