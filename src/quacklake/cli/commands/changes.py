"""``quacklake changes``: what a range of snapshots did to the rows of a table."""

from __future__ import annotations

from typing import Annotated

import typer

from quacklake.cli.commands.show import print_frame
from quacklake.cli.completion import complete_version
from quacklake.cli.context import Context, version_of
from quacklake.cli.options import Columns, Limit, Since, TableName, Where, count_of, names_of

__all__ = ["changes"]


def changes(
    context: Context,
    table: TableName,
    since: Since,
    until: Annotated[
        str | None,
        typer.Option(
            "--until",
            metavar="VERSION",
            help="The last snapshot, which counts too; the newest unless it is given.",
            autocompletion=complete_version,
        ),
    ] = None,
    where: Where = None,
    columns: Columns = None,
    limit: Limit = "20",
) -> None:
    """An updated row is there twice, as it was before and as it is after."""
    count = count_of(limit)
    with context.open() as lake:
        frame = lake.table(table).changes(version_of(since), None if until is None else version_of(until))
        if where is not None:
            frame = frame.where(where)
        names = names_of(columns)
        print_frame(context, frame if names is None else frame.select(*names), count)
