"""Column types of sources as those of a lake: the same, mapped, or refused."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from quacklake.errors import InputError
from quacklake.extend.names import quote
from quacklake.extend.schemas import Column, TableSchema, to_column, to_schema

_MAPPED = {"enum": "VARCHAR", "bit": "VARCHAR", "bignum": "VARCHAR"}
"""Types of DuckDB that a lake does not have, and that keep every value as a text."""
_REFUSED = {
    "union": "VARCHAR or JSON",
    "variant": "JSON",
    "time with time zone": "VARCHAR",
    "uhugeint": "DECIMAL(38,0)",
    "sqlnull": "INTEGER",
}
"""Types that a lake does not have, or that no rows in Arrow can carry, and what to map them to."""


def duckdb_type(found: Any, told: Mapping[str, str]) -> str:
    """Return the type for values of a DuckDB type: what ``told`` says by the name of the type, or as close as can be.

    Raise ``InputError`` for a type that a lake cannot hold.
    """
    kind = found.id
    for name in (str(found), kind):
        if name.lower() in told:
            return told[name.lower()]
    if kind in _MAPPED:
        return _MAPPED[kind]
    if kind in ("list", "array"):
        return f"{duckdb_type(found.children[0][1], told)}[]"
    if kind == "struct":
        fields = (f"{quote(name)} {duckdb_type(child, told)}" for name, child in found.children)
        return f"STRUCT({', '.join(fields)})"
    if kind == "map":
        key, value = (duckdb_type(child, told) for _, child in found.children)
        return f"MAP({key}, {value})"
    if kind in _REFUSED:
        raise InputError(f"a lake takes no values of the type {found} from a file", hint=_REFUSED[kind])
    return str(found)


def checked_mapping(told: Mapping[str, str]) -> dict[str, str]:
    """Return a mapping of types with lower-case names. Raise ``InputError`` for a type that a lake does not have."""
    checked = {}
    for name, type_ in told.items():
        try:
            to_column("c", type_)
        except InputError as error:
            raise InputError(
                f"the type {name} cannot be mapped to {type_!r}: {error.message}", hint=error.hint
            ) from None
        checked[name.strip().lower()] = type_
    return checked


def column_of(table: str, name: str, found: Any, told: Mapping[str, str]) -> tuple[Column, str]:
    """Return the column of a lake for one of DuckDB's, and the SQL type to cast its values to.

    Raise ``InputError``, with the type to map it to, when there is none.
    """
    try:
        wanted = duckdb_type(found, told)
        column = to_column(name, wanted)
        if column.travels_as_text and column.type != "interval":
            raise InputError(f"a lake takes no values of the type {wanted} from Arrow", hint="VARCHAR")
    except InputError as error:
        base = found.id.upper()
        hint = error.hint if error.hint in _REFUSED.values() or error.hint == "VARCHAR" else "VARCHAR"
        raise InputError(
            f'the column "{name}" of {table} is {found}, which cannot be imported',
            hint=f"map the type: map_types={{{base!r}: …}}, or --map-type '{base}=…', to {hint}",
        ) from None
    return column, wanted


def schema_of(columns: Iterable[Column]) -> TableSchema:
    """Return a schema of columns, numbered as in a new table. Raise ``InputError`` for names that it cannot have."""
    given = list(columns)
    found = to_schema([(column.name, column.duckdb_type()) for column in given])
    return TableSchema(
        tuple(replace(one, nullable=column.nullable) for one, column in zip(found.columns, given, strict=True))
    )
