"""The parameters of statements as Arrow: the types that clients are told, and the values that they send."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from quacklake.core.sql.words import numbered
from quacklake.errors import InputError
from quacklake.extend.names import fold
from quacklake.extend.sql import words_of

__all__ = ["fill_with_nulls", "parameters_of", "rows_of", "schema_of"]

_SIMPLE: Mapping[str, pa.DataType] = {
    "BOOLEAN": pa.bool_(),
    "TINYINT": pa.int8(),
    "SMALLINT": pa.int16(),
    "INTEGER": pa.int32(),
    "BIGINT": pa.int64(),
    "UTINYINT": pa.uint8(),
    "USMALLINT": pa.uint16(),
    "UINTEGER": pa.uint32(),
    "UBIGINT": pa.uint64(),
    "HUGEINT": pa.decimal128(38, 0),
    "UHUGEINT": pa.decimal128(38, 0),
    "FLOAT": pa.float32(),
    "DOUBLE": pa.float64(),
    "VARCHAR": pa.string(),
    "BLOB": pa.binary(),
    "DATE": pa.date32(),
    # JDBC's driver writes milliseconds, whatever the unit is
    "TIME": pa.time32("ms"),
    **dict.fromkeys(("TIMESTAMP", "TIMESTAMP_S", "TIMESTAMP_MS", "TIMESTAMP_NS"), pa.timestamp("ms")),
    "TIMESTAMP WITH TIME ZONE": pa.timestamp("ms", "UTC"),
}
"""The types that clients can send; of all others they send the text."""
_DECIMAL = re.compile(r"DECIMAL\((\d+),(\d+)\)")


def parameters_of(sql: str) -> list[str]:
    """Return the parameters of a statement: those with numbers in their order, those with names as they appear.

    >>> parameters_of("SELECT ? + ? + $2"), parameters_of("SELECT $b, $a, $B")
    (['1', '2'], ['b', 'a'])
    """
    if "?" not in sql and "$" not in sql:
        return []
    names = [word.parameter for word in words_of(numbered(sql)) if word.kind == "parameter"]
    return sorted(dict.fromkeys(names), key=lambda name: int(name) if name.isdigit() else 0)


def schema_of(sql: str, types: Mapping[str, str]) -> pa.Schema:
    """Return the columns in which a client sends the values of a statement's parameters."""
    return pa.schema([(name, _arrow(types.get(name, ""))) for name in parameters_of(sql)])


def _arrow(type_: str) -> pa.DataType:
    decimal = _DECIMAL.fullmatch(type_)
    return pa.decimal128(int(decimal[1]), int(decimal[2])) if decimal else _SIMPLE.get(type_, pa.string())


def fill_with_nulls(sql: str, types: Mapping[str, str]) -> str:
    """Return a statement with NULL of its type in place of each parameter.

    >>> fill_with_nulls("SELECT ? + $2", {"1": "DOUBLE"})
    'SELECT CAST(NULL AS DOUBLE) + NULL'
    """
    text = numbered(sql)
    parts, done = [], 0
    for word in words_of(text):
        if word.kind == "parameter":
            type_ = types.get(word.parameter, "")
            known = type_ in _SIMPLE or _DECIMAL.fullmatch(type_) is not None
            parts += [text[done : word.start], f"CAST(NULL AS {type_})" if known else "NULL"]
            done = word.end
    return "".join([*parts, text[done:]])


def rows_of(sql: str, table: pa.Table) -> Sequence[Mapping[str, Any] | None]:
    """Return the values of each row by the names of parameters: columns are found by name, or by their order.

    Raise ``InputError`` for another number of columns.
    """
    names, columns = parameters_of(sql), [fold(name) for name in table.column_names]
    if not columns:
        return [None] * table.num_rows
    if len(columns) != len(names):
        raise InputError(f"the statement has {len(names)} parameters, and {len(columns)} values were sent")
    named = columns if set(columns) == set(names) else names
    values = [column.to_pylist() for column in table.columns]
    return [dict(zip(named, row, strict=True)) for row in zip(*values, strict=True)]
