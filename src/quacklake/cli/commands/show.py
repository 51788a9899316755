"""``quacklake show``, ``head`` and ``scan``: rows of a table, now or in the past."""

from __future__ import annotations

from typing import TYPE_CHECKING

from quacklake.cli.context import Context
from quacklake.cli.options import At, Columns, Limit, TableName, Where, count_of, names_of

if TYPE_CHECKING:
    from quacklake.operations.table_scan import Frame


def show(
    context: Context,
    table: TableName,
    where: Where = None,
    columns: Columns = None,
    limit: Limit = "20",
    at: At = None,
) -> None:
    """`quacklake head` does not count the rows, and `quacklake scan` gives them all."""
    count = count_of(limit)
    with context.open() as lake:
        print_frame(context, context.view(lake, at).table(table).scan(names_of(columns), where), count)


def head(
    context: Context,
    table: TableName,
    where: Where = None,
    columns: Columns = None,
    limit: Limit = "10",
    at: At = None,
) -> None:
    """The quickest look into a table: no more is read than what is shown."""
    count = count_of(limit)
    with context.open() as lake:
        frame = context.view(lake, at).table(table).scan(names_of(columns), where, limit=count)
        context.output.rows(frame.to_reader(), shorten=True)


def scan(
    context: Context,
    table: TableName,
    where: Where = None,
    columns: Columns = None,
    at: At = None,
) -> None:
    """With --output json, csv or arrow they are written as they are read, in bounded memory."""
    with context.open() as lake:
        context.output.rows(context.view(lake, at).table(table).scan(names_of(columns), where).to_reader())


def print_frame(context: Context, frame: Frame, limit: int | None) -> None:
    """Print the first rows of a frame, and the number of all rows."""
    total = frame.count() if context.output.for_people else None
    if limit is not None:
        frame = frame.limit(limit)
    context.output.rows(frame.to_reader(), total=total, shorten=True)
