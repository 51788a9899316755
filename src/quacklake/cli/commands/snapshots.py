"""``quacklake snapshots`` and ``history``: the snapshots of a lake, and those that changed a table."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from quacklake.cli.context import Context
from quacklake.cli.options import TableName, count_of

if TYPE_CHECKING:
    import pyarrow as pa

Newest = Annotated[str, typer.Option("--limit", "-n", metavar="COUNT", help="The newest so many, or all.")]


def snapshots(context: Context, limit: Newest = "20") -> None:
    """What was asked is told in words, and changes in the codes of the format."""
    count = count_of(limit)
    with context.open() as lake:
        _print(context, lake.snapshots().sort_by([("snapshot_id", "descending")]), count)


def history(context: Context, table: TableName, limit: Newest = "20") -> None:
    """What was asked is told in words, and changes in the codes of the format."""
    count = count_of(limit)
    with context.open() as lake:
        _print(context, lake.table(table).history(), count)


def _print(context: Context, snapshots: pa.Table, limit: int | None) -> None:
    """Print the first snapshots. In a table, words come before codes, and empty columns (an author) are left out."""
    shown = snapshots if limit is None else snapshots.slice(0, limit)
    if context.output.for_people:
        first = ["snapshot_id", "snapshot_time", "operation", "description"]
        names = [*first, *(name for name in shown.column_names if name not in first and name != "schema_version")]
        shown = shown.select([name for name in names if shown.column(name).null_count < shown.num_rows])
    context.output.rows(shown, total=snapshots.num_rows)
