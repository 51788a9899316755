"""``quacklake info``: the location and size of a lake."""

from __future__ import annotations

import quacklake
from quacklake.cli.commands.tables import measure
from quacklake.cli.context import Context
from quacklake.cli.options import At


def info(context: Context, at: At = None) -> None:
    """Bytes are those of the data files that the snapshot uses; older snapshots may use more."""
    with context.open() as lake:
        view = context.view(lake, at or str(lake.current_snapshot()))
        sizes = measure(view)
        context.output.facts(
            {
                "url": lake.url,
                "data_path": lake.data_path,
                "format_version": lake.version,
                "snapshot": view.snapshot_id,  # type: ignore[union-attr]
                "schemas": len(view.schemas()),
                "tables": len(sizes),
                "rows": sum(size.rows or 0 for size in sizes),
                "inlined_rows": sum(size.inlined_rows or 0 for size in sizes),
                "data_files": sum(size.files or 0 for size in sizes),
                "data_bytes": sum(size.bytes or 0 for size in sizes),
                "catalog_bytes": lake.catalog_bytes(),
                "quacklake": quacklake.__version__,
            }
        )
