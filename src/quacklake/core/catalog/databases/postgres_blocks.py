"""Many inlined rows of PostgreSQL, fetched as blocks of columns.

A driver makes an object of every row of a COPY, and its text has to be read value by value. Here the server joins the
values of each column over some of the rows, in the binary form of their type, and one row of the COPY is a block of
rows. A column of Arrow is then the same bytes in the order of this machine.

NULL has to take its place among the values of a block, as bytes that are drawn by lot for every statement: to count the
NULLs of each row, and so be told of a value with the same 64 bits, would take a fifth of the server's time. A text may
hold what stands between two texts, which the number of rows shows: such a block is fetched once more, row by row.

The line "aggregate over rows that are still inlined" of ``benchmarks/README.md`` measures it.
"""

from __future__ import annotations

import secrets
import sys
from abc import ABC, abstractmethod
from array import array
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import BYTEA
from sqlalchemy.engine import Connection

from quacklake.core.catalog.databases.postgres_direct import copy_arrow, literal_text
from quacklake.core.catalog.tables import NamedType, TextBytes
from quacklake.core.format.names import quote
from quacklake.errors import CatalogError

LEAST_PAGES = 256
"""The pages of a table from which on its rows are fetched as blocks."""
LEAST_ROWS = 5_000
"""The packed rows of a table from which on they are fetched as blocks."""
_PAGES = 256
"""The pages of a block, 2 MB: what the server and we hold at a time, or more if the values were compressed."""
_ROWS = 8_192
"""The packed rows of a block."""
_MAX_BYTES = 8_192
"""The bytes of a packed row from which on its block is fetched row by row: a block is 64 MB at most."""
_MAX_COLUMNS = 400
"""The most columns of a table; the server limits the values of a block to 1,664."""
_TID_RANGES = 140_000
"""The version since which the server finds the rows of some pages without reading the others."""
_HEAP = 2
"""The access method of tables that are made of pages, as PostgreSQL numbers it."""
_LAST_PAGE, _LAST_ROW = (1 << 32) - 2, (1 << 63) - 1
_FACTS = 3
"""The columns of a block before the values: its first and last place, and the number of rows."""

Take = Callable[[pa.Table], None]
"""Receives some rows while the server sends more."""


@dataclass(frozen=True, slots=True)
class Blocks:
    """The cut of a table into blocks: a query for the ``first`` and ``last`` place of each, which are numbers.

    ``within`` makes the condition of the rows from one place to before another. Where texts may be longer than
    ``most_bytes``, none is NULL: a block with a longer one is fetched row by row.
    """

    places: str
    within: Callable[[str, str], sa.ColumnElement[bool] | sa.TextClause]
    most_bytes: int | None = None


def by_pages(pages: int) -> Blocks:
    """Return blocks of pages. The last has no end: a row may have moved to a new page since they were counted."""
    last = f"CASE WHEN page + {_PAGES} > {pages:d} THEN {_LAST_PAGE} ELSE page + {_PAGES} END"
    places = f"SELECT page AS first, {last} AS last FROM generate_series(0::bigint, {pages:d}, {_PAGES}) AS page"
    return Blocks(places, _on_pages)


def by_row_ids(connection: Connection, row_id: sa.Column[Any]) -> Blocks:
    """Return blocks of rows by their ids, for which there is an index: each begins where the one before has ended."""

    def after(place: str) -> str:
        beyond = sa.select(row_id).where(row_id > sa.literal_column(place)).order_by(row_id).offset(_ROWS - 1).limit(1)
        return f"({literal_text(connection, beyond)})"

    least = literal_text(connection, sa.select(sa.func.min(row_id).label("id")))
    places = (
        "WITH RECURSIVE ql_place (first, last) AS ("
        f"SELECT ql_least.id, {after('ql_least.id')} FROM ({least}) AS ql_least"
        f" UNION ALL SELECT ql_place.last, {after('ql_place.last')} FROM ql_place WHERE ql_place.last IS NOT NULL"
        f") SELECT first, coalesce(last, {_LAST_ROW}) AS last FROM ql_place"
    )

    def within(first: str, last: str) -> sa.ColumnElement[bool]:
        return sa.and_(row_id >= sa.literal_column(first), row_id < sa.literal_column(last))

    return Blocks(places, within, _MAX_BYTES)


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


def can_fetch(connection: Connection, select: sa.Select[Any]) -> bool:
    """Return whether the server finds blocks quickly, and texts have the same bytes there and here."""
    driver: Any = connection.connection.driver_connection
    encodings = (driver.pgconn.parameter_status(name) for name in (b"server_encoding", b"client_encoding"))
    return (
        len(select.selected_columns) <= _MAX_COLUMNS
        and driver.info.server_version >= _TID_RANGES
        and all(encoding == b"UTF8" for encoding in encodings)
    )


def fetch_blocks(connection: Connection, select: sa.Select[Any], blocks: Blocks, take: Take) -> None:
    """Hand the rows of a select from one table to ``take``, by blocks, in no order.

    Types are int64, booleans, floats, bytes, and text for anything else. No value may lie outside of its row unless
    ``most_bytes`` says how long it may be, because a block holds all values of its rows.
    """
    driver: Any = connection.connection.driver_connection
    columns = list(select.selected_columns)
    marks = _Marks.drawn(blocks.most_bytes)
    forms = [_form(column.type, marks) for column in columns]
    schema = pa.schema([(column.name, form.arrow) for column, form in zip(columns, forms, strict=True)])
    again: list[tuple[int, int]] = []
    with driver.cursor() as cursor, cursor.copy(_statement(connection, select, forms, blocks)) as copy:
        copy.set_types([*["int8"] * _FACTS, *("bytea" for form in forms for _ in range(form.parts))])
        for first, last, count, *parts in copy.rows():
            if count:
                rows = _rows(count, parts, forms, schema)
                if rows is None:
                    again.append((first, last))
                else:
                    take(rows)
    for first, last in again:
        take(copy_arrow(connection, select.where(blocks.within(f"{first:d}", f"{last:d}"))))


def _on_pages(first: str, last: str) -> sa.TextClause:
    return sa.text(f"ctid >= ('(' || {first} || ',0)')::tid AND ctid < ('(' || {last} || ',0)')::tid")


def _statement(connection: Connection, select: sa.Select[Any], forms: Sequence[_Form], blocks: Blocks) -> str:
    """Return the COPY of blocks: the facts of each, then the parts of its columns."""
    parts: list[sa.ColumnElement[Any]] = []
    for column, form in zip(select.selected_columns, forms, strict=True):
        parts += form.sent(column.element if isinstance(column, sa.Label) else column)
    named = [part.label(f"p{number}") for number, part in enumerate((sa.func.count(), *parts))]
    within = blocks.within("ql_block.first", "ql_block.last")
    values = literal_text(connection, select.with_only_columns(*named, maintain_column_froms=True).where(within))
    facts = "ql_block.first::bigint, ql_block.last::bigint, ql_values.*"
    every = f"SELECT {facts} FROM ({blocks.places}) AS ql_block CROSS JOIN LATERAL ({values}) AS ql_values"
    return f"COPY ({every}) TO STDOUT (FORMAT binary)"


def _rows(count: int, parts: Sequence[bytes | None], forms: Sequence[_Form], schema: pa.Schema) -> pa.Table | None:
    """Return the rows of a block; None if it cannot tell their texts."""
    rest = (part or b"" for part in parts)
    arrays = [form.read(count, rest) for form in forms]
    return pa.Table.from_arrays(arrays, schema=schema) if all(len(each) == count for each in arrays) else None


@dataclass(frozen=True, slots=True)
class _Marks:
    """The bytes of NULL among numbers of 64 bits and among texts; texts of more than ``most_bytes`` are left out."""

    number: bytes
    text: bytes
    most_bytes: int | None

    @classmethod
    def drawn(cls, most_bytes: int | None) -> _Marks:
        """Return marks that nobody can know before."""
        return cls(secrets.token_bytes(8), secrets.token_hex(8).encode(), most_bytes)


class _Form(ABC):
    """The form in which the values of a column travel in a block."""

    arrow: pa.DataType
    parts = 1

    @abstractmethod
    def sent(self, value: sa.ColumnElement[Any]) -> list[sa.ColumnElement[Any]]:
        """Return what the server sends of a block."""

    @abstractmethod
    def read(self, count: int, parts: Iterator[bytes]) -> pa.Array:
        """Return the values of so many rows from the next ``parts``; of more or fewer if the parts cannot tell them."""


@dataclass(frozen=True, slots=True)
class _Numbers(_Form):
    """Values of a fixed width: the function that gives their bytes, those of NULL, and how they are read."""

    send: str
    bits: tuple[str, pa.DataType]
    arrow: pa.DataType
    null: bytes

    def sent(self, value: sa.ColumnElement[Any]) -> list[sa.ColumnElement[Any]]:
        if self.send == "float8send":
            value = sa.cast(value, sa.Double)
        return [_join_texts(sa.func.coalesce(getattr(sa.func, self.send)(value), _bytes(self.null)))]

    def read(self, count: int, parts: Iterator[bytes]) -> pa.Array:
        data = next(parts)
        bits = _numbers(count, data, self.bits)
        values = pc.equal(bits, 1) if pa.types.is_boolean(self.arrow) else bits.view(self.arrow)
        if self.null not in data:
            return values
        null = _numbers(1, self.null, self.bits)[0]
        return pc.if_else(pc.equal(bits, null), pa.scalar(None, self.arrow), values)


@dataclass(frozen=True, slots=True)
class _Texts(_Form):
    """Texts, or the bytes of texts, with a byte between two of them."""

    arrow: pa.DataType
    between: bytes
    null: bytes
    most_bytes: int | None

    def sent(self, value: sa.ColumnElement[Any]) -> list[sa.ColumnElement[Any]]:
        is_text = pa.types.is_string(self.arrow)
        value = sa.cast(value, sa.Text if is_text else BYTEA)
        if self.most_bytes is not None:
            value = sa.case((sa.func.octet_length(value) <= self.most_bytes, value))
        literal = _text if is_text else _bytes
        return [_join_texts(sa.func.coalesce(value, literal(self.null)), literal(self.between))]

    def read(self, count: int, parts: Iterator[bytes]) -> pa.Array:
        data = next(parts)
        values = pc.split_pattern(pa.array([data], pa.binary()), pattern=self.between).flatten()
        if self.null in data:
            if self.most_bytes is not None:
                return values[:0]  # one was too long
            values = pc.if_else(pc.equal(values, self.null), pa.scalar(None, pa.binary()), values)
        return values.view(self.arrow)


class _Bytes(_Form):
    """Any bytes, and the length of each."""

    arrow = pa.binary()
    parts = 2
    _null = (-1).to_bytes(4, signed=True)

    def sent(self, value: sa.ColumnElement[Any]) -> list[sa.ColumnElement[Any]]:
        length = sa.func.coalesce(sa.func.octet_length(value), sa.literal_column("-1"))
        return [_join_texts(sa.func.int4send(length)), _join_texts(value)]

    def read(self, count: int, parts: Iterator[bytes]) -> pa.Array:
        lengths, data = next(parts), next(parts)
        sizes = _numbers(count, lengths, _INT32)
        ends = pc.cumulative_sum_checked(pc.max_element_wise(sizes, 0))
        if ends[-1].as_py() != len(data):
            raise CatalogError("the database sent values of other lengths than it said")
        offsets = pa.concat_arrays([pa.array([0], pa.int32()), ends.cast(pa.int32())])
        valid = pc.greater_equal(sizes, 0).buffers()[1] if self._null in lengths else None
        return pa.Array.from_buffers(self.arrow, count, [valid, offsets.buffers()[1], pa.py_buffer(data)])


_INT64, _INT32 = ("q", pa.int64()), ("i", pa.int32())


def _form(type_: sa.types.TypeEngine[Any], marks: _Marks) -> _Form:
    if isinstance(type_, sa.Integer):
        return _Numbers("int8send", _INT64, pa.int64(), marks.number)
    if isinstance(type_, sa.Boolean):
        return _Numbers("boolsend", ("b", pa.int8()), pa.bool_(), b"\2")
    if isinstance(type_, NamedType) and type_.name in ("DOUBLE PRECISION", "REAL"):
        return _Numbers("float8send", _INT64, pa.float64(), marks.number)
    if isinstance(type_, TextBytes):  # no text in UTF-8 has these bytes
        return _Texts(pa.binary(), b"\xff", b"\xfe" + marks.text, marks.most_bytes)
    return _Bytes() if isinstance(type_, sa.LargeBinary) else _Texts(pa.string(), b"\x1f", marks.text, marks.most_bytes)


def _join_texts(value: sa.ColumnElement[Any], between: sa.ColumnElement[Any] | None = None) -> sa.ColumnElement[Any]:
    return sa.func.string_agg(value, sa.null() if between is None else between)


def _bytes(data: bytes) -> sa.ColumnElement[Any]:
    return sa.literal_column(f"'\\x{data.hex()}'::bytea")


def _text(data: bytes) -> sa.ColumnElement[Any]:
    return sa.literal_column(f"convert_from('\\x{data.hex()}', 'UTF8')")


def _numbers(count: int, data: bytes, bits: tuple[str, pa.DataType]) -> pa.Array:
    """Return numbers that travel with their highest byte first."""
    code, type_ = bits
    numbers = array(code, data)
    if len(numbers) != count:
        raise CatalogError(f"the database sent {len(numbers)} values for {count} rows")
    if sys.byteorder == "little":
        numbers.byteswap()
    return pa.Array.from_buffers(type_, count, [None, pa.py_buffer(numbers)])
