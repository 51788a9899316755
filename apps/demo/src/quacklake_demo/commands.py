"""The commands ``quacklake demo``, ``quacklake serve-demo`` and ``pond demo``, and the function of the first."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Annotated

import typer

from quacklake.cli.commands import Entry
from quacklake.cli.context import Context
from quacklake.errors import InputError

DEMO = Entry(
    "demo",
    "Show what a lake can do, in a temporary folder",
    "quacklake_demo.commands:demo",
    "Start",
    shows_progress=True,
)
SERVE_DEMO = Entry(
    "serve-demo",
    "Serve a temporary lake with sample data",
    "quacklake_demo.serving:serve_demo",
    "Start",
    shows_progress=True,
)
POND_DEMO = Entry(
    "demo",
    "Collect a week of simulated readings, and make a site that shows them",
    "quacklake_demo.pond_command:demo",
    "Start",
    shows_progress=True,
)


def demo(
    context: Context,
    keep: Annotated[
        str | None, typer.Option("--keep", metavar="DIR", help="Create the lake in this folder and keep it.")
    ] = None,
    events: Annotated[
        int,
        typer.Option(min=0, metavar="COUNT", help="The number of events that stream through Spark; 0 skips this part."),
    ] = 1_000_000,
) -> None:
    """It takes a few seconds, or a minute with Spark. Every number that it prints is read from the lake."""
    from quacklake_demo.story import tell

    if not context.output.for_people:
        raise InputError("the demo supports only --output table")
    if keep is None:
        with tempfile.TemporaryDirectory(prefix="quacklake-demo-") as directory:
            tell(context.output.console, Path(directory), count=events)
        return
    place = Path(keep)
    if place.exists() and any(place.iterdir()):
        raise InputError(f"the folder {place} is not empty", hint="pass a folder that does not exist yet")
    place.mkdir(parents=True, exist_ok=True)
    tell(context.output.console, place, kept=True, count=events)
