"""The engine on Spark: scan plans become DataFrames, DataFrames become files. Importing it needs ``pyspark``."""

from quacklake.engines.spark.compat import check_session, is_connect, require, require_types, to_arrow
from quacklake.engines.spark.curve import z_order
from quacklake.engines.spark.executors import each_group, each_own_group, each_task
from quacklake.engines.spark.failures import computing
from quacklake.engines.spark.scan import ROW_COLUMNS, SparkScan
from quacklake.engines.spark.schema import arrow_schema, with_variants
from quacklake.engines.spark.session import add_keys, find_session, has_time
from quacklake.engines.spark.staging import Staging
from quacklake.engines.spark.writer import SortBy, SparkWriter, WriteJob, Written

__all__ = [
    "ROW_COLUMNS",
    "SortBy",
    "SparkScan",
    "SparkWriter",
    "Staging",
    "WriteJob",
    "Written",
    "add_keys",
    "arrow_schema",
    "check_session",
    "computing",
    "each_group",
    "each_own_group",
    "each_task",
    "find_session",
    "has_time",
    "is_connect",
    "require",
    "require_types",
    "to_arrow",
    "with_variants",
    "z_order",
]
