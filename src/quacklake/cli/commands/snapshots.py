"""``quacklake snapshots`` and ``history``: what happened to a lake, and to a table."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from quacklake.cli.context import Context
from quacklake.cli.options import TableName, count_of

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["history", "snapshots"]

Newest = Annotated[str, typer.Option("--limit", "-n", metavar="COUNT", help="How many of the newest, or all.")]


def snapshots(context: Context, limit: Newest = "20") -> None:
    """Changes are shown as the DuckLake format records them."""
    count = count_of(limit)
    with context.open() as lake:
        _print(context, lake.snapshots().sort_by([("snapshot_id", "descending")]), count)


def history(context: Context, table: TableName, limit: Newest = "20") -> None:
    """Changes are shown as the DuckLake format records them."""
    count = count_of(limit)
    with context.open() as lake:
        _print(context, lake.table(table).history(), count)


def _print(context: Context, snapshots: pa.Table, limit: int | None) -> None:
    """The first snapshots. In a table, what none of them has (an author, a message) takes no room."""
    shown = snapshots if limit is None else snapshots.slice(0, limit)
    if context.output.for_people:
        shown = shown.select([name for name in shown.column_names if shown.column(name).null_count < shown.num_rows])
    context.output.rows(shown, total=snapshots.num_rows)
