"""The engine on Spark: scan plans become DataFrames, DataFrames become files. Importing it needs ``pyspark``."""

from quacklake.engines.spark.scan import SparkScan
from quacklake.engines.spark.schema import arrow_schema, with_variants
from quacklake.engines.spark.session import find_session, has_time, needed_settings
from quacklake.engines.spark.writer import SortBy, SparkWriter, WriteJob, Written

__all__ = [
    "SortBy",
    "SparkScan",
    "SparkWriter",
    "WriteJob",
    "Written",
    "arrow_schema",
    "find_session",
    "has_time",
    "needed_settings",
    "with_variants",
]
