"""Quacklake: a lakehouse for Python.

>>> import quacklake, tempfile
>>> home = tempfile.mkdtemp()
>>> lake = quacklake.connect(f"sqlite:///{home}/lake.db", data_path=f"{home}/data")
>>> events = lake.create_table("events", [{"id": 1, "name": "start"}])
>>> events.append([{"id": 2, "name": "stop"}])
1
>>> events.to_pylist(where="id > 1")
[{'id': 2, 'name': 'stop'}]
>>> lake.at(version=1).table("events").count()
1
>>> lake.close()
"""

from quacklake import errors
from quacklake.errors import QuacklakeError
from quacklake.lake import (
    ChangeFrame,
    DataFrame,
    Expression,
    Lake,
    LakeAt,
    LakeTransaction,
    MergeResult,
    RestoredTable,
    Table,
    UndoReport,
    View,
    backups,
    connect,
    prune_backups,
    restore_backup,
)
from quacklake.lake.spark import SparkLake, spark
from quacklake.sql import Result, Session, session

__version__ = "0.1.0"

__all__ = [
    "ChangeFrame",
    "DataFrame",
    "Expression",
    "Lake",
    "LakeAt",
    "LakeTransaction",
    "MergeResult",
    "QuacklakeError",
    "RestoredTable",
    "Result",
    "Session",
    "SparkLake",
    "Table",
    "UndoReport",
    "View",
    "backups",
    "connect",
    "errors",
    "expr",
    "prune_backups",
    "restore_backup",
    "session",
    "spark",
]


def expr(sql: str) -> Expression:
    """SQL over the row, where a plain value would be a literal: ``table.update({"n": expr("n + 1")})``."""
    return Expression(sql)
