"""``quacklake tag``: names for snapshots, which then do not expire."""

from __future__ import annotations

import argparse

from quacklake.cli.commands.command import Command
from quacklake.cli.context import Context
from quacklake.errors import InputError

__all__ = ["TAG"]


def _configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="NAME", nargs="?", help="the name to give (default: list all names)")
    parser.add_argument("--version", metavar="N", type=int, help="the snapshot to name (default: the newest)")
    parser.add_argument("--replace", action="store_true", help="let a name that exists move")
    parser.add_argument("--delete", action="store_true", help="take the name away")


def _run(context: Context) -> None:
    arguments = context.arguments
    changes = arguments.version is not None or arguments.replace or arguments.delete
    if arguments.name is None:
        if changes:
            raise InputError("a name is missing")
        with context.open() as lake:
            context.output.rows(lake.tags())
        return
    if arguments.delete and (arguments.version is not None or arguments.replace):
        raise InputError("--delete goes with a name alone")
    with context.open(write=True) as lake:
        if arguments.delete:
            lake.untag(arguments.name)
            context.output.result(f"{arguments.name} is no tag any more", {"tag": arguments.name, "snapshot": None})
        else:
            snapshot = lake.tag(arguments.name, arguments.version, replace=arguments.replace)
            context.output.result(
                f"snapshot {snapshot} has the tag {arguments.name}", {"tag": arguments.name, "snapshot": snapshot}
            )


TAG = Command("tag", "Name a snapshot, or list the names", _run, _configure)
