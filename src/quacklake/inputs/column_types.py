"""Parse columns as users write them: SQL, Arrow, pandas, polars or Python types, in a mapping or a list."""

from __future__ import annotations

import dataclasses
import datetime as dt
import re
import sys
import types
import typing
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import replace
from decimal import Decimal
from typing import Any

import pyarrow as pa

from quacklake.core.format.schema import Column, TableSchema, from_arrow
from quacklake.core.format.texts import parse_column
from quacklake.errors import InputError

_PYTHON: Mapping[Any, str] = {
    bool: "boolean",
    bytearray: "blob",
    bytes: "blob",
    dt.date: "date",
    dt.datetime: "timestamp",
    dt.time: "time",
    dt.timedelta: "interval",
    Decimal: "decimal",
    float: "float64",
    int: "bigint",
    str: "varchar",
    uuid.UUID: "uuid",
}
_OTHERS = {
    "bytes": "blob",
    "str": "varchar",
    "datetime64": "timestamp",
    "large_utf8": "varchar",
    "timedelta64[ns]": "interval",
    "timedelta64[us]": "interval",
    "utf8": "varchar",
}
"""Type names that neither SQL nor Arrow has."""
_HINTS = {
    "category": 'write "VARCHAR", or the type of its values',
    "dict": 'write dict[str, int] for a map, {"x": float} for a struct, or "JSON" for anything',
    "float": 'write float, the type of Python, or "DOUBLE" for 8 bytes; "REAL" for 4',
    "int8": 'write "TINYINT" for 1 byte, "BIGINT" for 8',
    "list": "write list[int], with the type of its values",
    "object": 'write "VARCHAR", or the type of its values',
    "set": "write list[int], with the type of its values",
    "tuple": "write list[int], with the type of its values",
}
_ZONED = re.compile(r"(?:timestamp|datetime64)\[(?:s|ms|us|ns),\s*(?:tz=)?[^\]]+\]")
_TIME = re.compile(r"(?:timestamp|datetime64)\[(s|ms|us|ns)\]")
_LIST = re.compile(r"list(?:<(?:\w+:\s*)?(.+)>|\[(.+)\])", re.DOTALL)
_NOT_NULL = re.compile(r"\s+not\s+null\s*$", re.IGNORECASE)
_COLUMN = re.compile(r"\s*(\w+)\s+(\w+)")
_EXAMPLES = 'write int, "BIGINT" or pa.int64()'
_MAX_DEPTH = 64


def to_schema(columns: Any) -> TableSchema | None:
    """Return the schema of a dataclass, or of a mapping or list of names and types; None for rows.

    Raise ``InputError`` for a mix of types and values.

    >>> to_schema({"id": int, "name": "VARCHAR"}).names
    ('id', 'name')
    """
    if isinstance(columns, TableSchema):
        return columns
    if isinstance(columns, str):
        _check_no_columns(columns)
    if isinstance(columns, pa.Schema):
        return from_arrow(columns)
    if isinstance(columns, type) and dataclasses.is_dataclass(columns):
        from quacklake.inputs.row_types import RowType

        return RowType(columns).columns
    if isinstance(columns, Mapping):
        pairs = list(columns.items())
    elif isinstance(columns, list | tuple) and columns and all(map(_is_pair, columns)):
        pairs = [(each.name, each) if isinstance(each, pa.Field) else tuple(each) for each in columns]
    else:
        return None
    typed = [name for name, value in pairs if _is_type(value)]
    if not typed and pairs:
        return None
    values = [name for name, value in pairs if not _is_type(value)]
    if values:
        raise InputError(
            f'the column "{typed[0]}" has a type, the column "{values[0]}" has {type(dict(pairs)[values[0]]).__name__}',
            hint="pass a type for each column, or a list of values for each",
        )
    return number_columns([_make_column(str(name), type_) for name, type_ in pairs])


def _check_no_columns(text: str) -> None:
    """Raise ``InputError`` for an SQL column list, because text here names a file."""
    first = _COLUMN.match(text)
    if first is None:
        return
    try:
        parse_column(first[1], first[2])
    except InputError:
        return
    hint = 'pass a mapping, {"id": "BIGINT", "name": "VARCHAR"}, or use lake.sql("CREATE TABLE …")'
    raise InputError(f"{text!r} is not the name of a file", hint=hint)


def _make_column(name: str, type_: Any) -> Column:
    try:
        return to_column(name, type_)
    except InputError as error:
        hint = error.hint
        if isinstance(type_, str) and hint is None:
            hint = f'types are such as "BIGINT" or int; to give values, pass a list: {{"{name}": ["{type_}"]}}'
        raise InputError(f'the column "{name}": {error.message}', hint=hint) from None


def number_columns(columns: Sequence[Column]) -> TableSchema:
    """Number the columns as in a new table, and check their names."""
    fields = [column.arrow_field() for column in columns]
    ids = from_arrow(pa.schema(fields))

    def numbered(column: Column, like: Column) -> Column:
        children = zip(column.children, like.children, strict=True)
        return replace(column, id=like.id, children=tuple(numbered(*pair) for pair in children))

    return TableSchema(tuple(numbered(*pair) for pair in zip(columns, ids.columns, strict=True)))


def _is_pair(value: Any) -> bool:
    if isinstance(value, pa.Field):
        return True
    return isinstance(value, tuple) and len(value) == 2 and isinstance(value[0], str) and _is_type(value[1])


def _is_type(value: Any) -> bool:
    if isinstance(value, Mapping):
        return bool(value) and all(map(_is_type, value.values()))
    if isinstance(value, str | type | pa.DataType | pa.Field | types.GenericAlias | types.UnionType):
        return True
    return typing.get_origin(value) is not None or _is_dtype(value)


def _is_dtype(value: Any) -> bool:
    """Return whether a value is a numpy, pandas or polars type, without importing these packages."""
    package = type(value).__module__.partition(".")[0]
    return package in ("numpy", "pandas", "polars") and (
        (package == "polars" and hasattr(value, "base_type")) or type(value).__name__.endswith(("DType", "Dtype"))
    )


def to_column(name: str, type_: Any, depth: int = 0) -> Column:
    """Return a column for a type in any spelling, without valid ids. Raise ``InputError`` that says what to write.

    Text is read as an SQL type first (``INTEGER``, ``DECIMAL(10,2)``, also with ``NOT NULL``), then as an Arrow or
    pandas type. Python's ``int`` and ``float`` have 8 bytes, and ``Decimal`` is ``DECIMAL(18,3)``.

    >>> to_column("tags", list[str]).duckdb_type(), to_column("price", "decimal(10, 2) NOT NULL").nullable
    ('VARCHAR[]', False)
    """
    if depth > _MAX_DEPTH:
        raise InputError("the type is nested too deeply")
    if isinstance(type_, pa.Field):
        return from_arrow(pa.schema([type_.with_name(name)])).columns[0]
    if isinstance(type_, pa.DataType):
        return from_arrow(pa.schema([pa.field(name, type_)])).columns[0]
    if isinstance(type_, str):
        return _from_text(name, type_, depth)
    if isinstance(type_, Mapping):
        fields = (to_column(str(field), inner, depth + 1) for field, inner in type_.items())
        return Column(0, name, "struct", children=tuple(fields))
    if type_ in _PYTHON:
        return parse_column(name, _PYTHON[type_])
    arguments = [each for each in typing.get_args(type_) if each is not type(None)]
    origin = typing.get_origin(type_)
    if origin in (types.UnionType, typing.Union) and len(arguments) == 1:
        return to_column(name, arguments[0], depth + 1)  # X | None
    if origin is dict and len(arguments) == 2:
        key, value = (
            to_column(part, inner, depth + 1) for part, inner in zip(("key", "value"), arguments, strict=True)
        )
        return Column(0, name, "map", children=(key, value))
    if origin in (list, set, frozenset, tuple) and [each for each in arguments if each is not ...][1:] == []:
        return Column(0, name, "list", children=(to_column("element", arguments[0], depth + 1),))
    return _from_package(name, type_, depth)


def _from_text(name: str, text: str, depth: int) -> Column:
    if _NOT_NULL.search(text):
        return replace(_from_text(name, _NOT_NULL.sub("", text), depth), nullable=False)
    word = text.strip().removesuffix("[pyarrow]").removesuffix("[python]")
    lower = word.lower()
    if lower in _HINTS and word == lower:
        raise InputError(f'the type "{text}" can mean different things', hint=_HINTS[lower])
    if _ZONED.fullmatch(lower):
        return parse_column(name, "timestamptz")
    if time := _TIME.fullmatch(lower):
        return parse_column(name, f"timestamp_{time[1]}")
    if (inner := _LIST.fullmatch(word)) is not None:
        return Column(0, name, "list", children=(to_column("element", inner[1] or inner[2], depth + 1),))
    try:
        return parse_column(name, _OTHERS.get(lower, re.sub(r"^decimal(128|256)\(", "decimal(", lower) or word))
    except InputError as error:
        try:
            return to_column(name, pa.type_for_alias(lower), depth)
        except ValueError:
            raise error from None


def _from_package(name: str, type_: Any, depth: int) -> Column:
    if _is_dtype(type_) or isinstance(type_, type):
        package = (type_ if isinstance(type_, type) else type(type_)).__module__.partition(".")[0]
        if package == "polars":
            schema = sys.modules["polars"].DataFrame(schema={name: type_}).to_arrow().schema
            return from_arrow(schema).columns[0]
        if package == "numpy":
            dtype = sys.modules["numpy"].dtype(type_)
            if dtype.hasobject:
                return _from_text(name, "object", depth)
            try:
                return to_column(name, pa.from_numpy_dtype(dtype))
            except pa.ArrowNotImplementedError:
                raise InputError(f"{dtype} is not a type of a column", hint=_EXAMPLES) from None
        if package == "pandas":
            return _from_text(name, str(type_), depth)
    word = getattr(type_, "__name__", str(type_))
    raise InputError(f"{word} is not a type of a column", hint=_HINTS.get(word, _EXAMPLES))
