"""Translate filters that Spark pushes to a source into the SQL of the lake, to skip files and rows.

Spark applies every filter again itself. So a filter that both sides might understand differently is left out.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Mapping
from decimal import Decimal
from typing import Any, NamedTuple

from quacklake.format.names import literal, quote
from quacklake.format.schema import Column, TableSchema
from quacklake.format.types import parse_type

_COMPARED: Mapping[str, str] = {
    "EqualTo": "=",
    "EqualNullSafe": "=",
    "GreaterThan": ">",
    "GreaterThanOrEqual": ">=",
    "LessThan": "<",
    "LessThanOrEqual": "<=",
}
_WHOLE = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
_MAX_IN = 1000


class PushedFilter(NamedTuple):
    """A filter of Spark as plain data: the name of its class, the path of a column, and a value."""

    kind: str
    path: tuple[str, ...]
    value: Any = None


def pushed_sql(filters: Iterable[PushedFilter], schema: TableSchema) -> str | None:
    """Return the SQL that the requested rows satisfy, or None when no filter can be translated."""
    found = (_sql(each, schema) for each in filters)
    return all_of(text for text in found if text is not None)


def all_of(conditions: Iterable[str | None]) -> str | None:
    """Combine conditions with AND."""
    return " AND ".join(f"({text})" for text in conditions if text is not None) or None


def _sql(given: PushedFilter, schema: TableSchema) -> str | None:
    column = schema.get(given.path[0]) if len(given.path) == 1 else None
    if column is None or column.nested:
        return None
    name = quote(column.name)
    if given.kind in ("IsNull", "IsNotNull"):
        return f"{name} IS {'NOT ' if given.kind == 'IsNotNull' else ''}NULL"
    if given.kind == "In":
        values = [_literal(value, column) for value in given.value if value is not None]
        if not values or len(values) > _MAX_IN or None in values:
            return None
        return f"{name} IN ({', '.join(value for value in values if value is not None)})"
    value = _literal(given.value, column)
    if value is None:
        return f"{name} IS NULL" if given.kind == "EqualNullSafe" and given.value is None else None
    if given.kind == "StringStartsWith":
        return f"{name} >= {value} AND starts_with({name}, {value})" if column.type == "varchar" else None
    operator = _COMPARED.get(given.kind)
    return None if operator is None else f"{name} {operator} {value}"


def _literal(value: Any, column: Column) -> str | None:
    """Return a value as SQL, or None when Spark and the lake might interpret it differently."""
    base = parse_type(column.type).base
    if base in _WHOLE:
        whole = isinstance(value, int | Decimal) and not isinstance(value, bool) and value == int(value)
        return f"{int(value):d}" if whole else None
    if base == "decimal" and isinstance(value, int | Decimal) and not isinstance(value, bool):
        return f"{value:f}" if isinstance(value, Decimal) else f"{value:d}"
    if base == "varchar" and isinstance(value, str):
        return literal(value)
    if base == "boolean" and isinstance(value, bool):
        return str(value).lower()
    if base == "date" and type(value) is dt.date:
        return f"DATE {literal(value.isoformat())}"
    if isinstance(value, dt.datetime):
        return _moment(value, base)
    return None


def _moment(value: dt.datetime, base: str) -> str | None:
    if base in ("timestamp", "timestamp_s", "timestamp_ms") and value.tzinfo is None:
        return f"TIMESTAMP {literal(value.isoformat(' '))}"
    if base == "timestamptz" and value.tzinfo is not None:
        return literal(f"{value.astimezone(dt.UTC).replace(tzinfo=None).isoformat(' ')}+00")
    return None
