"""Bulk reads from PostgreSQL: ``COPY … TO STDOUT`` as CSV straight into Arrow's native CSV reader.

The rows come through the same connection, so they belong to the same consistent transaction as everything else.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import sqlalchemy as sa
from pyarrow import csv
from sqlalchemy.engine import Connection

from quacklake.catalog import scoped


def copy_arrow(connection: Connection, select: sa.Select[Any]) -> pa.Table:
    """Return the rows of a select as Arrow: int64, booleans, and anything else as text, bytes in hexadecimal."""
    from sqlalchemy.dialects.postgresql import BYTEA

    names = [column.name for column in select.selected_columns]
    statement = select.with_only_columns(
        *(
            sa.func.encode(sa.cast(column, BYTEA), "hex").label(column.name)
            if isinstance(column.type, sa.LargeBinary)
            else column
            for column in select.selected_columns
        )
    )
    compiled = statement.compile(connection.engine, compile_kwargs=scoped.literal_options(connection))
    # without parameters the driver takes a percent sign, which the compiler has doubled, for itself
    query = str(compiled).replace("%%", "%")
    driver = connection.connection.driver_connection
    assert driver is not None
    with driver.cursor() as cursor, cursor.copy(f"COPY ({query}) TO STDOUT (FORMAT csv)") as copy:
        source = _Blocks(iter(copy))
        table = _parse(source, names, {c.name: _arrow(c.type) for c in select.selected_columns})
    return table


def _parse(source: _Blocks, names: list[str], types: dict[str, pa.DataType]) -> pa.Table:
    empty = pa.schema([(name, types[name]) for name in names]).empty_table()
    if source.at_end():
        return empty
    read = csv.ReadOptions(column_names=names, block_size=1 << 22)
    convert = csv.ConvertOptions(
        column_types=types,
        null_values=[""],
        strings_can_be_null=True,
        quoted_strings_can_be_null=False,
        true_values=["t"],
        false_values=["f"],
    )
    # a lone column with NULL makes an empty line, which must stay a row
    parse = csv.ParseOptions(newlines_in_values=True, ignore_empty_lines=len(names) > 1)
    return csv.read_csv(source, read_options=read, parse_options=parse, convert_options=convert)


def _arrow(type_: sa.types.TypeEngine[Any]) -> pa.DataType:
    if isinstance(type_, sa.Integer) or (isinstance(type_, sa.TypeDecorator) and isinstance(type_.impl, sa.Integer)):
        return pa.int64()
    if isinstance(type_, sa.Boolean):
        return pa.bool_()
    if isinstance(type_, sa.Float):
        return pa.float64()
    return pa.string()


class _Blocks(io.RawIOBase):
    """The blocks of a COPY as a readable file."""

    def __init__(self, blocks: Iterator[Any]) -> None:
        self._blocks = blocks
        self._rest = b""

    def readable(self) -> bool:
        return True

    def at_end(self) -> bool:
        """Return whether nothing is left; reads ahead one block."""
        while not self._rest:
            block = next(self._blocks, None)
            if block is None:
                return True
            self._rest = bytes(block)
        return False

    def readinto(self, buffer: Any) -> int:
        if self.at_end():
            return 0
        size = min(len(buffer), len(self._rest))
        buffer[:size] = self._rest[:size]
        self._rest = self._rest[size:]
        return size

    def read(self, size: int = -1) -> bytes:
        if size < 0:
            return b"".join(iter(lambda: self.read(1 << 20), b""))
        parts: list[bytes] = []
        while size > 0 and not self.at_end():
            part, self._rest = self._rest[:size], self._rest[size:]
            parts.append(part)
            size -= len(part)
        return b"".join(parts)
