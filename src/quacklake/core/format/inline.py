"""The form of rows that live inside the catalog, per database.

Stock DuckLake gives an inlined table one column per top-level column, of the database's own type where that can hold
every value and of text (or bytes) as DuckDB casts it where it cannot.

In a shared lake each row is one text, a JSON array with the texts of its values in schema order, as ``encode`` gives
them for ``PACKED``: a table for each table of each tenant would not hold at many tenants.

Every database limits the columns of a row, and some its bytes. What a row takes at most follows from its columns alone,
so that a table either inlines its rows or never does.
"""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import Any

import pyarrow as pa

from quacklake.core.format.bounds import encoder
from quacklake.core.format.names import fold
from quacklake.core.format.schema import Column, rebuilt
from quacklake.core.format.types import from_physical, parse_type
from quacklake.errors import CatalogError, ConstraintError

PACKED = "packed"
"""Stands for a database where a row is one text of texts, as in a shared lake."""

_INTEGERS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32")
_POSTGRES: Mapping[str, str] = {
    "boolean": "BOOLEAN", "int8": "SMALLINT", "int16": "SMALLINT", "int32": "INTEGER", "int64": "BIGINT",
    "uint8": "INTEGER", "uint16": "INTEGER", "uint32": "BIGINT", "float32": "REAL",
    "float64": "DOUBLE PRECISION", "varchar": "BYTEA", "json": "BYTEA", "blob": "BYTEA", "variant": "BYTEA",
    "null": "INTEGER", "uuid": "UUID", "time": "TIME", "timetz": "TIME WITH TIME ZONE", "interval": "INTERVAL",
}  # fmt: skip
_TEMPORAL = ("date", "timestamp", "timestamp_s", "timestamp_ms", "timestamp_ns", "timestamptz", "time", "time_ns")
_TEXT = ("varchar", "json")
PREFIX = "_ducklake_"
"""The prefix of columns that are not a user's in 1.1; no column of a user may have it."""
LIFE = ("row_id", "begin_snapshot", "end_snapshot")
"""The columns before an inlined row, or beside a packed one."""
_NAME = re.compile(r"ducklake_inlined_(?:data_([0-9]+)_([0-9]+)|delete_([0-9]+))", re.ASCII)


def data_table_name(table_id: int, schema_version: int) -> str:
    """Return the name of the table that holds a table's inlined rows of one schema version."""
    return f"ducklake_inlined_data_{table_id}_{schema_version}"


def delete_table_name(table_id: int) -> str:
    """Return the name of the table that holds the inlined deletes of a table's files."""
    return f"ducklake_inlined_delete_{table_id}"


def parse_table_name(name: str) -> tuple[int, int | None] | None:
    """Return the table and schema version of such a name, no version for inlined deletes; None for another name."""
    match = _NAME.fullmatch(name)
    if match is None:
        return None
    return (int(match[3]), None) if match[3] is not None else (int(match[1]), int(match[2]))


def is_reserved(name: str) -> bool:
    """Return True for the name of one of the columns that tables of inlined rows have before those of the rows."""
    return fold(name) in LIFE


def supports(column: Column, database: str, *, prefixed: bool = False) -> bool:
    """Return False when rows with such a column must go to a file; ``prefixed`` as inlined tables of 1.1 are."""
    types = {node.type for node in column.walk()}
    reserved = fold(column.name).startswith(PREFIX) if prefixed else is_reserved(column.name)
    # of a VARIANT the catalog would keep the text, and forget whether 42 was a number
    if types & {"geometry", "variant", "timestamptz_ns"} or reserved:
        return False
    # PostgreSQL cuts identifiers at 63 bytes: two long names could become one
    return database not in ("postgres", "mysql") or len(column.name.encode()) <= 63


def sql_type(column: Column, database: str) -> str:
    """Return the SQL type of an inlined column, as stock DuckLake declares it."""
    if database == "duckdb":
        return column.duckdb_type()
    base = column.type if column.nested else parse_type(column.type).base
    if database == "postgres":
        return (
            column.duckdb_type().replace("DECIMAL", "NUMERIC") if base == "decimal" else _POSTGRES.get(base, "VARCHAR")
        )
    if base in ("boolean", "null") or base in _INTEGERS:
        return "BIGINT"
    if base in ("blob", "variant"):
        return "LONGBLOB" if database == "mysql" else "BLOB"
    return "LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin" if database == "mysql" else "VARCHAR"


def encode(array: pa.Array | pa.ChunkedArray, column: Column, database: str) -> list[Any] | None:
    """Return the values of a column in its own Arrow type as parameters; None if only DuckDB can write them."""
    base = column.type if column.nested else parse_type(column.type).base
    if base == "null" and array.null_count < len(array):
        raise ConstraintError(f'the column "{column.name}" of the type null holds nothing but NULL')
    if base == "float32" and database not in ("postgres", "duckdb"):
        array = array.cast(pa.string())
    elif base in _TEMPORAL:
        # as integers of their own unit, because Python's datetime cannot hold them all
        unit, bits, text = getattr(array.type, "unit", "D"), array.type.bit_width, encoder(column.type)
        ticks = array.cast(pa.int32() if bits == 32 else pa.int64()).to_pylist()
        return [None if tick is None else text(from_physical(tick, unit, bits=bits)) for tick in ticks]
    write = writer(base, database)
    if write is None and base not in _AS_IS:
        return None
    values: list[Any] = array.to_pylist()
    return values if write is None else [None if value is None else write(value) for value in values]


def writer(base: str, database: str) -> Callable[[Any], Any] | None:
    """Return what turns a value of a simple type into a parameter; None for one that is a parameter itself."""
    return _WRITTEN.get((base, database)) or _SIMPLE.get(base)


_AS_IS = ("boolean", "null", *_INTEGERS, *_TEXT, "blob", "float32", "float64")
_WRITTEN: Mapping[tuple[str, str], Callable[[Any], Any]] = {
    **{("boolean", database): int for database in ("sqlite", "mysql", PACKED)},
    **{("float64", database): repr for database in ("sqlite", "mysql", PACKED)},
    **{(base, "postgres"): str.encode for base in _TEXT},
    ("blob", PACKED): bytes.hex,
}
_SIMPLE: Mapping[str, Callable[[Any], Any]] = {
    "uuid": lambda value: str(uuid.UUID(bytes=value)) if isinstance(value, bytes) else str(value),
    "decimal": lambda value: format(value, "f"),
    "uint64": str,
    **dict.fromkeys(
        ("int128", "uint128"), lambda value: format(value, "f") if isinstance(value, Decimal) else str(value)
    ),
}


def is_text(column: Column) -> bool:
    """Return True for a column whose values are texts by themselves."""
    return not column.nested and parse_type(column.type).base in _TEXT


def decode_expression(column: Column, database: str, reference: str, *, as_bytes: bool = False) -> str:
    """Return a DuckDB expression that turns a stored value back.

    PostgreSQL's bytes come in hexadecimal, or with ``as_bytes`` as they are.
    """
    if database in ("postgres", PACKED) and not column.nested:
        base = parse_type(column.type).base
        stored_bytes = reference if as_bytes else f"unhex({reference})"
        if base in _TEXT and database == "postgres":
            reference = f"decode({stored_bytes})"
        elif base in ("blob", "variant"):
            reference = stored_bytes
    if database != "duckdb" and any(node.type == "variant" for node in column.walk()):
        stored = _as_bytes(column)
        return rebuilt(f"CAST({reference} AS {stored.duckdb_type()})", stored, column)
    return f"CAST({reference} AS {column.duckdb_type()})"


def _as_bytes(column: Column) -> Column:
    """Return the column with its variants as the bytes that they have in Parquet: metadata, then the value."""
    children = tuple(_as_bytes(child) for child in column.children)
    return replace(column, type="blob" if column.type == "variant" else column.type, children=children)


def pack(values: Iterable[Any]) -> str:
    """Return the encoded values of a row as one text."""
    return json.dumps([None if value is None else str(value) for value in values], ensure_ascii=True)


def has_width(payload: str, width: int) -> bool:
    """Return whether a text is a packed row of that many values."""
    try:
        return len(_values(payload)) == width
    except CatalogError:
        return False


def check_packed(payload: str) -> None:
    """Raise ``CatalogError`` for a text that is no packed row."""
    _values(payload)


def _values(payload: str) -> list[str | None]:
    """Return the encoded values of a packed row. Raise ``CatalogError`` for a text that is none."""
    try:
        found = json.loads(payload)
    except ValueError:
        found = None
    if not isinstance(found, list) or not all(value is None or isinstance(value, str) for value in found):
        raise CatalogError(
            "the catalog has an inlined row that is not a list of texts", hint="verify shows where it is"
        )
    return found


def values_expression(payload: str) -> str:
    """Return a DuckDB expression for the list of texts in a packed row, or what DuckDB takes for one."""
    return f"from_json_strict({payload}, '[\"VARCHAR\"]')"


def is_plain_expression(payload: str, values: str, width: int) -> str:
    """Return a DuckDB expression that is false for packed rows that ``check_packed`` has to see.

    A list of so many texts without escapes takes just the bytes of the texts and of what stands around them. One with a
    number, or with anything else that DuckDB makes a text of, takes fewer; nobody writes blanks that make up for it.
    """
    sizes = "".join(f" + coalesce(strlen({values}[{place + 1}]) + 2, 4)" for place in range(width))
    return f"strlen({payload}) = {2 * max(width, 1)}{sizes} AND NOT contains({payload}, '\\')"


@dataclass(frozen=True, slots=True)
class _Limits:
    """The limits of one row of a table: ``sizes`` are the most bytes that a value takes inside the row, and what its
    place is a multiple of; a type that is not named takes ``others``, longer values lie outside the row.
    """

    columns: int
    row_bytes: int | None = None
    head: int = 0
    others: int = 0
    sizes: Mapping[str, tuple[int, int]] = field(default_factory=dict)


_POSTGRES_SIZES: Mapping[str, tuple[int, int]] = {
    "BOOLEAN": (1, 1), "SMALLINT": (2, 2), "INTEGER": (4, 4), "BIGINT": (8, 8), "REAL": (4, 4), "UUID": (16, 1),
    "DOUBLE PRECISION": (8, 8), "TIME": (8, 8), "TIME WITH TIME ZONE": (12, 8), "INTERVAL": (16, 8),
}  # fmt: skip
_LIMITS: Mapping[str, _Limits] = {
    "sqlite": _Limits(columns=2000),
    # a page of 8 kB holds a whole row; a value goes elsewhere when it takes more than a pointer, rounded up to 24 bytes
    "postgres": _Limits(columns=1600, row_bytes=8160, head=23, others=24, sizes=_POSTGRES_SIZES),
    # InnoDB, half a page of 16 kB; a text goes elsewhere from 41 bytes on, its length takes one more
    "mysql": _Limits(columns=1017, row_bytes=8125, head=24, others=41, sizes={"BIGINT": (8, 1)}),
}


def fits(columns: Sequence[Column], database: str) -> bool:
    """Return True when a row with these columns, and those before them, has room in a table of the database."""
    limits = _LIMITS.get(database)
    if limits is None:
        return True
    count = len(LIFE) + len(columns)
    if count > limits.columns or limits.row_bytes is None:
        return count <= limits.columns
    types = ["BIGINT"] * len(LIFE) + [sql_type(column, database) for column in columns]
    end = limits.head + -(-count // 8)  # a bit for each column says whether it is NULL
    for type_ in types:
        size, multiple = limits.sizes.get(type_, (limits.others, 1))
        end = -(-end // multiple) * multiple + size
    return end <= limits.row_bytes
