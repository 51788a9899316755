"""``quacklake snapshots``: what happened to a lake."""

from __future__ import annotations

import argparse

import pyarrow as pa

from quacklake.cli.commands.command import Command
from quacklake.cli.context import Context

__all__ = ["SNAPSHOTS", "add_limit", "print_snapshots"]

_SNAPSHOTS = 20


def add_limit(parser: argparse.ArgumentParser) -> None:
    """``--limit`` for a list of snapshots."""
    parser.add_argument(
        "--limit", metavar="COUNT", type=int, default=_SNAPSHOTS, help=f"the newest so many (default: {_SNAPSHOTS})"
    )


def print_snapshots(context: Context, snapshots: pa.Table) -> None:
    """The first ``--limit`` snapshots. In a table, what none of them has (an author, a message) takes no room."""
    shown = snapshots.slice(0, max(context.arguments.limit, 0))
    if context.output.format == "table":
        shown = shown.select([name for name in shown.column_names if shown.column(name).null_count < shown.num_rows])
    context.output.rows(shown, total=snapshots.num_rows)


def _run(context: Context) -> None:
    with context.open() as lake:
        print_snapshots(context, lake.snapshots().sort_by([("snapshot_id", "descending")]))


SNAPSHOTS = Command("snapshots", "List the snapshots of the lake, the newest first", _run, add_limit)
