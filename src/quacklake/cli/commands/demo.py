"""``quacklake demo``: a lake from its first table to a visit by stock DuckDB."""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

from quacklake.cli.commands.command import Command
from quacklake.cli.context import Context
from quacklake.cli.demo import tell
from quacklake.errors import InputError

__all__ = ["DEMO"]


def _configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--keep", metavar="DIR", type=Path, help="make the lake there and leave it, to look at later")


def _run(context: Context) -> None:
    if context.output.format != "table":
        raise InputError("the demo is a story for people: it has no other --output than table")
    keep: Path | None = context.arguments.keep
    if keep is None:
        with tempfile.TemporaryDirectory(prefix="quacklake-demo-") as directory:
            tell(context.output.console, Path(directory))
        return
    if keep.exists() and any(keep.iterdir()):
        raise InputError(f"{keep} is not empty", hint="name a directory that does not exist yet")
    keep.mkdir(parents=True, exist_ok=True)
    tell(context.output.console, keep, kept=True)


DEMO = Command("demo", "Show what a lake does, in a temporary directory", _run, _configure)
