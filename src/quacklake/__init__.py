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

import importlib
from typing import TYPE_CHECKING

from quacklake import errors
from quacklake.errors import QuacklakeError

if TYPE_CHECKING:
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
    )
    from quacklake.lake.connect import connect
    from quacklake.lake.from_backup import backups, prune_backups, restore_backup
    from quacklake.lake.spark import SparkLake, spark, spark_settings
    from quacklake.lake.spark_registration import register_spark
    from quacklake.lake.tenants import Tenant, Tenants, TenantStats, tenants
    from quacklake.sql import Result, Safety, Session
    from quacklake.sql.opening import session

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
    "Safety",
    "Session",
    "SparkLake",
    "Table",
    "Tenant",
    "TenantStats",
    "Tenants",
    "UndoReport",
    "View",
    "backups",
    "connect",
    "errors",
    "expr",
    "prune_backups",
    "register_spark",
    "restore_backup",
    "session",
    "spark",
    "spark_settings",
    "tenants",
]

_ELSEWHERE = {
    "Result": "quacklake.sql",
    "Safety": "quacklake.sql",
    "Session": "quacklake.sql",
    "SparkLake": "quacklake.lake.spark",
    "Tenant": "quacklake.lake.tenants",
    "TenantStats": "quacklake.lake.tenants",
    "Tenants": "quacklake.lake.tenants",
    "register_spark": "quacklake.lake.spark_registration",
    "session": "quacklake.sql",
    "spark": "quacklake.lake.spark",
    "spark_settings": "quacklake.lake.spark",
    "tenants": "quacklake.lake.tenants",
}
"""Where names come from that are not in ``quacklake.lake``."""


if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        """Names come from their modules when they are first used: who needs a part of the package loads that part."""
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        found = getattr(importlib.import_module(_ELSEWHERE.get(name, "quacklake.lake")), name)
        globals()[name] = found
        return found

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__})


def expr(sql: str) -> "Expression":
    """SQL over the row, where a plain value would be a literal: ``table.update({"n": expr("n + 1")})``."""
    from quacklake.lake.expression import Expression

    return Expression(sql)
