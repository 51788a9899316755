"""``quacklake info``: where a lake is and how big."""

from __future__ import annotations

import quacklake
from quacklake.cli.commands.command import Command
from quacklake.cli.commands.tables import measure
from quacklake.cli.context import Context

__all__ = ["INFO"]


def _run(context: Context) -> None:
    with context.open() as lake:
        view = lake.at(version=lake.current_snapshot())
        sizes = measure(view)
        context.output.facts(
            {
                "url": lake.url,
                "data_path": lake.data_path,
                "format_version": lake.version,
                "snapshot": view.snapshot_id,
                "schemas": len(view.schemas()),
                "tables": len(sizes),
                "rows": sum(size.rows or 0 for size in sizes),
                "inlined_rows": sum(size.inlined_rows or 0 for size in sizes),
                "data_files": sum(size.files or 0 for size in sizes),
                "data_bytes": sum(size.bytes or 0 for size in sizes),
                "quacklake": quacklake.__version__,
            }
        )


INFO = Command("info", "Show where a lake is, at which snapshot, and how big", _run)
