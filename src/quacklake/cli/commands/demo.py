"""``quacklake demo``: a lake from its first table to its use by stock DuckDB."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Annotated

import typer

from quacklake.cli.context import Context
from quacklake.errors import InputError


def demo(
    context: Context,
    keep: Annotated[
        str | None, typer.Option("--keep", metavar="DIR", help="Make the lake there and leave it, to look at later.")
    ] = None,
    events: Annotated[
        int, typer.Option(min=0, metavar="COUNT", help="How many events stream through Spark; 0 leaves that out.")
    ] = 1_000_000,
) -> None:
    """It takes a few seconds, and with Spark a minute. Every number it prints is read from the lake."""
    from quacklake.cli.demo.story import tell

    if not context.output.for_people:
        raise InputError("the demo is a story for people: it has no other --output than table")
    if keep is None:
        with tempfile.TemporaryDirectory(prefix="quacklake-demo-") as directory:
            tell(context.output.console, Path(directory), count=events)
        return
    place = Path(keep)
    if place.exists() and any(place.iterdir()):
        raise InputError(f"{place} is not empty", hint="name a directory that does not exist yet")
    place.mkdir(parents=True, exist_ok=True)
    tell(context.output.console, place, kept=True, count=events)
