"""Values that DuckDB would write into a file as others: such rows are refused.

Parquet has no whole numbers of 128 bits, and DuckDB writes them as doubles: whatever those would round is refused.
Intervals have months, days and milliseconds there, each 32 bits and none below zero; DuckDB cuts microseconds off, and
lets 50 days of milliseconds begin at 0 again. Nobody could tell later that it was another value. Rows in the catalog
keep every one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

from quacklake.format.names import literal, quote
from quacklake.format.schema import Column, TableSchema

_ROUNDED = "would be rounded in a file, which holds it as a double"
_CUT = "is an interval that a file cannot hold"
REFUSALS: Mapping[str, str] = MappingProxyType(
    {
        _ROUNDED: "a column of the type DECIMAL(38, 0) keeps every digit, in files too",
        _CUT: "in files intervals have whole milliseconds, less than 50 days of them, and no part below zero",
    }
)
"""The words of the error about a value, each with its hint."""
_HUGE = frozenset({"int128", "uint128"})
_SPAN = frozenset({"interval"})


def exact(query: str, schema: TableSchema, names: Sequence[str]) -> str:
    """Return a query for the same rows that ends with an error at a value which a file would change."""
    checked = {column.name: sql for column in schema.columns if (sql := _checked(column)) is not None}
    if not checked:
        return query
    select = ", ".join(f"{checked[name]} AS {quote(name)}" if name in checked else quote(name) for name in names)
    return f"SELECT {select} FROM ({query})"


def huge_columns(schema: TableSchema) -> list[Column]:
    """Return the columns that hold whole numbers of 128 bits, alone or inside of others."""
    return [column for column in schema.columns if _holds(column, _HUGE)]


def _holds(column: Column, types: frozenset[str]) -> bool:
    return any(node.type in types for node in column.walk())


def _checked(column: Column) -> str | None:
    """Return the SQL of a column that is an error where a file would change it; None when none can be changed."""
    checked = None
    checks: tuple[tuple[frozenset[str], Callable[[Column], str], str], ...] = (
        (_HUGE, _is_unrounded, _ROUNDED),
        (_SPAN, _is_uncut, _CUT),
    )
    for types, condition, refusal in checks:
        if _holds(column, types):
            message = literal(f'a value of the column "{column.name}" {refusal}')
            checked = f"CASE WHEN {condition(column)} THEN {checked or quote(column.name)} ELSE error({message}) END"
    return checked


# -- whole numbers -----------------------------------------------------------------------------------------------------


def _is_unrounded(column: Column) -> str:
    name = quote(column.name)
    there = f"TRY_CAST({name} AS {_stored(column).duckdb_type()})"
    return f"TRY_CAST({there} AS {column.duckdb_type()}) IS NOT DISTINCT FROM {name}"


def _stored(column: Column) -> Column:
    """Return a column as files hold it."""
    kind = "float64" if column.type in _HUGE else column.type
    return replace(column, type=kind, children=tuple(map(_stored, column.children)))


# -- intervals ---------------------------------------------------------------------------------------------------------


def _is_uncut(column: Column) -> str:
    return _fits(column, quote(column.name), 0)


def _fits(column: Column, value: str, depth: int) -> str:
    """Return an expression that is true when a file holds all intervals of a value."""
    if column.type in _SPAN:
        micros = f"(hour({value}) * 3600000000 + minute({value}) * 60000000 + microsecond({value}))"
        parts = (
            f"year({value}) * 12 + month({value}) >= 0",
            f"day({value}) >= 0",
            f"{micros} BETWEEN 0 AND 4294967295999",
            f"{micros} % 1000 = 0",
        )
        return f"coalesce({' AND '.join(parts)}, true)"
    if not _holds(column, _SPAN):
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
