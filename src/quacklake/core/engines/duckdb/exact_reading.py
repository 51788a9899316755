"""Read text as the types of a table without loss: DuckDB would round 1.5, cut the time off a day and drop an offset."""

from __future__ import annotations

from typing import Any

from quacklake.core.format.names import literal, quote

__all__ = ["LOCAL", "WHOLE", "ZONED", "day", "lossless", "whole", "wider"]

WHOLE = frozenset({"TINYINT", "SMALLINT", "INTEGER", "BIGINT", "UTINYINT", "USMALLINT", "UINTEGER", "UBIGINT"})
LOCAL = frozenset({"TIMESTAMP", "TIMESTAMP_S", "TIMESTAMP_MS", "TIMESTAMP_NS"})
ZONED = "TIMESTAMP WITH TIME ZONE"
_WIDE = dict.fromkeys(WHOLE, "DECIMAL(38,18)") | dict.fromkeys(LOCAL - {"TIMESTAMP_NS"} | {"DATE"}, ZONED)
"""The type that holds all of what a text may say for another. DuckDB heeds offsets of nanoseconds by itself."""
_SHOWN = 100


def wider(kind: Any) -> str:
    """Return a DuckDB type, at any depth, as the type that can hold all of what a JSON text may say for it.

    >>> from quacklake.core.duckdb_versions import connect
    >>> wider(connect().type("STRUCT(n INTEGER, day DATE)"))
    'STRUCT("n" DECIMAL(38,18), "day" TIMESTAMP WITH TIME ZONE)'
    """
    match kind.id:
        case "struct":
            return f"STRUCT({', '.join(f'{quote(name)} {wider(child)}' for name, child in kind.children)})"
        case "list":
            return f"{wider(kind.children[0][1])}[]"
        case "array":
            return f"{wider(kind.children[0][1])}[{kind.children[1][1]:d}]"
        case "map":
            key, value = (wider(child) for _, child in kind.children)
            return f"MAP({key}, {value})"
    return _WIDE.get(str(kind), str(kind))


def lossless(name: str, type_: str, wide: str) -> str:
    """Return SQL that casts a column from a wider type, and raises an error where something would be lost.

    The time zone of the session must be UTC.
    """
    column = quote(name)
    message = literal(f'the column "{name}" has the type {type_}, which cannot hold ')
    lost = f"CAST(CAST({column} AS {type_}) AS {wide}) IS DISTINCT FROM {column}"
    return f"CASE WHEN {lost} THEN error({message} || left({column}::VARCHAR, {_SHOWN:d})) ELSE {column}::{type_} END"


def whole(name: str, type_: str) -> str:
    """Return SQL for a DOUBLE that must be a whole number."""
    column = quote(name)
    message = literal(f'the column "{name}" takes whole numbers, and has ')
    wrong = f"{column} <> trunc({column}) OR abs({column}) >= {1 << 53:d}"
    return f"CASE WHEN {wrong} THEN error({message} || {column}) ELSE {column}::{type_} END"


def day(name: str, type_: str) -> str:
    """Return SQL for a time of the given type that must be a day."""
    column = quote(name)
    moment = f"make_timestamp(epoch_us({column}))" if type_ == ZONED else column
    message = literal(f'the column "{name}" takes days, and has ')
    return f"CASE WHEN {moment} <> {moment}::DATE THEN error({message} || {moment}) ELSE {moment}::DATE END"
