"""``pond init``."""

from __future__ import annotations

from quacklake.cli.pond.context import PondContext


def init(context: PondContext) -> None:
    """The folder is created if it does not exist. It gets two lakes: data, and control for the log of commands."""
    from quacklake.pond import Pond

    with Pond.create(context.folder, context.args) as pond:
        context.output.result(
            f"created a pond in {context.folder}", {"pond": str(context.folder), "lake": pond.lake.url}
        )
