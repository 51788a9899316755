"""Rows of a large table of PostgreSQL, fetched as blocks of columns.

A driver makes an object of every row of a COPY, and its text has to be read value by value. Here the server joins the
values of each column over some pages of the table, in the binary form of their type, and one row of the COPY is a block
of rows. A column of Arrow is then the same bytes in the order of this machine.
"""

from __future__ import annotations

import functools
import operator
import sys
from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import BYTEA
from sqlalchemy.engine import Connection

from quacklake.catalog.databases.postgres_direct import literal_text
from quacklake.catalog.tables import NamedType
from quacklake.errors import CatalogError
from quacklake.format.names import quote

LEAST_PAGES = 256
"""The pages of a table from which on its rows are fetched as blocks."""
_PAGES = 256
"""The pages of a block, 2 MB: what the server and we hold at a time, or more if the values were compressed."""
_MOST_COLUMNS = 400
"""The most columns of a table; the server limits the values of a block to 1,664."""
_ARGUMENTS = 100
"""The most arguments of a function."""
_TID_RANGES = 140_000
"""The version since which the server finds the rows of some pages without reading the others."""
_HEAP = 2
"""The access method of tables that are made of pages, as PostgreSQL numbers it."""
_LAST_PLACE = "(4294967294,0)"


@dataclass(frozen=True, slots=True)
class _Fixed:
    """A type of fixed width: the function that gives its bytes, those that stand for NULL, and how they are read.

    A NULL has to take its place among the bytes. A value may have the same bytes, so the server counts the NULLs.
    """

    send: str
    null: bytes
    bits: tuple[str, pa.DataType]
    arrow: pa.DataType


_NO_LENGTH = b"\xff" * 4
_INT64, _INT32 = ("q", pa.int64()), ("i", pa.int32())
_MARK = bytes.fromhex("fff5a8c3917e4d2b")  # as a float, a NaN that no computation gives
_INTEGER = _Fixed("int8send", _MARK, _INT64, pa.int64())
_BOOLEAN = _Fixed("boolsend", b"\2", ("b", pa.int8()), pa.bool_())
_FLOATS = {
    "DOUBLE PRECISION": _Fixed("float8send", _MARK, _INT64, pa.float64()),
    "REAL": _Fixed("float4send", bytes.fromhex("ffb5a8c3"), _INT32, pa.float32()),
}


def fetch_blocks(connection: Connection, select: sa.Select[Any], pages: int) -> pa.Table | None:
    """Return the rows of a select from one table of so many pages; None if they have to be fetched in another way.

    Types are int64, booleans, floats, bytes, and text for anything else. No value may lie outside of its row, because
    a block holds all values of its pages.
    """
    driver: Any = connection.connection.driver_connection
    columns = list(select.selected_columns)
    if len(columns) > _MOST_COLUMNS or not _understood(driver):
        return None
    kinds = [_fixed(column.type) for column in columns]
    schema = pa.schema([(column.name, _arrow(column.type)) for column in columns])
    batches, exact = [], True
    with driver.cursor() as cursor, cursor.copy(_statement(connection, select, kinds, pages)) as copy:
        copy.set_types(["int8", "int8", *("bytea" for kind in kinds for _ in range(1 if kind else 2))])
        for count, nulls, *parts in copy.rows():
            if count and exact:
                arrays, marks = _arrays(count, parts, kinds, schema.types)
                exact = marks == nulls
                batches.append(pa.RecordBatch.from_arrays(arrays, schema=schema))
    return pa.Table.from_batches(batches, schema) if exact else None


def table_pages(name: sa.ColumnElement[str], schema: str | None) -> sa.ColumnElement[int]:
    """Return the pages of the table of that name; NULL unless all of its values lie in them."""
    names = ("oid", "relkind", "relam", "reltoastrelid")
    table = sa.table("pg_class", *(sa.column(each) for each in names), schema="pg_catalog").alias("stored")
    prefix = "" if schema is None else f"{quote(schema)}."
    whole = sa.literal(prefix) + sa.func.quote_ident(name)
    outside = sa.func.coalesce(sa.func.pg_relation_size(table.c.reltoastrelid), 0)
    size = sa.cast(sa.func.current_setting("block_size"), sa.BigInteger)
    return (
        sa.select(sa.func.pg_relation_size(table.c.oid).op("/")(size))
        .where(table.c.oid == sa.func.to_regclass(whole), table.c.relkind == "r", table.c.relam == _HEAP, outside == 0)
        .scalar_subquery()
    )


def _understood(driver: Any) -> bool:
    """Return whether the server finds pages quickly, and texts have the same bytes there and here."""
    encodings = (driver.pgconn.parameter_status(name) for name in (b"server_encoding", b"client_encoding"))
    return driver.info.server_version >= _TID_RANGES and all(encoding == b"UTF8" for encoding in encodings)


def _fixed(type_: sa.types.TypeEngine[Any]) -> _Fixed | None:
    """Return how values of a fixed width are sent; None for bytes, and for what travels as text."""
    if isinstance(type_, sa.Integer):
        return _INTEGER
    if isinstance(type_, sa.Boolean):
        return _BOOLEAN
    return _FLOATS.get(type_.name) if isinstance(type_, NamedType) else None


def _arrow(type_: sa.types.TypeEngine[Any]) -> pa.DataType:
    kind = _fixed(type_)
    if kind is not None:
        return kind.arrow
    return pa.binary() if isinstance(type_, sa.LargeBinary) else pa.string()


def _statement(connection: Connection, select: sa.Select[Any], kinds: Sequence[_Fixed | None], pages: int) -> str:
    """Return the COPY of blocks: the number of rows, that of the NULLs of fixed width, and the parts of columns."""
    fixed: list[sa.ColumnElement[Any]] = []
    parts: list[sa.ColumnElement[Any]] = []
    for column, kind in zip(select.selected_columns, kinds, strict=True):
        value = column.element if isinstance(column, sa.Label) else column
        if kind is not None:
            fixed.append(value)
            sent = getattr(sa.func, kind.send)(value)
            parts.append(_joined(sa.func.coalesce(sent, sa.literal_column(f"'\\x{kind.null.hex()}'::bytea"))))
        else:
            value = sa.cast(value, BYTEA if isinstance(column.type, sa.LargeBinary) else sa.Text)
            length = sa.func.coalesce(sa.func.octet_length(value), sa.literal_column("-1"))
            parts += [_joined(sa.func.int4send(length)), _joined(value)]
    figures = [sa.func.count(), _null_count(fixed), *parts]
    named = [figure.label(f"p{number}") for number, figure in enumerate(figures)]
    block = select.with_only_columns(*named, maintain_column_froms=True).where(
        sa.text("ctid >= quacklake_pages.begins AND ctid < quacklake_pages.ends")
    )
    blocks = f"CROSS JOIN LATERAL ({literal_text(connection, block)}) AS block"
    return f"COPY (SELECT block.* FROM ({_ranges(pages)}) AS quacklake_pages {blocks}) TO STDOUT (FORMAT binary)"


def _ranges(pages: int) -> str:
    """Return a query for the first place of each block and that after its last.

    The last block has no end: a row may have moved to a new page since the pages were counted.
    """
    end = f"CASE WHEN page + {_PAGES} > {pages:d} THEN '{_LAST_PLACE}' ELSE '(' || page + {_PAGES} || ',0)' END::tid"
    first = "('(' || page || ',0)')::tid"
    return f"SELECT {first} AS begins, {end} AS ends FROM generate_series(0, {pages:d}, {_PAGES}) AS page"


def _null_count(values: Sequence[sa.ColumnElement[Any]]) -> sa.ColumnElement[Any]:
    counts = [sa.func.num_nulls(*values[at : at + _ARGUMENTS]) for at in range(0, len(values), _ARGUMENTS)]
    return sa.cast(sa.func.coalesce(sa.func.sum(functools.reduce(operator.add, counts)), 0), sa.BigInteger)


def _joined(value: sa.ColumnElement[Any]) -> sa.ColumnElement[Any]:
    return sa.func.string_agg(value, sa.null())


def _arrays(
    count: int, parts: Sequence[bytes | None], kinds: Sequence[_Fixed | None], types: Sequence[pa.DataType]
) -> tuple[list[pa.Array], int]:
    """Return the columns of a block, and how many values of fixed width have the bytes that stand for NULL."""
    arrays, nulls, rest = [], 0, iter(parts)
    for kind, type_ in zip(kinds, types, strict=True):
        if kind is None:
            arrays.append(_variable_array(count, next(rest) or b"", next(rest) or b"", type_))
        else:
            values = _fixed_array(count, next(rest) or b"", kind)
            nulls += values.null_count
            arrays.append(values)
    return arrays, nulls


def _fixed_array(count: int, data: bytes, kind: _Fixed) -> pa.Array:
    bits = _numbers(count, data, kind.bits)
    values = pc.equal(bits, 1) if kind is _BOOLEAN else bits.view(kind.arrow)
    if kind.null not in data:
        return values
    null = _numbers(1, kind.null, kind.bits)[0]
    return pc.if_else(pc.equal(bits, null), pa.scalar(None, kind.arrow), values)


def _variable_array(count: int, lengths: bytes, data: bytes, type_: pa.DataType) -> pa.Array:
    sizes = _numbers(count, lengths, _INT32)
    ends = pc.cumulative_sum_checked(pc.max_element_wise(sizes, 0))
    if ends[-1].as_py() != len(data):
        raise CatalogError("the database sent values of other lengths than it said")
    offsets = pa.concat_arrays([pa.array([0], pa.int32()), ends.cast(pa.int32())])
    valid = pc.greater_equal(sizes, 0).buffers()[1] if _NO_LENGTH in lengths else None
    return pa.Array.from_buffers(type_, count, [valid, offsets.buffers()[1], pa.py_buffer(data)])


def _numbers(count: int, data: bytes, bits: tuple[str, pa.DataType]) -> pa.Array:
    """Return numbers that travel with their highest byte first."""
    code, type_ = bits
    numbers = array(code, data)
    if len(numbers) != count:
        raise CatalogError(f"the database sent {len(numbers)} values for {count} rows")
    if sys.byteorder == "little":
        numbers.byteswap()
    return pa.Array.from_buffers(type_, count, [None, pa.py_buffer(numbers)])
