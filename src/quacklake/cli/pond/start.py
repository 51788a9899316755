"""``pond init``."""

from __future__ import annotations

from quacklake.cli.pond.context import PondContext
from quacklake.config import redact


def init(context: PondContext) -> None:
    """The folder is created if it does not exist. Its lake is in the folder data."""
    from quacklake.pond import Pond

    with Pond.create(context.place, context.args, config_file=context.options.config_file) as pond:
        place = redact(context.place)
        context.output.result(f"created a pond in {place}", {"pond": place, "lake": pond.lake.url})
