"""The objects that users work with: lakes, tables, views, transactions and scans."""

from typing import TYPE_CHECKING

from quacklake.lazy import lazily

if TYPE_CHECKING:
    from quacklake.lake.lake import Lake, LakeAt, LakeTransaction
    from quacklake.lake.table import Table
    from quacklake.lake.view import View
    from quacklake.operations.change_feed import ChangeScan
    from quacklake.operations.expression import Expression
    from quacklake.operations.restoring import RestoredTable, UndoReport
    from quacklake.operations.statements import MergeResult
    from quacklake.operations.table_scan import TableScan
else:
    __getattr__ = lazily(
        __name__,
        {
            "quacklake.operations.table_scan": "TableScan",
            "quacklake.operations.expression": "Expression",
            "quacklake.operations.change_feed": "ChangeScan",
            "quacklake.lake.lake": "Lake LakeAt LakeTransaction",
            "quacklake.operations.statements": "MergeResult",
            "quacklake.lake.table": "Table",
            "quacklake.lake.view": "View",
            "quacklake.operations.restoring": "RestoredTable UndoReport",
        },
    )

__all__ = [
    "ChangeScan",
    "Expression",
    "Lake",
    "LakeAt",
    "LakeTransaction",
    "MergeResult",
    "RestoredTable",
    "Table",
    "TableScan",
    "UndoReport",
    "View",
]
