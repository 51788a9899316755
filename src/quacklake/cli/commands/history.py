"""``quacklake history``: what happened to a table."""

from __future__ import annotations

import argparse

from quacklake.cli.commands.command import Command
from quacklake.cli.commands.snapshots import add_limit
from quacklake.cli.context import Context

__all__ = ["HISTORY"]


def _configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("table", metavar="TABLE", help="table or schema.table")
    add_limit(parser)


def _run(context: Context) -> None:
    with context.open() as lake:
        history = lake.table(context.arguments.table).history()
        context.output.rows(history.slice(0, max(context.arguments.limit, 0)), total=history.num_rows)


HISTORY = Command("history", "List the snapshots that changed a table, the newest first", _run, _configure)
