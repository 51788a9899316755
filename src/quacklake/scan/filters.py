"""Filters as users write them, turned into predicates that can rule out files.

A filter is SQL text or a ``pyarrow.compute`` expression. What a predicate cannot say becomes "anything": the engine
applies the whole filter to the rows in any case.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import TypeAlias

import pyarrow.compute as pc

from quacklake.errors import PredicateError, nearest
from quacklake.format.predicate import ANYTHING, Predicate
from quacklake.format.schema import Column, TableSchema
from quacklake.scan import virtual

Filter: TypeAlias = "str | pc.Expression"

_WORD = re.compile(r"\w+")


def to_predicate(where: Filter | None, schema: TableSchema) -> Predicate:
    """Return what a filter says about column bounds. Raise ``PredicateError`` for SQL that is not one expression."""
    if where is None:
        return ANYTHING
    if isinstance(where, pc.Expression):
        from quacklake.scan.substrait import from_arrow_expression

        return from_arrow_expression(where, virtual.with_virtual(schema))
    if not isinstance(where, str):
        raise PredicateError(
            f"a filter must be SQL text or a pyarrow.compute expression, not {type(where).__name__}",
            hint="for example where=\"id > 5 AND name = 'x'\"",
        )
    from quacklake.scan.sql_filters import from_sql

    return from_sql(where, schema)


def unknown_columns(where: str, schema: TableSchema) -> str | None:
    """Return a hint that names the nearest known columns when the filter speaks of unknown ones."""
    from quacklake.scan.sql_filters import column_names

    unknown = next((name for name in column_names(where) if schema.get(name) is None), None)
    return None if unknown is None else nearest(unknown, schema.names)


def virtual_columns(schema: TableSchema, columns: Sequence[str] | None, where: Filter | None) -> tuple[Column, ...]:
    """Return the virtual columns that a read needs: the chosen ones and those its filter may speak of."""
    names: Iterable[str] = columns or ()
    if isinstance(where, pc.Expression):
        # an expression does not list its columns: any word in it may be one
        names = [*names, *_WORD.findall(str(where))]
    elif where is not None and any(name in where.lower() for name in virtual.VIRTUAL):
        from quacklake.scan.sql_filters import column_names

        names = [*names, *column_names(where)]
    chosen = {column.name: column for name in names if (column := virtual.get(schema, name)) is not None}
    return tuple(column for name, column in virtual.VIRTUAL.items() if name in chosen)
