"""SQL in Spark over a lake: names of the lake become DataFrames, changes of it go through the lake."""

from quacklake.spark.sql.dispatch import run

__all__ = ["run"]
