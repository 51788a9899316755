"""``quacklake settings``: what every setting is and where it comes from."""

from __future__ import annotations

import pyarrow as pa

from quacklake.cli.commands.command import Command
from quacklake.cli.context import Context

__all__ = ["SETTINGS"]


def _run(context: Context) -> None:
    rows = [row._asdict() for row in context.config.describe()]
    context.output.rows(pa.Table.from_pylist(rows))


SETTINGS = Command("settings", "Show every setting, its value and where that comes from", _run)
