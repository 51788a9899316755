"""``quacklake show``: rows of a table, now or in the past."""

from __future__ import annotations

import argparse
import csv

from quacklake.cli.commands.command import Command
from quacklake.cli.context import Context
from quacklake.format.snapshot_tags import is_tag
from quacklake.lake import Lake, LakeAt
from quacklake.lake.dataframe import Frame

__all__ = ["SHOW", "add_rows", "print_frame"]

_ROWS = 20


def _configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("table", metavar="TABLE", help="table or schema.table")
    add_rows(parser)
    when = parser.add_mutually_exclusive_group()
    when.add_argument("--at", metavar="VERSION", type=_version, help="as it was at a snapshot: its number, or a tag")
    when.add_argument("--at-time", metavar="TIME", help="as it was at a time, such as '2024-01-01 12:00:00+00'")


def add_rows(parser: argparse.ArgumentParser) -> None:
    """Which rows and columns to show, and how many."""
    parser.add_argument("--where", metavar="CONDITION", help="only rows that satisfy an SQL condition")
    parser.add_argument("--columns", metavar="NAMES", type=_names, help="only these columns, with commas between them")
    parser.add_argument(
        "--limit", metavar="ROWS", type=_limit, default=_ROWS, help=f"how many (default: {_ROWS}), or all"
    )


def _names(text: str) -> list[str]:
    return [name.strip() for name in next(csv.reader([text], skipinitialspace=True))]


def _limit(text: str) -> int | None:
    if text == "all":
        return None
    if not text.isascii() or not text.isdigit():
        raise argparse.ArgumentTypeError(f"{text!r} is neither a number nor all")
    return int(text)


def _version(text: str) -> int | str:
    if text.isascii() and text.isdigit():
        return int(text)
    if not is_tag(text):
        raise argparse.ArgumentTypeError(f"{text!r} is neither the number of a snapshot nor a tag")
    return text


def _run(context: Context) -> None:
    arguments = context.arguments
    with context.open() as lake:
        print_frame(context, _view(lake, arguments).table(arguments.table).scan(arguments.columns, arguments.where))


def print_frame(context: Context, frame: Frame) -> None:
    """Print as many rows of a frame as the arguments say."""
    total = frame.count() if context.output.format == "table" else None
    if context.arguments.limit is not None:
        frame = frame.limit(context.arguments.limit)
    context.output.rows(frame.to_reader(), total=total, shorten=True)


def _view(lake: Lake, arguments: argparse.Namespace) -> Lake | LakeAt:
    if arguments.at is not None:
        return lake.at(version=arguments.at)
    if arguments.at_time is not None:
        return lake.at(timestamp=arguments.at_time)
    return lake


SHOW = Command("show", "Show rows of a table", _run, _configure)
