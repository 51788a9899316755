"""The marks of streams, in a table of our own that stock clients do not see."""

from __future__ import annotations

import sqlalchemy as sa

from quacklake.catalog.reading.reader import Reader
from quacklake.catalog.writing.writer import Writer
from quacklake.errors import ReadOnlyError
from quacklake.format.streams import StreamMark

_COLUMNS = ("name", "query", "run", "epoch", "position", "snapshot_id")


def streams(reader: Reader) -> list[StreamMark]:
    """Return the marks of every stream, by name."""
    return _select(reader, None)


def find(reader: Reader, name: str) -> StreamMark | None:
    """Return the mark of a stream."""
    return next(iter(_select(reader, name)), None)


def _select(reader: Reader, name: str | None) -> list[StreamMark]:
    table = reader.meta.own["streams"]
    if not reader.has_table(table.name):
        return []
    statement = sa.select(*(table.c[column] for column in _COLUMNS)).order_by(table.c.name)
    if name is not None:
        statement = statement.where(table.c.name == name)
    return [StreamMark(*row) for row in reader.run("streams", statement)]


def put(writer: Writer, mark: StreamMark, *, new: bool) -> None:
    """Write a mark; ``new`` tells that the stream has none."""
    table = writer.meta.own["streams"]
    values = {column: getattr(mark, column) for column in _COLUMNS}
    if not new:
        writer.run("update_stream", sa.update(table).where(table.c.name == mark.name).values(**values))
    elif writer.has_table(table.name):
        writer.run("insert_stream", sa.insert(table), [values])
    else:
        raise ReadOnlyError(f"no right to create the table {table.name} in this catalog")


def remove(writer: Writer, name: str) -> None:
    """Forget a stream."""
    table = writer.meta.own["streams"]
    writer.run("delete_stream", sa.delete(table).where(table.c.name == name))
