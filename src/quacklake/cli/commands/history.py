"""``quacklake history``: what happened to a table."""

from __future__ import annotations

import argparse

from quacklake.cli.commands.command import Command
from quacklake.cli.commands.snapshots import add_limit, print_snapshots
from quacklake.cli.context import Context

__all__ = ["HISTORY"]


def _configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("table", metavar="TABLE", help="table or schema.table")
    add_limit(parser)


def _run(context: Context) -> None:
    with context.open() as lake:
        print_snapshots(context, lake.table(context.arguments.table).history())


HISTORY = Command("history", "List the snapshots that changed a table, the newest first", _run, _configure)
