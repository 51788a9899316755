"""The objects a user holds: lakes, tables, transactions, frames."""

from quacklake.lake.connect import connect
from quacklake.lake.dataframe import DataFrame
from quacklake.lake.lake import Lake, LakeAt, LakeTransaction
from quacklake.lake.operations import Expression, MergeResult
from quacklake.lake.table import Table
from quacklake.lake.view import View

__all__ = ["DataFrame", "Expression", "Lake", "LakeAt", "LakeTransaction", "MergeResult", "Table", "View", "connect"]
