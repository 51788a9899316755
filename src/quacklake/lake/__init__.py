"""The objects a user holds: lakes, tables, transactions, frames."""

from typing import TYPE_CHECKING

from quacklake.lazy import lazily

if TYPE_CHECKING:
    from quacklake.lake.dataframe import DataFrame
    from quacklake.lake.expression import Expression
    from quacklake.lake.feed import ChangeFrame
    from quacklake.lake.lake import Lake, LakeAt, LakeTransaction
    from quacklake.lake.operations import MergeResult
    from quacklake.lake.table import Table
    from quacklake.lake.view import View
    from quacklake.maintenance.undo import RestoredTable, UndoReport
else:
    __getattr__ = lazily(
        __name__,
        {
            "quacklake.lake.dataframe": "DataFrame",
            "quacklake.lake.expression": "Expression",
            "quacklake.lake.feed": "ChangeFrame",
            "quacklake.lake.lake": "Lake LakeAt LakeTransaction",
            "quacklake.lake.operations": "MergeResult",
            "quacklake.lake.table": "Table",
            "quacklake.lake.view": "View",
            "quacklake.maintenance.undo": "RestoredTable UndoReport",
        },
    )

__all__ = [
    "ChangeFrame",
    "DataFrame",
    "Expression",
    "Lake",
    "LakeAt",
    "LakeTransaction",
    "MergeResult",
    "RestoredTable",
    "Table",
    "UndoReport",
    "View",
]
