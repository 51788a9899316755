"""The objects a user holds: lakes, tables, transactions, frames."""

from quacklake.lake.connect import connect
from quacklake.lake.dataframe import DataFrame
from quacklake.lake.expression import Expression
from quacklake.lake.feed import ChangeFrame
from quacklake.lake.from_backup import backups, prune_backups, restore_backup
from quacklake.lake.lake import Lake, LakeAt, LakeTransaction
from quacklake.lake.operations import MergeResult
from quacklake.lake.table import Table
from quacklake.lake.view import View
from quacklake.maintenance.undo import RestoredTable, UndoReport

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
    "backups",
    "connect",
    "prune_backups",
    "restore_backup",
]
