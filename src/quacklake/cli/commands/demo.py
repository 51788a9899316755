"""``quacklake demo``: a lake from its first table to a visit by stock DuckDB."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Annotated

import typer

from quacklake.cli.context import Context
from quacklake.errors import InputError

__all__ = ["demo"]


def demo(
    context: Context,
    keep: Annotated[
        str | None, typer.Option("--keep", metavar="DIR", help="Make the lake there and leave it, to look at later.")
    ] = None,
) -> None:
    """It takes a few seconds, and every number it prints is read from the lake."""
    from quacklake.cli.demo import tell

    if not context.output.for_people:
        raise InputError("the demo is a story for people: it has no other --output than table")
    if keep is None:
        with tempfile.TemporaryDirectory(prefix="quacklake-demo-") as directory:
            tell(context.output.console, Path(directory))
        return
    place = Path(keep)
    if place.exists() and any(place.iterdir()):
        raise InputError(f"{place} is not empty", hint="name a directory that does not exist yet")
    place.mkdir(parents=True, exist_ok=True)
    tell(context.output.console, place, kept=True)
