"""``quacklake changes``: what a range of snapshots did to the rows of a table."""

from __future__ import annotations

import argparse

from quacklake.cli.commands.command import Command
from quacklake.cli.commands.show import add_rows, print_frame
from quacklake.cli.context import Context
from quacklake.lake.feed import Bound

__all__ = ["CHANGES", "bound"]


def _configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("table", metavar="TABLE", help="table or schema.table")
    parser.add_argument(
        "--since",
        metavar="BOUND",
        type=bound,
        required=True,
        help="the first snapshot: its number, its tag, or a time",
    )
    parser.add_argument(
        "--until", metavar="BOUND", type=bound, help="the last snapshot, which counts too (default: the newest)"
    )
    add_rows(parser)


def bound(text: str) -> Bound:
    """A snapshot as it is typed: its number, its tag, or a time."""
    return int(text) if text.isascii() and text.isdigit() else text


def _run(context: Context) -> None:
    arguments = context.arguments
    with context.open() as lake:
        frame = lake.table(arguments.table).changes(arguments.since, arguments.until)
        if arguments.where is not None:
            frame = frame.where(arguments.where)
        if arguments.columns is not None:
            frame = frame.select(*arguments.columns)
        print_frame(context, frame)


CHANGES = Command("changes", "Show what a range of snapshots inserted, updated and deleted", _run, _configure)
