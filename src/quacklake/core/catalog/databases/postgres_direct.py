"""Statements handed to the driver of PostgreSQL without SQLAlchemy.

Statements that do not depend on each other are joined into one, which saves round trips.
"""

from __future__ import annotations

import functools
import io
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import pyarrow as pa
import sqlalchemy as sa
from pyarrow import csv
from sqlalchemy.engine import Connection

from quacklake.core.catalog import scoped
from quacklake.core.catalog.databases.direct import Direct

Step = tuple[Direct, Mapping[str, Any]]

_EACH = 40
"""About how much longer a statement becomes beside others."""
#: Above this, the driver parses the text of a statement each time.
_LENGTH, _PARAMETERS = 4_000, 50
_CURSOR = "quacklake_cursor"
_MARK = re.compile(r"%%|%\(")


def send(connection: Connection, direct: Direct, parameters: Mapping[str, Any], *, prepare: bool | None = None) -> Any:
    """Run a statement; return the cursor, which inside a pipeline knows nothing yet."""
    return execute(connection, direct.text, direct.values(connection, parameters), prepare)


def send_together(connection: Connection, steps: Iterable[Step]) -> None:
    """Run statements of which none looks at what another does, in any order, by as few as can be."""
    for part in _parts(steps):
        if len(part) == 1:
            direct, parameters = part[0]
            send(connection, direct, parameters)
            continue
        values = {
            f"p{number}_{name}": value
            for number, (direct, parameters) in enumerate(part)
            for name, value in direct.values(connection, parameters).items()
        }
        _write(connection, _join_statements(tuple([direct.text for direct, _ in part])), values)


def _parts(steps: Iterable[Step]) -> Iterator[list[Step]]:
    part: list[Step] = []
    length = parameters = 0
    for direct, given in steps:
        length += len(direct.text) + _EACH
        parameters += direct.parameters
        if part and (length > _LENGTH or parameters > _PARAMETERS):
            yield part
            part, length, parameters = [], len(direct.text) + _EACH, direct.parameters
        part.append((direct, given))
    if part:
        yield part


@functools.lru_cache(maxsize=500)
def _join_statements(texts: tuple[str, ...]) -> str:
    """Return statements as the parts of one, with the number of each in the names of its parameters."""
    *first, last = (
        _MARK.sub(lambda match, mark=f"%(p{number}_": match[0] if match[0] == "%%" else mark, text)  # type: ignore[misc]
        for number, text in enumerate(texts)
    )
    return f"WITH {', '.join(f'w{number} AS ({text})' for number, text in enumerate(first))} {last}"


def execute(connection: Connection, text: str, values: Mapping[str, Any] | None, prepare: bool | None = None) -> Any:
    """Run a text; return the cursor. Without ``values`` it may be several statements."""
    import psycopg

    driver: Any = connection.connection.driver_connection
    try:
        return driver.execute(text, values, prepare=prepare)
    except psycopg.Error as error:
        raise as_sqlalchemy(error, text, driver) from error


def _write(connection: Connection, text: str, values: Mapping[str, Any]) -> None:
    """Run a text without an answer by the cursor of the last one, which knows the types of a text that comes again."""
    import psycopg

    driver: Any = connection.connection.driver_connection
    known: dict[Any, Any] = connection.info  # that of this connection to the server, and lost with it
    try:
        cursor = known.get(_CURSOR)
        if cursor is None:
            cursor = known[_CURSOR] = driver.cursor()
        cursor.execute(text, values)
    except psycopg.Error as error:
        raise as_sqlalchemy(error, text, driver) from error


def as_sqlalchemy(error: Any, text: str, driver: Any) -> sa.exc.DBAPIError:
    """Return an error of the driver in the form that SQLAlchemy gives it."""
    return sa.exc.DBAPIError(text, None, error, connection_invalidated=driver.closed)


def literal_text(connection: Connection, statement: sa.Select[Any]) -> str:
    """Return a statement as a text without parameters."""
    compiled = statement.compile(connection.engine, compile_kwargs=scoped.literal_options(connection))
    # without parameters the driver takes a percent sign, which the compiler has doubled, for itself
    return str(compiled).replace("%%", "%")


def copy_arrow(connection: Connection, select: sa.Select[Any]) -> pa.Table:
    """Return the rows of a select as Arrow, by COPY as CSV: int64, booleans, anything else as text, bytes in hex."""
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
    query = literal_text(connection, statement)
    driver = connection.connection.driver_connection
    assert driver is not None
    with driver.cursor() as cursor, cursor.copy(f"COPY ({query}) TO STDOUT (FORMAT csv)") as copy:
        source = _Blocks(iter(copy))
        types = {column.name: _arrow(column.type) for column in select.selected_columns}
        if source.at_end():
            return pa.schema([(name, types[name]) for name in names]).empty_table()  # a name may be there twice
        convert = csv.ConvertOptions(
            column_types=types,
            null_values=[""],
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
            true_values=["t"],
            false_values=["f"],
        )
        read = csv.ReadOptions(column_names=names, block_size=1 << 22)
        # a lone column with NULL makes an empty line, which must stay a row
        parse = csv.ParseOptions(newlines_in_values=True, ignore_empty_lines=len(names) > 1)
        lines = io.BufferedReader(source, 1 << 20)
        return csv.read_csv(lines, read_options=read, parse_options=parse, convert_options=convert)


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
        if not self._rest:
            self._rest = next((bytes(block) for block in self._blocks if block), b"")
        return not self._rest

    def readinto(self, buffer: Any) -> int:
        # the driver gives every row as a block: a call for each would take most of the time
        blocks, size, wanted = [self._rest], len(self._rest), len(buffer)
        while size < wanted and (block := next(self._blocks, None)) is not None:
            blocks.append(block)
            size += len(block)
        whole = b"".join(blocks)
        buffer[: min(size, wanted)] = whole[:wanted]
        self._rest = whole[wanted:]
        return min(size, wanted)
