"""``quacklake changes``: the changes of a table's rows in a range of snapshots."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from quacklake.cli.commands.show import print_frame
from quacklake.cli.completion import complete_version
from quacklake.cli.context import Context, version_of
from quacklake.cli.options import Columns, Limit, Since, TableName, Where, count_of, names_of

if TYPE_CHECKING:
    from quacklake.operations.change_feed import ChangeScan

_ORDER = ("snapshot_id", "rowid", "change_type")
"""The last column sorts in descending order, so that the old version of an updated row comes first."""


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
        if context.output.for_people:
            _print_in_order(context, frame, names, count)
        else:
            print_frame(context, frame if names is None else frame.select(*names), count)


def _print_in_order(context: Context, frame: ChangeScan, names: list[str] | None, limit: int | None) -> None:
    """Print the first changes in the order of snapshots. A feed has the order in which its files are read."""
    if names is not None:
        frame = frame.select(*dict.fromkeys([*names, *_ORDER]))
    from quacklake.duckdb_versions import connect

    with connect() as connection:
        rows = connection.from_arrow(frame.to_reader()).order(f"{', '.join(_ORDER)} DESC")
        found = (rows if limit is None else rows.limit(limit)).to_arrow_table()
    total = found.num_rows if limit is None or found.num_rows < limit else frame.count()
    context.output.rows(found if names is None else found.select(names), total=total, shorten=True)
