"""The objects that users work with: lakes, tables, views, transactions and scans."""

from typing import TYPE_CHECKING

from quacklake.core.lazy import lazily

if TYPE_CHECKING:
    from quacklake.lake.lake import Lake, LakeAt, LakeTransaction
    from quacklake.lake.table import Table
    from quacklake.lake.view import View
else:
    __getattr__ = lazily(
        __name__,
        {
            "quacklake.lake.lake": "Lake LakeAt LakeTransaction",
            "quacklake.lake.table": "Table",
            "quacklake.lake.view": "View",
        },
    )

__all__ = ["Lake", "LakeAt", "LakeTransaction", "Table", "View"]
