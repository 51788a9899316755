"""``quacklake snapshots``: what happened to a lake."""

from __future__ import annotations

import argparse

from quacklake.cli.commands.command import Command
from quacklake.cli.context import Context

__all__ = ["SNAPSHOTS", "add_limit"]

_SNAPSHOTS = 20


def add_limit(parser: argparse.ArgumentParser) -> None:
    """``--limit`` for a list of snapshots."""
    parser.add_argument(
        "--limit", metavar="COUNT", type=int, default=_SNAPSHOTS, help=f"the newest so many (default: {_SNAPSHOTS})"
    )


def _run(context: Context) -> None:
    with context.open() as lake:
        snapshots = lake.snapshots().sort_by([("snapshot_id", "descending")])
        context.output.rows(snapshots.slice(0, max(context.arguments.limit, 0)), total=snapshots.num_rows)


SNAPSHOTS = Command("snapshots", "List the snapshots of the lake, the newest first", _run, add_limit)
