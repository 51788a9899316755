"""Values on their way from DuckDB to Arrow: texts where Arrow would lose a part of them, errors where it would wrap."""

from __future__ import annotations

from typing import Any

import duckdb

from quacklake.core.format.names import literal, quote
from quacklake.core.format.schema import Column

__all__ = ["carried_column", "carried_value"]

_OF_TABLES = {"variant": "VARCHAR", "uint128": "DECIMAL(38,0)"}
"""Types of columns that are others in the Arrow schema of a table."""

_TEXT_TYPES = ("VARIANT", "UHUGEINT", "BIGNUM", "VARINT", "TIME WITH TIME ZONE")
"""Types of DuckDB that Arrow cannot carry without loss."""
_MAX_HOURS = 2_562_047
"""The hours of an interval, besides its days and months, that Arrow counts in nanoseconds."""
_TOO_LONG = "an interval is too long for Arrow, with 292 years of hours or more: CAST it AS VARCHAR"


def carried_column(column: Column) -> str:
    """Return the SQL of a column of a table as the Arrow schema of the table has it."""
    if column.type in _OF_TABLES:
        return f"{quote(column.name)}::{_OF_TABLES[column.type]}"
    if any(leaf.type == "interval" for leaf in column.leaves()):
        return _check_length(quote(column.name), column.duckdb_type())
    return quote(column.name)


def carried_value(value: str, type_: str) -> str:
    """Return the SQL of a value of a DuckDB type as Arrow carries it.

    >>> carried_value("a", "INTEGER"), carried_value("a", "UHUGEINT[]")
    ('a', 'a::VARCHAR')
    """
    if any(odd in type_ for odd in _TEXT_TYPES):
        return f"{value}::VARCHAR"
    return _check_length(value, type_) if "INTERVAL" in type_ else value


def _check_length(value: str, type_: str) -> str:
    return f"CASE WHEN {_too_long(value, duckdb.sqltype(type_))} THEN error({literal(_TOO_LONG)}) ELSE {value} END"


def _too_long(value: str, type_: Any) -> str:
    """Return the SQL of whether there is an interval in a value that Arrow, which counts nanoseconds, cannot hold."""
    match type_.id:
        case "interval":
            return f"COALESCE(abs(datepart('hour', {value})) >= {_MAX_HOURS}, false)"
        case "list" | "array":
            parts = [_any(value, type_.children[0][1])]
        case "map":
            (_, key), (_, item) = type_.children
            parts = [_any(f"map_keys({value})", key), _any(f"map_values({value})", item)]
        case "struct" | "union" as kind:
            parts = [_too_long(f"{kind}_extract({value}, {literal(name)})", child) for name, child in type_.children]
        case _:
            parts = []
    return f"({' OR '.join(part for part in parts if part != 'false')})" if set(parts) - {"false"} else "false"


def _any(values: str, type_: Any) -> str:
    element = f"e{len(values)}"
    inside = _too_long(element, type_)
    if inside == "false":
        return inside
    return f"COALESCE(list_bool_or(list_transform({values}, lambda {element}: {inside})), false)"
