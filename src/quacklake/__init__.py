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

from typing import TYPE_CHECKING

from quacklake import errors
from quacklake.core.lazy import lazily, provide
from quacklake.errors import QuacklakeError

if TYPE_CHECKING:
    from quacklake.core.maintenance.cleanup import CleanupReport
    from quacklake.core.maintenance.policy import Job, Policy
    from quacklake.core.maintenance.reports import CompactionReport, Skipped
    from quacklake.core.maintenance.scheduler import JobReport, MaintenanceReport
    from quacklake.core.maintenance.verify import Finding, RepairReport
    from quacklake.core.materialized.definition import RefreshReport
    from quacklake.core.operations.change_feed import ChangeScan
    from quacklake.core.operations.expression import Expression
    from quacklake.core.operations.statements import MergeResult
    from quacklake.core.sql.result import Result
    from quacklake.core.sql.safety import Safety
    from quacklake.core.sql.session import Session
    from quacklake.core.sql.sessions import session
    from quacklake.core.tenancy.tenants import Tenant, TenantStats
    from quacklake.inputs.csv_files import CsvOptions
    from quacklake.inputs.files import open_files
    from quacklake.inputs.row_types import RowType
    from quacklake.lake.adopting import AdoptReport
    from quacklake.lake.connect import backups, connect, prune_backups, restore_backup
    from quacklake.lake.lake import Lake, LakeAt, LakeTransaction
    from quacklake.lake.restoring import RestoredTable, UndoReport
    from quacklake.lake.table import Table
    from quacklake.lake.table_scan import TableScan
    from quacklake.lake.tenant_maintenance import RoundLimits, RoundReport
    from quacklake.lake.tenants import Tenants, tenants
    from quacklake.lake.view import View
    from quacklake.spark.lake import SparkLake, register_spark, spark, spark_settings


__version__ = "0.1.0"

__all__ = [
    "AdoptReport",
    "ChangeScan",
    "CleanupReport",
    "CompactionReport",
    "CsvOptions",
    "Expression",
    "Finding",
    "Job",
    "JobReport",
    "Lake",
    "LakeAt",
    "LakeTransaction",
    "MaintenanceReport",
    "MergeResult",
    "Policy",
    "QuacklakeError",
    "RefreshReport",
    "RepairReport",
    "RestoredTable",
    "Result",
    "RoundLimits",
    "RoundReport",
    "RowType",
    "Safety",
    "Session",
    "Skipped",
    "SparkLake",
    "Table",
    "TableScan",
    "Tenant",
    "TenantStats",
    "Tenants",
    "UndoReport",
    "View",
    "backups",
    "connect",
    "errors",
    "expr",
    "open_files",
    "prune_backups",
    "register_spark",
    "restore_backup",
    "session",
    "spark",
    "spark_settings",
    "tenants",
]

provide("after_commit", "quacklake.core.materialized.views")
provide("build_frame_merge", "quacklake.spark.lake")
provide("connect_service", "quacklake.client")
provide("export_to", "quacklake.transfer")
provide("build_compactors", "quacklake.spark.maintenance")
provide("from_column", "quacklake.spark.columns")
provide("merge_frame", "quacklake.spark.lake")
provide("find_frame", "quacklake.inputs.frames")
provide("foreign_table", "quacklake.connectors.adoption")
provide("import_from", "quacklake.transfer")
provide("map_rows", "quacklake.inputs.row_types")
provide("read_rows", "quacklake.inputs.frames")
provide("run_statement", "quacklake.pipelines.statements")
provide("run_view_statement", "quacklake.core.materialized.statements")
provide("with_views", "quacklake.core.materialized.watching")
provide("source_rows", "quacklake.pipelines.statements")
provide("spark_queries", "quacklake.spark.views")
provide("write_frame", "quacklake.spark.lake")

if not TYPE_CHECKING:
    __getattr__ = lazily(
        __name__,
        {
            "quacklake.core.maintenance.cleanup": "CleanupReport",
            "quacklake.core.maintenance.policy": "Job Policy",
            "quacklake.core.maintenance.reports": "CompactionReport Skipped",
            "quacklake.core.maintenance.scheduler": "JobReport MaintenanceReport",
            "quacklake.core.maintenance.verify": "Finding RepairReport",
            "quacklake.core.materialized.definition": "RefreshReport",
            "quacklake.lake.tenant_maintenance": "RoundLimits RoundReport",
            "quacklake.lake.connect": "backups connect prune_backups restore_backup",
            "quacklake.lake.table_scan": "TableScan",
            "quacklake.lake.adopting": "AdoptReport",
            "quacklake.core.operations.expression": "Expression",
            "quacklake.core.operations.change_feed": "ChangeScan",
            "quacklake.inputs.csv_files": "CsvOptions",
            "quacklake.inputs.files": "open_files",
            "quacklake.lake.lake": "Lake LakeAt LakeTransaction",
            "quacklake.core.operations.statements": "MergeResult",
            "quacklake.core.sql.result": "Result",
            "quacklake.spark.lake": "SparkLake register_spark spark spark_settings",
            "quacklake.lake.table": "Table",
            "quacklake.lake.tenants": "Tenants tenants",
            "quacklake.core.tenancy.tenants": "Tenant TenantStats",
            "quacklake.lake.view": "View",
            "quacklake.notebook": "load_ipython_extension",
            "quacklake.lake.restoring": "RestoredTable UndoReport",
            "quacklake.inputs.row_types": "RowType",
            "quacklake.core.sql.sessions": "session",
            "quacklake.core.sql.safety": "Safety",
            "quacklake.core.sql.session": "Session",
        },
    )

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__})


def expr(sql: str) -> "Expression":
    """SQL over the row, where a plain value would be a literal: ``table.update({"n": expr("n + 1")})``."""
    from quacklake.core.operations.expression import Expression

    return Expression(sql)
